"""The program in docs/c_api.md compiles with a plain C compiler against libflashmla.so and prints what the page says."""

import os
import re
import subprocess

import pytest


def test_the_program_of_the_page(root, build_dir, tmp_path):
    if not (build_dir / "lib/libflashmla.so").exists():
        pytest.skip("this build has no libflashmla.so")
    page = (root / "docs/c_api.md").read_text()
    program = re.search(r"```c\n(.*?)```", page, re.DOTALL).group(1)
    expected = re.search(r"It prints\n\n    (.*)\n", page).group(1)
    (tmp_path / "program.c").write_text(program)
    subprocess.run(["cc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "program.c", f"-I{root / 'include'}",
                    f"-L{build_dir / 'lib'}", "-lflashmla", "-o", "program"], cwd=tmp_path, check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(build_dir / "lib")}
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == expected


def test_functions_named_on_the_page_exist(root):
    headers = "".join(path.read_text() for path in (root / "include/flashmla/c").glob("*.h"))
    named = set(re.findall(r"\bflashmla_\w+", (root / "docs/c_api.md").read_text()))
    assert named and not {name for name in named if not re.search(rf"\b{name}\b", headers)}
