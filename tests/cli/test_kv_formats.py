"""`flashmla kv verify` and `kv convert`: damage is found and named, conversions are what NumPy would write."""

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
def test_verify_accepts_what_numpy_quantised(flashmla, folder, cache_files, name):
    path, _ = cache_files[name]
    # NumPy's own conversion to e4m3 does not saturate; the flat file holds values past 448 nowhere.
    done = flashmla("kv", "verify", path, "--source", folder / f"{name}.source.npy", "--canonical", "--json")
    assert done.code == 0, done.out
    document = done.json
    assert document["passed"] is True
    assert all(check["wrong"] == 0 and check["checked"] > 0 for check in document["checks"])
    wanted = decoded(name, cache_files[name][1]).astype(np.float64)
    source = cache_files[name][1].astype(np.float64)
    assert document["error"]["largest"] == np.abs(wanted - source).max()


def test_verify_accepts_exact_scales(flashmla, tmp_path):
    x = kv_files.values(3, PAGE, 576, seed=4)
    np.save(tmp_path / "source.npy", x)
    np.save(tmp_path / "exact.npy", kv_files.fp8_656(x, power_of_two=False))
    words = ("kv", "verify", tmp_path / "exact.npy", "--source", tmp_path / "source.npy", "--canonical")
    assert flashmla(*words).code == 0
    done = flashmla(*words, "--power-of-two")
    assert done.code == 1
    assert "FAIL  scales powers of two" in done.out


