"""
The signatures of published packages whose names ours keep, in `published_signatures.json`.

    python -m tests.unit.published_signatures --write mlagents_envs=FOLDER pettingzoo=FOLDER

reads the sources of the packages in these folders, which need not be installed. The file has, for
each package, its version, and by module the public names: the parameters of functions, and of the
public methods of classes; for attributes and properties None.
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).with_suffix(".json")
CHOSEN = {
    "mlagents_envs": None,  # all modules but the generated messages
    "pettingzoo": ("utils.env",),
}

INNER = {  # how the original is made: ours is made otherwise
    "registry.binary_utils": (
        "ZipFileWithProgress",
        "load_local_manifest",
        "load_remote_manifest",
        "print_progress",
    ),
    "rpc_communicator": ("UnityToExternalServicerImplementation",),
    "rpc_communicator.RpcCommunicator": (
        "check_port",
        "create_server",
        "poll_for_timeout",
        "unity_to_external",
    ),
    "rpc_utils": ("OffsetBytesIO",),
}

Named = dict[str, Any]


def read(root: Path, modules: tuple[str, ...] | None) -> Named:
    """Return the public names of the modules below `root`, by module."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        if "communicator_objects" in path.parts:
            continue
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        module = module.removesuffix("__init__").removesuffix(".")
        if modules is None or module in modules:
            names = _published(module, _names(ast.parse(path.read_text()).body))
            for name, members in names.items():
                if isinstance(members, dict):
                    names[name] = _published(f"{module}.{name}", members)
            if names:
                found[module] = names
    return found


def _published(owner: str, names: Named) -> Named:
    return {name: value for name, value in names.items() if name not in INNER.get(owner, ())}


def _names(body: list[ast.stmt]) -> Named:
    found: Named = {}
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found[node.name] = _members(node)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found[node.name] = _parameters(node, is_method=False)
    return found


def _members(node: ast.ClassDef) -> Named:
    members: Named = {}
    for each in node.body:
        if isinstance(each, ast.FunctionDef):
            if each.name == "__init__" or not each.name.startswith("_"):
                members[each.name] = _member(each)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            members[each.target.id] = None
        elif isinstance(each, ast.Assign):
            members.update({t.id: None for t in each.targets if isinstance(t, ast.Name)})
    return {name: value for name, value in members.items() if name[0] != "_" or name == "__init__"}


def _member(node: ast.FunctionDef) -> Any:
    decorators = {ast.unparse(each) for each in node.decorator_list}
    if any(each == "property" or each.endswith(".setter") for each in decorators):
        return None
    return _parameters(node, is_method="staticmethod" not in decorators)


def _parameters(node: ast.FunctionDef, *, is_method: bool) -> list[str]:
    """Return the names of parameters in order, with "=" behind those that have a default."""
    arguments = node.args
    places = [*arguments.posonlyargs, *arguments.args]
    first_default = len(places) - len(arguments.defaults)
    named = [
        f"{each.arg}{'=' if place >= first_default else ''}" for place, each in enumerate(places)
    ]
    named = named[1:] if is_method else named
    if arguments.vararg:
        named.append(f"*{arguments.vararg.arg}")
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    named += [f"{each.arg}{'' if default is None else '='}" for each, default in keywords]
    return named + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])


def _version(folder: Path, package: str) -> str:
    for info in folder.glob(f"{package}-*.dist-info"):
        return info.name.removesuffix(".dist-info").rpartition("-")[2]
    raise SystemExit(f"{folder} has no metadata of {package}")


def main() -> None:
    """Write the golden file from the packages that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", nargs="+", required=True, metavar="PACKAGE=FOLDER")
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for entry in parser.parse_args().write:
        package, _, folder = entry.partition("=")
        names = read(Path(folder) / package, CHOSEN[package])
        golden[package] = {"version": _version(Path(folder), package), "modules": names}
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
