"""
The choice of a guest's task: named by a command's options, or suggested by the module's exports.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

from arkml.base.terminal import listed
from arkml.cli.options import TaskOptions
from arkml.cli.user_files import read_input
from arkml.cli.values import read_numbers
from arkml.errors import EntryPointMissing, UsageError
from arkml.runtime.module.description import BYTES_TO_STATUS, ModuleKind
from arkml.training.tasks import Task, command_entry, entry_names, suggested_entry, task_of

if TYPE_CHECKING:
    from arkml.runtime.compiled_module import CompiledModule
    from arkml.runtime.module.description import EntryPoint

_BYTES = (ModuleKind.SERVLET, ModuleKind.MODULE_RUN)


def choose(module: CompiledModule, options: TaskOptions) -> Task:
    """
    Return the chosen task; its function is empty if none was named and the exports suggest none.

    Raises EntryPointMissing and UsageError.
    """
    if options.invoke is not None:
        if options.cmdlet is not None:
            raise UsageError("--cmdlet and --invoke name two entry points: give one of them")
        return _named(module, options.invoke, options)
    if options.arguments:
        argument = options.arguments[0]
        raise UsageError(f"{argument!r} is an argument for --invoke, which is not given")
    if options.cmdlet is not None:
        return _task(command_entry(module), options)
    entry = suggested_entry(module.info)
    if entry is not None:
        return _task(entry, options)
    if options.input is not None:
        raise UsageError(f"--input is for which function? --invoke {entry_names(module.info)}")
    return Task(module.info.kind, "")


def _named(module: CompiledModule, name: str, options: TaskOptions) -> Task:
    function = module.functions.get(name)
    if function is None:
        raise EntryPointMissing(
            f"{module.name} exports no function {name!r}; it exports {listed(module.functions)}"
        )
    takes_bytes = function == BYTES_TO_STATUS and module.info.takes_bytes
    if takes_bytes and not options.arguments:
        return Task(ModuleKind.MODULE_RUN, name, data=_input(options))
    if options.input is not None and function == BYTES_TO_STATUS:
        raise UsageError(
            f"{module.name} exports no ark_alloc and ark_free, so {name} takes no --input"
        )
    if options.input is not None:
        raise UsageError(f"{name} of {module.name} is {function}: it takes no --input")
    return Task(
        ModuleKind.PLAIN,
        name,
        read_numbers(options.arguments or (), function.params, f"--invoke {name}"),
    )


def _task(entry: EntryPoint, options: TaskOptions) -> Task:
    if options.input is not None and entry.kind not in _BYTES:
        raise UsageError(f"--input is for --invoke and servlets, not for {_a(entry.kind)}")
    return task_of(entry, options.cmdlet or "", _input(options))


def _input(options: TaskOptions) -> bytes:
    if options.input is None:
        return b""
    if str(options.input) == "-":
        return _stdin()
    return read_input(options.input)


@cache
def _stdin() -> bytes:
    """Return all of stdin, read once: several guests of a command may take it."""
    return b"" if sys.stdin is None else sys.stdin.buffer.read()


def _a(kind: ModuleKind) -> str:
    return f"an {kind.value}" if kind is ModuleKind.APPLET else f"a {kind.value}"
