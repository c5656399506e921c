"""The functions that start an instance of a module, found from its exports and their code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from arkml.errors import ModuleRejected
from arkml.runtime.module.binary import Binary, Export, ExternKind
from arkml.runtime.module.names import function_names
from arkml.runtime.module.wasm_reader import Reader
from arkml.runtime.module.wasm_types import FunctionType, value_type

START_NAME = "arkml:start"
"""Export that the host adds for the start function of a module."""
CONSTRUCTORS_NAME = "arkml:constructors"
"""Export that the host adds for the constructors of a module that runs them in every export."""

COMMAND = "_start"
_INITIALIZE, _CONSTRUCTORS = "_initialize", "__wasm_call_ctors"
_WRAPPER = ".command_export"  # wasm-ld's suffix
_FRAMED = {"ark_applet_update", "ark_cmdlet_run", "ark_servlet_request"}
_NOTHING = FunctionType()
_GET, _CALL, _END = 0x20, 0x10, 0x0B
_MOST_BYTES, _BYTES_OF_GET = 32, 6  # of a wrapper: three calls, and more for each parameter

_MENDED = (
    "link it with -Wl,--export=__wasm_call_ctors (Rust: -C link-arg=--export=__wasm_call_ctors), or"
    " with -mexec-model=reactor where there is a libc"
)


_AT_EXIT = "__cxa_atexit"  # notes a destructor
_DESTROYED = (
    "it is a command: its global objects are destroyed at the end of its main function, before the"
    " first frame; link it with -mexec-model=reactor"
)
_MAIN = "undefined_weak:main"  # wasm-ld's stub of a main function that is not there
_MAINLESS = (
    "it is a command without a main function, whose _start traps: link it with -mexec-model=reactor"
)

_NO_COMMAND = (
    "its export _start takes or returns something, so it is not the start of a command: call it"
    " first if it starts the module"
)


@dataclass(frozen=True, slots=True)
class Startup:
    """
    The functions that start an instance of a module.

    Attributes:
        functions: Functions that run once, before all others.
        deferred: In a module that may also be run as a command: a function, such as `_start`, that
            runs before the first call of any other function. Else None.
        note: A sentence about a change that the module's build needs, or "".
        loses_state: True if the module's constructors run in every call.

    """

    functions: tuple[str, ...] = ()
    deferred: str | None = None
    note: str = ""
    loses_state: bool = False

    def __str__(self) -> str:
        first = ", ".join(map(_shown, self.functions))
        if self.deferred is None:
            return first or "nothing"
        later = f"{_shown(self.deferred)}, before the first call of another function"
        return f"{first}; {later}" if first else later


@dataclass(frozen=True, slots=True)
class Wrappers:
    """
    Exported functions that wasm-ld has wrapped: each calls `constructors`, then the function.

    `wrapped` maps the index of each wrapper to that of its function.
    """

    constructors: int
    wrapped: Mapping[int, int]


def find_wrappers(binary: Binary) -> Wrappers | None:
    """Return the wrappers of a module whose exported functions are all wrapped, else None."""
    places = binary.bodies.exported
    if not places or set(places) != _exported(binary):
        return None
    bodies = {index: _body(binary, index) for index in places}
    calls = [body for body in bodies.values() if body is not None]
    constructors = calls[0][0] if calls else 0
    others = {constructors, *(body[2] for body in calls if len(body) > 2)}
    types = binary.functions
    if (
        len(calls) < len(bodies)
        or len(others) > 2
        or any(body[0] != constructors for body in calls)
        or any(types[each] != _NOTHING for each in others)
        or any(body is None or types[body[1]] != types[index] for index, body in bodies.items())
    ):
        return None
    wrapped = {index: body[1] for index, body in bodies.items() if body is not None}
    if not _is_linked(binary, constructors, wrapped):
        return None
    names = {export.name: export.index for export in binary.exports}
    if COMMAND in names and not _FRAMED & names.keys():  # a command stays as it is
        wrapped.pop(names[COMMAND], None)
    return Wrappers(constructors, wrapped) if wrapped else None


def startup_of(binary: Binary, wrappers: Wrappers | None) -> Startup:
    """Return the start functions of a module; `wrappers` is the result of `find_wrappers`."""
    names = {export.name for export in binary.exports if _is_plain(binary, export)}
    first = [START_NAME] if binary.start is not None else []
    note, loses_state = "", False
    exported = {export.name for export in binary.exports}
    may_be_command = COMMAND in names and not _FRAMED & exported
    if wrappers is not None:
        note = f"its constructors, which every export calls, run once here; {_MENDED}"
    elif (repeated := _repeated(binary)) is not None:
        index, name = repeated
        loses_state = name == _CONSTRUCTORS
        note = _repeated_note(index, name)
    if COMMAND in exported - names and not note:
        note = _NO_COMMAND
    chosen = next((name for name in (_INITIALIZE, _CONSTRUCTORS, COMMAND) if name in names), None)
    if chosen == COMMAND and not note:
        note = _note_on_command(binary, may_be_command)
    if wrappers is not None and may_be_command:
        return Startup(tuple(first), CONSTRUCTORS_NAME, note, loses_state)
    if wrappers is not None:
        first.append(CONSTRUCTORS_NAME)
    if chosen in (_CONSTRUCTORS, COMMAND) and may_be_command:
        return Startup(tuple(first), chosen, note, loses_state)
    return Startup((*first, chosen) if chosen else tuple(first), None, note, loses_state)


def _note_on_command(binary: Binary, may_be_command: bool) -> str:
    """Return a note if names of functions speak against starting a module by `_start`, or ""."""
    names = function_names(binary, range(len(binary.functions))).values()
    if _MAIN in names:
        return _MAINLESS
    return _DESTROYED if _AT_EXIT in names and not may_be_command else ""


def _exported(binary: Binary) -> set[int]:
    return {export.index for export in binary.exports if export.kind is ExternKind.FUNCTION}


def _is_plain(binary: Binary, export: Export) -> bool:
    """Return whether an export is a function that takes and returns nothing."""
    return export.kind is ExternKind.FUNCTION and binary.functions[export.index] == _NOTHING


def _is_linked(binary: Binary, constructors: int, wrapped: Mapping[int, int]) -> bool:
    """
    Return whether wasm-ld made the wrappers.

    Their names say so, such as `add.command_export`. Without names the order shows it: wasm-ld puts
    the constructors before all other functions, and the wrappers after them.
    """
    names = function_names(binary, {constructors, *wrapped})
    if names:
        return all(names.get(index, "").endswith(_WRAPPER) for index in wrapped)
    count = len(binary.functions)
    is_first = constructors == count - binary.bodies.count
    last = list(range(count - len(wrapped), count))
    return is_first and sorted(wrapped) == last


def _repeated(binary: Binary) -> tuple[int, str] | None:
    """Return the function that every exported function calls first, and its name, or None."""
    starting = (_INITIALIZE, _CONSTRUCTORS, COMMAND)
    exported = {
        export.index
        for export in binary.exports
        if export.kind is ExternKind.FUNCTION and export.name not in starting
    }
    if not exported or not exported <= set(binary.bodies.exported):
        return None
    first = {_first_call(binary, index) for index in exported}
    index = first.pop()
    imported = len(binary.functions) - binary.bodies.count
    if first or index is None or index < imported or binary.functions[index] != _NOTHING:
        return None
    name = function_names(binary, {index}).get(index, "")
    return (index, name) if name == _CONSTRUCTORS or len(exported) > 1 else None


def _repeated_note(index: int, name: str) -> str:
    if name == _CONSTRUCTORS:
        return f"every export runs the constructors again, and its state is lost; {_MENDED}"
    shown = f"function {index}" + (f" ({name})" if name else "")
    return f"every export calls {shown} first; if that is a constructor, {_MENDED}"


def _shown(name: str) -> str:
    match name:
        case "arkml:start":
            return "the start function"
        case "arkml:constructors":
            return "the constructors"
        case _:
            return name


def _reader(binary: Binary, index: int) -> Reader:
    place = binary.bodies.exported[index]
    return Reader(binary.data, place.start, place.stop, f"the body of function {index}")


def _body(binary: Binary, index: int) -> list[int] | None:
    """Return the two or three calls of a wrapper, whose second takes all parameters, or None."""
    params = len(binary.functions[index].params)
    place = binary.bodies.exported[index]
    if place.stop - place.start > _MOST_BYTES + _BYTES_OF_GET * params:
        return None
    reader = _reader(binary, index)
    calls: list[int] = []
    gets: list[tuple[int, int]] = []
    try:
        if reader.u32():  # it has locals
            return None
        while (code := reader.byte()) != _END:
            number = reader.u32()
            if code == _CALL and number < len(binary.functions):
                calls.append(number)
            elif code == _GET:
                gets.append((number, len(calls)))
            else:
                return None
    except ModuleRejected:
        return None
    if not reader.is_empty or gets != [(each, 1) for each in range(params)]:
        return None
    return calls if 2 <= len(calls) <= 3 else None


def _first_call(binary: Binary, index: int) -> int | None:
    """Return the function that a body calls before all else, or None."""
    reader = _reader(binary, index)
    try:
        for _ in range(reader.u32()):  # groups of locals
            reader.u32()
            value_type(reader)
        if reader.byte() != _CALL:
            return None
        number = reader.u32()
    except ModuleRejected:
        return None
    return number if number < len(binary.functions) else None
