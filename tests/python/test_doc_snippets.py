"""Every Python snippet of the API page runs, in order, in one namespace; every public function has its place there."""

import pathlib
import re

import pytest

import flashmla

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/api_python.md"


def snippets(page):
    """(first line number, code) of the page's Python blocks."""
    text = page.read_text()
    return [(text.count("\n", 0, match.start()) + 2, match[1]) for match in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S)]


def test_every_snippet_runs(capsys):
    namespace = {}
    for line, code in snippets(PAGE):
        # The lines of a traceback are those of the page.
        exec(compile("\n" * (line - 1) + code, PAGE, "exec"), namespace)


def test_every_public_function_has_a_snippet():
    code = "".join(code for _, code in snippets(PAGE))
    functions = [name for name in flashmla.__all__ if name[0].islower()]
    assert [name for name in functions if f"flashmla.{name}(" not in code] == []


@pytest.mark.parametrize("page", ["docs/api_python.md", "docs/python.md"])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    headings = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.M)}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        assert (ROOT / page).parent.joinpath(file).exists() if file else anchor in headings, target
