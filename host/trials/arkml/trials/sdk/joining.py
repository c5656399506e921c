"""The stream of an actor that joins a trial by itself."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from arkml.trials.core.error import TrialError
from arkml.trials.streams import Receiver
from arkml.trials.wire.actor_pb2 import ActorInitialInput, ActorRunTrialInput
from arkml.trials.wire.common_pb2 import CommunicationState

M = TypeVar("M")


class Inbox:
    """A Sender that buffers messages until their session exists."""

    def __init__(self) -> None:
        self._early: asyncio.Queue[ActorRunTrialInput | None] = asyncio.Queue()
        self._session: Receiver[ActorRunTrialInput] | None = None

    def send(self, message: ActorRunTrialInput) -> None:
        """Pass a message to the session, or keep it until there is one."""
        if self._session is not None:
            self._session.receive(message)
        else:
            self._early.put_nowait(message)

    def close(self) -> None:
        """Tell the session that the stream has ended, at once or when there is a session."""
        if self._session is not None:
            self._session.lose("the server closed the stream")
        else:
            self._early.put_nowait(None)

    async def introduction(self, trial_id: str) -> ActorInitialInput:
        """
        Wait for the first message of the trial, which introduces the actor, and return it.

        Raises TrialError if the stream ends without it.
        """
        message = await self._early.get()
        if message is None or message.state == CommunicationState.END:
            details = message.details if message is not None else "the server closed the stream"
            raise TrialError(f"Trial [{trial_id}] - Ended before start [{details}]")
        if message.WhichOneof("data") != "init_input":
            raise TrialError(f"Trial [{trial_id}] - Received unexpected init data [{message}]")
        return message.init_input

    def hand_over(self, session: Receiver[ActorRunTrialInput]) -> None:
        """Pass all messages to `session` from now on, buffered ones first."""
        self._session = session
        while not self._early.empty():
            message = self._early.get_nowait()
            if message is None:
                self.close()
            else:
                session.receive(message)
