"""Processes that lead a process group, and are killed with it."""

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
    A process in its own session, which Ctrl-C does not reach, with the processes that it starts.

    When it has ended, the processes that it started are killed. Any thread may call any method.
    """

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        """Start the process; `options` are passed to subprocess.Popen. Raises OSError."""
        self.process = subprocess.Popen(command, start_new_session=True, **options)
        self.status: int | None = None
        """Exit status, negative for a signal; None until `poll` or `wait` finds it."""
        self._reaping = threading.Lock()

    @property
    def pid(self) -> int:
        """Id of the process and of its group."""
        return self.process.pid

    def poll(self) -> int | None:
        """Return the exit status, None while the process runs."""
        if self.status is None:
            with self._reaping:
                self._reap()
        return self.status

    def wait(self) -> int:
        """Wait for the process to end, and return its exit status."""
        while self.status is None:
            with contextlib.suppress(ChildProcessError):  # another thread has reaped it
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self.poll()
        return self.status

    def kill(self) -> None:
        """Kill the process and its group. Does not wait."""
        with self._reaping:
            if self.status is None:
                self._kill()

    def _reap(self) -> None:
        if self.status is not None:
            return
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            self._kill()  # before the system may reuse the id
            self.status = self.process.wait()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def ended_by(status: int) -> str:
    """
    Return a text on how a process ended, such as `was killed by SIGKILL` or `ended with status 1`.
    """
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
