"""Where each import of a module comes from, or one error that lists all that come from nowhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from arkml.abi.catalog import find
from arkml.abi.layout import results, slots
from arkml.abi.schema import Function
from arkml.errors import LinkError
from arkml.runtime.module.binary import Binary, Import
from arkml.runtime.module.wasm_types import FunctionType, MemoryType
from arkml.terminal import harmless

WASI_MODULE = "wasi_snapshot_preview1"
UNAVAILABLE_API = 2

WasiType: TypeAlias = Callable[[str], FunctionType | None]


@dataclass(frozen=True, slots=True)
class Linkage:
    """The function imports of one module, as (module, name), by who provides them."""

    shim: tuple[tuple[str, str], ...]
    wasi: tuple[tuple[str, str], ...]
    stubs: tuple[Import, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """An import that nothing here satisfies: its type, and what the host has under that name."""

    module: str
    name: str
    wanted: str
    found: str


def signature(function: Function) -> FunctionType:
    """The wasm type of a table row."""
    return FunctionType(tuple(slot.wasm for slot in slots(function)), tuple(results(function)))


def resolve(
    binary: Binary,
    name: str,
    *,
    wasi_type: WasiType | None = None,
    stub_missing: bool = False,
) -> Linkage:
    """
    Say who provides each import of `binary`, or raise LinkError.

    `wasi_type` gives the types of the WASI functions, None where WASI is not granted. With
    `stub_missing` functions of unknown `ark-*` names are left to stubs.
    """
    shim: list[tuple[str, str]] = []
    wasi: list[tuple[str, str]] = []
    stubs: dict[tuple[str, str], Import] = {}
    missing: list[Missing] = []
    for entry in binary.imports:
        if isinstance(entry.type, MemoryType):
            continue
        found = _found(entry, wasi_type)
        if found == entry.type and entry.module == WASI_MODULE:
            wasi.append((entry.module, entry.name))
        elif found == entry.type:
            shim.append((entry.module, entry.name))
        elif (
            stub_missing
            and stubs.get((entry.module, entry.name), entry).type == entry.type
            and found is None
            and entry.module.startswith("ark-")
            and isinstance(entry.type, FunctionType)
        ):
            stubs[entry.module, entry.name] = entry
        else:
            missing.append(_missing(entry, found, granted=wasi_type is not None))
    if missing:
        raise LinkError(_message(name, missing))
    return Linkage(tuple(dict.fromkeys(shim)), tuple(dict.fromkeys(wasi)), tuple(stubs.values()))


def unmet(binary: Binary, wasi_type: WasiType) -> tuple[Missing, ...]:
    """The imports that this host does not have, WASI granted."""
    missing: list[Missing] = []
    for entry in binary.imports:
        if isinstance(entry.type, MemoryType):
            continue
        found = _found(entry, wasi_type)
        if found != entry.type:
            missing.append(_missing(entry, found, granted=True))
    return tuple(missing)


def stub_note(stub: Import) -> str:
    """What the stub of an import does, for people."""
    kind = _function(stub)
    does = {(): "does nothing", ("i32",): f"answers {UNAVAILABLE_API}"}.get(kind.results, "traps")
    return f"no {harmless(f'{stub.module}.{stub.name}')} here: a stub that {does}"


def stub_module(stubs: tuple[Import, ...]) -> str:
    """
    A module that exports the number of each stub.

    A function with one i32 result answers ApiNotAvailable, one without result does nothing, any
    other traps in a frame that bears the import's name.
    """
    return "\n".join(["(module", *map(_stub, range(len(stubs)), stubs), ")"])


def _stub(number: int, stub: Import) -> str:
    kind = _function(stub)
    params = f"(param {' '.join(kind.params)})" if kind.params else ""
    returned = f"(result {' '.join(kind.results)})" if kind.results else ""
    body = {(): "", ("i32",): f"(i32.const {UNAVAILABLE_API})"}.get(kind.results, "unreachable")
    name = f"{stub.module}.{stub.name}"
    label = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name)
    return f'(func $stub-{number}-of-{label} (export "{number}") {params} {returned} {body})'


def _function(stub: Import) -> FunctionType:
    assert isinstance(stub.type, FunctionType)
    return stub.type


def _found(entry: Import, wasi_type: WasiType | None) -> FunctionType | None:
    """The type of what the host has under the name of `entry`."""
    if entry.module == WASI_MODULE:
        return wasi_type(entry.name) if wasi_type is not None else None
    row = find(entry.module, entry.name)
    return signature(row[1]) if row is not None else None


def _missing(entry: Import, found: FunctionType | None, *, granted: bool) -> Missing:
    has = "nothing" if found is None else str(found)
    if entry.module == WASI_MODULE and not granted:
        has = "nothing: WASI is not granted (--wasi)"
    return Missing(entry.module, entry.name, str(entry.type), has)


def _message(name: str, missing: list[Missing]) -> str:
    plural = "imports that this host does not have" if len(missing) > 1 else "an import"
    names = [harmless(f"{m.module}.{m.name}").replace("\n", " ") for m in missing]
    wide = max(map(len, names))
    lines = [
        f"\n  {label:<{wide}}  wants {m.wanted}, the host has {m.found}"
        for label, m in zip(names, missing, strict=True)
    ]
    head = plural if len(missing) > 1 else "an import that this host does not have"
    return f"{name} needs {len(missing)} {head}:".replace("needs 1 an", "needs an") + "".join(lines)
