"""Futures: results that a guest polls, takes or drops while other threads produce them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from arkml.errors import InvalidArguments, TooManyFutures, Unavailable, UsageError
from arkml.sessions.handles import HandleTable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResultType(Generic[T]):
    """
    The type of a future's result. `counted` results have a length, which `poll` returns.

    `discard` frees a result that was dropped and not taken; it is called on any thread. `size`
    estimates the bytes that a result holds. A request that `has_effect`, such as the start of a
    training, is made even if its future is dropped.
    """

    name: str
    counted: bool = False
    discard: Callable[[T], object] | None = None
    size: Callable[[T], int] = sys.getsizeof
    has_effect: bool = False


class Readiness(NamedTuple):
    """The result of polling a future: whether it is ready, and the `length` of its result."""

    ready: bool
    length: int


class FutureChanges:
    """A counter of settled futures, on which one thread can wait for a change."""

    def __init__(self) -> None:
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    @property
    def _condition(self) -> threading.Condition:
        """The condition, which is large, and made when it is first needed. Safe from any thread."""
        made: threading.Condition | None = self.__dict__.get("_made")
        return made or self.__dict__.setdefault("_made", threading.Condition())  # one for all

    def announce(self) -> None:
        """Count one more settled future and wake the waiting thread. Safe from any thread."""
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def wait(self, seen: int, timeout: float) -> bool:
        """Block until `count` differs from `seen`, for at most `timeout` seconds."""
        with self._condition:
            return self._condition.wait_for(lambda: self._count != seen, timeout)


class Future(Generic[T]):
    """
    A result that is set later, once, from any thread.

    The guest's thread reads it; other threads may call `resolve` and `fail` only.
    """

    __slots__ = ("_changes", "_is_dropped", "_lock", "_outcome", "_released", "_withdraw", "type")

    def __init__(self, result: ResultType[T], changes: FutureChanges) -> None:
        self.type = result
        self._changes = changes
        self._lock = threading.RLock()  # a finalizer may run while this thread holds it
        self._is_dropped = False
        self._outcome: tuple[T] | Exception | None = None
        self._released: Callable[[], object] | None = None
        self._withdraw: Callable[[], object] | None = None

    @property
    def is_ready(self) -> bool:
        return self._outcome is not None

    @property
    def outcome(self) -> tuple[T] | Exception | None:
        """
        The result in a tuple, or the error that `take` raises; None while the future is pending.
        """
        return self._outcome

    @property
    def size(self) -> int:
        """Estimated bytes of the result; 0 without one."""
        return self.type.size(self._outcome[0]) if isinstance(self._outcome, tuple) else 0

    def resolve(self, value: T, released: Callable[[], object] | None = None) -> None:
        """Set the result; `released` is called once it is taken or dropped, on any thread."""
        self._released = released
        self._settle((value,))

    def withdraw_by(self, withdraw: Callable[[], object]) -> None:
        """Call `withdraw` if this future is dropped while it is pending."""
        self._withdraw = withdraw
        if self.is_ready:
            self._withdraw = None

    def fail(self, error: Exception) -> None:
        """
        Set the error that `take` raises. An error other than an AbiError is a bug of the host.

        The traceback and cause of the error are dropped, since they would keep the request alive.
        """
        error.__traceback__ = error.__cause__ = error.__context__ = None
        self._settle(error)

    def poll(self) -> Readiness:
        """Return the state without blocking. A failed future is ready, with a length of 0."""
        match self._outcome:
            case None:
                return Readiness(ready=False, length=0)
            case Exception():
                return Readiness(ready=True, length=0)
            case (value,):
                return Readiness(ready=True, length=_length(value) if self.type.counted else 0)

    def result(self) -> T:
        """Return the result or raise the error; raises Unavailable while the future is pending."""
        match self._outcome:
            case None:
                raise Unavailable(f"the {self.type.name} is still pending")
            case Exception() as error:
                raise error.with_traceback(None)  # or the traceback would grow at every raise
            case (value,):
                return value

    def drop(self) -> None:
        """Discard the result, now or when it is set."""
        with self._lock:
            self._is_dropped = True
            outcome, withdraw = self._outcome, self._withdraw
        if outcome is None and withdraw is not None:
            withdraw()
        self._discard(outcome)

    def release(self) -> None:
        """Note that the result was taken."""
        released, self._released = self._released, None
        if released is not None:
            released()

    def _settle(self, outcome: tuple[T] | Exception) -> None:
        with self._lock:
            if self._outcome is not None:
                raise UsageError(f"the {self.type.name} of this future is already set")
            self._outcome, self._withdraw = outcome, None
            dropped = self._is_dropped
        if dropped:
            self._discard(outcome)
        self._changes.announce()

    def _discard(self, outcome: tuple[T] | Exception | None) -> None:
        if self.type.discard is not None and isinstance(outcome, tuple):
            self.type.discard(outcome[0])
        if outcome is not None:
            self.release()


class FutureTable:
    """The live futures of one guest, which are in its handle table."""

    __slots__ = ("_changes", "_handles", "_limit", "_live")

    def __init__(self, handles: HandleTable[Any], *, limit: int, changes: FutureChanges) -> None:
        self._handles = handles
        self._limit = limit
        self._changes = changes
        self._live = 0

    def __len__(self) -> int:
        return self._live

    @property
    def changes(self) -> FutureChanges:
        return self._changes

    def open(self, result: ResultType[T]) -> tuple[int, Future[T]]:
        """Return a new pending future and its handle. Raises TooManyFutures and TooManyHandles."""
        if self._live >= self._limit:
            raise TooManyFutures(f"{self._live} futures are live, the limit is {self._limit}")
        future = Future(result, self._changes)
        handle = self._handles.insert(future)
        self._live += 1
        return handle, future

    def poll(self, handle: int, result: ResultType[T]) -> Readiness:
        return self._find(handle, result).poll()

    def take(self, handle: int, result: ResultType[T]) -> T:
        """Remove a ready future and return its value or raise its error; keep a pending one."""
        future = self._find(handle, result)
        if not future.is_ready:
            raise Unavailable(f"future {handle:#x}: the {result.name} is still pending")
        self._remove(handle)
        future.release()
        return future.result()

    def drop(self, handle: int) -> None:
        """Drop a future, pending or not, and discard its result."""
        self._remove(handle).drop()

    def clear(self, kept: Collection[Future[Any]] = ()) -> None:
        """Drop every future that is not in `kept`."""
        for handle, item in self._handles:
            if isinstance(item, Future) and item not in kept:
                self.drop(handle)

    def recount(self) -> None:
        """Recount the futures after the handle table was loaded from a saved state."""
        self._live = sum(isinstance(item, Future) for item in self._handles.items())

    def _remove(self, handle: int) -> Future[Any]:
        future: Future[Any] = self._handles.remove(handle, Future)
        self._live -= 1
        return future

    def _find(self, handle: int, result: ResultType[T]) -> Future[T]:
        future: Future[Any] = self._handles.get(handle, Future)
        if future.type is not result:
            raise InvalidArguments(
                f"future {handle:#x} holds a {future.type.name}, not a {result.name}"
            )
        return future


def _length(value: Any) -> int:
    return len(value)
