"""A module that is reloaded while it runs, whenever its file has changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from arkml.base.terminal import harmless
from arkml.errors import ArkmlError, GuestBusy, ReloadUndone
from arkml.guests.file_watch import FileWatch, watch
from arkml.guests.fleet import Fleet
from arkml.guests.guest import Guest
from arkml.guests.reloading import Reloaded
from arkml.host import Host
from arkml.runtime.compiled_module import CompiledModule


def _accept(_: CompiledModule) -> None:
    """Accept every module."""


class ModuleWatch:
    """
    Compiles a module on a thread after each change of its file, and reloads it between two steps.

    What happens is told in a sentence: how the state came along, or why the module before goes on.

    Args:
        path: The file of the module.
        host: The host of the subject.
        subject: Returns the guest or the fleet.
        say: Gets the sentences, from any thread.
        vet: Looks at a module before it is reloaded, and raises ArkmlError to refuse it. Called on
            the thread.
        taken: Gets the module that runs from now on, also the one before if a reload is undone.

    Example:
        watch = ModuleWatch(path, host, lambda: runner.subject, print)
        step = watch.watched(runner.step)

    """

    def __init__(
        self,
        path: Path,
        host: Host,
        subject: Callable[[], Guest | Fleet],
        say: Callable[[str], object],
        *,
        vet: Callable[[CompiledModule], object] = _accept,
        taken: Callable[[CompiledModule], object] = _accept,
    ) -> None:
        self._path = path
        self._host = host
        self._subject = subject
        self._tell = say
        self._vet = vet
        self._taken = taken
        self._ready: CompiledModule | None = None
        self._before: CompiledModule | None = None
        self._after: CompiledModule | None = None
        self._ended = watch(FileWatch(path), ModuleWatch._compile, self)

    def close(self) -> None:
        """End the watch."""
        self._ended.set()

    def watched(self, step: Callable[[], None]) -> Callable[[], None]:
        """Return a step that reloads the module first, if a new one is there."""

        def watched_step() -> None:
            module, self._ready = self._ready, None
            if module is not None:
                self._reload(module)
            try:
                step()
            except ReloadUndone as error:
                self._say(str(error))
            if self._after is not None and module_of(self._subject()) is not self._after:
                self._note_undone()

        return watched_step

    def go_back(self, reason: str) -> None:
        """Let the module before the last reload begin anew, because of a reason that is told."""
        before = self._before
        if before is None:
            self._say(reason)
            return
        self._subject().reload(before)
        self._note_undone()
        self._say(f"{reason}: the module before begins anew")

    def _note_undone(self) -> None:
        before, self._before, self._after = self._before, None, None
        if before is not None:
            self._taken(before)

    def _compile(self) -> None:
        try:
            module = self._host.compile(self._path)
            self._vet(module)
        except ArkmlError as error:
            self._say(f"not reloaded, the module before goes on: {error}")
        else:
            self._ready = module

    def _reload(self, module: CompiledModule) -> None:
        began, before = time.perf_counter(), module_of(self._subject())
        self._before = self._after = None
        try:
            way = self._subject().reload(module)
        except GuestBusy:
            raise
        except ArkmlError as error:
            self._say(f"not reloaded, the module before goes on: {error}")
            return
        took = 1e3 * (time.perf_counter() - began)
        self._before, self._after = before, module
        self._taken(module)
        self._say(f"reloaded {module.digest[:12]} in {took:.1f} ms, its state {_STATES[way]}")

    def _say(self, text: str) -> None:
        self._tell(harmless(f"{self._path.name}: {text}"))


def module_of(subject: Guest | Fleet) -> CompiledModule:
    """Return the module of a guest, or of the first guest of a fleet."""
    guest = subject if isinstance(subject, Guest) else subject.guests[0]
    return guest.module


_STATES = {
    Reloaded.HANDED_OVER: "was handed over by ark_state_persist",
    Reloaded.KEPT: "was kept: only code has changed",
    Reloaded.ANEW: "begins anew",
}
