"""What a command makes a guest do: the entry point that was named, or that its exports suggest."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from arkml.cli.files import read_input
from arkml.cli.values import read_numbers
from arkml.errors import EntryPointMissing, UsageError
from arkml.runtime.module.description import BYTES_TO_STATUS, ModuleKind

if TYPE_CHECKING:
    from arkml.runtime.compiled_module import CompiledModule
    from arkml.runtime.module.description import EntryPoint, ModuleInfo

FRAMES = 600  # of an applet, if nobody says how many


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for, as text."""

    cmdlet: str | None = None
    invoke: str | None = None
    arguments: tuple[str, ...] = ()
    input: Path | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """
    One entry point and what it is called with.

    `kind` says how: APPLET and PLAIN with numbers, CMDLET with text in `data`, SERVLET and
    MODULE_RUN with bytes, WASI_COMMAND with nothing. Without a function there is nothing to call
    once the guest is initialized.
    """

    kind: ModuleKind
    function: str
    arguments: tuple[int | float, ...] = ()
    data: bytes = b""

    @property
    def default_frames(self) -> int:
        """How often the function is called if nobody says so."""
        if not self.function:
            return 0
        return FRAMES if self.kind is ModuleKind.APPLET else 1

    @property
    def is_repeatable(self) -> bool:
        """Whether it makes sense to call it again in the same guest."""
        return bool(self.function) and self.kind is not ModuleKind.WASI_COMMAND

    @property
    def title(self) -> str:
        """What to call it in a sentence."""
        return f"{self.kind.value} {self.function}" if self.function else "a module without a task"


def choose(program: CompiledModule, wanted: Wanted) -> Task:
    """
    The task. Without a function, if none was named and the exports suggest none in particular.

    Raises EntryPointMissing and UsageError.
    """
    if wanted.invoke is not None:
        if wanted.cmdlet is not None:
            raise UsageError("--cmdlet and --invoke name two entry points: give one of them")
        return _named(program, wanted.invoke, wanted)
    if wanted.arguments:
        raise UsageError(f"{wanted.arguments[0]!r} is an argument for --invoke, which is not given")
    if wanted.cmdlet is not None:
        return _cmdlet(program, wanted)
    entry = _suggested(program.info)
    if entry is None:
        if wanted.input is not None:
            raise UsageError(f"--input is for which function? --invoke {names(program.info)}")
        return Task(program.info.kind, "")
    return _task(entry, wanted)


def names(info: ModuleInfo) -> str:
    """The entry points that --invoke can name, with their types."""
    return ", ".join(f"{entry.name} {entry.type}" for entry in info.entry_points) or "nothing"


def _suggested(info: ModuleInfo) -> EntryPoint | None:
    if not info.entry_points:
        return None
    first = info.entry_points[0]
    match first.kind:
        case ModuleKind.MODULE_RUN | ModuleKind.PLAIN:
            callable_now = [
                entry
                for entry in info.entry_points
                if entry.kind is ModuleKind.MODULE_RUN or not entry.type.params
            ]
            return callable_now[0] if len(callable_now) == len(info.entry_points) == 1 else None
        case _:
            return first


def _cmdlet(program: CompiledModule, wanted: Wanted) -> Task:
    for entry in program.info.entry_points:
        if entry.kind in (ModuleKind.CMDLET, ModuleKind.WASI_COMMAND):
            return _task(entry, wanted)
    raise EntryPointMissing(f"{program.name} is no cmdlet: it exports {names(program.info)}")


def _named(program: CompiledModule, name: str, wanted: Wanted) -> Task:
    function = program.functions.get(name)
    if function is None:
        raise EntryPointMissing(
            f"{program.name} exports no function {name!r}; it exports"
            f" {', '.join(sorted(program.functions)) or 'none'}"
        )
    takes_bytes = function == BYTES_TO_STATUS and program.info.takes_bytes
    if takes_bytes and not wanted.arguments:
        return Task(ModuleKind.MODULE_RUN, name, data=_input(wanted))
    if wanted.input is not None and function == BYTES_TO_STATUS:
        raise UsageError(
            f"{program.name} exports no ark_alloc and ark_free, so {name} takes no --input"
        )
    if wanted.input is not None:
        raise UsageError(f"{name} of {program.name} is {function}: it takes no --input")
    return Task(
        ModuleKind.PLAIN, name, read_numbers(wanted.arguments, function.params, f"--invoke {name}")
    )


def _task(entry: EntryPoint, wanted: Wanted) -> Task:
    match entry.kind:
        case ModuleKind.SERVLET | ModuleKind.MODULE_RUN:
            return Task(entry.kind, entry.name, data=_input(wanted))
        case _ if wanted.input is not None:
            raise UsageError(f"--input is for --invoke and servlets, not for {_a(entry.kind)}")
        case ModuleKind.CMDLET:
            return Task(entry.kind, entry.name, data=(wanted.cmdlet or "").encode())
        case _:
            return Task(entry.kind, entry.name)


def _input(wanted: Wanted) -> bytes:
    if wanted.input is None:
        return b""
    if str(wanted.input) == "-":
        return _stdin()
    return read_input(wanted.input)


@cache
def _stdin() -> bytes:
    """All of stdin, for every guest that is given it."""
    return b"" if sys.stdin is None else sys.stdin.buffer.read()


def _a(kind: ModuleKind) -> str:
    return f"an {kind.value}" if kind is ModuleKind.APPLET else f"a {kind.value}"
