"""What libflashmla.so promises: the names it exports, its soname, and the layout of every struct of the C headers.

c_abi_symbols.txt and c_abi_layout.txt are the promise. A line that goes away or changes breaks programs that are built
already: see docs/decisions/c_abi.md. New lines come with new functions and fields:

    python tests/packaging/test_c_abi.py BUILD_FOLDER     rewrites both files
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parents[1] / "include"
SYMBOLS = HERE / "c_abi_symbols.txt"
LAYOUT = HERE / "c_abi_layout.txt"


def library(build_dir):
    return pathlib.Path(build_dir) / "lib/libflashmla.so"


def exported_symbols(path):
    listing = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return sorted(fields[-1] for fields in map(str.split, listing.splitlines()) if fields[-2] != "A")


def struct_fields():
    """Names of the structs and of their fields, as the headers have them."""
    found = {}
    for header in sorted((INCLUDE / "flashmla/c").glob("*.h")):
        text = re.sub(r"//.*", "", header.read_text())
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\}", text, re.DOTALL):
            declarations = (re.sub(r"\[[^]]*\]", "", line) for line in body.split(";"))
            found[name] = [re.findall(r"\w+", part)[-1] for line in declarations for part in line.split(",") if part.strip()]
    return found


def struct_layout():
    """Lines "struct.field offset size", from a C compiler."""
    body = ""
    for name, fields in sorted(struct_fields().items()):
        body += f'    printf("{name} {{%zu bytes}}\\n", sizeof({name}));\n'
        for field in fields:
            body += f'    printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));\n'
    source = f"#include <stddef.h>\n#include <stdio.h>\n#include <flashmla/flashmla.h>\nint main(void) {{\n{body}    return 0;\n}}\n"
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "layout"
        subprocess.run(["cc", "-std=c99", "-x", "c", "-", f"-I{INCLUDE}", "-o", program], input=source, text=True, check=True)
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture(scope="module")
def built(build_dir):
    if not library(build_dir).exists():
        pytest.skip("this build has no libflashmla.so")
    return library(build_dir)


def test_exported_symbols_are_the_listed_ones(built):
    assert exported_symbols(built) == SYMBOLS.read_text().split()


def test_every_exported_function_is_declared_and_every_declared_one_exported():
    text = "".join(header.read_text() for header in (INCLUDE / "flashmla/c").glob("*.h"))
    declared = set(re.findall(r"FLASHMLA_API [\w* ]+?(flashmla_\w+)\(", text))
    assert declared == {symbol.split("@")[0] for symbol in SYMBOLS.read_text().split()}


def test_soname_holds_the_major_version(built):
    dynamic = subprocess.run(["readelf", "-d", built], capture_output=True, text=True, check=True).stdout
    major = re.search(r"VERSION_MAJOR (\d+)", (INCLUDE / "flashmla/version.h").read_text()).group(1)
    assert re.search(r"SONAME.*\[(.*)\]", dynamic).group(1) == f"libflashmla.so.{major}"


def test_struct_layout_is_the_listed_one():
    assert struct_layout() == LAYOUT.read_text().splitlines()


def test_structs_have_no_padding():
    # A field added later must not fall into a hole, where callers of old headers leave rubbish.
    sizes = {line.split()[0]: int(re.search(r"\{(\d+)", line).group(1)) for line in struct_layout() if "{" in line}
    used = dict.fromkeys(sizes, 0)
    for line in struct_layout():
        if "{" not in line:
            used[line.split(".")[0]] += int(line.split()[-1])
    assert used == sizes


if __name__ == "__main__":
    SYMBOLS.write_text("\n".join(exported_symbols(library(sys.argv[1]))) + "\n")
    LAYOUT.write_text("\n".join(struct_layout()) + "\n")
