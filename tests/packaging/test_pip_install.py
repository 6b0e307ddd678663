"""`pip wheel .` makes a package that works in a fresh environment, away from the source tree and without torch."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import venv
import zipfile

import pytest

pytestmark = pytest.mark.slow

# The package as a user meets it: one token against one key gives that key's value back.
PROGRAM = """
import sys
import flashmla
assert not {"torch", "numpy"} & set(sys.modules)
import ml_dtypes, numpy as np
q = np.ones((1, 1, 2, 576), ml_dtypes.bfloat16)
cache = np.ones((1, 64, 1, 576), ml_dtypes.bfloat16)
out, lse = flashmla.decode(q, cache, np.zeros((1, 1), np.int32), np.ones(1, np.int32))
assert out.shape == (1, 1, 2, 512) and (np.asarray(out, np.float32) == 1).all()
assert np.allclose(lse, 24.0)
packed = flashmla.empty_cache(1, format="fp8_656")
flashmla.append(np.ones((1, 512), np.float32), np.ones((1, 64), np.float32), packed, np.zeros(1, np.int32))
out, lse = flashmla.decode(q, packed, indices=np.zeros((1, 1, 1), np.int32))
assert (np.asarray(out, np.float32) == 1).all() and np.allclose(lse, 24.0)
print(flashmla.__version__, flashmla.__file__)
"""

# What a type checker makes of an installed package: the second line is wrong, the first is not.
TYPED = """
import flashmla
name: str = flashmla.plan(1, max_pages=1).kernel
size: str = flashmla.plan(1, max_pages=1).workspace_bytes
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    # The build requirements are in this environment already: --no-build-isolation keeps the test off the network.
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder,
        "-C", f"build-dir={folder / 'build'}", "-C", "cmake.define.FLASHMLA_CUDA=OFF", root)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def fresh_python(wheel, tmp_path_factory):
    """The Python of an environment that holds the wheel, and NumPy and ml_dtypes by links to those of this environment."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    linked = folder / "dependencies"
    linked.mkdir()
    for name in ("numpy", "ml_dtypes"):
        package = pathlib.Path(importlib.util.find_spec(name).origin).parent
        for part in package.parent.glob(f"{name}*"):  # also the shared libraries beside NumPy
            if part.suffix != ".dist-info":
                (linked / part.name).symlink_to(part)
    (site,) = (folder / "venv/lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(f"{linked}\n")
    return python


def outside(**variables):
    """The environment without anything that would find packages of this one."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | variables


def test_the_wheel_holds_the_two_packages_and_their_types(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"flashmla", "flash_mla"}
    assert {"flashmla/py.typed", "flashmla/_core.pyi", "flash_mla/py.typed"} <= set(names)
    required = {line.split()[1].partition(">")[0] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")}
    assert {"numpy", "ml_dtypes"} <= required and "torch" not in required


def test_it_works_in_a_fresh_environment(root, fresh_python, tmp_path):
    version, file = run(fresh_python, "-c", PROGRAM, cwd=tmp_path, env=outside()).split()
    assert f'"{version}"' in (root / "include/flashmla/version.h").read_text()
    assert pathlib.Path(file).is_relative_to(fresh_python.parents[1])


def test_a_type_checker_sees_its_types(fresh_python, tmp_path):
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "--python-executable", fresh_python, "typed.py"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=outside()).stdout
    assert "typed.py:4: error: Incompatible types" in said and "Found 1 error" in said, said
