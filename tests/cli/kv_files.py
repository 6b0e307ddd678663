"""Cache files of every format made with NumPy and ml_dtypes alone, from the byte maps of docs/kv_formats.md."""

import json
import struct

import ml_dtypes
import numpy as np

FORMATS = ("bf16", "fp16", "fp8_flat", "fp8_656", "fp8_584")
PAGES, PAGE = 5, 16

E4M3 = ml_dtypes.float8_e4m3fn
BF16 = ml_dtypes.bfloat16


def values(pages, page, d_qk, seed=1):
    """Normal values in which rows differ in size by powers of two."""
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((pages, page, 1, d_qk)) * np.exp2(generator.integers(-9, 5, (pages, page, 1, 1)))
    return rows.astype(np.float32)


def group_scales(groups, power_of_two):
    """The quantiser's: max(amax / 448, 1e-4), rounded up to a power of two by its exponent bits."""
    scales = np.maximum(np.abs(groups).max(-1) / np.float32(448), np.float32(1e-4)).astype(np.float32)
    if power_of_two:
        scales = ((scales.view(np.uint32) + np.uint32(0x7fffff)) & np.uint32(0xff800000)).view(np.float32)
    return scales


def codes(x):
    return np.ascontiguousarray(x).view(np.uint8)


def fp8_656(x, power_of_two=True):
    rows = x.reshape(-1, 576)
    groups = rows[:, :512].reshape(-1, 4, 128)
    scales = group_scales(groups, power_of_two)
    record = np.zeros((len(rows), 656), np.uint8)
    record[:, :512] = codes((groups / scales[..., None]).astype(E4M3)).reshape(-1, 512)
    record[:, 512:528] = codes(scales).reshape(-1, 16)
    record[:, 528:] = codes(rows[:, 512:].astype(BF16))
    return record.reshape(*x.shape[:3], 656)


def fp8_584(x):
    """(pages, bytes of a page), padding included."""
    pages, page = x.shape[:2]
    groups = x[..., :448].reshape(pages, page, 7, 64)
    scales = group_scales(groups, True)
    bytes_of_page = -(-page * 584 // 576) * 576
    out = np.zeros((pages, bytes_of_page), np.uint8)
    token = out[:, :page * 576].reshape(pages, page, 576)
    token[..., :448] = codes((groups / scales[..., None]).astype(E4M3)).reshape(pages, page, 448)
    token[..., 448:] = codes(x[..., 0, 448:].astype(BF16))
    out[:, page * 576:page * 584].reshape(pages, page, 8)[..., :7] = (scales.view(np.uint32) >> 23).astype(np.uint8)
    return out


def save_safetensors(path, tensors, metadata=None):
    """tensors: name -> (dtype as the format names it, array)."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def decoded(name, x):
    """What the file holds, as float32."""
    if name == "bf16":
        return x.astype(BF16).astype(np.float32)
    if name == "fp16":
        return x.astype(np.float16).astype(np.float32)
    if name == "fp8_flat":
        return np.clip(x, -448, 448).astype(E4M3).astype(np.float32)
    latent, width = (512, 128) if name == "fp8_656" else (448, 64)
    groups = x[..., :latent].reshape(*x.shape[:3], -1, width)
    scales = group_scales(groups, True)[..., None]
    latent_values = ((groups / scales).astype(E4M3).astype(np.float32) * scales).reshape(*x.shape[:3], latent)
    return np.concatenate([latent_values, x[..., latent:].astype(BF16).astype(np.float32)], -1)


def write_all(folder):
    """A file of each format in `folder`, and NAME.source.npy with the values it was made from: name -> (path, values)."""
    made = {}
    for name in FORMATS:
        x = values(PAGES, PAGE, 512 if name == "fp8_584" else 576)
        array = {"bf16": lambda: x.astype(BF16), "fp16": lambda: x.astype(np.float16), "fp8_flat": lambda: x.astype(E4M3).view(np.uint8),
                 "fp8_656": lambda: fp8_656(x), "fp8_584": lambda: fp8_584(x)}[name]()
        made[name] = (folder / f"{name}.npy", x)
        np.save(made[name][0], array)
        np.save(folder / f"{name}.source.npy", x)
    return made
