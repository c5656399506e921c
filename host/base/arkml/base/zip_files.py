"""
Reading of zip files with large directories refused, since zipfile reads the directory as a whole.
"""

from __future__ import annotations

import io
from typing import IO
from zipfile import BadZipFile, ZipFile

_MOST_OF_END = 1 << 17  # bytes, more than the record at the end has with its comment


class DirectoryTooLarge(BadZipFile):
    """Raised when a zip file has more members, or longer names, than allowed."""


def open_zip(file: IO[bytes], most: int) -> ZipFile:
    """
    Open a zip file for reading, if its directory has at most `most` bytes.

    zipfile takes eight times the memory of a directory for its members. `file` stays open. Raises
    DirectoryTooLarge, and BadZipFile for a damaged file.
    """
    bounded = _Bounded(file, max(most, _MOST_OF_END))
    archive = ZipFile(bounded)
    bounded.most = None
    return archive


class _Bounded(io.BufferedIOBase):
    """A file of which no more than `most` bytes are read at once; None reads any number."""

    def __init__(self, file: IO[bytes], most: int | None) -> None:
        self._file = file
        self.most = most

    def read(self, size: int | None = -1, /) -> bytes:
        if self.most is None:
            return self._file.read(-1 if size is None else size)
        if size is None or not 0 <= size <= self.most:
            size = self.most + 1
        data = self._file.read(size)
        if len(data) > self.most:
            raise DirectoryTooLarge(f"its directory has more than {self.most:,} bytes")
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True
