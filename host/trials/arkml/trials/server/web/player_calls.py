"""The methods of the service PlayersSP for browsers: Describe, TakeOver and Look."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from arkml.trials.core.error import TrialError
from arkml.trials.server.web.access import Grant
from arkml.trials.server.web.actor_calls import ActorOpening
from arkml.trials.server.web.calls import WebCall, WebMethod
from arkml.trials.server.web.frames import CallRefused
from arkml.trials.service import PlayersService
from arkml.trials.streams import Receiver, Sender
from arkml.trials.user_ids import USER_ID, user_id_in
from arkml.trials.wire.actor_pb2 import ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.players_pb2 import DescribeRequest, Description, LookRequest


class PlayerMethods:
    """The methods of PlayersSP, each within the rights of the calling client."""

    def __init__(self, players: PlayersService) -> None:
        self._players = players

    @property
    def by_name(self) -> Mapping[str, WebMethod]:
        """The methods Describe and Look by name; TakeOver needs a websocket instead."""
        return {
            "Describe": WebMethod(DescribeRequest, self._describe),
            "Look": WebMethod(LookRequest, self._look, _admit_look),
        }

    async def take_over(
        self, opening: ActorOpening, sender: Sender[ActorRunTrialInput]
    ) -> Receiver[ActorRunTrialOutput]:
        """
        Make a person the player of an actor, and return the stream to the trial.

        Raises TrialError if the server refuses.
        """
        user_ids = [opening.headers[USER_ID]] if USER_ID in opening.headers else []
        try:
            user_id = user_id_in(user_ids)
        except TrialError as error:
            raise CallRefused(str(error)) from error
        return await self._players.take_over(opening.trial_id, opening.slot, user_id, sender)

    async def _describe(self, call: WebCall) -> Message:
        """Return the description, limited to trials that the client may see."""
        whole = await self._players.describe()
        description = Description()
        description.CopyFrom(whole)
        del description.trials[:]
        description.trials.extend(one for one in whole.trials if call.grant.covers(one.trial_id))
        return description

    async def _look(self, call: WebCall) -> AsyncGenerator[Message, None]:
        views: Any = self._players.look(call.trial_ids[0])
        async with contextlib.aclosing(views):
            async for view in views:
                yield view


def _admit_look(grant: Grant, trial_ids: Sequence[str]) -> None:
    if len(trial_ids) != 1:
        raise CallRefused(f"a reader sees one trial, not {len(trial_ids)} (header trial-id)")
    grant.require_look(trial_ids[0])
