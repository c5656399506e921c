"""
Calls of one guest that the native library runs alone, answering submits by compiled models.

A call in which the guest needs nothing of the host but the answers of its policies takes one call
of the library. Any other request suspends the guest, and the host continues the call as usual.
"""

from __future__ import annotations

from collections.abc import Sized
from ctypes import addressof
from typing import Any

from arkml.runtime import native
from arkml.runtime.bindings import Address
from arkml.runtime.columns.region import Region
from arkml.runtime.columns.slabs import Columns
from arkml.runtime.rounds import Rounds
from arkml.runtime.shim import control_block as at

_MOST = 8  # sessions of a guest whose submits are answered here


class SingleCalls:
    """
    Runs the calls of one guest in the native library.

    `place` is the guest's slot in `rounds`, `control` the offset of its control block in `columns`.
    All answers are forgotten when `Columns.version` has changed, or the length of `stopped`, the
    models that must not be run again.
    """

    def __init__(
        self,
        library: native.Library,
        rounds: Rounds,
        columns: Columns,
        place: int,
        control: int,
        stopped: Sized,
    ) -> None:
        self._rounds = rounds
        self._columns = columns
        self._stopped = stopped
        self._version = self._stopped_then = -1
        self._base = columns.arena.base
        self._answers: Any = None  # room for them, once there is one
        # By the index of the session's record; both are kept alive while the library uses them.
        self._runs: dict[int, tuple[object, native.SubmitAnswer]] = {}
        self._own = native.Single(
            round=rounds.address, place=place, record=self._base + control + at.RECORD,
            errors=self._base + control + at.TRAP, noted=self._base + control + at.NOTED,
        )  # fmt: skip
        self._address = addressof(self._own)
        self._call = library.call

    def call(self, arguments: Address) -> int:
        """
        Run a call, and return how it ended: `native.DONE` or another outcome of the library.

        `arguments` is the address of the arguments for `bindings.call_async`.
        """
        columns = self._columns
        if self._version != columns.version or self._stopped_then != len(self._stopped):
            self.forget()
        if self._rounds.is_new:
            self._rounds.renew()
        outcome: int = self._call(self._address, arguments)
        return outcome

    def set_room(self, seconds: float) -> None:
        """Set the seconds of a call after which the host checks its budget."""
        self._own.room = seconds

    def add(
        self,
        record: int,
        region: Region,
        run: object,
        *,
        rows: Address = 0,
        bound: Address = 0,
        is_of_guest: bool,
    ) -> None:
        """
        Let a run of a model answer the submits of a session that have as many rows as this one.

        Args:
            record: The index of the session's record.
            region: The queue of the session.
            run: The run that answers the present submit; kept alive.
            rows: The address of the run's struct arkml_rows, or 0.
            bound: The address of the run's struct arkml_bound, or 0.
            is_of_guest: True to charge the guest for the runs.

        """
        if self._version != self._columns.version:
            self.forget()
        if record not in self._runs and len(self._runs) == _MOST:
            return
        start = self._base + 4 * region.record
        answer = native.SubmitAnswer(
            record, start + at.COUNT, start + at.METADATA_USED, region.count(), rows, bound,
            is_of_guest,
        )  # fmt: skip
        # A signal handler may raise at any line: none counts before all are whole.
        self._own.answer_count = 0
        self._runs = {**self._runs, record: (run, answer)}
        if not self._own.answers:
            self._answers = (native.SubmitAnswer * _MOST)()
            self._own.answers = addressof(self._answers)
        for place, (_, one) in enumerate(self._runs.values()):
            self._answers[place] = one
        self._own.answer_count = len(self._runs)

    def forget(self) -> None:
        """Drop all answers, so that the host answers submits until runs are added again."""
        self._own.answer_count = 0
        self._runs.clear()
        self._version, self._stopped_then = self._columns.version, len(self._stopped)

    def stretch(self) -> tuple[float, bool]:
        """
        Return the seconds of a long period of the last call that are not charged yet, or 0.

        Also returns whether the period was a run of a model.
        """
        return self._own.stretch, bool(self._own.is_of_model)

    def seconds(self) -> tuple[float, float]:
        """Return the seconds of runs of the guest's models, and of the embedder's policies."""
        return self._own.models, self._own.policies

    def seconds_at(self, began: float) -> tuple[float, float]:
        """
        Return the result of `seconds` at the start of the call before which `began` were charged.
        """
        own = self._own
        return (own.models_then, own.policies_then) if own.began == began else self.seconds()
