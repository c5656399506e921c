"""Inputs of hosted trials: stand-in actions, people who take over, ticks played ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arkml.trials.core.admission import Admission
from arkml.trials.core.clock import TrialClock
from arkml.trials.core.hosted_turn import HostedTurn
from arkml.trials.core.hosting import MOST_AHEAD, HostedRewards, PlayedTick, StandIn
from arkml.trials.core.mail import Mail
from arkml.trials.core.places import ActorPlace, Breach, EnvironmentPlace
from arkml.trials.core.states import Move
from arkml.trials.core.ticks import Ticks


class HostedSide:
    """
    The inputs that only a hosted trial has.

    A Trial builds it from its other parts. `cut` ends the trial with a reason.
    """

    def __init__(
        self,
        turn: HostedTurn,
        environment: EnvironmentPlace,
        admission: Admission,
        mail: Mail,
        clock: TrialClock,
        ticks: Ticks,
        cut: Callable[[str], None],
    ) -> None:
        self.turn: HostedTurn = turn
        self._environment = environment
        self._admission = admission
        self._mail = mail
        self._clock = clock
        self._ticks = ticks
        self._cut = cut

    @property
    def people(self) -> int:
        """Number of people who have taken over an actor."""
        return self.turn.people()

    def take_over(self, actor: ActorPlace, user_id: str, now: float) -> None:
        """
        Make a person the player of an actor that its stand-in plays.

        Args:
            actor: The actor, which the person has asked for by `slot_to_take_over`.
            user_id: Name of the person.
            now: The time, in seconds.

        """
        self._clock.note_activity(now)
        self._admission.admit(actor.index, Move.TAKE_OVER)
        self.turn.take_over(actor, user_id, now)

    def stand_in(self, stand_ins: Sequence[StandIn]) -> None:
        """Store one stand-in action for each actor, for the next observations."""
        self.turn.offer(stand_ins)

    def reward(self, rewards: HostedRewards) -> None:
        """Add rewards of the environment for the present tick, unless it has left the trial."""
        if self._environment.is_present:
            self._mail.take_hosted(rewards)

    def take_played(self, played: PlayedTick, now: float) -> None:
        """Handle a tick that the environment has played by stand-in actions alone."""
        self._clock.note_activity(now)
        self.stand_in(played.stand_ins)
        for rewards in played.rewards:
            self.reward(rewards)
        try:
            self._ticks.pass_over(played.observations)
        except Breach as breach:
            self._cut(f"the environment broke the protocol: {breach}")
        else:
            self.turn.pass_over()

    def allow_ahead(self, tick: int, max_steps: int, *, is_shown: bool) -> None:
        """Set how many ticks the environment may play ahead: none while spectators look."""
        if is_shown:
            self.turn.most_ahead = 0
        elif max_steps:
            self.turn.most_ahead = min(MOST_AHEAD, max(0, max_steps - tick - 1))
        else:
            self.turn.most_ahead = MOST_AHEAD
