"""Conditions that a suspended guest waits for before it is resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arkml.runtime.call_guard import CallGuard

_SLICE = 0.02  # seconds between two looks at SIGINT


@dataclass(frozen=True, slots=True)
class Wait:
    """
    A guest's wait, over when `ready(timeout)` returns True.

    `ready` blocks for at most `timeout` seconds. `answer()` is then what the call returns that the
    guest is suspended in, if that is not settled already. `spun_since` is set where the guest did
    not ask to wait but polls in a loop: the time of `perf_counter` since which this counts as its
    own. `Fiber.settle` must follow a wait that is over.
    """

    ready: Callable[[float], bool]
    answer: Callable[[], int] | None = None
    spun_since: float | None = None

    def block(self, call_guard: CallGuard) -> None:
        """Block until the wait is over. Raises KeyboardInterrupt and GuestCancelled."""
        while not self.ready(_SLICE):
            call_guard.check_interrupt()
        call_guard.check_interrupt()

    async def block_async(self, call_guard: CallGuard) -> None:
        """Wait while other tasks run. Raises KeyboardInterrupt and GuestCancelled."""
        import asyncio  # 20 ms at start that only coroutines need

        pause = 0.0
        while not self.ready(0.0):
            await asyncio.sleep(pause)
            call_guard.check_interrupt()
            pause = min(_SLICE, pause + 0.001)
