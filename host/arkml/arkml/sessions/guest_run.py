"""Runs as a guest sees them: the hive's records of runs, and requests to one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeVar

from arkml.abi.codes import ExperimentStatus
from arkml.base.handler_errors import is_of_handler, when_done

T = TypeVar("T")
S = TypeVar("S")

Pending = Future
"""A result that is set later, on any thread."""


def settled(value: T) -> Pending[T]:
    """Return a pending result that already has its value."""
    pending: Pending[T] = Future()
    pending.set_result(value)
    return pending


def mapped(pending: Pending[S], change: Callable[[S], T]) -> Pending[T]:
    """
    Return a pending result that is `change` applied to the value of another one.

    An error is passed on.
    """
    changed: Pending[T] = Future()

    def settle(done: Pending[S]) -> None:
        try:
            changed.set_result(change(done.result()))
        except BaseException as error:
            if is_of_handler(error):
                raise
            # The waiting thread raises it. With its traceback, which has this frame, the error
            # would refer to itself.
            changed.set_exception(error.with_traceback(None))

    when_done(pending, settle)
    return changed


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a run: a name and a number."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class ExperimentInfo:
    """One experiment of a hive. Times are nanoseconds since the Unix epoch, 0 if unknown."""

    name: str
    id: str
    started_at: int
    ended_at: int
    max_duration: int
    experiment_status: ExperimentStatus
    worker_count: int


@dataclass(frozen=True, slots=True)
class ExperimentShape:
    """The numbers of features and actions of an experiment's rows."""

    num_features: int
    num_actions: int


class GuestRun(Protocol):
    """Requests to one run of a hive."""

    @property
    def id(self) -> str: ...

    @property
    def shape(self) -> Pending[ExperimentShape]: ...

    def configuration(self) -> Pending[str]:
        """Request the text, unchanged, with which the run was started as its configuration."""
        ...

    def snapshot(self) -> Pending[bytes]:
        """Request the newest policy version as an ONNX file."""
        ...

    def metrics(self) -> Pending[Sequence[Metric]]: ...
