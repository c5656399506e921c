"""Waiting until something about a run is so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Changes:
    """Wakes everybody who waits each time something has changed. For one event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Something has changed."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Wait until `is_so`, for at most so many seconds; whether it is."""
        try:
            async with asyncio.timeout(seconds):
                while not is_so():
                    await self._event.wait()
        except TimeoutError:
            return is_so()
        return True
