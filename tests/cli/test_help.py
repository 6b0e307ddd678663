"""Every command has a help text with examples that parse."""

import re
import shlex

import pytest

COMMANDS = ("run", "simulate", "info", "plan", "verify", "bench")
KV_COMMANDS = ("kv inspect", "kv verify", "kv convert", "kv diff")


def examples(help_text):
    return [line.strip() for line in help_text.split("Examples:\n")[1].splitlines() if line.strip()]


def test_main_help_lists_commands_and_exit_status(flashmla):
    done = flashmla("--help")
    assert done.code == 0
    for command in (*COMMANDS, "kv"):
        assert re.search(rf"^  {command} ", done.out, re.MULTILINE)
    assert "Exit status: 0 fine, 1 a check failed" in done.out


def test_bench_help_lists_operations_with_their_sizes(flashmla):
    text = flashmla("bench --help").out
    assert re.search(r"\n  dense_prefill  +\S.*\n +--dtype --b --heads --kv-heads --s-q ", text)
    for group in ("Sizes (", "Measurement:", "Of decode alone:"):
        assert f"\n{group}" in text
    assert "N in [" not in text and max(map(len, text.splitlines())) <= 120


def test_version(flashmla):
    done = flashmla("--version")
    assert done.code == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", done.out)


def test_kv_help_teaches_the_files(flashmla):
    done = flashmla("kv --help")
    assert done.code == 0
    for word in ("inspect", "verify", "convert", "diff", "fp8_656", "--format bf16", "(pages, page, 1, record)"):
        assert word in done.out


@pytest.mark.parametrize("command", (*COMMANDS, *KV_COMMANDS))
def test_command_help(flashmla, command):
    done = flashmla(*command.split(), "--help")
    assert done.code == 0
    assert "--json" in done.out
    assert len(examples(done.out)) >= 2


@pytest.mark.parametrize("command", (*COMMANDS, *KV_COMMANDS))
def test_examples_parse(flashmla, tmp_path, command):
    """With one more option, an unknown one, parsing is all that can fail: it must be the only complaint."""
    for line in examples(flashmla(*command.split(), "--help").out):
        trace = tmp_path / "requests.csv"
        trace.write_text("arrival_ms,input_tokens,output_tokens\n0,5,5\n")
        lengths = tmp_path / "lengths.json"
        lengths.write_text("[5, 6]")
        words = [str(trace) if w == "requests.csv" else str(lengths) if w == "lengths.json" else w for w in shlex.split(line)]
        assert words[:len(command.split()) + 1] == ["flashmla", *command.split()]
        done = flashmla(*words[1:], "--no-such-option")
        assert done.code == 2
        assert done.err.startswith(f"flashmla: --no-such-option: flashmla {command} has no such option\n")
