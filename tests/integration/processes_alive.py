"""Processes that run, as the kernel knows them."""

import contextlib
from pathlib import Path


def is_running(pid):
    """Return True for a process that has not ended; a zombie has."""
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/stat").open() as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
    return False
