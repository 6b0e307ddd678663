"""The host's number formats against ml_dtypes: every code decoded, and encoded every value that could round wrongly."""

import os
import pathlib
import subprocess

import ml_dtypes
import numpy as np
import pytest

FORMATS = {
    "bf16": (ml_dtypes.bfloat16, np.uint16),
    "fp16": (np.float16, np.uint16),
    "e4m3": (ml_dtypes.float8_e4m3fn, np.uint8),
    "e8m0": (ml_dtypes.float8_e8m0fnu, np.uint8),
}


def run_tool(name, direction, data=b""):
    tool = pathlib.Path(os.environ["FLASHMLA_BUILD_DIR"]) / "bin" / "float_formats"
    return subprocess.run([tool, name, direction], input=data, stdout=subprocess.PIPE, check=True).stdout


def all_values(name):
    """The value of every code, by ml_dtypes, as fp32."""
    dtype, code = FORMATS[name]
    return np.arange(2 ** (8 * np.dtype(code).itemsize)).astype(code).view(dtype).astype(np.float32)


def hard_values():
    """fp32 inputs: every value of every format, every point halfway between neighbours, what lies next to those, every upper
    half with telling lower halves, and a million random bit patterns."""
    parts = []
    for name in FORMATS:
        values = all_values(name)
        finite = np.unique(values[np.isfinite(values)])
        halfway = (finite[:-1].astype(np.float64) + finite[1:].astype(np.float64)) / 2
        halfway = halfway.astype(np.float32)
        parts += [values, halfway, np.nextafter(halfway, np.float32(np.inf)), np.nextafter(halfway, np.float32(-np.inf))]
    upper = np.arange(2**16, dtype=np.uint32) << 16
    parts += [(upper | low).view(np.float32) for low in np.uint32([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])]
    parts.append(np.random.default_rng(1).integers(0, 2**32, 10**6, dtype=np.uint32).view(np.float32))
    return np.concatenate(parts)


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_decodes_as_in_ml_dtypes(name):
    got = np.frombuffer(run_tool(name, "decode"), np.float32)
    expected = all_values(name)
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    live = ~np.isnan(expected)
    assert np.array_equal(got.view(np.uint32)[live], expected.view(np.uint32)[live])


@pytest.mark.parametrize("name", FORMATS)
def test_encoding_agrees_with_ml_dtypes(name):
    dtype, code = FORMATS[name]
    values = hard_values()
    got = np.frombuffer(run_tool(name, "encode", values.tobytes()), code)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(dtype).view(code)
    if name == "e4m3":  # ours saturates, ml_dtypes makes NaN
        past_the_end = np.abs(values) >= 448
        expected = np.where(past_the_end, np.where(np.signbit(values), 0xFE, 0x7E), expected).astype(code)
    if name == "e8m0":  # ml_dtypes 0.6 takes fp32's subnormals above 2^-127 for 2^-126, even those nearer to 2^-127
        subnormal = (values > 2.0**-127) & (values < 2.0**-126)
        expected = np.where(subnormal, values >= 1.5 * 2.0**-127, expected).astype(code)
    is_nan = np.isnan(expected.view(dtype).astype(np.float32))
    assert np.array_equal(is_nan, np.isnan(got.view(dtype).astype(np.float32)))
    wrong = np.flatnonzero((got != expected) & ~is_nan)
    assert wrong.size == 0, [(float(values[i]).hex(), hex(got[i]), hex(expected[i])) for i in wrong[:5]]
