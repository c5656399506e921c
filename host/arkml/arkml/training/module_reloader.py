"""A guest or a fleet that is stepped, and may switch to a rebuilt module between two steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from arkml.errors import ArkmlError, GuestBusy, ReloadUndone
from arkml.guests.fleet import Fleet
from arkml.guests.guest import Guest, is_on_trial, trace_file_of
from arkml.guests.reloading import Reloaded
from arkml.runtime.compiled_module import CompiledModule
from arkml.training.task_runner import TaskRunner

STATES = {
    Reloaded.HANDED_OVER: "was handed over by ark_state_persist",
    Reloaded.KEPT: "was kept: only code has changed",
    Reloaded.ANEW: "begins anew",
}
"""How a state came along, behind "its state"."""

_GOES_BACK = "a guest failed right after the reload"


class ModuleChange(NamedTuple):
    """
    A change from one module to another.

    Attributes:
        before: The previous module.
        after: The module that runs from now on.
        way: How the state was carried over; None if a reload was undone because the guest failed.
        reason: Why the guest returned to `after`, a module that it had before; else empty.

    """

    before: CompiledModule
    after: CompiledModule
    way: Reloaded | None
    reason: str = ""


class ModuleReloader:
    """
    Steps a guest or a fleet, and before a step reloads a module that was offered.

    The outcome is reported in a sentence: how the state was carried over, or why the previous
    module stays.

    Args:
        runner: The guest or the fleet.
        say: Gets the sentences.
        taken: Gets each change, also the change back if a reload is undone.
        settled: Gets a module whose first calls have succeeded.
        refused: Gets a module that could not be reloaded, and the reason.

    """

    def __init__(
        self,
        runner: TaskRunner,
        say: Callable[[str], object],
        *,
        taken: Callable[[ModuleChange], object] = lambda _: None,
        settled: Callable[[CompiledModule], object] = lambda _: None,
        refused: Callable[[CompiledModule, ArkmlError], object] = lambda *_: None,
    ) -> None:
        self._runner = runner
        self._say = say
        self._taken = taken
        self._settled = settled
        self._refused = refused
        self._ready: CompiledModule | None = None
        self._latest: ModuleChange | None = None
        self._is_on_trial = False

    def offer(self, module: CompiledModule) -> None:
        """Reload a module before the next step. Any thread may call it."""
        self._ready = module

    def step(self) -> None:
        """Step the runner, with the newest module that was offered."""
        module, self._ready = self._ready, None
        reason = _GOES_BACK
        try:
            if module is not None:
                self._reload(module)
            self._runner.step()
        except ReloadUndone as error:
            reason = str(error)
            self._say(reason)
        if self._is_on_trial:
            self._follow(reason)

    def go_back(self, reason: str) -> None:
        """Return to the module before the last reload, and report the reason."""
        latest = self._latest
        if latest is None:
            self._say(reason)
            return
        way = self._runner.subject.reload(latest.before)
        goes_on = "begins anew" if way is Reloaded.ANEW else "goes on, its state " + STATES[way]
        self._say(f"{reason}: the module before {goes_on}")
        self._note_back(way, reason)
        if way is Reloaded.ANEW:
            self._runner.begin_anew()

    def _reload(self, module: CompiledModule) -> None:
        began, before = time.perf_counter(), module_of(self._runner.subject)
        if module.digest == before.digest:
            self._say(f"not reloaded: {module.digest[:12]} runs already")
            self._settled(module)
            return
        try:
            way = self._runner.subject.reload(module)
        except GuestBusy:
            raise
        except ArkmlError as error:
            self._say(f"not reloaded, the module before goes on: {error}")
            self._refused(module, error)
            return
        took = 1e3 * (time.perf_counter() - began)
        self._latest = ModuleChange(before, module, way)
        self._is_on_trial = True
        self._taken(self._latest)
        state = STATES[way] + trace_note(self._runner.subject)
        self._say(f"reloaded {module.digest[:12]} in {took:.1f} ms, its state {state}")
        if way is Reloaded.ANEW:
            self._runner.begin_anew()

    def _follow(self, reason: str) -> None:
        """Look whether the module of the last reload runs, and whether its first calls are over."""
        subject, latest = self._runner.subject, self._latest
        if latest is not None and module_of(subject) is not latest.after:
            self._note_back(None, reason)
        elif not any(map(is_on_trial, guests_of(subject))):
            self._is_on_trial = False
            if latest is not None:
                self._settled(latest.after)

    def _note_back(self, way: Reloaded | None, reason: str) -> None:
        latest, self._latest, self._is_on_trial = self._latest, None, False
        assert latest is not None
        self._taken(ModuleChange(latest.after, latest.before, way, reason))


def trace_note(subject: Guest | Fleet) -> str:
    """Return a part of a sentence that names the file in which recording continues, or ""."""
    files = [file for guest in guests_of(subject) if (file := trace_file_of(guest)) is not None]
    if not files:
        return ""
    others = f" and {len(files) - 1:,} others" if len(files) > 1 else ""
    return f"; the trace goes on in {files[0]}{others}"


def guests_of(subject: Guest | Fleet) -> tuple[Guest, ...]:
    """Return a guest, or the guests of a fleet."""
    return (subject,) if isinstance(subject, Guest) else tuple(subject.guests)


def module_of(subject: Guest | Fleet) -> CompiledModule:
    """Return the module of a guest, or of the first guest of a fleet."""
    return guests_of(subject)[0].module
