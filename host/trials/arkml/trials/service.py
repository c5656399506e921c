"""The services between clients and a server, over the network or in one process (decision 18)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from arkml.trials.core.parameters import TrialEndpoint
from arkml.trials.streams import PacedSender, Receiver, Sender
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import VersionInfo
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
    The requests of controllers and joining actors to a server.

    All methods raise TrialError, with the reason, if the server refuses or cannot be reached.
    """

    async def start(self, request: TrialStartRequest) -> TrialStartReply:
        """Start a trial; the reply has an empty id if the requested id is in use."""

    async def terminate(self, trial_ids: Sequence[str], *, is_hard: bool) -> None:
        """
        Request the end of trials that have not ended yet; with `is_hard` they end at once.

        Raises TrialError for an unknown id.
        """

    async def info(self, trial_ids: Sequence[str], request: TrialInfoRequest) -> TrialInfoReply:
        """
        Return the details of the trials with these ids, or of all trials if there are no ids.

        Raises TrialError for more than fits into a message.
        """

    def watch(self, request: TrialListRequest) -> AsyncIterator[TrialListEntry]:
        """Iterate over the present states of all trials, and then over changes, without end."""

    async def join(
        self, trial_id: str, slot: ActorInitialOutput, sender: Sender[ActorRunTrialInput]
    ) -> Receiver[ActorRunTrialOutput]:
        """
        Join a trial as an actor, waiting while the trial is INITIALIZING.

        Args:
            trial_id: Id of the trial.
            slot: Name or class of the actor.
            sender: Stream to the actor. The trial sends init_input first.

        Returns:
            The stream to the trial.

        """

    async def versions(self) -> dict[str, str]:
        """Return the version of each component of the server, by name."""


class PlayersService(Protocol):
    """
    The requests of people who play in hosted trials, and of spectators.

    All methods raise TrialError, with the reason, if the server refuses or cannot be reached.
    """

    async def describe(self) -> Description:
        """
        Return a description of the server: the guest that its trials play, and its live trials.
        """

    async def take_over(
        self,
        trial_id: str,
        slot: ActorInitialOutput,
        user_id: str,
        sender: Sender[ActorRunTrialInput],
    ) -> Receiver[ActorRunTrialOutput]:
        """
        Play an actor of a trial until either side ends the stream.

        The stream carries the same messages as for `TrialService.join`. Raises ActorTaken if the
        actor has another player.

        Args:
            trial_id: Id of the trial.
            slot: Name or class of the actor.
            user_id: Name of the person.
            sender: Stream to the person. The trial sends init_input first, then the present
                observation.

        """

    def look(self, trial_id: str) -> AsyncIterator[View]:
        """Iterate over the ticks of a trial until it ends; a slow reader misses some."""


class TrialServices(Protocol):
    """The services of one server."""

    @property
    def trials(self) -> TrialService:
        """Service for trials."""

    @property
    def players(self) -> PlayersService:
        """Service for people in trials."""


class Callers(Protocol):
    """The calls of a server to environments, actors, datalogs and hooks."""

    def environment(
        self,
        endpoint: TrialEndpoint,
        implementation: str,
        trial_id: str,
        receiver: Receiver[EnvRunTrialOutput],
    ) -> Sender[EnvRunTrialInput]:
        """
        Open a stream to an environment, and return its sending end, without waiting.

        Args:
            endpoint: Address of the environment.
            implementation: Name of its implementation.
            trial_id: Id of the trial.
            receiver: Receiver of its messages.

        """

    def actor(
        self,
        endpoint: TrialEndpoint,
        implementation: str,
        trial_id: str,
        receiver: Receiver[ActorRunTrialOutput],
    ) -> Sender[ActorRunTrialInput]:
        """
        Open a stream to an actor, and return its sending end, without waiting.

        Args:
            endpoint: Address of the actor.
            implementation: Name of its implementation.
            trial_id: Id of the trial.
            receiver: Receiver of its messages.

        """

    def datalog(
        self,
        endpoint: TrialEndpoint,
        trial_id: str,
        user_id: str,
        receiver: Receiver[RunTrialDatalogOutput],
    ) -> PacedSender[RunTrialDatalogInput]:
        """
        Open a stream to a datalog, and return its sending end, without waiting.

        Args:
            endpoint: Address of the datalog.
            trial_id: Id of the trial.
            user_id: Id of the user who started it.
            receiver: Receiver that is notified of the end of the stream.

        """

    async def pre_trial(
        self, endpoint: TrialEndpoint, params: PreTrialParams, trial_id: str, user_id: str
    ) -> PreTrialParams:
        """
        Call a pre-trial hook, and return the parameters as the hook has changed them.

        Args:
            endpoint: Address of the hook.
            params: The parameters before.
            trial_id: Id of the trial.
            user_id: Id of the user who starts it.

        Raises:
            TrialError: The hook cannot be called, or fails.

        """

    async def close(self) -> None:
        """End all streams."""


def version_info(versions: Mapping[str, str]) -> VersionInfo:
    """Return the protobuf message with the version of each component, given by name."""
    listed = [VersionInfo.Version(name=name, version=one) for name, one in versions.items()]
    return VersionInfo(versions=listed)
