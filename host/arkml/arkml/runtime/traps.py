"""Translation of wasmtime's reports of failed calls into the errors of this package."""

from __future__ import annotations

import re
from collections.abc import Sequence

import wasmtime

from arkml.base.terminal import harmless
from arkml.errors import Frame, GuestError, GuestExit, GuestTrap, StackExhausted
from arkml.runtime import bindings
from arkml.runtime.module.normalize import CodePlaces
from arkml.runtime.shim.render import NAME as SHIM

_SHOWN_FRAMES = 24
_OUT_OF_BOUNDS = wasmtime.TrapCode.MEMORY_OUT_OF_BOUNDS
_FAULT = re.compile(r"(memory fault at wasm address 0x[0-9a-f]+ in .*)")
_PLACE = re.compile(r"\s+(?:at (.+)|- (.+))$")
_MANGLED = re.compile(r"_{1,2}[RZ]")  # as names of Rust and C++ begin
_NOWHERE = (0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)  # offset of a frame that overflowed the stack
_SHOWN_NAME = 200  # characters
_CAUSE = "Caused by:"  # before the last lines of an error
_NO_ROOM = "out of room for objects"
HEAP_FULL = "GC heap out of memory"
"""Beginning of wasmtime's text where a guest's objects may have no more bytes."""
NO_ROOM_FOR_OBJECTS = (
    "no room is left for its structs, arrays and exceptions: they may have what its memory"
    " may (Limits.memory_bytes), and a third of Limits.guest_bytes"
)
_CAUSES = {HEAP_FULL: _NO_ROOM, "thrown Wasm exception": "uncaught exception"}
"""The codes of errors of wasmtime, by the beginning of the text of their cause."""


def failure(
    name: str, trap: bindings.Address, error: bindings.Address, places: CodePlaces
) -> GuestError | None:
    """
    Return the error of a call from the addresses of its trap and error; None if it succeeded.

    `places` translates code offsets of the guest's module.
    """
    if trap:
        return _trap(name, bindings.trap_at(trap), places)
    if error:
        cause = bindings.error_at(error)
        if isinstance(cause, wasmtime.ExitTrap):
            return GuestExit(f"{name} exited with status {cause.code}", status=cause.code)
        return _error(name, cause, places)
    return None


def _error(name: str, error: wasmtime.WasmtimeError, places: CodePlaces) -> GuestTrap:
    """Return the error of a call that did not trap: an uncaught exception, or a full heap."""
    message = str(error)
    shown, _, cause = message.rpartition(_CAUSE)
    reason = harmless(" ".join(cause.split()))
    code = next((kind for start, kind in _CAUSES.items() if cause.strip().startswith(start)), "")
    if code == _NO_ROOM:
        reason = NO_ROOM_FOR_OBJECTS
    frames = _frames(name, shown, bindings.frames_of(error), places)
    return GuestTrap(
        f"{name} trapped: {reason}{backtrace(frames)}", code=code or reason, frames=frames
    )


def _frames(
    name: str, message: str, trace: Sequence[wasmtime.Frame], places: CodePlaces
) -> tuple[Frame, ...]:
    """Return the frames of a guest, with names and source lines from wasmtime's `message`."""
    told = _told_frames(message, trace)
    return tuple(
        Frame(
            function=harmless(_cut(shown or frame.func_name or _unnamed(frame, places))),
            module=harmless(_cut(frame.module_name)) or name,
            offset=None if frame.module_offset in _NOWHERE else frame.module_offset - places.shift,
            places=tuple(harmless(_cut(line)) for line in lines),
        )
        for frame, (shown, lines) in zip(trace, told, strict=True)
        if frame.module_name != SHIM
    )


def _trap(name: str, trap: wasmtime.Trap, places: CodePlaces) -> GuestTrap:
    code, message = trap.trap_code, trap.message
    frames = _frames(name, message, trap.frames, places)
    kind = "" if code is None else code.name.lower().replace("_", " ")
    reason = kind or harmless(message.partition("\n")[0])
    if (fault := _FAULT.search(message)) is not None and code is _OUT_OF_BOUNDS:
        reason = f"{reason}, {fault[1]}"
    if code is wasmtime.TrapCode.STACK_OVERFLOW:
        reason = f"{reason}: its calls need more than Limits.wasm_stack, or have no end"
    text = f"{name} trapped: {reason}{backtrace(frames)}"
    if code is wasmtime.TrapCode.STACK_OVERFLOW:
        return StackExhausted(text, code=kind, frames=frames)
    return GuestTrap(text, code=kind, frames=frames)


def _told_frames(
    message: str, frames: Sequence[wasmtime.Frame]
) -> list[tuple[str | None, list[str]]]:
    """
    Return name and places of each frame as wasmtime's message has them.

    Names are demangled there. A name is None for a function whose name was not mangled: wasmtime
    would show `f`, for example, as `float`. Places are files with lines, innermost first: several
    if functions were inlined, none without DWARF or if wasmtime was not asked for them.
    """
    told: list[tuple[str | None, list[str]]] = []
    lines = iter(message.split("\n"))
    line = next(lines, None)
    for index, frame in enumerate(frames):
        offset = frame.module_offset
        where = f"{index}:" if offset in _NOWHERE else f"{index}: {offset:#x} -"
        start = re.compile(rf"\s*{where.replace(' ', ' +')} +(?:<unknown> - )?")
        while line is not None and (found := start.match(line)) is None:
            line = next(lines, None)
        if line is None:
            told.append((None, []))
            continue
        assert found is not None
        name = line[found.end() :]
        places: list[str] = []
        while (line := next(lines, None)) is not None and (found := _PLACE.match(line)) is not None:
            place, inlined_into = found.groups()
            if inlined_into:
                name = inlined_into
            else:
                places.append(place)
        is_mangled = _MANGLED.match(frame.func_name or "")
        shown = name.removeprefix(f"{frame.module_name or '<unknown>'}!")
        told.append((shown if is_mangled else None, places))
    return told


def _unnamed(frame: wasmtime.Frame, places: CodePlaces) -> str:
    """Return the name of a function that has none: the name of its export, or its index."""
    return places.exported.get(frame.func_index, f"function {frame.func_index}")


def _cut(name: str | None) -> str:
    """Return a name, with an ellipsis after its first characters if it is long."""
    name = name or ""
    return name if len(name) <= _SHOWN_NAME else f"{name[:_SHOWN_NAME]}…"


def backtrace(frames: Sequence[Frame]) -> str:
    """Format wasm frames as lines of text, innermost first."""
    shown = [f"\n  {index}: {_shown(frame)}" for index, frame in enumerate(frames[:_SHOWN_FRAMES])]
    more = len(frames) - len(shown)
    return "".join([*shown, f"\n  … {more} more"] if more > 0 else shown)


def _shown(frame: Frame) -> str:
    where = "" if frame.offset is None else f" (offset {frame.offset:#x})"
    return "".join([frame.function, where, *(f"\n       at {place}" for place in frame.places)])
