"""Calls of trials to implementations in the server's own process, or by gRPC to other ones."""

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
    """The implementations of environments, actors and a hook in this process."""

    def open_environment(
        self, implementation: str, trial_id: str, sender: Sender[EnvRunTrialOutput]
    ) -> Receiver[EnvRunTrialInput]:
        """
        Start an environment, and return the receiving end of its stream.

        Args:
            implementation: Name of the implementation.
            trial_id: Id of the trial.
            sender: Stream to the trial.

        Raises:
            TrialError: There is no implementation of this name.

        """

    def open_actor(
        self, implementation: str, trial_id: str, sender: Sender[ActorRunTrialOutput]
    ) -> Receiver[ActorRunTrialInput]:
        """
        Start an actor, and return the receiving end of its stream.

        Args:
            implementation: Name of the implementation.
            trial_id: Id of the trial.
            sender: Stream to the trial.

        Raises:
            TrialError: There is no implementation of this name.

        """

    async def pre_trial(
        self, params: PreTrialParams, trial_id: str, user_id: str
    ) -> PreTrialParams:
        """
        Call the hook, and return the parameters as the hook has changed them.

        Args:
            params: The parameters before.
            trial_id: Id of the trial.
            user_id: Id of the user who starts it.

        Raises:
            TrialError: There is no hook, or it fails.

        """


M = TypeVar("M")


class LocalCallers:
    """Calls of trials to `local://` endpoints; calls to other endpoints are passed to `remote`."""

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
        """
        Open a stream to an environment, and return its sending end, without waiting.

        Args:
            endpoint: Address of the environment.
            implementation: Name of its implementation.
            trial_id: Id of the trial.
            receiver: Receiver of its messages.

        """
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
        """
        Open a stream to an actor, and return its sending end, without waiting.

        Args:
            endpoint: Address of the actor.
            implementation: Name of its implementation.
            trial_id: Id of the trial.
            receiver: Receiver of its messages.

        """
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
        """
        Open a stream to a datalog, which is always in another process, without waiting.

        Args:
            endpoint: Address of the datalog.
            trial_id: Id of the trial.
            user_id: Id of the user who started it.
            receiver: Receiver that is notified of the end of the stream.

        """
        return self._remote.datalog(endpoint, trial_id, user_id, receiver)

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
    """
    Return the sending end of a stream that could not be opened.

    Its `receiver` is told the error soon after, by `lose`.
    """
    asyncio.get_running_loop().call_soon(receiver.lose, str(error))
    return _NOWHERE


class _Nowhere:
    """A Sender that drops all messages."""

    def send(self, message: object) -> None:
        """Drop a message."""

    def close(self) -> None:
        """Do nothing."""


_NOWHERE = _Nowhere()
