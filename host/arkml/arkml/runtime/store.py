"""The Store of a guest, freed in the right order with everything that points into it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import wasmtime

from arkml.runtime import bindings
from arkml.runtime.lockstep import Lockstep
from arkml.runtime.steps import StepList

_Read = TypeVar("_Read")


class GuestStore:
    """
    A wasmtime Store, the guest's place in a lockstep, and the column memory that its shim writes.

    The call in progress has to be deleted before its Store, and the column memory has to outlive
    both, but the garbage collector finalizes the objects of a cycle in any order. So the Store is
    no object of wasmtime-py, which would delete it; and the column memory and the lockstep, which
    owns the call, are referenced from outside of any cycle until `close`. The one finalizer that
    calls `close` is the guest's (decision 13).
    """

    __slots__ = (
        "_columns", "_has_place", "_lock", "_lockstep", "_owned", "_pointer", "context",
        "is_built", "is_ended", "place",
    )  # fmt: skip

    _open: ClassVar[set[GuestStore]] = set()

    def __init__(
        self,
        engine: bindings.Address,
        columns: wasmtime.SharedMemory,
        lockstep: Lockstep,
        control: int,
    ) -> None:
        """Make a Store of an engine, a wasm_engine_t, and let it enter a lockstep."""
        self._lock = threading.RLock()
        self.is_ended = False
        self.is_built = False
        """True once the instances of the guest are in the present Store, which the caller sets."""
        self._lockstep = lockstep
        self.place = lockstep.enter(control)
        self._has_place = True
        self._columns = columns
        self._owned = [0]  # and the Store, until it is deleted
        self._begin(engine)
        self._open.add(self)

    def read(self, what: Callable[[], _Read]) -> _Read | None:
        """
        Return the result of a function that reads the guest, or None if there is none.

        There is no guest once it is freed, or in a new Store before `is_built`. It is not freed
        while it is read, on any thread. If a signal handler closes it in the middle of reading, it
        is freed afterwards. The finalizer always finds the lock free, because a thread that holds
        it keeps the guest alive.
        """
        if self._is_inside():
            return what() if self._pointer and self.is_built else None
        try:
            with self._lock:
                return what() if self._pointer and self.is_built else None
        finally:
            if self.is_ended:
                self.close()

    def replace(self, engine: bindings.Address) -> None:
        """Delete the Store, and continue with a new one at the same place of the lockstep."""
        with self._lock:
            self.is_built = False
            self._lockstep.drop(self.place)
            self._lockstep.stores += 1
            self._delete()
            self._owned = [0]
            self._begin(engine)

    def take(self, steps: StepList, control: int, room: Any) -> None:
        """Execute a list of steps in the Store; raises the errors of `StepList.take`."""
        steps.take(self._pointer, self.context, control, room)

    def limit(self, caps: Sequence[int]) -> None:
        """Set the limits of the Store from now on; see `bindings.limit_store`."""
        if self._pointer:
            bindings.limit_store(self._pointer, *caps)

    def close_files(self) -> None:
        """Close the WASI files of a guest that will not be called again."""
        if self._pointer:
            bindings.set_wasi(self.context, wasmtime.WasiConfig())

    def close(self) -> None:
        """Delete the call in progress, then the Store. Safe to call twice."""
        self.is_ended = True
        if not self._is_inside():
            with self._lock:
                self._free()

    def _is_inside(self) -> bool:
        """Return True in a signal handler that runs in the middle of `read` or `close`."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]  # noqa: SLF001

    def _free(self) -> None:
        if self._has_place:
            self._has_place = False  # first: the place may soon be another's
            self._lockstep.leave(self.place)
        self._delete()
        self._open.discard(self)

    def _begin(self, engine: bindings.Address) -> None:
        """Own a new Store."""
        # Made and owned in C alone: a signal handler raises before both, or behind both.
        self._owned.extend(map(bindings.new_store, (engine,), (None,), (None,)))
        self._pointer = self._owned[1]
        self.context = bindings.store_context(self._pointer)

    def _delete(self) -> None:
        """Delete the Store, unless it is deleted."""
        self._pointer = 0
        if self._owned:
            # Likewise taken and deleted.
            deque(map(bindings.delete_store, iter(self._owned.pop, 0)), maxlen=0)
