"""Runs as guests ask for them: what a hive tells, and what a session may ask of its own run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeVar

from arkml.abi.codes import ExperimentStatus

T = TypeVar("T")
S = TypeVar("S")

Pending = Future
"""A result that comes later, on any thread."""


def settled(value: T) -> Pending[T]:
    """A result that is there already."""
    pending: Pending[T] = Future()
    pending.set_result(value)
    return pending


def mapped(pending: Pending[S], change: Callable[[S], T]) -> Pending[T]:
    """What `change` makes of a result when it comes; its error is passed on."""
    changed: Pending[T] = Future()

    def settle(done: Pending[S]) -> None:
        try:
            changed.set_result(change(done.result()))
        except BaseException as error:  # noqa: BLE001  whoever waits raises it
            changed.set_exception(error)

    pending.add_done_callback(settle)
    return changed


@dataclass(frozen=True, slots=True)
class Metric:
    """A named number."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class ExperimentInfo:
    """One experiment of a hive. Times are nanoseconds since the Unix epoch, 0 for not yet."""

    name: str
    id: str
    started_at: int
    ended_at: int
    max_duration: int
    experiment_status: ExperimentStatus
    worker_count: int


@dataclass(frozen=True, slots=True)
class ExperimentShape:
    """How wide an experiment's rows are."""

    num_features: int
    num_actions: int


class Run(Protocol):
    """A run of a hive, to be asked for what it has."""

    @property
    def shape(self) -> Pending[ExperimentShape]: ...

    def configuration(self) -> Pending[str]:
        """What it was started with, byte for byte."""
        ...

    def snapshot(self) -> Pending[bytes]:
        """Its policy as trained so far, an ONNX file."""
        ...

    def metrics(self) -> Pending[Sequence[Metric]]: ...
