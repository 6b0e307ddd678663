"""The record formats of a latent cache in plain NumPy and ml_dtypes: encoders, decoders, pools of pages with guard bytes.

Independent of the library; the byte maps are those of docs/kv_formats.md.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

E4M3 = ml_dtypes.float8_e4m3fn
E4M3_MAX = np.float32(448)
SMALLEST_SCALE = np.float32(1e-4)
FORMATS = ("bf16", "fp16", "fp8_flat", "fp8_656", "fp8_584")
WIDE = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}
ROPE = 64


def d_qk_of(name):
    """The only width of the two packed records, DeepSeek's for the others."""
    return 512 if name == "fp8_584" else 576


def record_bytes(name, d_qk):
    return {"bf16": 2 * d_qk, "fp16": 2 * d_qk, "fp8_flat": d_qk, "fp8_656": 656, "fp8_584": 584}[name]


def page_bytes(name, d_qk, page_size):
    size = page_size * record_bytes(name, d_qk)
    return -(-size // 576) * 576 if name == "fp8_584" else size


def to_e4m3(values):
    """Nearest even, saturating, NaN kept: ml_dtypes alone would turn what is too large into NaN."""
    return np.clip(np.float32(values), -E4M3_MAX, E4M3_MAX).astype(E4M3)


def round_up_to_power_of_two(scale):
    bits = np.float32(scale).view(np.uint32)
    return ((bits + 0x007FFFFF) & np.uint32(0xFF800000)).view(np.float32)


def quantize(values, group, power_of_two):
    """(n, width) float32 -> codes (n, width) e4m3 and scales (n, width / group) float32."""
    grouped = np.float32(values).reshape(len(values), -1, group)
    largest = np.where(np.isfinite(grouped), np.abs(grouped), 0).max(axis=2)  # NaN and infinity do not decide the scale
    scales = np.fmax(largest / E4M3_MAX, SMALLEST_SCALE)
    if power_of_two:
        scales = round_up_to_power_of_two(scales)
    return to_e4m3(grouped / scales[:, :, None]).reshape(len(values), -1), scales


def dequantize(codes, scales):
    grouped = codes.astype(np.float64).reshape(len(codes), scales.shape[1], -1)
    return (grouped * scales.astype(np.float64)[:, :, None]).reshape(len(codes), -1)


@dataclass
class Pool:
    """Pages of one cache, each `padding` bytes further from the next than it is long; every byte starts as `fill`."""

    format: str
    num_pages: int
    page_size: int
    d_qk: int = 0
    padding: int = 0
    fill: int = 0xFF

    def __post_init__(self):
        self.d_qk = self.d_qk or d_qk_of(self.format)
        stride = page_bytes(self.format, self.d_qk, self.page_size) + self.padding
        # a page's worth of guard bytes on both ends
        self.guarded = np.full((self.num_pages + 2, stride), self.fill, np.uint8)
        self.raw = self.guarded[1:-1]

    @property
    def num_slots(self):
        return self.num_pages * self.page_size

    def array(self, byte_dtype=np.uint8):
        """What the library is given: (num_pages, page_size, 1, record)."""
        record = record_bytes(self.format, self.d_qk)
        rows = self.raw[:, : self.page_size * record].view(WIDE.get(self.format, byte_dtype))
        record //= rows.itemsize
        stride = rows.strides[0], record * rows.itemsize, record * rows.itemsize, rows.itemsize
        return np.lib.stride_tricks.as_strided(rows, (self.num_pages, self.page_size, 1, record), stride)

    def _bytes(self, slots, offset, per_token, width):
        """Index pair of `width` bytes a token that start at offset + per_token * (token within its page)."""
        page, token = np.divmod(np.asarray(slots, np.int64), self.page_size)
        return page[:, None], (offset + per_token * token)[:, None] + np.arange(width)

    def _parts(self):
        """(codes, scales, rotary part) as (offset, step a token, bytes); None for what the format lacks."""
        if self.format in WIDE:
            return None, None, (0, 2 * self.d_qk, 2 * self.d_qk)
        if self.format == "fp8_flat":
            return (0, self.d_qk, self.d_qk), None, None
        if self.format == "fp8_656":
            return (0, 656, 512), (512, 656, 16), (528, 656, 128)
        return (0, 576, 448), (576 * self.page_size, 8, 7), (448, 576, 128)

    def write(self, slots, values, *, power_of_two=True, cache_scale=1.0):
        """Encodes rows of values (n, d_qk) into slots."""
        values = np.float32(values)
        codes, scales, wide = self._parts()
        if self.format in WIDE:
            with np.errstate(over="ignore"):
                self.raw[self._bytes(slots, *wide)] = values.astype(WIDE[self.format]).view(np.uint8)
        elif self.format == "fp8_flat":
            self.raw[self._bytes(slots, *codes)] = to_e4m3(values / np.float32(cache_scale)).view(np.uint8)
        else:
            packed = self.format == "fp8_584"
            quantized, scale = quantize(values[:, : codes[2]], 64 if packed else 128, packed or power_of_two)
            self.raw[self._bytes(slots, *codes)] = quantized.view(np.uint8)
            if packed:  # a zero beside the seven scales
                self.raw[self._bytes(slots, scales[0] + 7, 8, 1)] = 0
                scale = scale.astype(ml_dtypes.float8_e8m0fnu)
            self.raw[self._bytes(slots, *scales)] = scale.view(np.uint8)
            self.raw[self._bytes(slots, *wide)] = values[:, codes[2] :].astype(ml_dtypes.bfloat16).view(np.uint8)

    def read(self, slots, *, cache_scale=1.0):
        """Rows of the exact values (n, d_qk) that slots hold, float64."""

        def part(which, dtype):
            return np.ascontiguousarray(self.raw[self._bytes(slots, *which)]).view(dtype)

        codes, scales, wide = self._parts()
        if self.format in WIDE:
            return part(wide, WIDE[self.format]).astype(np.float64)
        if self.format == "fp8_flat":
            return part(codes, E4M3).astype(np.float64) * np.float64(np.float32(cache_scale))
        scale_dtype = ml_dtypes.float8_e8m0fnu if self.format == "fp8_584" else np.float32
        latent = dequantize(part(codes, E4M3), part(scales, scale_dtype))
        return np.concatenate([latent, part(wide, ml_dtypes.bfloat16).astype(np.float64)], axis=1)
