"""What a guest waits for after an import call, and how it is waited for."""

from __future__ import annotations

import time

from arkml.runtime.fiber import Fiber
from arkml.runtime.waits import Wait
from arkml.runtime.wasi.calls import WasiCalls
from arkml.sessions.services import Services

_SPIN_POLLS = 64  # pending polls in one call after which each further one waits
_SPIN_WAIT = 0.001
_SLICE = 0.02  # seconds between two looks at SIGINT


class Waiting:
    """
    Finds out whether a guest has to wait.

    A WASI call that waits says so. A guest that polls futures in a loop is made to wait for a
    change, a millisecond at most, so that it does not burn a core; that time counts as its own.
    """

    def __init__(self, services: Services, wasi: WasiCalls) -> None:
        self._services = services
        self._wasi = wasi

    def after_import(self) -> Wait | None:
        """What the guest waits for after the import call that was just answered."""
        waiting, self._wasi.waiting = self._wasi.waiting, None
        if waiting is None and self._services.pending_polls > _SPIN_POLLS:
            return self._spin()
        return waiting

    def _spin(self) -> Wait:
        changes = self._services.changes
        now = time.perf_counter()
        seen, until = changes.count, now + _SPIN_WAIT
        self._services.pending_polls = _SPIN_POLLS

        def ready(timeout: float) -> bool:
            left = until - time.perf_counter()
            return left <= 0 or changes.wait(seen, min(left, timeout)) or left <= timeout

        return Wait(ready, spun_since=now)


def sleep(wait: Wait, fiber: Fiber) -> None:
    """Block until the guest may go on. Raises KeyboardInterrupt after SIGINT."""
    while not wait.ready(_SLICE):
        fiber.call_guard.check_interrupt()
    fiber.call_guard.check_interrupt()
    settle(wait, fiber)


async def sleep_async(wait: Wait, fiber: Fiber) -> None:
    """The same, while other tasks run."""
    import asyncio  # 20 ms at start that only coroutines need

    pause = 0.0
    while not wait.ready(0.0):
        await asyncio.sleep(pause)
        fiber.call_guard.check_interrupt()
        pause = min(_SLICE, pause + 0.001)
    settle(wait, fiber)


async def give_way() -> None:
    """Let other tasks run."""
    import asyncio  # as above

    await asyncio.sleep(0)


def settle(wait: Wait, fiber: Fiber) -> None:
    """What the guest waited for is there: let its call return."""
    if wait.answer is not None:
        fiber.answer_value(wait.answer())
    if wait.spun_since is not None:
        fiber.charge(time.perf_counter() - wait.spun_since)
