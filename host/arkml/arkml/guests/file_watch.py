"""Watching a file for changes, each reported once the file is completely written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar
from weakref import ref

PERIOD = 0.05
"""Seconds between two looks at a file."""

T = TypeVar("T")
_State = tuple[int, int, int]


class FileWatch:
    """
    Detects changes of a file from now on, by its time, its size and its inode.

    A file that is being written has changed once two looks in a row find it the same.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = self._last = self._state()

    def has_changed(self) -> bool:
        """Look at the file; return True once for each change that has settled."""
        before, self._last = self._last, self._state()
        if self._last is None or self._last != before or self._last == self._known:
            return False
        self._known = self._last
        return True

    def _state(self) -> _State | None:
        """Return the state, None without a file."""
        try:
            status = os.stat(self._path)  # noqa: PTH116  # of a path that may be on no disk
        except (OSError, ValueError):
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


def watch(file: FileWatch, changed: Callable[[T], object], of: T) -> Event:
    """
    Call `changed(of)` on a thread after each change of a file.

    The thread ends once `of` is gone, or the event that is returned is set.
    """
    ended, reference = Event(), ref(of)
    del of

    def look() -> None:
        while not ended.wait(PERIOD) and (one := reference()) is not None:
            if file.has_changed():
                changed(one)
            del one

    Thread(target=look, name="arkml-file-watch", daemon=True).start()
    return ended
