"""A module that is reloaded while it runs, whenever its file has changed."""

from __future__ import annotations

import sys
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


class ModuleWatch:
    """
    Compiles a module on a thread after each change of its file, and reloads it between two steps.

    `subject` returns the guest or the fleet. What happens is told on stderr: how the state came
    along, or why the module before goes on.
    """

    def __init__(self, path: Path, host: Host, subject: Callable[[], Guest | Fleet]) -> None:
        self._path = path
        self._host = host
        self._subject = subject
        self._ready: CompiledModule | None = None
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

        return watched_step

    def _compile(self) -> None:
        try:
            self._ready = self._host.compile(self._path)
        except ArkmlError as error:
            self._say(f"not reloaded, the module before goes on: {error}")

    def _reload(self, module: CompiledModule) -> None:
        began = time.perf_counter()
        try:
            way = self._subject().reload(module)
        except GuestBusy:
            raise
        except ArkmlError as error:
            self._say(f"not reloaded, the module before goes on: {error}")
            return
        took = 1e3 * (time.perf_counter() - began)
        self._say(f"reloaded in {took:.1f} ms, its state {_STATES[way]}")

    def _say(self, text: str) -> None:
        sys.stderr.write(harmless(f"{self._path.name}: {text}\n"))
        sys.stderr.flush()


_STATES = {
    Reloaded.HANDED_OVER: "was handed over by ark_state_persist",
    Reloaded.KEPT: "was kept: only code has changed",
    Reloaded.ANEW: "begins anew",
}
