"""Tasks: the entry point of a module that is called step by step, and its arguments."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arkml.abi.codes import ErrorCode
from arkml.base.loggers import SafeLogger, notice
from arkml.base.short_reprs import cut_repr
from arkml.base.terminal import listed
from arkml.base.texts import utf8
from arkml.errors import EntryPointMissing, GuestError, ModuleError, NotFound, UsageError
from arkml.limits import RUN_SECONDS, Budget
from arkml.runtime.module.description import ModuleKind

if TYPE_CHECKING:
    from arkml.guests.counts import Statistics
    from arkml.host import Host
    from arkml.runs.learner_settings import LearnerSettings
    from arkml.runtime.compiled_module import CompiledModule
    from arkml.runtime.module.description import EntryPoint, ModuleInfo

log = SafeLogger(__name__)

SEED = "{seed}"
"""Stands for the seed of an environment in the arguments of a cmdlet."""

CONFIGURE = "configure"
"""The export that takes a configuration of the guest, and answers 0 or an error code."""

_COUNT_AND_SEED = "(i32 i32) -> (i32)"
_STARTS = "ml__start_training"  # also from a checkpoint

FRAMES = 600
"""Frames of an applet if no number is given."""


@dataclass(frozen=True, slots=True)
class Task:
    """
    One entry point of a module and its arguments.

    `kind` says how the entry point is called: APPLET and PLAIN with numbers, CMDLET with text in
    `data`, SERVLET and MODULE_RUN with bytes, WASI_COMMAND with nothing. An empty `function` means
    that an initialized guest has nothing to call.
    """

    kind: ModuleKind
    function: str
    arguments: tuple[int | float, ...] = ()
    data: bytes = b""

    @property
    def default_frames(self) -> int:
        """Number of calls of the function if the user gives none."""
        if not self.function:
            return 0
        return FRAMES if self.kind is ModuleKind.APPLET else 1

    @property
    def is_repeatable(self) -> bool:
        """True if the function can be called more than once in the same guest."""
        return bool(self.function) and self.kind is not ModuleKind.WASI_COMMAND

    def budget(self, *, is_set: bool = False, otherwise: float | None = None) -> Budget:
        """
        Return the time budget of one call.

        Frames of an applet have the limit of `Limits`. Other tasks have it only with `is_set`,
        which says that the user gave the limit; else they have `otherwise`, such as 60 seconds.
        """
        return RUN_SECONDS if is_set or self.kind is ModuleKind.APPLET else otherwise

    @property
    def title(self) -> str:
        """The name of the task for messages."""
        return f"{self.kind.value} {self.function}" if self.function else "a module without a task"


def find_task(
    module: CompiledModule, arguments: str | None = None, seed: int | None = None
) -> Task:
    """
    Return the task that the exports of a module suggest.

    `arguments` are for a cmdlet or WASI command, which the module must then export; `seed` replaces
    SEED in the arguments. Raises EntryPointMissing.
    """
    arguments = fill_seed(arguments, seed)
    entry = suggested_entry(module.info) if arguments is None else command_entry(module)
    if entry is None and module.info.misfits:
        raise EntryPointMissing(f"{module.name}: {'; '.join(module.info.misfits)}")
    if entry is None:
        return Task(module.info.kind, "")
    return task_of(entry, arguments or "")


def fill_seed(arguments: str | None, seed: int | None) -> str | None:
    """Return arguments with a seed for "{seed}": "train --seed 7" for "train --seed {seed}"."""
    return arguments if arguments is None or seed is None else arguments.replace(SEED, str(seed))


def warn_refused(name: str, configuration: object, code: object) -> str:
    """
    Return and log a warning, once in a process, if CONFIGURE of a module answered an error code.

    Args:
        name: Name of the module.
        configuration: What CONFIGURE was called with.
        code: What it answered.

    Returns:
        The warning, or "".

    """
    if not (isinstance(code, int) and code):
        return ""
    named = f" ({ErrorCode(code).name})" if code in {*ErrorCode} else ""
    warning = (
        f"{name} refuses its configuration: its export {CONFIGURE} answered {code}{named} to"
        f" {cut_repr(configuration)}, and it plays as it was"
    )
    notice(log, logging.WARNING, warning)
    return warning


def task_of(entry: EntryPoint, arguments: str = "", data: bytes = b"") -> Task:
    """
    Return the task of calling an entry point, with `arguments` (cmdlets) or `data` (bytes).

    Raises UsageError for arguments that are not UTF-8.
    """
    match entry.kind:
        case ModuleKind.SERVLET | ModuleKind.MODULE_RUN:
            return Task(entry.kind, entry.name, data=data)
        case ModuleKind.CMDLET:
            return Task(entry.kind, entry.name, data=utf8(arguments, "the arguments"))
        case _:
            return Task(entry.kind, entry.name)


def suggested_entry(info: ModuleInfo) -> EntryPoint | None:
    """Return the entry point that a module was evidently built for, None if that is ambiguous."""
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


def command_entry(module: CompiledModule) -> EntryPoint:
    """Return the cmdlet or WASI command that a module exports. Raises EntryPointMissing."""
    for entry in module.info.entry_points:
        if entry.kind in (ModuleKind.CMDLET, ModuleKind.WASI_COMMAND):
            return entry
    raise EntryPointMissing(f"{module.name} is not a cmdlet: it exports {entry_names(module.info)}")


def entry_names(info: ModuleInfo) -> str:
    """Return a text that lists the entry points of a module with their types."""
    return ", ".join(f"{listed([e.name])} {e.type}" for e in info.entry_points) or "nothing"


def compile_module(host: Host, data: bytes, name: str) -> CompiledModule:
    """
    Compile a module, treating too large memories and tables as faults of the file.

    Raises ModuleError, also for a memory or tables over their limits.
    """
    try:
        return host.compile(data, name=name)
    except GuestError as error:
        raise ModuleError(str(error)) from error


def starts_trainings(info: ModuleInfo) -> bool:
    """Return whether a module imports a function that starts a training."""
    return any(one.name.startswith(_STARTS) for one in info.imports)


def require_training(module: CompiledModule) -> None:
    """Raise NotFound for a module that cannot start a training."""
    if not starts_trainings(module.info):
        raise NotFound(
            f"{module.name} starts no training: it imports no function that does, such as {_STARTS}"
            " of ark-ml-v1"
        )


def refused_start(statistics: Statistics) -> str:
    """Return the sentence on the last invalid call that was to start a training, "" for none."""
    asked = (text for text in statistics.refusals if _STARTS in text.partition(" answered ")[0])
    return next(asked, "")


def without_start(name: str, unplayed: str, frames: int, statistics: Statistics) -> str:
    """
    Return a sentence about a guest that started no training within a number of frames.

    `unplayed` are words on a behavior that it did not start, such as " of 'a', but of b, c,".
    """
    reason = refused_start(statistics)
    sentence = f"{name} started no training{unplayed} within {frames:,} frames"
    return f"{sentence}: {reason}" if reason else sentence


def training_task(module: CompiledModule, arguments: str | None, deed: str) -> Task:
    """
    Return the task of a module that starts trainings, which can be repeated.

    `arguments` are those of a cmdlet; `deed` is what is done with the guest, such as "evaluated". A
    declaration that has no effect is warned of. Raises NotFound and UsageError.
    """
    require_training(module)
    if doubt := period_doubt(module):
        log.warning("%s", doubt)
    task = find_task(module, arguments)
    if not task.is_repeatable:
        raise UsageError(f"{module.name} cannot be {deed}: it is {task.title}")
    return task


def period_doubt(module: CompiledModule) -> str:
    """Return a warning that a declared `decision_period` has no effect here, or ""."""
    from arkml.sessions.branches import DeclaredBranches

    behaviors = DeclaredBranches(module.info.spec).behaviors.items()
    periods = [f"{one.decision_period} for {n}" for n, one in behaviors if one.decision_period > 1]
    if not periods:
        return ""
    return (
        f"{module.name} declares decision_period {', '.join(periods)}: it holds in environments and"
        " trials, and not here, where each submit of the guest is a decision; have the guest submit"
        " where an agent is to decide"
    )


def copies_fault(info: ModuleInfo) -> str:
    """Return why a module that declares copies of its game cannot be told their number, or ""."""
    from arkml.sessions.branches import DeclaredBranches
    from arkml.sessions.declarations import SECTION

    if not any(one.copies for one in DeclaredBranches(info.spec).behaviors.values()):
        return ""
    if any(one.name == CONFIGURE and str(one.type) == _COUNT_AND_SEED for one in info.exports):
        return ""
    return (
        f"{SECTION} declares copies, and the module exports no {CONFIGURE}(count, seed) of the type"
        f" {_COUNT_AND_SEED}: export it, or leave out copies"
    )


def require_learner(module: CompiledModule, settings: LearnerSettings) -> None:
    """Raise InvalidSettings if the chosen learner lacks branches or memory, as SAC does."""
    from arkml.hive.protocol.settings import Settings
    from arkml.sessions.branches import DeclaredBranches

    branches = DeclaredBranches(module.info.spec).discrete
    asked = {name: value for name, value in settings.items() if name in ("algorithm", "memory")}
    Settings(1, max(1, len(branches)), branches).changed(asked)
