"""Copies of the memories of guests, of those pages that hold something."""

from __future__ import annotations

import ctypes
import mmap
from array import array
from collections.abc import Iterable, Sequence
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
    A copy of a memory as files have it.

    Attributes:
        size: Bytes of the memory.
        page: Bytes of a page of the system that made the copy.
        held: A byte for each of its pages: 1 if `content` has it, 0 if it has zeros only.
        content: The pages, side by side.

    """

    size: int
    page: int
    held: bytes
    content: bytes


class SavedMemory:
    """
    A copy of the bytes of a guest's memory.

    It has the pages of the system that hold something: the others are zeros. A guest touches a few
    pages of its memory, often 10 of 100.
    """

    __slots__ = ("_content", "_count", "_held", "_owner", "_size")

    def __init__(self, size: int, held: int, content: int, count: int, owner: object) -> None:
        self._size = size
        self._held = held  # address of a byte for each page: 1 if the copy has it
        self._content = content  # address of those pages, side by side
        self._count = count  # of those pages
        self._owner = owner  # what lies at these addresses

    @classmethod
    def unpacked(cls, packed: PackedMemory) -> Self:
        """Return the copy that a file has. Raises ValueError for one that contradicts itself."""
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
        """Return the copy as files have it."""
        held = ctypes.string_at(self._held, self._size // _SYSTEM_PAGE)
        content = ctypes.string_at(self._content, self._count * _SYSTEM_PAGE)
        return PackedMemory(self._size, _SYSTEM_PAGE, held, content)

    @property
    def nbytes(self) -> int:
        """The bytes that the copy takes."""
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

    def placed(self, base: bindings.Address) -> tuple[int, ...]:
        """Return the memory at an address as the native library takes it, with this copy."""
        return base, self._size, self._held, self._content, self._count


class MemoryCopies:
    """
    Copies of memories, of which nothing changes meanwhile.

    `sizes` has the bytes that each will take, before they are made by `made`. Without the native
    library, and where the system does not say which pages hold something, copies have all pages.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        pages = [size // _SYSTEM_PAGE for _, size in places]
        self._held = array("B", b"\1" * sum(pages))
        at, _ = self._held.buffer_info()
        self._starts = list(accumulate(pages, initial=at))
        self._rows = array("Q")
        self._counts = pages
        if native.LIBRARY is not None:
            for (base, size), held in zip(places, self._starts, strict=False):
                self._rows.extend((base, size, held, 0, 0))
            table, _ = self._rows.buffer_info()
            native.LIBRARY.find_pages(table, len(places), _SYSTEM_PAGE)
            self._counts = self._rows[4::5].tolist()
        self.sizes = [
            of_all + count * _SYSTEM_PAGE for of_all, count in zip(pages, self._counts, strict=True)
        ]

    def made(self) -> list[SavedMemory]:
        """Return a copy of each memory."""
        content = np.empty(sum(self._counts) * _SYSTEM_PAGE, np.uint8)
        sizes = (count * _SYSTEM_PAGE for count in self._counts)
        contents = list(accumulate(sizes, initial=_address(content)))
        if native.LIBRARY is not None:
            self._rows[3::5] = array("Q", contents[:-1])
            table, _ = self._rows.buffer_info()
            native.LIBRARY.save_pages(table, len(self._places), _SYSTEM_PAGE)
        else:
            for (base, size), into in zip(self._places, contents, strict=False):
                ctypes.memmove(into, base, size)
        owner = self._held, content
        return [
            SavedMemory(size, held, into, count, owner)
            for (_, size), held, into, count in zip(
                self._places, self._starts, contents, self._counts, strict=False
            )
        ]


def load_memories(copies: Iterable[tuple[bindings.Address, SavedMemory]]) -> None:
    """Set the memory at each address, which has the size of its copy, to the copy."""
    if native.LIBRARY is None:
        for base, saved in copies:
            ctypes.memmove(base, bytes(saved), len(saved))
        return
    rows = array("Q")
    for base, saved in copies:
        rows.extend(saved.placed(base))
    table, count = rows.buffer_info()
    native.LIBRARY.load_pages(table, count // 5, _SYSTEM_PAGE)


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.ctypes.data
    return address
