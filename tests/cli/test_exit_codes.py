"""0 fine, 1 a check failed, 2 bad options or input, 3 not supported here, 4 failed while running."""

import pytest

SMALL_RUN = "run --device cpu --lengths 70,0,5 --heads 4 --repeat 1 --check-rows 4"


def test_fine(flashmla):
    done = flashmla(SMALL_RUN)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("command, complaint", [
    ("", "a command is needed"),
    ("nonsense", "nonsense: no such command; there are run, simulate, info, plan, verify, bench or kv"),
    ("kv nonsense", "nonsense: no such command; there are inspect, verify, convert or diff"),
    ("run --len 3", "--len: flashmla run has no such option; is --lengths or --lengths-file meant?"),
    ("run --bogus", "--bogus"),
    ("run --lengths 1,x", "'x'"),
    ("run --lengths 1,,2", "''"),
    ("run --lengths -1", "'-1'"),
    ("run --lengths 3000000000", "'3000000000'"),
    ("run --lengths 5 --trace setup.cfg", "--trace"),
    ("run --trace no_such_file.csv", "no_such_file.csv"),
    ("run --heads 0", "--heads"),
    ("run --heads many", "--heads"),
    ("run --dtype fp64", "--dtype"),
    ("run --page 0", "--page"),
    ("run --threads -1", "--threads"),
    ("run --device gpu", "--device"),
    ("run --device cuda:x", "--device"),
    ("run --device cuda:-1", "--device"),
    ("run --device cpu --kernel no_such_kernel", "cpu_decode_dense"),
    ("run --device cpu --d-qk 100", "d_v"),
    ("plan --gpu b200", "h200, h100"),
    ("plan --gpu h200 --device cpu", "--device"),
    ("simulate --heads 0", "num_heads"),
    ("simulate --rope -1", "rope_dim"),
    ("simulate --parity-heads 1000", "parity_heads"),
    ("simulate --gpu b200", "h200, h100"),
    ("verify --cases 0", "--cases"),
    ("verify --case {}", "--case"),
    ("bench prefill", "there is no 'prefill'; there are decode, decode_formats"),
    ("kv", "a command is needed: inspect"),
    ("kv inspect", "file"),
    ("kv inspect no_such_file.npy", "no_such_file.npy"),
    ("kv diff only_one.npy", "b is required"),
    ("bench --suite everything", "everything"),
])
def test_bad_input_names_the_argument(flashmla, command, complaint):
    done = flashmla(command)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("flashmla: ")
    assert complaint in done.err


def test_bad_options_say_where_help_is(flashmla):
    assert "Try `flashmla run --help`." in flashmla("run --bogus").err
    assert "Try `flashmla kv diff --help`." in flashmla("kv diff a b --bogus").err


@pytest.mark.parametrize("command", [
    "run --device cpu --d-qk 200 --d-v 100 --lengths 5",
    "run --device cpu --kernel sm90_decode_dense --lengths 5",
    "plan --gpu h200 --page 32",
])
def test_unsupported(flashmla, command):
    done = flashmla(command)
    assert done.code == 3
    assert done.err.startswith("flashmla: ")


def test_unsupported_device(flashmla):
    done = flashmla("run --device cuda:63 --lengths 5")
    assert done.code in (2, 3)  # 3 without a GPU, 2 where there are some but not 64
    assert "cuda" in done.err.lower()


def test_a_cpu_path_that_does_not_exist(flashmla):
    done = flashmla(SMALL_RUN, env={"FLASHMLA_CPU_ISA": "mmx"})
    assert done.code == 2
    assert "FLASHMLA_CPU_ISA" in done.err


def test_out_of_memory(flashmla):
    done = flashmla("simulate --batch 1000000 --context 1000000")
    assert done.code == 4
    assert "compare fewer requests" in done.err


def test_unwritable_output(flashmla):
    done = flashmla("bench --b 1 --len 8 --heads 1 --device cpu --samples 1 --output /no/such/folder/x.json")
    assert done.code == 4
    assert "/no/such/folder/x.json" in done.err


def test_errors_are_json_too(flashmla):
    done = flashmla("run --device cpu --d-qk 100 --json")
    assert done.code == 2
    assert done.json["error"]["exit_code"] == 2
    assert "d_v" in done.json["error"]["message"]
