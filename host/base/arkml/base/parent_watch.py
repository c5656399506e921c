"""A watch on the parent process, for processes that must not outlive it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from threading import Event, Thread

_CHECK_EVERY = 0.25


def watch_parent(pipe: int, parent: int, on_exit: Callable[[], None]) -> None:
    """
    Call `on_exit` once, from a thread of its own, after the parent process has exited.

    `pipe` is a file descriptor whose other end only the parent holds, `parent` its process id. The
    parent has exited when the pipe is closed or this process has another parent. Both are watched:
    a child that the parent forked keeps the other end of the pipe open.
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
