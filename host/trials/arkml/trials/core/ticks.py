"""Ticks of a trial: observations of the environment, and the actions that answer them."""

from __future__ import annotations

from collections.abc import Callable

from arkml.trials.core.ending import TrialEnding
from arkml.trials.core.mail import AUTO, Mail
from arkml.trials.core.observations import PresentObservations
from arkml.trials.core.outgoing import Outgoing
from arkml.trials.core.outputs import EntryKind
from arkml.trials.core.places import Breach, EnvironmentPlace
from arkml.trials.core.states import Move, TrialCause
from arkml.trials.core.turn import TurnRules
from arkml.trials.wire.common_pb2 import CommunicationState
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput, ObservationSet


class Ticks:
    """
    Counts the ticks of a trial, and begins and ends each of them.

    `change` is called with each TrialCause that may change the trial's state.
    """

    def __init__(
        self,
        environment: EnvironmentPlace,
        turn: TurnRules,
        observations: PresentObservations,
        mail: Mail,
        ending: TrialEnding,
        outgoing: Outgoing,
        change: Callable[[TrialCause], None],
    ) -> None:
        self._environment = environment
        self._turn = turn
        self._observations = observations
        self._mail = mail
        self._ending = ending
        self._outgoing = outgoing
        self._change = change
        self._is_observing = False  # it is the environment's turn, not the actors'

    def start(self) -> None:
        """Await the first observations."""
        self._is_observing = True

    def observe(self, observed: ObservationSet) -> None:
        """Handle the observations of the next tick. Raises Breach if they are not due."""
        outgoing = self._outgoing
        if not (self._is_observing or self._ending.is_last_due):
            tick = outgoing.tick
            raise Breach(f"it sent observations again in tick {tick}, before the actions")
        self._observations.check(observed)
        following = outgoing.tick + 1 if self._observations.has_begun else 0
        if observed.tick_id not in (AUTO, following):
            raise Breach(f"it sent observations of tick {observed.tick_id} instead of {following}")
        if not self._ending.is_last_due:
            self._turn.check()
        self._environment.take(Move.OBSERVE)
        self._mail.deliver_rewards()
        outgoing.tick, self._is_observing = following, False
        self._observations.take(observed)
        if not following:
            self._change(TrialCause.FIRST_OBSERVATION)
        if outgoing.is_logged:
            outgoing.log(EntryKind.OBSERVATIONS, content=self._observations.serialized())

    def pass_over(self, observed: ObservationSet) -> None:
        """Handle the observations of a tick played ahead. Raises Breach if they are not due."""
        self.observe(observed)
        self._is_observing = True

    def begin(self, max_steps: int, now: float) -> None:
        """
        Send the actors their observations.

        `max_steps` is the number of ticks after which the trial ends, 0 for no limit.
        """
        if self._ending.is_last_due:
            self._turn.finish()
            self._ending.await_actors(self._observations.give_last(), now)
            return
        self._turn.begin(now)
        if 0 < max_steps <= self._outgoing.tick and not self._ending.is_requested:
            self._outgoing.log(EntryKind.EVENT, note=f"{max_steps} steps were made (max_steps)")
            self._ending.is_requested = True
        if self._ending.is_requested:
            self._change(TrialCause.SOFT_END)
        self.act_if_complete(now)

    def act_if_complete(self, now: float) -> None:
        """Send the environment all actions of the tick if none is missing."""
        ending = self._ending
        if self._is_observing or ending.has_begun or not self._turn.is_complete:
            return
        self._is_observing = True
        if ending.is_requested:
            self._environment.take(Move.LAST)
            self._outgoing.to_environment(EnvRunTrialInput(state=CommunicationState.LAST))
            ending.await_last(now)
        self._turn.leave(now)
