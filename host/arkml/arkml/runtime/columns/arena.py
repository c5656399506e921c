"""The shared column memory of one engine, and the allocator of its blocks."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
import wasmtime

from arkml.errors import ColumnsFull
from arkml.runtime import bindings

PAGE = 65_536
_SMALLEST = 64
_WARM_BYTES = 4 << 20  # of free blocks that stay in memory, for sessions that come and go
_DONTNEED = 4  # MADV_DONTNEED of Linux
_madvise = ctypes.CDLL(None).madvise if sys.platform == "linux" else None


class Arena:
    """
    An allocator of blocks in a wasm SharedMemory, by the buddy system: 100 bytes take 128.

    Freed blocks are joined with free neighbors, and split when they are reused. The memory grows as
    needed and never moves, so addresses and views stay valid until their block is freed; it is
    unmapped with its last view. Offset 0 is never allocated. A signal handler that raises may leave
    a block without an owner, but never one with two.

    `base` is its address. `bytes`, `words` and `numbers` are memoryviews of the whole memory as
    uint8, uint32 and uint64; `word_array` is a uint32 array over it.
    """

    def __init__(self, engine: wasmtime.Engine, limit: int = PAGE * PAGE) -> None:
        kind = wasmtime.MemoryType(wasmtime.Limits(1, PAGE), shared=True)
        self.memory = wasmtime.SharedMemory(engine, kind)
        self.base = bindings.address_of(self.memory.data_ptr())
        self._limit = min(limit, PAGE * PAGE)
        self._size = PAGE
        self._top = _SMALLEST
        # By size, of those that there are, and offset: True if it is warm.
        self._free: dict[int, dict[int, bool]] = {}
        self._warm = 0  # bytes of free blocks whose pages are in memory
        self._returned_warm = 0
        self._returned: deque[tuple[int, int, bool]] = deque()
        self._lock = threading.Lock()
        whole: Any = (ctypes.c_uint8 * (PAGE * PAGE)).from_address(self.base)
        whole.owner = self.memory  # every view keeps `whole` alive
        self.bytes = memoryview(whole).cast("B")
        self.words = self.bytes.cast("I")
        self.numbers = self.bytes.cast("Q")
        self._array: npt.NDArray[np.uint8] = np.ctypeslib.as_array(whole)
        self.word_array: npt.NDArray[np.uint32] = self._array.view(np.uint32)
        self.number_array: npt.NDArray[np.uint64] = self._array.view(np.uint64)

    def allocate(self, size: int) -> int:
        """Return the offset of a zeroed block of at least `size` bytes. Raises ColumnsFull."""
        size = block_bytes(size)
        with self._lock:
            self._take_back()
            found = self._reuse(size)
            if found is None:
                self._lower_top()
                found = self._extend(size), False
        offset, is_warm = found
        if is_warm or _madvise is None:  # others are zeros, and take no memory until they are used
            ctypes.memset(self.base + offset, 0, size)
        return offset

    def free(self, offset: int, size: int) -> None:
        """
        Free a block that was allocated with `size`.

        It takes no lock, because a finalizer may call it in the middle of `allocate`.
        """
        size = block_bytes(size)
        is_warm = self._warm + self._returned_warm + size <= _WARM_BYTES or size < mmap.PAGESIZE
        is_warm = is_warm or not self._discard(size, offset)
        self._returned_warm += size * is_warm
        self._returned.append((size, offset, is_warm))

    def array(self, offset: int, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a view of `count` items of `dtype` at a byte offset: [count]."""
        item = np.dtype(dtype)
        view: npt.NDArray[Any] = self._array[offset : offset + count * item.itemsize].view(item)
        return view

    def _take_back(self) -> None:
        """Add the blocks freed since the last call to the lists of free blocks."""
        while self._returned:
            self._add_free(*self._returned.popleft())
        self._returned_warm = 0
        if self._warm > _WARM_BYTES:
            for size in [size for size in self._free if size >= mmap.PAGESIZE]:
                for offset in [offset for offset, is_warm in self._free[size].items() if is_warm]:
                    if self._discard(size, offset):
                        self._free[size][offset] = False
                        self._warm -= size

    def _add_free(self, size: int, offset: int, is_warm: bool) -> None:
        """Add a free block, joined with its buddy, the other half, for as long as that is free."""
        while (other := offset ^ size) in self._free.get(size, ()):
            is_warm |= self._take_free(size, other)
            offset &= ~size
            size *= 2
        self._free.setdefault(size, {})[offset] = is_warm
        self._warm += size * is_warm

    def _take_free(self, size: int, offset: int) -> bool:
        """Take a block from the free ones; return True if its pages are in memory."""
        free = self._free[size]
        is_warm = free.pop(offset)
        if not free:
            del self._free[size]
        self._warm -= size * is_warm
        return is_warm

    def _discard(self, size: int, offset: int) -> bool:
        """Give the pages of a free block back to the system; return True if they read as zeros."""
        if _madvise is None:
            return True  # all blocks are zeroed when they are reused
        try:
            self.memory.ptr()
        except ValueError:  # unmapped already: a finalizer may come late
            return True
        start = ctypes.c_void_p(self.base + offset)
        return bool(_madvise(start, ctypes.c_size_t(size), _DONTNEED) == 0)

    def _reuse(self, size: int) -> tuple[int, bool] | None:
        """
        Return a free block of that size, and True if it is warm, or None.

        It is split from a larger one if necessary.
        """
        fitting = [each for each, blocks in self._free.items() if each >= size and blocks]
        if not fitting:
            return None
        larger = min(fitting)
        offset = next(reversed(self._free[larger]))
        is_warm = self._take_free(larger, offset)
        while larger > size:
            larger //= 2
            self._free.setdefault(larger, {})[offset + larger] = is_warm
            self._warm += larger * is_warm
        return offset, is_warm

    def _lower_top(self) -> None:
        """Lower the top below the free blocks at the end, and zero them."""
        while True:
            found = [size for size, free in self._free.items() if self._top - size in free]
            if not found:
                return
            (size,) = found
            offset = self._top - size
            if self._take_free(size, offset) and (
                size < mmap.PAGESIZE or not self._discard(size, offset)
            ):
                ctypes.memset(self.base + offset, 0, size)
            self._top = offset

    def _extend(self, size: int) -> int:
        offset = -(-self._top // size) * size
        end = offset + size
        if end > self._limit:
            raise ColumnsFull(f"column memory is full: {self._top} of {self._limit} bytes in use")
        if end > self._size:
            pages = max(-(-(end - self._size) // PAGE), min(self._size // PAGE, 1024))
            pages = min(pages, PAGE - self._size // PAGE)
            try:
                self.memory.grow(pages)
            except wasmtime.WasmtimeError:
                raise ColumnsFull(f"the system has no {end} bytes for column memory") from None
            self._size += pages * PAGE
        while self._top < offset:  # what is left before the aligned block
            start = self._top
            gap = start & -start
            self._top += gap
            self._add_free(gap, start, False)
        self._top = end
        return offset


def block_bytes(size: int) -> int:
    """Return the size in bytes of the block that holds `size` bytes: for example, 128 for 100."""
    return max(_SMALLEST, 1 << (size - 1).bit_length())
