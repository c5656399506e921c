"""Pipes that have no end, in the place of files: what devices are to those that read them."""

import os
from contextlib import contextmanager


@contextmanager
def endless_pipe(path, data):
    """Make a pipe at `path` that gives `data` and then nothing, without being at its end."""
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.write(descriptor, data)
        yield path
    finally:
        os.close(descriptor)
