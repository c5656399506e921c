"""Copies of guest memories, which leave out pages that hold only zeros."""

from __future__ import annotations

import ctypes
import mmap
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from arkml.runtime import bindings, native
from arkml.runtime.memory import PAGE

_SYSTEM_PAGE, _LEAST_PAGE = mmap.PAGESIZE, 4_096
assert PAGE % _SYSTEM_PAGE == 0, f"pages of {_SYSTEM_PAGE} bytes"

Place = tuple[bindings.Address, int]
"""Where a memory lies, and its bytes."""


class PackedMemory(NamedTuple):
    """
    A copy of a memory in the form that files hold.

    Attributes:
        size: Bytes of the memory.
        page: Bytes of a page of the system that made the copy.
        held: A byte for each page: 1 if the page is in `content`, 0 if it has only zeros.
        content: The pages, side by side.

    """

    size: int
    page: int
    held: bytes
    content: bytes


class SavedMemory:
    """
    A copy of the bytes of a guest's memory.

    Only pages (of the operating system) that are not all zeros are stored: a guest usually touches
    few pages of its memory, often 10 of 100.
    """

    __slots__ = ("_content", "_count", "_held", "_owner", "_size")

    def __init__(self, size: int, held: int, content: int, count: int, owner: object) -> None:
        self._size = size
        self._held = held  # address of a byte for each page: 1 if the copy has it
        self._content = content  # address of those pages, side by side
        self._count = count  # of those pages
        self._owner = owner  # what lies at these addresses

    @classmethod
    def of(cls, place: Place, admit: Callable[[int], object]) -> Self:
        """
        Return a copy of one memory, which must not change meanwhile; see `MemoryCopies`.

        `admit` is called before, with the number of bytes that the copy will take.
        """
        base, size = place
        pages = count = size // _SYSTEM_PAGE
        held = array("B", b"\1" * pages)
        at, _ = held.buffer_info()
        row = array("Q", (base, size, at, 0, 0))
        table, _ = row.buffer_info()
        if native.LIBRARY is not None:
            native.LIBRARY.find_pages(table, 1, _SYSTEM_PAGE)
            count = row[4]
        admit(pages + count * _SYSTEM_PAGE)
        content = np.empty(count * _SYSTEM_PAGE, np.uint8)
        row[3] = into = _address(content)
        if native.LIBRARY is not None:
            native.LIBRARY.save_pages(table, 1, _SYSTEM_PAGE)
        else:
            ctypes.memmove(into, base, size)
        return cls(size, at, into, count, (held, content))

    @classmethod
    def unpacked(cls, packed: PackedMemory) -> Self:
        """Return the copy that a file holds. Raises ValueError if it contradicts itself."""
        size, page, held, content = packed
        pages = np.frombuffer(held, np.uint8)
        is_page = _LEAST_PAGE <= page <= PAGE and not PAGE % page
        if not is_page or size % PAGE or len(held) * page != size:
            raise ValueError(f"{len(held)} pages of {page} bytes are no memory of {size} bytes")
        count = int(np.count_nonzero(pages))
        if pages.max(initial=0) > 1 or count * page != len(content):
            raise ValueError(f"{len(content)} bytes are not {count} pages of {page} bytes")
        kept = np.frombuffer(content, np.uint8)
        if page > _SYSTEM_PAGE:
            pages = np.repeat(pages, page // _SYSTEM_PAGE)
        elif page < _SYSTEM_PAGE:  # pages of which the copy has a part get zeros for the others
            parts = pages.reshape(-1, _SYSTEM_PAGE // page)
            pages = parts.max(axis=1, initial=0)
            parts = parts[pages > 0]
            whole = np.zeros((*parts.shape, page), np.uint8)
            whole[parts > 0] = kept.reshape(-1, page)
            kept = whole.reshape(-1)
        count = len(kept) // _SYSTEM_PAGE
        return cls(size, _address(pages), _address(kept), count, (pages, kept))

    def packed(self) -> PackedMemory:
        """Return the copy in the form that files hold."""
        held = ctypes.string_at(self._held, self._size // _SYSTEM_PAGE)
        content = ctypes.string_at(self._content, self._count * _SYSTEM_PAGE)
        return PackedMemory(self._size, _SYSTEM_PAGE, held, content)

    @property
    def nbytes(self) -> int:
        """The number of bytes that the copy takes."""
        return self._size // _SYSTEM_PAGE + self._count * _SYSTEM_PAGE

    def __len__(self) -> int:
        """Return the bytes of the memory."""
        return self._size

    def __bytes__(self) -> bytes:
        """Return the bytes of the memory."""
        _, page, held, content = self.packed()
        pages = np.zeros((len(held), page), np.uint8)
        pages[np.frombuffer(held, np.bool_)] = np.frombuffer(content, np.uint8).reshape(-1, page)
        return pages.tobytes()

    def load(self, base: bindings.Address) -> None:
        """Copy the saved bytes to a memory of the same size at address `base`."""
        if native.LIBRARY is None:
            ctypes.memmove(base, bytes(self), self._size)
            return
        row = array("Q", (base, self._size, self._held, self._content, self._count))
        table, _ = row.buffer_info()
        native.LIBRARY.load_pages(table, 1, _SYSTEM_PAGE)


class SavedMemories:
    """
    Copies of many memories; `memories[3]` is the `SavedMemory` of the fourth.

    Attributes:
        sizes: The bytes of each memory.
        nbytes: The bytes that each copy takes.

    """

    __slots__ = ("_contents", "_counts", "_marks", "_owner", "sizes")

    def __init__(
        self,
        sizes: Sequence[int],
        marks: Sequence[int],
        contents: Sequence[int],
        counts: Sequence[int],
        owner: object,
    ) -> None:
        """
        Store the parts of all copies.

        Args:
            sizes: Bytes of the memories.
            marks: Addresses of a byte for each page of a memory: 1 if the copy has it.
            contents: Addresses of the pages in the copy, side by side.
            counts: Numbers of the pages in the copy.
            owner: The object that owns the memory at these addresses.

        """
        self.sizes = sizes
        self._marks, self._contents, self._counts = marks, contents, counts
        self._owner = owner

    @classmethod
    def of(cls, copies: Sequence[SavedMemory]) -> Self:
        """Return an object that holds copies which were made one by one."""
        fields = [(one._size, one._held, one._content, one._count) for one in copies]  # noqa: SLF001
        sizes, marks, contents, counts = zip(*fields, strict=True) if fields else ((),) * 4
        return cls(sizes, marks, contents, counts, [one._owner for one in copies])  # noqa: SLF001

    def __len__(self) -> int:
        """Return the number of memories."""
        return len(self.sizes)

    def __getitem__(self, index: int) -> SavedMemory:
        """Return one of the copies."""
        return SavedMemory(
            self.sizes[index],
            self._marks[index],
            self._contents[index],
            self._counts[index],
            self._owner,
        )

    @property
    def nbytes(self) -> list[int]:
        """The number of bytes that each copy takes."""
        return _bytes_of(self.sizes, self._counts)

    def load(self, bases: Sequence[bindings.Address]) -> None:
        """Copy each saved memory to the memory of the same size at its address in `bases`."""
        if native.LIBRARY is None:
            for index, base in enumerate(bases):
                self[index].load(base)
            return
        rows = _rows_of(bases, self.sizes, self._marks)
        rows[3::5], rows[4::5] = array("Q", self._contents), array("Q", self._counts)
        table, _ = rows.buffer_info()
        native.LIBRARY.load_pages(table, len(self), _SYSTEM_PAGE)


class MemoryCopies:
    """
    Copies of memories in preparation; the memories must not change meanwhile.

    `sizes` has the bytes that each copy will take; `made` then makes the copies. Without the native
    library, and where the system does not report which pages are in use, copies have all pages.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        bases = [base for base, _ in places]
        self._sizes = [size for _, size in places]
        pages = [size // _SYSTEM_PAGE for size in self._sizes]
        self._held = array("B", b"\1" * sum(pages))
        at, _ = self._held.buffer_info()
        self._marks = list(accumulate(pages[:-1], initial=at)) if places else []
        self._counts = pages
        if native.LIBRARY is not None:
            self._rows = _rows_of(bases, self._sizes, self._marks)
            table, _ = self._rows.buffer_info()
            native.LIBRARY.find_pages(table, len(places), _SYSTEM_PAGE)
            self._counts = self._rows[4::5].tolist()
        self.sizes = _bytes_of(self._sizes, self._counts)

    def made(self) -> SavedMemories:
        """Return a copy of each memory."""
        content = np.empty(sum(self._counts) * _SYSTEM_PAGE, np.uint8)
        sizes = [count * _SYSTEM_PAGE for count in self._counts]
        contents = list(accumulate(sizes[:-1], initial=_address(content))) if sizes else []
        if native.LIBRARY is not None:
            self._rows[3::5] = array("Q", contents)
            table, _ = self._rows.buffer_info()
            native.LIBRARY.save_pages(table, len(self._places), _SYSTEM_PAGE)
        else:
            for (base, size), into in zip(self._places, contents, strict=True):
                ctypes.memmove(into, base, size)
        owner = self._held, content
        return SavedMemories(self._sizes, self._marks, contents, self._counts, owner)


def _rows_of(
    bases: Sequence[bindings.Address], sizes: Sequence[int], marks: Sequence[int]
) -> array[int]:
    """Return memories as the native library takes them, without the content of their copies."""
    rows = array("Q", bytes(40 * len(bases)))
    rows[0::5], rows[1::5], rows[2::5] = array("Q", bases), array("Q", sizes), array("Q", marks)
    return rows


def _bytes_of(sizes: Sequence[int], counts: Sequence[int]) -> list[int]:
    return [
        size // _SYSTEM_PAGE + count * _SYSTEM_PAGE
        for size, count in zip(sizes, counts, strict=True)
    ]


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]  # in a third of the time of `ctypes`
    return address
