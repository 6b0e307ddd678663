"""Every public header compiles alone: .hpp as C++20, .h as C99, C11, C++11 and C++20."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"


def compiles(command, header):
    # The declaration is there because ISO C has no empty translation unit.
    source = f'#include "{header.relative_to(INCLUDE)}"\nextern int flashmla_unused;\n'
    done = subprocess.run([*command, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{INCLUDE}", "-"],
                          input=source, capture_output=True, text=True)
    if done.returncode:
        print(f"{header.relative_to(ROOT)} does not compile alone ({' '.join(command)}):\n{done.stderr}")
    return done.returncode == 0


def main():
    cxx = ["g++", "-std=c++20", "-x", "c++"]
    c_callers = [["gcc", "-std=c99", "-pedantic", "-x", "c"], ["gcc", "-std=c11", "-pedantic", "-x", "c"],
                 ["g++", "-std=c++11", "-pedantic", "-x", "c++"]]
    headers = sorted(p for p in INCLUDE.rglob("*") if p.suffix in (".h", ".hpp"))
    results = [compiles(cxx, header) for header in headers]
    results += [compiles(caller, header) for caller in c_callers for header in headers if header.suffix == ".h"]
    print(f"headers alone: {sum(results)} passed, {len(results) - sum(results)} failed")
    return not all(results)


if __name__ == "__main__":
    sys.exit(main())
