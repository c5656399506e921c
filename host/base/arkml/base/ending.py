"""The end of a program, without Python's own clean-up."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """End the process at once."""
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None is closed from the start
        try:
            stream.flush()
        except OSError:  # its reader is gone
            continue
    os._exit(status)


@contextmanager
def leaving_at_the_end() -> Iterator[None]:
    """
    Leave once the program in the block has ended by `sys.exit`, with its exit code.

    Before that come its threads, and the functions that it has registered with `atexit`. Python
    would then take every module apart, which is a fifth of what a short command takes.
    """
    ended: list[int] = []
    atexit.register(_leave, ended)  # before all others, so that it is called after them
    try:
        yield
    except SystemExit as end:
        if isinstance(end.code, int):
            ended.append(end.code)
        raise


def _leave(ended: list[int]) -> None:
    if not ended:
        return
    if sys.warnoptions:
        gc.collect()  # whoever wants warnings hears of what was left unclosed
    logging.shutdown()  # which had its turn only if it was imported within the block
    leave(ended[0])
