"""Calls to implementations in the server's own process, with gRPC for all others."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeVar

from arkml.trials.core.error import TrialError
from arkml.trials.core.parameters import LOCAL, TrialEndpoint
from arkml.trials.service import Callers
from arkml.trials.streams import PacedSender, Passing, Receiver, Sender
from arkml.trials.wire.actor_pb2 import ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.datalog_pb2 import RunTrialDatalogInput, RunTrialDatalogOutput
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput, EnvRunTrialOutput
from arkml.trials.wire.hooks_pb2 import PreTrialParams


class Implementations(Protocol):
    """Environments, actors and a hook in this process."""

    def open_environment(
        self, implementation: str, trial_id: str, sender: Sender[EnvRunTrialOutput]
    ) -> Receiver[EnvRunTrialInput]:
        """Start an environment. Raises TrialError if there is none of this name."""

    def open_actor(
        self, implementation: str, trial_id: str, sender: Sender[ActorRunTrialOutput]
    ) -> Receiver[ActorRunTrialInput]:
        """Start an actor. Raises TrialError if there is none of this name."""

    async def pre_trial(
        self, params: PreTrialParams, trial_id: str, user_id: str
    ) -> PreTrialParams:
        """Call the hook. Raises TrialError if there is none, or if it fails."""


M = TypeVar("M")


class LocalCallers:
    """Callers for `local://` endpoints; calls to other endpoints pass to `remote`."""

    def __init__(self, remote: Callers) -> None:
        self.implementations: Implementations | None = None
        self._remote = remote

    def environment(
        self,
        endpoint: TrialEndpoint,
        implementation: str,
        trial_id: str,
        receiver: Receiver[EnvRunTrialOutput],
    ) -> Sender[EnvRunTrialInput]:
        """Open a stream to an environment; see Callers."""
        if endpoint.scheme != LOCAL:
            return self._remote.environment(endpoint, implementation, trial_id, receiver)
        replies = Passing(receiver, "the environment ended its stream")
        try:
            other = self._registered().open_environment(implementation, trial_id, replies)
        except TrialError as error:
            return refused(receiver, error)
        return Passing(other, "the trial ended the stream")

    def actor(
        self,
        endpoint: TrialEndpoint,
        implementation: str,
        trial_id: str,
        receiver: Receiver[ActorRunTrialOutput],
    ) -> Sender[ActorRunTrialInput]:
        """Open a stream to an actor; see Callers."""
        if endpoint.scheme != LOCAL:
            return self._remote.actor(endpoint, implementation, trial_id, receiver)
        replies = Passing(receiver, "the actor ended its stream")
        try:
            other = self._registered().open_actor(implementation, trial_id, replies)
        except TrialError as error:
            return refused(receiver, error)
        return Passing(other, "the trial ended the stream")

    def datalog(
        self,
        endpoint: TrialEndpoint,
        trial_id: str,
        user_id: str,
        receiver: Receiver[RunTrialDatalogOutput],
    ) -> PacedSender[RunTrialDatalogInput]:
        """Open a stream to a datalog, which is always remote; see Callers."""
        return self._remote.datalog(endpoint, trial_id, user_id, receiver)

    async def pre_trial(
        self, endpoint: TrialEndpoint, params: PreTrialParams, trial_id: str, user_id: str
    ) -> PreTrialParams:
        """Call a pre-trial hook; see Callers."""
        if endpoint.scheme != LOCAL:
            return await self._remote.pre_trial(endpoint, params, trial_id, user_id)
        return await self._registered().pre_trial(params, trial_id, user_id)

    async def close(self) -> None:
        """End all streams."""
        await self._remote.close()

    def _registered(self) -> Implementations:
        if self.implementations is None:
            raise TrialError("nothing is registered with this server: local:// names nothing")
        return self.implementations


def refused(receiver: Receiver[M], error: TrialError) -> Sender[object]:
    """Return the Sender of a stream that could not be opened; its receiver gets the error soon."""
    asyncio.get_running_loop().call_soon(receiver.lose, str(error))
    return _NOWHERE


class _Nowhere:
    """A Sender that drops all messages."""

    def send(self, message: object) -> None:
        """Drop a message."""

    def close(self) -> None:
        """Do nothing."""


_NOWHERE = _Nowhere()
