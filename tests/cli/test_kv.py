"""`flashmla kv inspect` and `kv diff`: files of every format against NumPy; nothing a file says is trusted."""

import json
import struct

import kv_files
import numpy as np
import pytest
from kv_files import FORMATS, PAGE, PAGES, decoded


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kv")


@pytest.fixture(scope="module")
def cache_files(folder):
    return kv_files.write_all(folder)


@pytest.mark.parametrize("name", FORMATS)
def test_inspect_finds_the_format_and_counts(flashmla, cache_files, name):
    path, x = cache_files[name]
    document = flashmla("kv", "inspect", path, "--json").json
    file, total = document["file"], document["total"]
    assert (file["format"], file["num_pages"], file["page_size"], file["d_qk"]) == (name, PAGES, PAGE, x.shape[-1])
    wanted = decoded(name, x)
    rope = wanted[..., -64:]
    latent = wanted[..., :-64]
    for part, values in (("latent", latent), ("rope", rope)):
        stats = total[part]
        assert stats["count"] == values.size
        assert stats["zero"] == np.count_nonzero(values == 0)
        assert (stats["min"], stats["max"]) == (values.min(), values.max())
        assert stats["rms"] == pytest.approx(np.sqrt(np.mean(values.astype(np.float64) ** 2)))
        assert stats["nan"] == stats["inf"] == 0
    if name in ("fp8_656", "fp8_584"):
        assert total["scales"]["count"] == PAGES * PAGE * (4 if name == "fp8_656" else 7)
        assert total["scales"]["illegal"] == total["scales"]["underused"] == total["scales"]["below_floor"] == 0
        assert total["scales"]["powers_of_two"] == total["scales"]["count"] == sum(total["scales"]["exponents"].values())
        assert total["scales"]["at_floor"] > 0
    for page, stats in enumerate(document["pages"]):
        assert stats["latent"]["max"] == latent[page].max()
    assert flashmla("kv", "inspect", path).code == 0


def test_dead_bytes_of_584(flashmla, cache_files):
    path, _ = cache_files["fp8_584"]
    page_bytes = np.load(path).shape[1]
    assert flashmla("kv", "inspect", path, "--json").json["dead_bytes"] == PAGES * (page_bytes - PAGE * 583)


def test_poison_and_unwritten_tokens_are_counted(flashmla, tmp_path):
    records = kv_files.fp8_656(kv_files.values(3, PAGE, 576))
    records[0, 3:] = 0
    records[1, 5] = 0xff
    records[2, 7, 0, 11] = 0x7f  # NaN
    records[2, 8, 0, 512:516] = np.frombuffer(struct.pack("<f", -2.0), np.uint8)
    np.save(tmp_path / "x.npy", records)
    document = flashmla("kv", "inspect", tmp_path / "x.npy", "--json").json
    assert document["total"]["zero_tokens"] == PAGE - 3
    assert document["total"]["ones_tokens"] == 1
    assert document["total"]["first_bad_slot"] == PAGE + 5
    assert document["total"]["scales"]["illegal"] == 4 + 1
    third = document["pages"][2]
    assert (third["latent"]["nan"], third["scales"]["illegal"], third["first_bad_slot"]) == (1, 1, 2 * PAGE + 7)
    text = flashmla("kv", "inspect", tmp_path / "x.npy").out
    assert f"{3 * PAGE}: {2 * PAGE + 3} written, {PAGE - 3} all zero" in text
    assert "first bad value: page 1 token 5" in text


def test_sixteen_bit_integers_need_a_format(flashmla, tmp_path):
    x = kv_files.values(2, 4, 576)
    np.save(tmp_path / "codes.npy", x.astype(np.float16).view(np.uint16))
    done = flashmla("kv", "inspect", tmp_path / "codes.npy")
    assert done.code == 2
    assert "--format bf16 or fp16" in done.err
    document = flashmla("kv", "inspect", tmp_path / "codes.npy", "--format", "fp16", "--json").json
    assert document["total"]["latent"]["max"] == x.astype(np.float16)[..., :512].max()


@pytest.mark.parametrize("shape, options, format_and_layout", [
    ((3, 8, 1, 656), [], ("fp8_656", 3, 8)), ((3, 8, 656), [], ("fp8_656", 3, 8)), ((24, 656), [], ("fp8_656", 24, 1)),
    ((3, 8 * 656), ["--page", "8", "--format", "fp8_656"], ("fp8_656", 3, 8)),
    ((3, 8 * 656 + 99), ["--page", "8", "--format", "fp8_656"], ("fp8_656", 3, 8)),
    ((3, 8, 1, 584), [], ("fp8_584", 3, 8)), ((3, 37440), [], ("fp8_584", 3, 64)),
    ((3, 8, 1, 576), [], ("fp8_flat", 3, 8)), ((3, 8, 1, 1152), ["--format", "bf16"], ("bf16", 3, 8)),
])
def test_shapes(flashmla, tmp_path, shape, options, format_and_layout):
    np.save(tmp_path / "x.npy", np.zeros(shape, np.uint8))
    file = flashmla("kv", "inspect", tmp_path / "x.npy", "--json", *options).json["file"]
    assert (file["format"], file["num_pages"], file["page_size"]) == format_and_layout


