"""The column memory of one engine, and the blocks that are in use in it."""

from __future__ import annotations

import ctypes
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


class Arena:
    """
    Allocates blocks of a wasm SharedMemory, in sizes of powers of two.

    Freed blocks are reused, or split. The memory grows as needed and never moves, so addresses and
    views stay valid until their block is freed; it is unmapped with its last view. Offset 0 is
    never allocated.

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
        self._free: dict[int, list[int]] = {}
        self._returned: deque[tuple[int, int]] = deque()
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
        size = _block(size)
        with self._lock:
            self._take_back()
            offset = self._reuse(size)
            if offset is None:
                offset = self._extend(size)
        ctypes.memset(self.base + offset, 0, size)
        return offset

    def free(self, offset: int, size: int) -> None:
        """
        Free a block that was allocated with `size`.

        It takes no lock, because a finalizer may call it in the middle of `allocate`.
        """
        self._returned.append((_block(size), offset))

    def array(self, offset: int, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a view of `count` items of `dtype` at `offset`: [count]."""
        item = np.dtype(dtype)
        view: npt.NDArray[Any] = self._array[offset : offset + count * item.itemsize].view(item)
        return view

    def _take_back(self) -> None:
        """Add the blocks that were freed to the lists of free ones."""
        while self._returned:
            size, offset = self._returned.popleft()
            self._free.setdefault(size, []).append(offset)

    def _reuse(self, size: int) -> int | None:
        """Return a free block of that size, split from a larger one if necessary, or None."""
        larger = size
        while larger < self._top:
            free = self._free.get(larger)
            if free:
                offset = free.pop()
                while larger > size:
                    larger //= 2
                    self._free.setdefault(larger, []).append(offset + larger)
                return offset
            larger *= 2
        return None

    def _extend(self, size: int) -> int:
        offset = self._top
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
        self._top = end
        return offset


def _block(size: int) -> int:
    return max(_SMALLEST, 1 << (size - 1).bit_length())
