"""A progress bar on stderr, for runs that take longer than a second."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from arkml.base.closing import Closing

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE = 1.0  # seconds before the bar appears
_REFRESH = 0.1


class ProgressBar(Closing):
    """Shows how many of `total` steps are done, on a terminal, and only after a second."""

    def __init__(self, title: str, total: int, *, hidden: bool = False) -> None:
        self._title = title
        self._total = total
        self._due = time.monotonic() + _PATIENCE
        if hidden or not sys.stderr.isatty() or total < 2:
            self._due = float("inf")
        self._shown: tuple[Progress, TaskID] | None = None

    def __call__(self, done: int) -> None:
        """Show that `done` steps are done."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _REFRESH
        if self._shown is None:
            self._shown = self._start()
        progress, task = self._shown
        progress.update(task, completed=done)
        progress.refresh()

    def close(self) -> None:
        """Remove the bar from the terminal."""
        if self._shown is not None:
            self._shown[0].stop()

    def _start(self) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # what is read elsewhere goes on there
        )
        progress.start()
        from rich.markup import escape

        return progress, progress.add_task(escape(self._title), total=self._total)
