"""Translation of what wasmtime reports of a failed call into the errors of this package."""

from __future__ import annotations

from collections.abc import Sequence

import wasmtime

from arkml.errors import Frame, GuestError, GuestExit, GuestTrap, StackExhausted
from arkml.runtime import bindings
from arkml.runtime.shim.render import NAME as SHIM
from arkml.terminal import harmless

_SHOWN_FRAMES = 24
_SHOWN_NAME = 200  # characters


def failure(name: str, trap: bindings.Address, error: bindings.Address) -> GuestError | None:
    """Return the error of a call from the addresses that it left, or None if it ended well."""
    if trap:
        return _trap(name, bindings.trap_at(trap))
    if error:
        cause = bindings.error_at(error)
        if isinstance(cause, wasmtime.ExitTrap):
            return GuestExit(f"{name} exited with status {cause.code}", status=cause.code)
        return GuestTrap(f"{name}: {' '.join(str(cause).split())}")
    return None


def _trap(name: str, trap: wasmtime.Trap) -> GuestTrap:
    code = trap.trap_code
    frames = tuple(
        Frame(
            function=harmless(_cut(frame.func_name) or f"function {frame.func_index}"),
            module=_cut(frame.module_name) or name,
            offset=frame.module_offset,
        )
        for frame in trap.frames
        if frame.module_name != SHIM
    )
    kind = "" if code is None else code.name.lower().replace("_", " ")
    reason = kind or trap.message.partition("\n")[0]
    text = f"{name} trapped: {reason}{backtrace(frames)}"
    if code is wasmtime.TrapCode.STACK_OVERFLOW:
        return StackExhausted(text, code=kind, frames=frames)
    return GuestTrap(text, code=kind, frames=frames)


def _cut(name: str | None) -> str:
    """Return a name with an ellipsis in place of what is beyond its first characters."""
    name = name or ""
    return name if len(name) <= _SHOWN_NAME else f"{name[:_SHOWN_NAME]}…"


def backtrace(frames: Sequence[Frame]) -> str:
    """Format the frames as lines, innermost first."""
    shown = [
        f"\n  {index}: {frame.function} (offset {frame.offset:#x})"
        for index, frame in enumerate(frames[:_SHOWN_FRAMES])
    ]
    more = len(frames) - len(shown)
    return "".join([*shown, f"\n  … {more} more"] if more > 0 else shown)
