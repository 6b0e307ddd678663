"""Every public function says what it takes, what it returns and what it raises."""

import inspect
import re

import pytest

import flashmla


def public_functions():
    for name in flashmla.__all__:
        thing = getattr(flashmla, name)
        if inspect.isfunction(thing):
            yield name, thing
        elif inspect.isclass(thing):
            for method, function in vars(thing).items():
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{name}.{method}", function


FUNCTIONS = dict(public_functions())


def section(text, title):
    """The lines of a section of a docstring, or None."""
    found = re.search(rf"^{title}:\n((?:(?: {{4}}.*)?\n)*)", text + "\n", re.M)
    return found and found[1]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstring(name):
    function = FUNCTIONS[name]
    text = inspect.getdoc(function)
    assert text, "no docstring"
    assert len(text.splitlines()[0]) > 20, "the first line says what the function is for"
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters if p != "self"]
    described = []
    for names in re.findall(r"^ {4}(\w+(?:, \w+)*): \S", section(text, "Arguments") or "", re.M):
        described += names.split(", ")
    assert sorted(described) == sorted(parameters)
    assert section(text, "Returns") or signature.return_annotation == "None"
    if parameters:
        assert section(text, "Raises")


def test_classes_have_docstrings():
    for name in flashmla.__all__:
        thing = getattr(flashmla, name)
        if inspect.isclass(thing):
            assert inspect.getdoc(thing), name
            for attribute, value in vars(thing).items():
                if isinstance(value, property):
                    assert value.__doc__, f"{name}.{attribute}"
