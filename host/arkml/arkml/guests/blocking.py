"""Waits that a guest asks for by an import call, such as a sleep."""

from __future__ import annotations

import time

from arkml.runtime.waits import Wait
from arkml.runtime.wasi.waiting_calls import WasiCalls
from arkml.sessions.services import Services

_SPIN_POLLS = 64  # pending polls in one call after which each further one waits
_SPIN_WAIT = 0.001


class Waiting:
    """
    Decides whether a guest has to wait after an import call.

    A WASI call may ask for a wait, such as `poll_oneoff` with a timeout. A guest that polls futures
    in a loop is made to wait for a change, a millisecond at most, so that it does not burn a core;
    it is charged for that time.
    """

    __slots__ = ("_services", "wasi")

    def __init__(self, services: Services) -> None:
        self._services = services
        self.wasi: WasiCalls | None = None
        """The handlers of WASI, once the guest has called one."""

    def after_import(self) -> Wait | None:
        """Return the wait that the import call just answered asks for, or None."""
        waiting, wasi = None, self.wasi
        if wasi is not None:
            waiting, wasi.waiting = wasi.waiting, None
        if waiting is None and self._services.pending_polls > _SPIN_POLLS:
            return self._spin()
        return waiting

    def _spin(self) -> Wait:
        changes = self._services.changes
        seen, until = changes.count, time.perf_counter() + _SPIN_WAIT
        self._services.pending_polls = _SPIN_POLLS

        def ready(timeout: float) -> bool:
            left = until - time.perf_counter()
            return left <= 0 or changes.wait(seen, min(left, timeout)) or left <= timeout

        return Wait(ready, is_spin=True)
