"""Streams of a command: stdout raises errors of its own classes, and stderr raises none."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class StdoutUnwritable(OSError):
    """Raised when stdout cannot be written, for example because the disk is full."""


class StdoutClosed(BrokenPipeError):
    """Raised when the reader of stdout has closed it."""


class _Stdout(io.FileIO):
    """A stdout whose errors have classes of their own."""

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # typeshed says int
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise StdoutClosed(error.errno, error.strerror) from None
        except OSError as error:
            raise StdoutUnwritable(error.errno, error.strerror) from None


class _Stderr(io.FileIO):
    """A file that drops output that cannot be written: a closed terminal does not end a command."""

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # typeshed says int
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def open_streams() -> None:
    """Prepare stdout and stderr for texts of guests. Raises StdoutUnwritable."""
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(os.devnull, "w"), "utf-8")
    if sys.stdout is None:
        raise StdoutUnwritable(None, "it is closed")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the terminal may not have a guest's characters
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _rewired(sys.stdout, _Stdout)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _rewired(sys.stderr, _Stderr)


def _rewired(stream: io.TextIOWrapper, raw: type[io.FileIO]) -> io.TextIOWrapper:
    """Return a text stream like this one that writes its bytes through a `raw` file."""
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(raw(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
