"""Ends a server whose parent is gone, however that ended."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable

_LOOK_EVERY = 0.25
_PATIENCE = 1.75
"""Seconds for an orderly end; then the process leaves at once, whatever hangs in it."""


def hold(line: int, parent: int, end: Callable[[], None]) -> None:
    """
    Call `end` on the event loop when the pipe `line` is closed or `parent` is not the parent.

    A fork of the parent keeps its end of the pipe open, so both are watched.
    """
    gone = threading.Event()
    loop = asyncio.get_running_loop()

    def read() -> None:
        while os.read(line, 4_096):
            pass
        gone.set()

    def watch() -> None:
        while os.getppid() == parent and not gone.wait(_LOOK_EVERY):
            pass
        if not loop.is_closed():
            loop.call_soon_threadsafe(end)
        time.sleep(_PATIENCE)
        os._exit(1)

    for name, target in (("line", read), ("parent", watch)):
        threading.Thread(target=target, name=f"arkml-{name}", daemon=True).start()
