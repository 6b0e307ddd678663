"""The NumPy oracle of the record formats against closed forms: what the other tests trust."""

import numpy as np
import pytest
from cache_oracle import E4M3, FORMATS, Pool, quantize, round_up_to_power_of_two, to_e4m3


def test_e4m3_saturates_and_rounds_to_even():
    given = np.float32([448, 449, 1e9, -np.inf, 2**-9, 2**-10, 1.0625, 1.1875, 0.0])
    assert to_e4m3(given).astype(np.float32).tolist() == [448, 448, 448, -448, 2**-9, 0, 1.0, 1.25, 0]
    assert np.isnan(to_e4m3([np.nan]).astype(np.float32)).all()


def test_powers_of_two_are_kept_and_others_go_up():
    assert round_up_to_power_of_two(np.float32([1.0, 1.0000001, 1e-4, 0.75])).tolist() == [1.0, 2.0, 2.0**-13, 1.0]


def test_scales():
    """448 times a power of two fills the range; a group of zeros has the smallest scale; NaN and infinity decide nothing."""
    rows = np.zeros((3, 128), np.float32)
    rows[0, :] = 896.0
    rows[1, 5], rows[1, 6], rows[1, 7] = np.nan, 448.0, np.inf
    codes, scales = quantize(rows, 64, power_of_two=True)
    assert scales.tolist() == [[2.0, 2.0], [1.0, 2.0**-13], [2.0**-13, 2.0**-13]]
    assert (codes[0].astype(np.float32) == 448).all() and np.isnan(codes[1, 5].astype(np.float32))
    _, exact = quantize(rows[2:] + np.float32(1.0), 64, power_of_two=False)
    assert (exact == np.float32(1) / np.float32(448)).all()


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_read_and_nothing_else_changes(name):
    pool = Pool(name, num_pages=3, page_size=5, padding=32)
    random = np.random.default_rng(0)
    rows = random.integers(-7, 8, (4, pool.d_qk)).astype(np.float32)
    slots = [0, 4, 7, 14]
    pool.write(slots, rows)
    assert (pool.read(slots) == rows).all()  # small integers survive every format: their scale is 2^-5 and more
    changed = pool.raw != 0xFF
    assert changed.any(axis=1).all() and not changed[:, -32:].any()
    assert (pool.guarded[[0, -1]] == 0xFF).all()
    assert np.shares_memory(pool.array(), pool.raw) and pool.array().shape[:3] == (3, 5, 1)


def test_layouts():
    """Byte by byte: a record of V3.2 is contiguous, a page of V4 holds all values before all scales."""
    row = np.concatenate([np.full(512, 448.0), np.ones(64)])
    pool = Pool("fp8_656", 1, 2)
    pool.write([1], row[None] * 4)
    record = pool.raw[0, 656:]
    assert (record[:512].view(E4M3).astype(np.float32) == 448).all()
    assert record[512:528].view(np.float32).tolist() == [4.0] * 4 and (record[528:].view(np.uint16) == 0x4080).all()
    pool = Pool("fp8_584", 1, 2)
    assert pool.raw.shape == (1, 3 * 576)
    pool.write([1], row[None, 64:] * 4)
    page = pool.raw[0]
    assert (page[:576] == 0xFF).all() and (page[1152:1160] == 0xFF).all()  # token 0
    assert (page[576:1024].view(E4M3).astype(np.float32) == 448).all() and (page[1024:1152].view(np.uint16) == 0x4080).all()
    assert page[1160:1168].tolist() == [129] * 7 + [0]
