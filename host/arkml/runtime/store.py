"""The Store of a guest, freed in order with all that points into it."""

from __future__ import annotations

from typing import ClassVar

import wasmtime

from arkml.runtime import bindings


class GuestStore:
    """
    A wasmtime Store, the call in progress in it, and the column memory that it writes to.

    A call has to be deleted before its Store, and the column memory has to outlive both, but the
    garbage collector finalizes the objects of a cycle in any order. So the Store is taken from
    wasmtime-py, whose object would delete it by itself, and the column memory is referenced from
    outside of any cycle until `close`, which is called by one finalizer: the guest's.
    """

    __slots__ = ("_columns", "_pointer", "context", "context_address", "future")

    _open: ClassVar[set[GuestStore]] = set()

    def __init__(self, store: wasmtime.Store, columns: wasmtime.SharedMemory) -> None:
        self.future: bindings.Address = 0
        """The call in progress, 0 if there is none."""
        self.context = bindings.context_of(store)
        self.context_address = bindings.address_of(self.context)
        self._columns = columns
        self._pointer = bindings.take_store(store)
        self._open.add(self)

    def drop_call(self) -> None:
        """Delete the call in progress, if there is one."""
        future, self.future = self.future, 0
        if future:
            bindings.delete_future(future)

    def close(self) -> None:
        """Delete the call in progress, then the Store. Safe to call again."""
        self.drop_call()
        pointer, self._pointer = self._pointer, 0
        if pointer:
            bindings.delete_store(pointer)
        self._open.discard(self)
