import importlib.util
import pathlib
import sys

import pytest

# The NumPy cases and oracle are shared with tests/python.
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "python")]

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if pathlib.Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.torch)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """Every test that takes it runs on the CPU, and on a GPU where there is one."""
    require(request.param)
    return request.param


@pytest.fixture
def gpu():
    require("cuda")
    return "cuda"


def require(device):
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.fixture(autouse=True, scope="session")
def one_torch_thread():
    """torch's own work here is small, and its waiting threads take the processors from the library's on a busy machine."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def default_switches():
    import flash_mla

    yield
    flash_mla.set_batch_invariant(False)
