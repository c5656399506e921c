"""A watch on the parent process, for processes that must not outlive it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from threading import Event, Thread

_CHECK_EVERY = 0.25
_PART = 65_536


def watch_parent(
    pipe: int,
    parent: int,
    on_exit: Callable[[], None],
    on_read: Callable[[bytes], object] = lambda _: None,
) -> None:
    """
    Call `on_exit` once, in a new thread, after the parent process has exited.

    Both signs of an exit are watched, since a child that the parent forked keeps the pipe open.

    Args:
        pipe: File descriptor whose other end only the parent holds; it closes when the parent
            exits.
        parent: Process id of the parent; it changes when the parent exits.
        on_exit: Function to call.
        on_read: Called with bytes that the parent writes to the pipe, in parts, in a thread.

    """
    is_closed = Event()

    def read() -> None:
        with contextlib.suppress(OSError):
            while part := os.read(pipe, _PART):
                on_read(part)
        is_closed.set()

    def watch() -> None:
        while os.getppid() == parent and not is_closed.wait(_CHECK_EVERY):
            pass
        on_exit()

    Thread(target=read, name="arkml-parent-pipe", daemon=True).start()
    Thread(target=watch, name="arkml-parent", daemon=True).start()
