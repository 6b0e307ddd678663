"""Array kinds other than NumPy's own: DLPack producers, plain buffers, frameworks whose arrays cannot be written."""

import array
import sys
import threading
import time
import types

import numpy as np
import pytest
from mla_cases import make_case

import flashmla


def make_framework(name):
    """A framework of its own that only speaks DLPack: arrays cannot be written in place, results come back by from_dlpack."""
    framework = types.ModuleType(name)

    class Array:
        __module__ = name

        def __init__(self, data):
            self._data = data
            self.shape = data.shape
            self.dtype = data.dtype

        def __dlpack__(self, **options):
            return self._data.__dlpack__(**options)

        def __dlpack_device__(self):
            return self._data.__dlpack_device__()

    framework.Array = Array
    framework.from_dlpack = lambda other: Array(np.from_dlpack(other))
    return framework


def test_dlpack_framework(monkeypatch):
    framework = make_framework("arrays_by_dlpack")
    monkeypatch.setitem(sys.modules, framework.__name__, framework)
    case = make_case([70, 5], dtype="float16")
    out, lse = flashmla.decode(*(framework.Array(x) for x in case.inputs))
    wanted_out, wanted_lse = flashmla.decode(*case.inputs)
    assert type(out) is framework.Array and type(lse) is framework.Array
    assert out._data.tobytes() == wanted_out.tobytes() and lse._data.tobytes() == wanted_lse.tobytes()


def test_plain_buffers():
    """Lengths and tables from the standard library's array type."""
    case = make_case([70, 5])
    lengths = array.array("i", case.cache_seqlens.tolist())
    table = memoryview(array.array("i", case.block_table.ravel().tolist())).cast("B").cast("i", case.block_table.shape)
    out, _ = flashmla.decode(case.q, case.k_cache, table, lengths)
    assert out.tobytes() == flashmla.decode(*case.inputs)[0].tobytes()


def test_query_as_a_plain_buffer():
    case = make_case([70, 5], dtype="float16")
    out, lse = flashmla.decode(memoryview(case.q), *case.inputs[1:])
    assert np.from_dlpack(out).tobytes() == flashmla.decode(*case.inputs)[0].tobytes()
    assert np.from_dlpack(lse).shape == (2, 16, 1)


def test_outputs_outlive_the_call(monkeypatch):
    framework = make_framework("arrays_by_dlpack")
    monkeypatch.setitem(sys.modules, framework.__name__, framework)
    case = make_case([70, 5], dtype="float16")
    first = flashmla.decode(*(framework.Array(x) for x in case.inputs))[0]
    kept = first._data.copy()
    for _ in range(5):
        flashmla.decode(*(framework.Array(x * np.float16(2)) if x.dtype == np.float16 else framework.Array(x) for x in case.inputs))
    assert (first._data == kept).all()


def test_the_gil_is_released():
    """Another Python thread runs in the middle of a call."""
    case = make_case([20000] * 2, h_q=128)
    ticks = []
    finished = threading.Event()

    def tick():
        while not finished.wait(0.001):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    flashmla.decode(*case.inputs, num_workers=1)
    end = time.monotonic()
    finished.set()
    thread.join()
    quarter = (end - start) / 4
    assert any(start + quarter < moment < end - quarter for moment in ticks)


def test_threads_share_nothing():
    cases = [make_case([300, 5 + i], seed=i, h_q=16) for i in range(4)]
    wanted = [flashmla.decode(*case.inputs)[0].tobytes() for case in cases]
    results = [[] for _ in cases]

    def work(index):
        for _ in range(10):
            results[index].append(flashmla.decode(*cases[index].inputs)[0].tobytes())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(set(result) == {want} for result, want in zip(results, wanted, strict=True))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_inputs_may_be_read_only(dtype):
    case = make_case([70, 5], dtype=dtype)
    for value in case.inputs:
        value.setflags(write=False)
    out, _ = flashmla.decode(*case.inputs)
    assert out.shape == (2, 1, 16, 512)


def test_jax():
    """JAX arrays cannot be written to: results come back through DLPack, bfloat16 included."""
    jax = pytest.importorskip("jax")
    case = make_case([70, 5])
    with jax.default_device(jax.devices("cpu")[0]):
        out, lse = flashmla.decode(*(jax.numpy.asarray(x) for x in case.inputs))
    assert isinstance(out, jax.Array) and out.dtype == jax.numpy.bfloat16 and lse.shape == (2, 16, 1)
    assert np.asarray(out).tobytes() == flashmla.decode(*case.inputs)[0].tobytes()
    with pytest.raises(ValueError, match="out: got a JAX array"):
        flashmla.decode(*case.inputs, out=out)
