"""The resolution of a module's imports to their providers; an error lists the missing ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from arkml.abi.catalog import find
from arkml.abi.layout import results, slots
from arkml.abi.schema import Function
from arkml.base.terminal import harmless
from arkml.errors import LinkError
from arkml.runtime.module.description import ImportInfo
from arkml.runtime.module.wasm_types import FunctionType, MemoryType

WASI_MODULE = "wasi_snapshot_preview1"
UNAVAILABLE_API = 2
_EARLY_WASI = "wasi_unstable"  # before the first version; some of its structures differ
_EMSCRIPTEN = ("emscripten_", "invoke_", "__cxa_")  # what the JavaScript beside its modules has
RESERVED = ("ark-", "arkml", "wasi")
"""Beginnings of the names of modules whose functions are the host's own."""
NUMBERS = ("i32", "i64", "f32", "f64")
"""Types that functions of a game take and return."""
MOST_VALUES = 16
"""Parameters, and results, that a function of a game may have: the arguments of a control block."""

WasiType: TypeAlias = Callable[[str], FunctionType | None]


@dataclass(frozen=True, slots=True)
class Linkage:
    """The imports of one module, as (module, name), grouped by who provides them."""

    shim: tuple[tuple[str, str], ...]
    wasi: tuple[tuple[str, str], ...]
    stubs: tuple[ImportInfo, ...]
    game: tuple[ImportInfo, ...] = ()
    """Functions of the embedder's game, in the order of the indices with which they suspend."""


@dataclass(frozen=True, slots=True)
class Missing:
    """
    An import that the host does not provide: its type, and the type of the host's function if any.
    """

    module: str
    name: str
    type: str
    provided: str


@cache
def signature(function: Function) -> FunctionType:
    """Return the wasm type of a function in the tables of the ABI."""
    return FunctionType(tuple(slot.wasm for slot in slots(function)), tuple(results(function)))


def resolve(
    imports: Sequence[ImportInfo],
    name: str,
    *,
    wasi_type: WasiType | None = None,
    stub_missing: bool = False,
    given: Collection[tuple[str, str]] = (),
) -> Linkage:
    """
    Return the providers of the imports of the module `name`, or raise LinkError.

    `wasi_type` returns the types of WASI functions; it is None if WASI is not granted. With
    `stub_missing` unknown functions of `ark-*` modules are provided by stubs. `given` are the
    functions of the embedder's game; they come before those of compilers, such as `env.trace`.
    """
    shim: list[tuple[str, str]] = []
    wasi: list[tuple[str, str]] = []
    stubs: dict[tuple[str, str], ImportInfo] = {}
    game: dict[tuple[str, str], ImportInfo] = {}
    missing: list[Missing] = []
    for entry in imports:
        if isinstance(entry.type, MemoryType):
            continue
        key = (entry.module, entry.name)
        if key in given:
            if (reason := why_not(entry, game.get(key))) is None:
                game[key] = entry
            else:
                missing.append(Missing(entry.module, entry.name, str(entry.type), reason))
            continue
        provided = _provided(entry, wasi_type)
        if provided == entry.type and entry.module == WASI_MODULE:
            wasi.append((entry.module, entry.name))
        elif provided == entry.type:
            shim.append((entry.module, entry.name))
        elif (
            stub_missing
            and stubs.get((entry.module, entry.name), entry).type == entry.type
            and provided is None
            and entry.module.startswith("ark-")
            and isinstance(entry.type, FunctionType)
        ):
            stubs[entry.module, entry.name] = entry
        else:
            missing.append(_missing(entry, provided, granted=wasi_type is not None))
    if missing:
        raise LinkError(_message(name, missing))
    return Linkage(
        tuple(dict.fromkeys(shim)),
        tuple(dict.fromkeys(wasi)),
        tuple(stubs.values()),
        tuple(game.values()),
    )


def may_be_of_a_game(entry: ImportInfo) -> bool:
    """Return whether an embedder may provide this import as a function of its game; see `Host`."""
    is_own = entry.module == WASI_MODULE or entry.module.startswith(RESERVED)
    return not is_own and find(entry.module, entry.name) is None and why_not(entry) is None


