"""The interface through which a guest's handlers use hives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from arkml.sessions.guest_run import ExperimentInfo, GuestRun, Pending
from arkml.sessions.run_request import HiveAddress, TrainingRequest
from arkml.sessions.session_table import TrainingStart


class RunGateway(Protocol):
    """
    Access of one guest to the hives of its host, without blocking.

    A method raises Unavailable for an address that the host does not allow. The pending results
    fail with Unavailable, NotFound, InvalidArguments or HttpRequestFailed.
    """

    def answers(self, address: HiveAddress) -> Pending[bool]: ...

    def experiments(self, address: HiveAddress) -> Pending[Sequence[ExperimentInfo]]: ...

    def find(self, address: HiveAddress, run_id: str) -> GuestRun: ...

    def start(self, request: TrainingRequest) -> Pending[TrainingStart]:
        """
        Start a run, or join a run of the same name; raises InvalidArguments for wrong settings.
        """
        ...

    def linked_module(self, link: str) -> str:
        """Return the SHA-256 of the module that a link names; raises InvalidArguments."""
        ...

    def connect(self, address: HiveAddress, run_id: str) -> Pending[TrainingStart]: ...
