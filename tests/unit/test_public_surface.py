"""The table of public names is true, and the guides use these names only."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
from tools.public_api.surface import EVERYTHING, MEMBERS, NOT_MADE_BY_PROGRAMS, SURFACE

import arkml

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


def is_public(module, name):
    """Whether the table has a name, or the name is a public module."""
    names = SURFACE.get(module, ())
    return names is EVERYTHING or name in names or f"{module}.{name}" in SURFACE


@pytest.mark.parametrize("module", SURFACE)
def test_a_public_name_is_there(module):
    found = import_module(module)
    names = SURFACE[module]

    for name in getattr(found, "__all__", ()) if names is EVERYTHING else names:
        assert hasattr(found, name), name


def all_of(module):
    return import_module(module).__all__


def test_what_is_said_of_classes_is_said_of_public_ones():
    names = {f"{module}.{name}" for module, listed in SURFACE.items() for name in listed}
    names |= {
        f"{module}.{name}"
        for module in ("arkml", "arkml.envs", "arkml.testing")
        for name in all_of(module)
    }

    assert MEMBERS.keys() | NOT_MADE_BY_PROGRAMS <= names


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_imports_public_names(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("arkml"):
            for alias in node.names:
                assert is_public(node.module, alias.name), f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                assert not alias.name.startswith("arkml") or alias.name in SURFACE, alias.name


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_uses_public_attributes_of_the_package(code):
    for node in ast.walk(ast.parse(code)):
        is_of_package = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if is_of_package and node.value.id == "arkml" and node.attr not in ("envs", "errors"):
            assert node.attr in (*arkml.__all__, "__version__"), node.attr


def test_the_page_of_the_api_names_every_public_name():
    lines = (ROOT / "docs" / "api.txt").read_text().splitlines()
    starts = {re.match(r"(?:class )?([\w.]+)", line)[1] for line in lines if line[:1].isalpha()}

    for module, names in SURFACE.items():
        listed = [] if names is EVERYTHING and module != "arkml" else names
        for name in arkml.__all__ if module == "arkml" else listed:
            assert f"{module}.{name}" in starts
