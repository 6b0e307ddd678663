"""Every program in examples/ runs and says what it computed."""

import os
import re
import subprocess
import sys

import pytest


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def example_names(root, suffix):
    return {path.stem for path in (root / "examples").glob(f"*{suffix}")}


def test_every_cpp_example_runs(root, build_dir):
    names = example_names(root, ".cpp")
    assert "decode" in names
    for name in names:
        assert run([build_dir / f"bin/example_{name}"])


def test_every_c_example_runs(root, build_dir):
    names = example_names(root, ".c")
    assert "decode" in names
    for name in names:
        assert run([build_dir / f"bin/example_c_{name}"])


def test_every_python_example_runs(root):
    for name in example_names(root, ".py"):
        path = root / f"examples/{name}.py"
        if re.search(r"^(import|from) torch\b", path.read_text(), re.MULTILINE):
            pytest.importorskip("torch")
        assert run([sys.executable, path], env=os.environ)


@pytest.mark.parametrize("program", ["example_decode", "example_c_decode"])
def test_decode_reports_every_request(build_dir, program):
    lines = run([build_dir / "bin" / program]).splitlines()
    assert lines[0].startswith("cpu_decode_dense on ")
    assert [int(line.split()[2]) for line in lines[1:]] == [450, 1000, 64]
