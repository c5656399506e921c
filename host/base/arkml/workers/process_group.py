"""Processes that lead a group of their own, and the end of all of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Any


class ProcessGroup:
    """
    A process in a session of its own, which Ctrl-C does not reach, and what it starts there.

    Processes that it has started are killed when it has ended. Any thread may call any method.
    """

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        """Start the process; `options` are those of subprocess.Popen. Raises OSError."""
        self.process = subprocess.Popen(command, start_new_session=True, **options)
        self.status: int | None = None
        """The exit status, negative for a signal; None until `poll` or `wait` has found it."""
        self._reaping = threading.Lock()

    @property
    def pid(self) -> int:
        """The process id, which is that of the group, too."""
        return self.process.pid

    def poll(self) -> int | None:
        """Return the exit status, None while the process runs."""
        if self.status is None:
            with self._reaping:
                self._reap()
        return self.status

    def wait(self) -> int:
        """Wait for the end of the process and return its exit status."""
        while self.status is None:
            with contextlib.suppress(ChildProcessError):  # another thread was quicker
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self.poll()
        return self.status

    def kill(self) -> None:
        """Kill the process, and what it has started. Does not wait."""
        with self._reaping:
            if self.status is None:
                self._kill()

    def _reap(self) -> None:
        if self.status is not None:
            return
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            self._kill()  # before the id may be that of another group
            self.status = self.process.wait()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def ended_by(status: int) -> str:
    """Return the end of a process in words: `was killed by SIGKILL`, `ended with status 1`."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