def test_safetensors_by_name(flashmla, tmp_path):
    x = kv_files.values(2, 8, 576)
    path = tmp_path / "dump.safetensors"
    kv_files.save_safetensors(path, {"odd": ("U8", np.zeros(3, np.uint8)), "layers.0.k": ("BF16", x.astype(kv_files.BF16)),
                                     "layers.1.k": ("F8_E4M3", x.astype(kv_files.E4M3))})
    done = flashmla("kv", "inspect", path)
    assert done.code == 2
    for text in ("--tensor", "layers.0.k: bfloat16 (2, 8, 1, 576)", "layers.1.k: float8_e4m3fn (2, 8, 1, 576)"):
        assert text in done.err
    assert flashmla("kv", "inspect", path, "--tensor", "layers.9.k").code == 2
    for name, format_name in (("layers.0.k", "bf16"), ("layers.1.k", "fp8_flat")):
        document = flashmla("kv", "inspect", path, "--tensor", name, "--json").json
        assert document["file"]["format"] == format_name
        # The data begin at an odd address here: nothing may depend on alignment.
        assert document["total"]["latent"]["max"] == decoded(format_name, x)[..., :512].max()


@pytest.mark.parametrize("array, complaint", [
    (np.zeros((2, 8, 1, 576), np.float32), "no cache format stores"),
    (np.zeros((2, 8, 2, 576), np.float16), "1 KV head"),
    (np.zeros(7, np.uint8), "wanted (pages, page, 1, record)"),
    (np.zeros((0, 8, 1, 656), np.uint8), "holds nothing"),
    (np.zeros((2, 5000), np.uint8), "--page"),
])
def test_no_caches(flashmla, tmp_path, array, complaint):
    np.save(tmp_path / "x.npy", array)
    done = flashmla("kv", "inspect", tmp_path / "x.npy")
    assert done.code == 2
    assert complaint in done.err


@pytest.mark.parametrize("options, complaint", [
    (["--format", "fp8_656"], "no records of fp8_656"), (["--format", "fp8_584"], "no records of fp8_584"),
    (["--page", "7"], "--page"), (["--format", "int4"], "--format"), (["--scale", "-1"], "--scale"),
])
def test_options_that_do_not_fit(flashmla, cache_files, options, complaint):
    done = flashmla("kv", "inspect", cache_files["fp16"][0], *options)
    assert done.code == 2
    assert complaint in done.err


@pytest.mark.parametrize("command", ["inspect", "verify", "convert"])
@pytest.mark.parametrize("content, complaint", [
    (None, "cannot be read"), (b"", "0 bytes"), (b"\x93NUMPY\x01\x00\xff\xff{}", "claims 65535"),
    (b"\xff" * 64, "18446744073709551615"), (struct.pack("<Q", 2) + b"[]", "an array"),
])
def test_damaged_files(flashmla, tmp_path, command, content, complaint):
    path = tmp_path / "damaged"
    if content is not None:
        path.write_bytes(content)
    done = flashmla("kv", command, path)
    assert done.code == 2
    assert complaint in done.err and str(path) in done.err
    if content is not None:
        json.loads(flashmla("kv", command, path, "--json").out)


def test_what_is_no_plain_file_is_refused(flashmla, tmp_path):
    for path in (tmp_path, "/dev/zero"):
        done = flashmla("kv", "inspect", path)
        assert done.code == 2
        assert "no plain file" in done.err


def test_diff_finds_bits(flashmla, tmp_path, cache_files):
    path, _ = cache_files["fp8_656"]
    same = flashmla("kv", "diff", path, path)
    assert (same.code, "the same in all 80 tokens" in same.out) == (0, True)
    changed = np.load(path)
    changed[1, 2, 0, 100] ^= 1
    changed[1, 2, 0, 101] ^= 1
    changed[3, 4, 0, 515] ^= 1
    changed[4, 5, 0, 528] ^= 1
    np.save(tmp_path / "changed.npy", changed)
    done = flashmla("kv", "diff", path, tmp_path / "changed.npy", "--json")
    assert done.code == 1
    document = done.json
    assert document["differing_tokens"] == 3
    assert document["codes"] == {"latent": 2, "scales": 1, "rope": 1}
    assert [(t["page"], t["token"]) for t in document["first"]] == [(1, 2), (3, 4), (4, 5)]
    text = flashmla("kv", "diff", path, tmp_path / "changed.npy", "--show", "1").out
    assert "page 1 token 2 (slot 18): 2 latent codes" in text
    assert "--show N" in text


def test_diff_of_formats_compares_values(flashmla, cache_files):
    words = ("kv", "diff", cache_files["bf16"][0], cache_files["fp16"][0], "--json")
    a, b = (decoded(name, cache_files[name][1]).astype(np.float64) for name in ("bf16", "fp16"))
    document = flashmla(*words).json
    assert document["codes"] is None
    assert document["largest_difference"] == np.abs(a - b).max()
    assert document["relative_rms"] == pytest.approx(np.sqrt(((a - b) ** 2).sum() / (a**2).sum()))
    assert flashmla(*words, "--tolerance", np.abs(a - b).max()).code == 0
    assert flashmla(*words, "--tolerance", np.abs(a - b).max() * 0.99).code == 1


def test_diff_refuses_other_shapes(flashmla, cache_files):
    done = flashmla("kv", "diff", cache_files["bf16"][0], cache_files["fp8_584"][0])
    assert done.code == 2
    assert "nothing to compare" in done.err
