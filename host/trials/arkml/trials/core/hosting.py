"""
Hosted trials: the environment runs in the server's process and stands in for actors.

A hosted trial never waits for an actor without end (decision 19). With each observation the
environment offers a stand-in action for each actor. An actor may also have a player: a client of
Cogment's protocol, or a person who took it over. A player's last action is held until the next
one arrives. The stand-in acts for an actor without a player, or whose player is away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from arkml.trials.core.error import TrialError
from arkml.trials.core.parameters import LOCAL, TrialEndpoint
from arkml.trials.wire.common_pb2 import ActorParams, TrialParams
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput, EnvRunTrialOutput, ObservationSet
from arkml.trials.wire.players_pb2 import Description

HOSTED: Final = "guest"
"""Implementation name of a hosted environment at `local://`."""

STAND_IN: Final = "stand-in"
"""Implementation name of an actor at `local://` that waits for a person to take it over."""

MOST_RATE: Final = 1_000.0
"""Maximum tick rate, in ticks a second."""

MOST_AHEAD: Final = 7
"""
Maximum number of ticks that an environment plays ahead by stand-in actions.

Each spares a turn of the event loop, and delays a person who takes over by a tick.
"""


def is_hosted(params: TrialParams) -> bool:
    """Return whether these parameters name a hosted environment."""
    environment = params.environment
    return environment.endpoint == f"{LOCAL}://" and environment.implementation == HOSTED


def is_left_to_stand_in(actor: ActorParams) -> bool:
    """
    Return whether a hosted trial's actor has no client: its stand-in acts until a person plays it.
    """
    is_local = TrialEndpoint.parse(actor.endpoint).scheme == LOCAL
    return is_local and actor.implementation == STAND_IN


@dataclass(frozen=True, slots=True)
class Pacing:
    """
    Timing of the ticks of a hosted trial.

    Args:
        rate: Ticks a second. At 20, for example, actions leave 0.05 s after the actions of the tick
            before, or at once if their observations came later: missed ticks are not made up for.
            At 0 they leave once all players have acted or exceeded their `response_timeout`.
        away: Seconds for which a player's last action is held. After that its stand-in acts.
        rest: Seconds by which a tick with a rate is longer in which an episode of a person has
            ended, so that people see how it ended.

    Raises:
        TrialError: `rate` is not in 0 to MOST_RATE, or `away` or `rest` is negative.

    """

    rate: float = 0.0
    away: float = 10.0
    rest: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and 0 <= self.rate <= MOST_RATE):
            raise TrialError(f"the tick rate is {self.rate}: 0 to {MOST_RATE:g} ticks a second")
        if not (math.isfinite(self.away) and self.away >= 0):
            raise TrialError(f"away is {self.away}: it takes seconds >= 0")
        if not (math.isfinite(self.rest) and self.rest >= 0):
            raise TrialError(f"rest is {self.rest}: it takes seconds >= 0")


class ActionNote(StrEnum):
    """The sources of an action, as the words by which the log names them."""

    GIVEN = "given"
    HELD = "held"
    STAND_IN = "stand-in"
    DEFAULT = "default"
    UNAVAILABLE = "unavailable"


_TEXTS = {note: str(note) for note in ActionNote}


class StandIn(NamedTuple):
    """
    An action that the environment offers for an actor.

    Attributes:
        content: The serialized action.
        origin: The policy version that chose it, empty if unknown.

    """

    content: bytes
    origin: str = ""


class Acted(NamedTuple):
    """
    The action of an actor that was applied in one tick.

    Attributes:
        content: The serialized action.
        note: The source of the action.
        origin: The user id of a player, or the policy version of a stand-in.
        idle: Seconds since the player sent the action, 0 for a new one.

    """

    content: bytes
    note: ActionNote
    origin: str = ""
    idle: float = 0.0

    @property
    def noted(self) -> str:
        """
        The source as the log names it, for example "given" or "held 0.250" (its age in seconds).
        """
        note = self.note
        return f"{note} {self.idle:.3f}" if note is ActionNote.HELD else _TEXTS[note]


class HostedRewards(NamedTuple):
    """
    Rewards by a hosted environment, as three columns of equal length.

    `actors` are indices. Each source is a serialized RewardSource with the value of its row, a
    confidence of 1 and the environment as its sender.
    """

    actors: Sequence[int]
    values: Sequence[float]
    sources: Sequence[bytes]


class HostedTick(NamedTuple):
    """
    A tick of a hosted environment.

    Attributes:
        rewards: Rewards for the tick before.
        observations: Observations of this tick.
        stand_ins: The actions that the environment offers for this tick, one for each actor.
        ended: Indices of the actors whose episodes ended with this tick, if people should see how.

    """

    rewards: Sequence[HostedRewards]
    observations: ObservationSet
    stand_ins: Sequence[StandIn] = ()
    ended: Sequence[int] = ()


class HostedTrial(Protocol):
    """A trial as its hosted environment sees it, in the server's event loop."""

    @property
    def trial_id(self) -> str:
        """Id of the trial."""

    def observe(self, tick: HostedTick) -> None:
        """Handle the next tick of the environment. The last tick of a trial needs no stand-ins."""

    def pass_over(self, tick: HostedTick) -> None:
        """
        Handle a tick that the environment played ahead, with the stand-ins' actions.

        The environment calls this before it sends the next tick or message.
        """

    def receive(self, message: EnvRunTrialOutput) -> None:
        """Handle a message of the environment that is not a tick."""

    def lose(self, reason: str) -> None:
        """Handle the end of the environment's stream, after all of its messages. Idempotent."""


class HostedEnvironment(Protocol):
    """A hosted environment as its trial sees it; its methods return quickly and never raise."""

    def receive(self, message: EnvRunTrialInput) -> None:
        """Handle a message of the trial, except actions: init_input, a message, LAST or END."""

    def act(self, tick: int, acted: Sequence[Acted], most_ahead: int) -> None:
        """
        Apply the actions of a tick, one for each actor.

        Args:
            tick: Number of the tick.
            acted: The actions, in trial order.
            most_ahead: Number of following ticks that may be played ahead by stand-in actions.

        """

    def lose(self, reason: str) -> None:
        """Handle the end of the stream, which either side may have ended; it is the last call."""


class Hosting(Protocol):
    """The environments that a server runs in its own process."""

    def completed(self, params: TrialParams) -> TrialParams:
        """
        Return a copy of a hosted trial's checked parameters with the configuration filled in.

        Raises TrialError for parameters that do not fit the guest.
        """

    def pacing(self, params: TrialParams) -> Pacing:
        """Return the tick timing for these parameters."""

    def open(self, trial: HostedTrial) -> HostedEnvironment:
        """Start an environment for a trial. Raises TrialError if it cannot start."""

    def describe(self) -> Description:
        """Return a description of the guest that trials play, without the live trials."""
