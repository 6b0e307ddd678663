"""`pip install .` makes a package that works away from the source tree, without torch."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

# The package as a user meets it: one token against one key gives that key's value back.
PROGRAM = """
import sys
import flashmla, numpy as np, ml_dtypes
assert "torch" not in sys.modules
q = np.ones((1, 1, 2, 576), ml_dtypes.bfloat16)
cache = np.ones((1, 64, 1, 576), ml_dtypes.bfloat16)
out, lse = flashmla.decode(q, cache, np.zeros((1, 1), np.int32), np.ones(1, np.int32))
assert out.shape == (1, 1, 2, 512) and (np.asarray(out, np.float32) == 1).all()
assert np.allclose(lse, 24.0)
print(flashmla.__version__)
"""


def test_pip_install(root, tmp_path):
    site = tmp_path / "site"
    # The build requirements are in this environment already: --no-build-isolation keeps the test off the network.
    command = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--target", str(site),
               "-C", f"build-dir={tmp_path / 'build'}", "-C", "cmake.define.FLASHMLA_CUDA=OFF", str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    packages = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert packages <= {"flashmla", "flash_mla"}
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in (root / "include/flashmla/version.h").read_text()
