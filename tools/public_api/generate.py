"""Writes `docs/api.txt`: the public names with their signatures; `--check` compares instead."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import griffe
from tools.houses import merge
from tools.public_api.surface import EVERYTHING, MEMBERS, NOT_MADE_BY_PROGRAMS, SURFACE

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "api.txt"
HEAD = """\
# The public API of arkml, one name a line: docs/stability.md says what is promised of it.
# Written by `make generate` from the source; `make check` fails when it is not current.
"""
_SPECIAL = {
    "__add__", "__call__", "__contains__", "__enter__", "__getitem__", "__iter__", "__len__",
}  # fmt: skip
_MODULES = re.compile(r"\b(?:\w+\.)+")
_STARS = {
    griffe.ParameterKind.var_positional: "*",
    griffe.ParameterKind.var_keyword: "**",
}


def loaded() -> griffe.Module:
    """Return the package as griffe reads it, without importing it."""
    with tempfile.TemporaryDirectory() as merged:
        merge(Path(merged))
        package = griffe.load("arkml", search_paths=[merged], resolve_aliases=True)
    assert isinstance(package, griffe.Module)
    return package


def public_objects(package: griffe.Module) -> Iterator[tuple[str, griffe.Object]]:
    """Yield the public names and the objects that they are."""
    for module, names in SURFACE.items():
        home = package if module == "arkml" else package[module.removeprefix("arkml.")]
        if names is EVERYTHING:
            names = tuple(home.exports or ()) or tuple(_defined(home))
        for name in sorted(map(str, names)):
            found = home.members.get(name) or _lazy(package, home, name)
            yield f"{module}.{name}", found.final_target if found.is_alias else found


def _defined(home: griffe.Object) -> Iterator[str]:
    for name, member in home.members.items():
        if not (name.startswith("_") or member.is_alias or member.is_module):
            yield name


def _lazy(package: griffe.Module, home: griffe.Object, name: str) -> griffe.Object:
    """Return what `__getattr__` of a module finds: the table `_HOMES` has its home."""
    table = home.members["_HOMES"].value
    assert isinstance(table, griffe.ExprDict)
    for key, value in zip(table.keys, table.values, strict=True):
        if str(key) == repr(name):
            return package[f"{str(value).strip(chr(39)).removeprefix('arkml.')}.{name}"]
    raise KeyError(f"{home.path} has no {name}")


def lines_of(name: str, item: griffe.Object) -> Iterator[str]:
    """Yield a line for an object and one for each of its public members."""
    match item:
        case griffe.Class():
            yield from _class_lines(name, item)
        case griffe.Function():
            yield f"{name}{_signature(item)}"
        case griffe.Attribute():
            yield _attribute_line(name, item)
        case _:
            raise TypeError(f"{name} is a {type(item).__name__}")


def _class_lines(name: str, item: griffe.Class) -> Iterator[str]:
    bases = ", ".join(_MODULES.sub("", str(base)) for base in item.bases)
    yield f"class {name}({bases})" if bases else f"class {name}"
    for key, member in members_of(name, item).items():
        if isinstance(member, griffe.Function) and key == "__init__":
            yield f"  {name}{_signature(member, returns=False)}"
        elif isinstance(member, griffe.Function):
            yield f"  {name}.{key}{_signature(member)}"
        elif isinstance(member, griffe.Attribute):
            yield f"  {_attribute_line(f'{name}.{key}', member)}"


def members_of(name: str, item: griffe.Class) -> dict[str, griffe.Object]:
    """Return the public members of a class by name, those of its bases in the package too."""
    wanted = MEMBERS.get(name)
    found: dict[str, griffe.Object] = {}
    for key, member in sorted(item.all_members.items()):
        if wanted is not None and key not in wanted:
            continue
        if key == "__init__" and name in NOT_MADE_BY_PROGRAMS:
            continue
        if key.startswith("_") and key not in _SPECIAL and key != "__init__":
            continue
        found[key] = member.final_target if member.is_alias else member
    if missing := set(wanted or ()) - found.keys():
        raise KeyError(f"{name} has no {', '.join(sorted(missing))}")
    return found


def _attribute_line(name: str, item: griffe.Attribute) -> str:
    note = "  [property]" if "property" in item.labels else ""
    value = (
        f" = {item.value}" if item.value is not None and "class-attribute" in item.labels else ""
    )
    kind = "" if item.annotation is None else f": {item.annotation}"
    is_long = len(value) > 60 or "\n" in value
    return f"{name}{kind}{' = ...' if is_long else value}{note}"


def _signature(item: griffe.Function, *, returns: bool = True) -> str:
    parts: list[str] = []
    bound = item.parent is not None and item.parent.is_class and "staticmethod" not in item.labels
    parameters = list(item.parameters)[1 if bound else 0 :]
    keywords = positional = False
    for place, parameter in enumerate(parameters):
        if parameter.kind is griffe.ParameterKind.keyword_only and not keywords:
            keywords = True
            parts.append("*")
        keywords = keywords or parameter.kind is griffe.ParameterKind.var_positional
        positional = parameter.kind is griffe.ParameterKind.positional_only
        parts.append(_parameter(parameter))
        after = parameters[place + 1 : place + 2]
        if positional and not any(p.kind is parameter.kind for p in after):
            parts.append("/")
    name = "async " if "async" in item.labels else ""
    result = f" -> {item.returns}" if returns and item.returns is not None else ""
    return f"({', '.join(parts)}){result}{'  [async]' if name else ''}"


def _parameter(parameter: griffe.Parameter) -> str:
    stars = _STARS.get(parameter.kind, "") if parameter.kind is not None else ""
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not None:
        text += f": {parameter.annotation}"
    if parameter.default is not None and not stars:
        text += f" = {parameter.default}"
    return text


def page() -> str:
    """Return the text of the page."""
    package = loaded()
    lines: list[str] = []
    module = ""
    for name, item in public_objects(package):
        home = name.rpartition(".")[0]
        if home != module:
            lines += ["", f"## {home}", ""]
            module = home
        if home != "arkml" and item.path in _top(package):
            lines.append(f"{name}: see {_top(package)[item.path]}")
        else:
            lines += lines_of(name, item)
    return HEAD + "\n".join(lines) + "\n"


def _top(package: griffe.Module) -> dict[str, str]:
    """Return the names in `arkml` by the paths of their objects."""
    if not _tops:
        for name in map(str, package.exports or ()):
            _tops[_lazy(package, package, name).path] = f"arkml.{name}"
    return _tops


_tops: dict[str, str] = {}


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` return 1 where it is not current."""
    text = page()
    if "--check" not in arguments:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    sys.stderr.write("docs/api.txt is not current: run `make generate`, and read the difference\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
