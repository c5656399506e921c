"""The service of trials as clients use it: over the network, or in the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from arkml.trials.core.endpoints import TrialEndpoint
from arkml.trials.streams import PacedSender, Receiver, Sender
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.datalog_pb2 import RunTrialDatalogInput, RunTrialDatalogOutput
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput, EnvRunTrialOutput
from arkml.trials.wire.hooks_pb2 import PreTrialParams
from arkml.trials.wire.lifecycle_pb2 import (
    TrialInfoReply,
    TrialInfoRequest,
    TrialListEntry,
    TrialListRequest,
    TrialStartReply,
    TrialStartRequest,
)
from arkml.trials.wire.players_pb2 import Description, View


class TrialService(Protocol):
    """
    The requests of controllers, and of actors that join, to a server.

    Everything raises TrialError, with the reason, where the server refuses or is not there.
    """

    async def start(self, request: TrialStartRequest) -> TrialStartReply:
        """Start a trial; the id of the reply is empty if the requested one is taken."""

    async def terminate(self, trial_ids: Sequence[str], *, is_hard: bool) -> None:
        """Request the end of trials, of those that have not ended yet. Unknown ids are refused."""

    async def info(self, trial_ids: Sequence[str], request: TrialInfoRequest) -> TrialInfoReply:
        """Return what is known of trials, of all of them without an id."""

    def watch(self, request: TrialListRequest) -> AsyncIterator[TrialListEntry]:
        """Iterate over the present states of all trials, and then over changes, without end."""

    async def join(
        self, trial_id: str, slot: ActorInitialOutput, sender: Sender[ActorRunTrialInput]
    ) -> Receiver[ActorRunTrialOutput]:
        """
        Join a trial as an actor; the trial sends to `sender`, its init_input first.

        Waits while the trial is INITIALIZING.
        """

    async def versions(self) -> dict[str, str]:
        """Return the versions of the components of the server by name."""


class PlayersService(Protocol):
    """
    The requests of people who play in hosted trials, and of those who watch.

    Everything raises TrialError, with the reason, where the server refuses or is not there.
    """

    async def describe(self) -> Description:
        """Return what the trials of the server play, and the live trials."""

    async def take_over(
        self,
        trial_id: str,
        slot: ActorInitialOutput,
        user_id: str,
        sender: Sender[ActorRunTrialInput],
    ) -> Receiver[ActorRunTrialOutput]:
        """
        Play for an actor of a trial, with the messages of one that joins, until either side ends.

        The trial sends to `sender`, its init_input first and the present observation next. Refused
        while the actor has another player.
        """

    def look(self, trial_id: str) -> AsyncIterator[View]:
        """Iterate over the ticks of a trial until it ends; a slow reader misses some."""


class TrialServices(Protocol):
    """The services of one server."""

    @property
    def trials(self) -> TrialService:
        """Service of its trials."""

    @property
    def players(self) -> PlayersService:
        """Service of people in its trials."""


class Callers(Protocol):
    """Calls of a server: environments, actors, datalogs and hooks, at their endpoints."""

    def environment(
        self,
        endpoint: TrialEndpoint,
        implementation: str,
        trial_id: str,
        receiver: Receiver[EnvRunTrialOutput],
    ) -> Sender[EnvRunTrialInput]:
        """Open a stream to an environment, which answers to `receiver`. Does not wait."""

    def actor(
        self,
        endpoint: TrialEndpoint,
        implementation: str,
        trial_id: str,
        receiver: Receiver[ActorRunTrialOutput],
    ) -> Sender[ActorRunTrialInput]:
        """Open a stream to an actor, which answers to `receiver`. Does not wait."""

    def datalog(
        self,
        endpoint: TrialEndpoint,
        trial_id: str,
        user_id: str,
        receiver: Receiver[RunTrialDatalogOutput],
    ) -> PacedSender[RunTrialDatalogInput]:
        """Open a stream to a datalog, whose end `receiver` is told. Does not wait."""

    async def pre_trial(
        self, endpoint: TrialEndpoint, params: PreTrialParams, trial_id: str, user_id: str
    ) -> PreTrialParams:
        """Call a pre-trial hook. Raises TrialError if it fails."""

    async def close(self) -> None:
        """End all streams."""
