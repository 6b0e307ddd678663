"""The programs in docs/kv_formats.md run and print what the page says."""

import contextlib
import io
import pathlib
import re

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/kv_formats.md").read_text()


def printed(program):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(program, "docs/kv_formats.md", "exec"), {})
    return out.getvalue().strip()


def test_programs_print_what_the_page_says():
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(programs) == 2
    for program in programs:
        text = printed(program)
        assert text
        assert text in PAGE, text
