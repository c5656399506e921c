"""What the handlers of a guest need of the hives that it may use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from arkml.sessions.run import ExperimentInfo, Pending, Run
from arkml.sessions.run_request import HiveAddress, TrainingRequest
from arkml.sessions.session_table import TrainingStart


class RunGateway(Protocol):
    """
    The way to the hives of a host. Nothing here blocks.

    An address that the host does not allow raises Unavailable; what comes later raises
    Unavailable, NotFound, InvalidArguments or HttpRequestFailed.
    """

    def answers(self, address: HiveAddress) -> Pending[bool]: ...

    def experiments(self, address: HiveAddress) -> Pending[Sequence[ExperimentInfo]]: ...

    def find(self, address: HiveAddress, run_id: str) -> Run: ...

    def start(self, request: TrainingRequest) -> Pending[TrainingStart]:
        """Start a run, or join the one it names; raises InvalidArguments for its settings."""
        ...

    def connect(self, address: HiveAddress, run_id: str) -> Pending[TrainingStart]: ...
