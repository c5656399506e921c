"""Futures: what a guest polls, takes and drops while the host works elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from arkml.errors import InvalidArguments, TooManyFutures, Unavailable, UsageError
from arkml.sessions.handles import HandleTable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResultType(Generic[T]):
    """
    What a future will hold. `counted` results have a length, which `poll` tells.

    `discard` gives back a result that was dropped and not taken, on whichever thread that shows.
    """

    name: str
    counted: bool = False
    discard: Callable[[T], object] | None = None


class Readiness(NamedTuple):
    """What `poll` answers: whether `take` would succeed or fail for good, and how many items."""

    ready: bool
    length: int


class Changes:
    """Counts the futures that got their result, so that one thread can wait for the next."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def announce(self) -> None:
        """Wake whoever waits. May be called from any thread."""
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def wait(self, seen: int, timeout: float) -> bool:
        """Block until `count` is no longer `seen`, for at most `timeout` seconds."""
        with self._condition:
            return self._condition.wait_for(lambda: self._count != seen, timeout)


class Future(Generic[T]):
    """
    A result that comes later, from any thread and once.

    The thread of the guest reads it; `resolve` and `fail` are the only methods for others.
    """

    __slots__ = ("_changes", "_is_dropped", "_lock", "_outcome", "type")

    def __init__(self, result: ResultType[T], changes: Changes) -> None:
        self.type = result
        self._changes = changes
        self._lock = threading.RLock()  # a finalizer may find it taken
        self._is_dropped = False
        self._outcome: tuple[T] | Exception | None = None

    @property
    def is_ready(self) -> bool:
        return self._outcome is not None

    def resolve(self, value: T) -> None:
        """Give the result."""
        self._settle((value,))

    def fail(self, error: Exception) -> None:
        """Give the error that `take` will raise. One that is no AbiError is a bug of the host."""
        self._settle(error)

    def poll(self) -> Readiness:
        """Never blocks. A failed future is ready with no items: `take` brings its error."""
        match self._outcome:
            case None:
                return Readiness(ready=False, length=0)
            case Exception():
                return Readiness(ready=True, length=0)
            case (value,):
                return Readiness(ready=True, length=_length(value) if self.type.counted else 0)

    def result(self) -> T:
        """The value; raises its error, or `Unavailable` while there is neither."""
        match self._outcome:
            case None:
                raise Unavailable(f"the {self.type.name} is still pending")
            case Exception() as error:
                raise error.with_traceback(None)  # or it would grow every time it is raised
            case (value,):
                return value

    def drop(self) -> None:
        """Nobody will take the result: what it is, or will be, is given back."""
        with self._lock:
            self._is_dropped = True
            outcome = self._outcome
        self._discard(outcome)

    def _settle(self, outcome: tuple[T] | Exception) -> None:
        with self._lock:
            if self._outcome is not None:
                raise UsageError(f"this future already has its {self.type.name}")
            self._outcome = outcome
            dropped = self._is_dropped
        if dropped:
            self._discard(outcome)
        self._changes.announce()

    def _discard(self, outcome: tuple[T] | Exception | None) -> None:
        if self.type.discard is not None and isinstance(outcome, tuple):
            self.type.discard(outcome[0])


class FutureTable:
    """The live futures of one guest. They share the handle table of its sessions."""

    def __init__(self, handles: HandleTable[Any], *, limit: int, changes: Changes) -> None:
        self._handles = handles
        self._limit = limit
        self._changes = changes
        self._live = 0

    def __len__(self) -> int:
        return self._live

    @property
    def changes(self) -> Changes:
        return self._changes

    def open(self, result: ResultType[T]) -> tuple[int, Future[T]]:
        """A new pending future and the handle that names it."""
        if self._live >= self._limit:
            raise TooManyFutures(f"{self._live} futures are live, the limit is {self._limit}")
        future = Future(result, self._changes)
        handle = self._handles.insert(future)
        self._live += 1
        return handle, future

    def poll(self, handle: int, result: ResultType[T]) -> Readiness:
        return self._find(handle, result).poll()

    def take(self, handle: int, result: ResultType[T]) -> T:
        """Empty a ready future. A pending one, or one of another type, is kept."""
        future = self._find(handle, result)
        if not future.is_ready:
            raise Unavailable(f"future {handle:#x}: the {result.name} is still pending")
        self._forget(handle)
        return future.result()

    def drop(self, handle: int) -> None:
        """Forget a future, pending or not, and what it brings."""
        self._forget(handle).drop()

    def clear(self) -> None:
        """Forget every future."""
        for handle, item in self._handles:
            if isinstance(item, Future):
                self.drop(handle)

    def _forget(self, handle: int) -> Future[Any]:
        future: Future[Any] = self._handles.remove(handle, Future)
        self._live -= 1
        return future

    def _find(self, handle: int, result: ResultType[T]) -> Future[T]:
        future: Future[Any] = self._handles.get(handle, Future)
        if future.type is not result:
            raise InvalidArguments(
                f"future {handle:#x} brings a {future.type.name}, not a {result.name}"
            )
        return future


def _length(value: Any) -> int:
    return len(value)
