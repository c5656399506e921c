"""Arrays in NumPy archives, whose headers are checked before anything is decompressed."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from arkml.base.handler_errors import is_of_handler
from arkml.base.short_reprs import cut_repr, cut_text
from arkml.base.zip_files import open_zip

DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, NotImplementedError,
    RuntimeError,
)  # fmt: skip
"""The exceptions of NumPy and zipfile for a file that is damaged."""

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The methods of NumPy; zipfile decompresses others without a limit."""

_MOST_OF_DIRECTORY = 1 << 20  # bytes, some 10,000 arrays


@dataclass(frozen=True, slots=True)
class ArchivedArray:
    """An array of an open archive: its header, and its content once it is read."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    in_columns: bool
    content: IO[bytes]

    @property
    def nbytes(self) -> int:
        """The size of the content in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    def read(self) -> npt.NDArray[Any]:
        """
        Return the array, read-only.

        Raises the exceptions in `DAMAGE`, also for an array of objects, since objects are pickles,
        which can run code when they are read.
        """
        if self.dtype.hasobject:
            raise ValueError(f"{cut_repr(self.name)} holds pickled objects")
        data = self.content.read(self.nbytes)
        if len(data) != self.nbytes:
            raise ValueError(
                f"{cut_repr(self.name)} ends after {len(data):,} of {self.nbytes:,} bytes"
            )
        flat: npt.NDArray[Any] = np.frombuffer(data, self.dtype)
        return flat.reshape(self.shape, order="F" if self.in_columns else "C")


def open_archive(file: IO[bytes]) -> zipfile.ZipFile:
    """Open an archive of at most some thousand arrays. Raises the exceptions in `DAMAGE`."""
    return open_zip(file, _MOST_OF_DIRECTORY)


@contextmanager
def archived_array(archive: zipfile.ZipFile, name: str) -> Iterator[ArchivedArray]:
    """
    Open an array by its name, with its header read.

    Raises KeyError if there is no such array, and the exceptions in `DAMAGE`.
    """
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type not in _METHODS:
        raise ValueError(f"{cut_repr(name)} is compressed by the method {member.compress_type}")
    with archive.open(member) as file:
        shape, in_columns, dtype = _header(file)
        if any(length < 0 for length in shape):
            raise ValueError(f"{cut_repr(name)} has the shape {cut_repr(shape)}")
        yield ArchivedArray(name, shape, dtype, in_columns, file)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type of an array. Raises ValueError."""
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"version {version} of an array is not known")
    try:
        shape, in_columns, dtype = readers[version](file)
    except Exception as error:  # NumPy has Python's tokenizer and parser read it
        if is_of_handler(error):
            raise
        raise ValueError(f"the header of an array cannot be read: {cut_text(error)}") from None
    if not all(type(length) is int for length in shape):
        raise ValueError(f"an array has the shape {cut_repr(shape)}")
    return shape, in_columns, dtype
