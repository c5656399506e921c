"""The part of a server for people who play in hosted trials, and for spectators."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from arkml.trials.core.error import TrialError
from arkml.trials.core.hosting import Hosting
from arkml.trials.server.orchestrator import Orchestrator
from arkml.trials.streams import Receiver, Sender
from arkml.trials.user_ids import checked_user_id
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.players_pb2 import Description, LiveTrial, View


class TrialPlayers:
    """
    The people in the hosted trials of one server; implements PlayersService.

    Without `hosting` there are no hosted trials, and every request is refused.
    """

    def __init__(self, trials: Orchestrator, hosting: Hosting | None) -> None:
        self._trials = trials
        self._hosting = hosting

    async def describe(self) -> Description:
        """
        Return a description of the server: the guest that its trials play, and its live trials.
        """
        if self._hosting is None:
            raise TrialError("this server hosts no trials: there is nothing for people to play")
        description = Description()
        description.CopyFrom(self._hosting.describe())
        has_datalog = bool(self._trials.options.params.datalog.endpoint)
        description.is_recorded = self._trials.is_logging or has_datalog
        for trial in self._trials.live_trials():
            if trial.hosted is not None:
                actors = trial.trial_actors()
                live = LiveTrial(trial_id=trial.id, state=trial.state, actors=actors)
                description.trials.append(live)
        return description

    async def take_over(
        self,
        trial_id: str,
        slot: ActorInitialOutput,
        user_id: str,
        sender: Sender[ActorRunTrialInput],
    ) -> Receiver[ActorRunTrialOutput]:
        """
        Make a person the player of an actor of a trial.

        Args:
            trial_id: Id of the trial.
            slot: Name or class of the actor.
            user_id: Name of the person.
            sender: Stream to the person. The trial sends init_input first, then the present
                observation.

        Returns:
            The stream to the trial.

        Raises:
            ActorTaken: The actor has another player.
            TrialError: The server refuses for another reason.

        """
        checked_user_id(user_id)
        most = self._trials.options.limits.people
        return await self._trials.live(trial_id).take_over(slot, user_id, sender, most)

    def look(self, trial_id: str) -> AsyncIterator[View]:
        """
        Iterate over the ticks of a trial until it ends; a slow reader misses some.

        Raises TrialError if the server refuses.
        """
        return self._look(trial_id)

    async def _look(self, trial_id: str) -> AsyncIterator[View]:
        task = self._trials.live(trial_id)
        await task.until_begun()
        if task.trial.hosted is None:
            raise TrialError(f"trial {trial_id} is not hosted: it cannot be looked at")
        most = self._trials.options.limits.lookers
        if len(task.lookers) >= most:
            raise TrialError(f"{most} look at trial {trial_id} already, the most of one trial")
        async with contextlib.aclosing(task.lookers.look()) as views:
            async for view in views:
                yield view
