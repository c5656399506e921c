"""Conditions that a suspended guest waits for before it is resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_SLICE = 0.02  # seconds between two looks at SIGINT


@dataclass(frozen=True, slots=True)
class Wait:
    """
    A guest's wait in an import call, which is over when `ready(timeout)` returns True.

    `Fiber.settle` must follow a wait that is over.

    Args:
        ready: Blocks for at most `timeout` seconds.
        answer: Returns the value for the suspended call, None if it is settled already.
        is_spin: True if the guest did not ask to wait but polls in a loop, and is charged for the
            time.
        earliest: A time of `time.monotonic` before which the wait cannot be over, and need not be
            checked.

    """

    ready: Callable[[float], bool]
    answer: Callable[[], int] | None = None
    is_spin: bool = False
    earliest: float = 0.0

    def block(self, look: Callable[[], None]) -> None:
        """Block until the wait is over; `look` is called at intervals, and ends it by raising."""
        while not self.ready(_SLICE):
            look()
        look()

    async def block_async(self, look: Callable[[], None]) -> None:
        """Wait as `block` does, while other asyncio tasks run."""
        import asyncio  # 20 ms at start that only coroutines need

        pause = 0.0
        while not self.ready(0.0):
            await asyncio.sleep(pause)
            look()
            pause = min(_SLICE, pause + 0.001)