def why_not(entry: ImportInfo, same: ImportInfo | None = None) -> str | None:
    """
    Return why the embedder's game cannot provide this import, or None if it can.

    `same` is another import with the same names.
    """
    kind = entry.type
    if not isinstance(kind, FunctionType):
        return "nothing: a game gives functions only"
    others = [each for each in (*kind.params, *kind.results) if each not in NUMBERS]
    if others:
        return f"nothing: a game's function takes and returns numbers, and no {others[0]}"
    if max(len(kind.params), len(kind.results)) > MOST_VALUES:
        return f"nothing: a game's function has up to {MOST_VALUES} parameters and results"
    if same is not None and same.type != kind:
        return f"one function of the game, and the module imports it as {same.type} too"
    return None


def unmet(imports: Sequence[ImportInfo], wasi_type: WasiType) -> tuple[Missing, ...]:
    """Return the imports that this host cannot provide, even if WASI is granted."""
    missing: list[Missing] = []
    for entry in imports:
        if isinstance(entry.type, MemoryType):
            continue
        provided = _provided(entry, wasi_type)
        if provided != entry.type:
            missing.append(_missing(entry, provided, granted=True))
    return tuple(missing)


def stub_note(stub: ImportInfo) -> str:
    """Return a sentence for messages about the stub of an import."""
    kind = _function(stub)
    behavior = {(): "does nothing", ("i32",): f"answers {UNAVAILABLE_API}"}.get(
        kind.results, "traps"
    )
    return f"{harmless(f'{stub.module}.{stub.name}')} is missing: a stub {behavior}"


def stub_module(stubs: tuple[ImportInfo, ...]) -> str:
    """
    Return the text of a wasm module that exports each stub under its number.

    A stub with one i32 result answers ApiNotAvailable, and a stub without a result does nothing. A
    stub of another type traps, in a frame named after the import, such as `stub-0-of-ark-x.y`.
    """
    return "\n".join(["(module", *map(_stub, range(len(stubs)), stubs), ")"])


def _stub(number: int, stub: ImportInfo) -> str:
    kind = _function(stub)
    params = f"(param {' '.join(kind.params)})" if kind.params else ""
    returned = f"(result {' '.join(kind.results)})" if kind.results else ""
    body = {(): "", ("i32",): f"(i32.const {UNAVAILABLE_API})"}.get(kind.results, "unreachable")
    name = f"{stub.module}.{stub.name}"
    label = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name)
    return f'(func $stub-{number}-of-{label} (export "{number}") {params} {returned} {body})'


def _function(stub: ImportInfo) -> FunctionType:
    assert isinstance(stub.type, FunctionType)
    return stub.type


def _provided(entry: ImportInfo, wasi_type: WasiType | None) -> FunctionType | None:
    """Return the type of the host's function with the name of `entry`, or None."""
    if entry.module == WASI_MODULE:
        return wasi_type(entry.name) if wasi_type is not None else None
    row = find(entry.module, entry.name)
    return signature(row[1]) if row is not None else None


def _missing(entry: ImportInfo, provided: FunctionType | None, *, granted: bool) -> Missing:
    has = "nothing" if provided is None else str(provided)
    if entry.module == WASI_MODULE and not granted:
        has = "nothing: WASI is not granted (--wasi), in Python by `wasi`"
    return Missing(entry.module, entry.name, str(entry.type), has)


def _message(name: str, missing: list[Missing]) -> str:
    names = [harmless(f"{m.module}.{m.name}").replace("\n", " ") for m in missing]
    wide = max(map(len, names))
    lines = [
        f"\n  {label:<{wide}}  wants {m.type}, the host has {m.provided}"
        for label, m in zip(names, missing, strict=True)
    ]
    count = "an import" if len(missing) == 1 else f"{len(missing)} imports"
    hint = ""
    example = next((m for m in missing if not m.module.startswith((*RESERVED, WASI_MODULE))), None)
    if example is not None:
        key = f"({example.module!r}, {example.name!r})"
        way = f"Host(imports={{{harmless(key)}: f}})"
        hint = f"\n  a game gives functions of its own: {way}, --imports"
    if any(m.module == _EARLY_WASI for m in missing):
        hint += f"\n  {_EARLY_WASI} is of 2019: build the module by a compiler for {WASI_MODULE}"
    if any(m.module == "env" and m.name.startswith(_EMSCRIPTEN) for m in missing):
        hint += (
            "\n  Emscripten's JavaScript has such functions: build with -sSTANDALONE_WASM, and"
            " without -fexceptions"
        )
    return f"{name} needs {count} that this host does not have:" + "".join(lines) + hint