DAMAGE = {
    "NaN code": (lambda r: r.__setitem__((1, 2, 0, 40), 0x7f), "no NaN and no infinity", "page 1"),
    "negative scale": (lambda r: r.__setitem__((2, 3, 0, slice(512, 516)), list(struct.pack("<f", -0.5))),
                       "scales positive and finite", "page 2"),
    "zero scale": (lambda r: r.__setitem__((2, 3, 0, slice(516, 520)), 0), "scales positive and finite", "page 2"),
    "infinite scale": (lambda r: r.__setitem__((0, 3, 0, slice(516, 520)), list(struct.pack("<f", np.inf))),
                       "scales positive and finite", "page 0"),
    "code off by one": (lambda r: r.__setitem__((4, 9, 0, 77), r[4, 9, 0, 77] ^ 1), "codes are the nearest", "page 4 token 9"),
    "rope off by one": (lambda r: r.__setitem__((3, 9, 0, 600), r[3, 9, 0, 600] ^ 1), "codes are the nearest", "page 3 token 9"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_verify_finds_damage(flashmla, folder, tmp_path, cache_files, damage):
    spoil, check, where = DAMAGE[damage]
    records = np.load(cache_files["fp8_656"][0])
    spoil(records)
    np.save(tmp_path / "x.npy", records)
    done = flashmla("kv", "verify", tmp_path / "x.npy", "--source", folder / "fp8_656.source.npy", "--json")
    assert done.code == 1
    failed = {c["name"]: c["first"] for c in done.json["checks"] if c["wrong"] > 0}
    assert any(name.startswith(check) and first == where for name, first in failed.items()), failed


def test_verify_finds_scales_that_waste_range(flashmla, tmp_path):
    x = kv_files.values(2, PAGE, 576, seed=6)
    records = kv_files.fp8_656(x)
    scale = records[1, 1, 0, 512:516].copy().view(np.float32)[0]
    records[1, 1, 0, 512:516] = kv_files.codes(np.float32([scale * 2]))
    records[1, 1, 0, :128] = kv_files.codes((x[1, 1, 0, :128] / (scale * 2)).astype(kv_files.E4M3))
    np.save(tmp_path / "x.npy", records)
    np.save(tmp_path / "source.npy", x)
    assert flashmla("kv", "verify", tmp_path / "x.npy", "--source", tmp_path / "source.npy").code == 0  # legal
    done = flashmla("kv", "verify", tmp_path / "x.npy", "--canonical")
    assert done.code == 1
    assert "FAIL  scales as large as their groups need" in done.out


def test_verify_refuses_a_source_of_another_shape(flashmla, folder, cache_files):
    done = flashmla("kv", "verify", cache_files["fp8_656"][0], "--source", folder / "fp8_584.source.npy")
    assert done.code == 2
    assert "wanted 80 rows of 576 values" in done.err


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
@pytest.mark.parametrize("name", FORMATS)
def test_convert_writes_what_numpy_would(flashmla, tmp_path, name, suffix):
    x = kv_files.values(PAGES, PAGE, 512 if name == "fp8_584" else 576).astype(kv_files.BF16).astype(np.float32)
    np.save(tmp_path / "bf16.npy", x.astype(kv_files.BF16))
    output = tmp_path / f"out{suffix}"
    done = flashmla("kv", "convert", tmp_path / "bf16.npy", output, "--to", name, "--json")
    assert done.code == 0, done.err
    (conversion,) = done.json["conversions"]
    wanted = decoded(name, x).astype(np.float64)
    assert conversion["largest_error"] == np.abs(wanted - x).max()
    assert conversion["relative_rms_error"] == pytest.approx(np.sqrt(((wanted - x) ** 2).sum() / (x.astype(np.float64) ** 2).sum()))
    assert not list(tmp_path.glob("*.partial"))
    # It is read back as what it is; .npy names neither bf16 nor the fp8 formats.
    extra = ["--format", name] if suffix == ".npy" and name == "bf16" else []
    np.save(tmp_path / "source.npy", x)
    verified = flashmla("kv", "verify", output, "--source", tmp_path / "source.npy", "--canonical", "--json", *extra)
    assert verified.code == 0, verified.out
    assert verified.json["file"]["format"] == name
    if suffix == ".npy" and name in ("fp8_656", "fp8_584"):
        made = kv_files.fp8_656(x) if name == "fp8_656" else kv_files.fp8_584(x)
        assert np.array_equal(np.load(output), made)


def test_convert_without_output_reports_every_format(flashmla, cache_files):
    document = flashmla("kv", "convert", cache_files["bf16"][0], "--json").json
    assert [c["format"] for c in document["conversions"]] == ["bf16", "fp16", "fp8_flat", "fp8_656"]
    errors = {c["format"]: c["relative_rms_error"] for c in document["conversions"]}
    assert errors["bf16"] == 0
    assert 0 < errors["fp16"] < 1e-3 < errors["fp8_656"] < 0.05
    text = flashmla("kv", "convert", cache_files["bf16"][0]).out
    assert "relative RMS" in text and "fp8_656" in text


def test_convert_with_scales(flashmla, tmp_path, cache_files):
    source = cache_files["bf16"][0]
    assert flashmla("kv", "convert", source, tmp_path / "x.safetensors", "--to", "fp8_flat", "--to-scale", "0.25").code == 0
    back = flashmla("kv", "diff", source, tmp_path / "x.safetensors", "--json").json
    assert back["b"]["scale"] == 0.25
    assert back["relative_rms"] < 0.05
    assert flashmla("kv", "convert", source, tmp_path / "e.npy", "--to", "fp8_656", "--exact-scales").code == 0
    scales = flashmla("kv", "inspect", tmp_path / "e.npy", "--json").json["total"]["scales"]
    assert scales["powers_of_two"] < scales["count"]


@pytest.mark.parametrize("words, code, complaint", [
    (["out.npy"], 2, "--to"), (["out.txt", "--to", "fp16"], 2, ".npy or .safetensors"),
    (["out.npy", "--to", "fp8_584"], 2, "records of 576"), (["/no/such/folder/x.npy", "--to", "fp16"], 4, "/no/such/folder"),
])
def test_convert_refusals(flashmla, tmp_path, cache_files, words, code, complaint):
    done = flashmla("kv", "convert", cache_files["bf16"][0], *(w if w.startswith(("/", "-")) or "." not in w else tmp_path / w
                                                              for w in words))
    assert done.code == code
    assert complaint in done.err
    assert not list(tmp_path.iterdir())


def test_convert_onto_itself(flashmla, tmp_path, cache_files):
    path = tmp_path / "cache.npy"
    path.write_bytes(cache_files["bf16"][0].read_bytes())
    assert flashmla("kv", "convert", path, path, "--to", "fp8_656").code == 0
    assert flashmla("kv", "inspect", path, "--json").json["file"]["format"] == "fp8_656"
