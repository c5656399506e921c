"""A watch on the parent process, for processes that must not outlive it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from threading import Event, Thread

_CHECK_EVERY = 0.25


def watch_parent(pipe: int, parent: int, on_exit: Callable[[], None]) -> None:
    """
    Call `on_exit` once, in a new thread, after the parent process has exited.

    Both signs of an exit are watched, since a child that the parent forked keeps the pipe open.

    Args:
        pipe: File descriptor whose other end only the parent holds; it closes when the parent
            exits.
        parent: Process id of the parent; it changes when the parent exits.
        on_exit: Function to call.

    """
    is_closed = Event()

    def read() -> None:
        with contextlib.suppress(OSError):
            while os.read(pipe, 4_096):
                pass
        is_closed.set()

    def watch() -> None:
        while os.getppid() == parent and not is_closed.wait(_CHECK_EVERY):
            pass
        on_exit()

    Thread(target=read, name="arkml-parent-pipe", daemon=True).start()
    Thread(target=watch, name="arkml-parent", daemon=True).start()
