"""The standard streams of guests: their input, and output to the streams of the Python program."""

from __future__ import annotations

import codecs
import io
import os
import select
import sys
from typing import Any, BinaryIO


class Stdin:
    """A guest's standard input, with a test of whether a read would block."""

    def __init__(self, source: BinaryIO | bytes) -> None:
        self._stream = io.BytesIO(source) if isinstance(source, bytes) else source
        try:
            self._descriptor: int | None = self._stream.fileno()
        except (AttributeError, OSError, ValueError):  # not a file, or it is closed
            self._descriptor = None

    def ready(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for input; return whether a read would not block."""
        if self._descriptor is None:
            return True
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLIN)
        return bool(waiting.poll(1000 * timeout))

    def read(self, size: int) -> bytes:
        """
        Return the bytes available, at most `size`; empty at the end of the input.

        Raises OSError, ValueError for a closed stream, and TypeError for a stream of text.
        """
        if self._descriptor is not None:
            return os.read(self._descriptor, size)
        data = self._stream.read(size) or b""
        if not isinstance(data, bytes):
            raise TypeError(f"it gives {type(data).__name__} and not bytes")
        return data


class ProgramOutput:
    """
    `sys.stdout` or `sys.stderr` of the program, looked up whenever a guest writes.

    Programs may replace them by a stream that takes only text, as notebooks do, or only bytes, such
    as `io.BytesIO`, or by None, which drops the output. As text, bytes that are not UTF-8 become
    U+FFFD.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, data: bytes) -> None:
        """Write `data`. Raises OSError, and ValueError for a stream that is closed."""
        stream = getattr(sys, self._name, None)
        if stream is None:
            return
        try:
            binary = getattr(stream, "buffer", None)
        except (OSError, ValueError):  # io.UnsupportedOperation is both
            binary = None
        if binary is None:
            try:
                self._write_text(stream, data)
            except TypeError:  # it takes bytes itself, as io.BytesIO
                self._decoder.reset()
                _write_all(stream, data)
            return
        stream.flush()  # what the program wrote before comes first
        try:
            _write_all(binary, data)
        except TypeError:  # its buffer takes text
            self._write_text(stream, data)

    def _write_text(self, stream: Any, data: bytes) -> None:
        stream.write(self._decoder.decode(data))


def _write_all(stream: Any, data: bytes) -> None:
    """Write all bytes to a stream, which may take only some of them at a time."""
    rest = memoryview(data)
    while rest:
        written = stream.write(rest)
        if written is None:
            raise BlockingIOError("it takes no more at present")
        rest = rest[written:]
