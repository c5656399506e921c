"""
Hosted trials: those whose environment is in the process of the server and stands in for actors.

Such a trial never waits for one of its actors without end. Each of them has a stand-in, an action
that the environment gives with its observations, and possibly a player: an actor of Cogment's
protocol, or a person who took it over. Where there is no player, or the player is away, the
stand-in acts; between two actions of a player the last one is held.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from arkml.trials.core.endpoints import LOCAL, TrialEndpoint
from arkml.trials.core.error import TrialError
from arkml.trials.wire.common_pb2 import ActorParams, TrialParams
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput, EnvRunTrialOutput, ObservationSet
from arkml.trials.wire.players_pb2 import Description

HOSTED: Final = "guest"
"""The implementation of a local:// environment that is hosted."""

STAND_IN: Final = "stand-in"
"""The implementation of a local:// actor that has no player until a person takes it over."""

MOST_RATE: Final = 1_000.0
"""Ticks a second, at most."""

MOST_AHEAD: Final = 7
"""
Ticks that an environment may play by its stand-ins alone after one with actions of its trial.

They spare a turn of the event loop each, and bound how long a person who takes over waits.
"""


def is_hosted(params: TrialParams) -> bool:
    """Return whether a server with a Hosting hosts the environment of these parameters."""
    environment = params.environment
    return environment.endpoint == f"{LOCAL}://" and environment.implementation == HOSTED


def is_left_to_stand_in(actor: ActorParams) -> bool:
    """Return whether an actor of a hosted trial has no player until a person takes it over."""
    is_local = TrialEndpoint.parse(actor.endpoint).scheme == LOCAL
    return is_local and actor.implementation == STAND_IN


@dataclass(frozen=True, slots=True)
class Pacing:
    """
    The time of the ticks of a hosted trial.

    With a `rate`, in ticks a second, the actions of a tick leave 1 / rate seconds after those of
    the tick before, or at once where its observations came later: ticks are not made up for. With a
    rate of 0 they leave once all players have acted, or after the `response_timeout` of those that
    have not. A player's last action is held for `away` seconds at most, and its stand-in acts after
    that.
    """

    rate: float = 0.0
    away: float = 10.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and 0 <= self.rate <= MOST_RATE):
            raise TrialError(f"the tick rate is {self.rate}: 0 to {MOST_RATE:g} ticks a second")
        if not (math.isfinite(self.away) and self.away >= 0):
            raise TrialError(f"away is {self.away}: it takes seconds >= 0")


class ActionNote(StrEnum):
    """Sources of actions. The log has these words."""

    GIVEN = "given"
    HELD = "held"
    STAND_IN = "stand-in"
    DEFAULT = "default"
    UNAVAILABLE = "unavailable"


_TEXTS = {note: str(note) for note in ActionNote}


class StandIn(NamedTuple):
    """An action that the environment offers for an actor, and the policy version it is from."""

    content: bytes
    origin: str = ""


class Acted(NamedTuple):
    """
    The action of an actor in one tick, as it was applied.

    `origin` is the user id of a player, or the policy version of a stand-in. `idle` are the seconds
    since the player's last action, 0 for one that is given.
    """

    content: bytes
    note: ActionNote
    origin: str = ""
    idle: float = 0.0

    @property
    def noted(self) -> str:
        """The note of the log, which has the seconds since the action for one that is held."""
        note = self.note
        return f"{note} {self.idle:.3f}" if note is ActionNote.HELD else _TEXTS[note]


class HostedRewards(NamedTuple):
    """
    Rewards by a hosted environment, for actors by their index: all columns have one length.

    `sources` are serialized RewardSource messages with these values and a confidence of 1, whose
    sender is the environment.
    """

    actors: Sequence[int]
    values: Sequence[float]
    sources: Sequence[bytes]


class PlayedTick(NamedTuple):
    """
    A tick that a hosted environment has played by its stand-ins.

    `rewards` are those of the tick before, `observations` those of this one, and `stand_ins` the
    actions that it has applied, one for each actor.
    """

    rewards: Sequence[HostedRewards]
    observations: ObservationSet
    stand_ins: Sequence[StandIn]


class HostedTrial(Protocol):
    """A trial as its hosted environment uses it, in the server's event loop."""

    @property
    def trial_id(self) -> str:
        """The id of the trial."""

    def stand_in(self, stand_ins: Sequence[StandIn]) -> None:
        """Offer an action for each actor, in the tick of the observations that are sent next."""

    def reward(self, rewards: HostedRewards) -> None:
        """Give rewards for the present tick, ahead of the message that is sent next."""

    def take_played(self, played: PlayedTick) -> None:
        """Give a tick that was played ahead, before the message that is sent next."""

    def send(self, message: EnvRunTrialOutput) -> None:
        """Send a message of the environment; see Sender."""

    def send_all(self, messages: Sequence[EnvRunTrialOutput]) -> None:
        """Send messages, as one after another but in less time."""

    def close(self) -> None:
        """End the stream after what was sent. Safe to call again."""


class HostedEnvironment(Protocol):
    """A hosted environment as its trial uses it; it returns quickly and never raises."""

    def receive(self, message: EnvRunTrialInput) -> None:
        """Take in a message other than an action_set: init_input, a message, LAST or END."""

    def act(self, tick: int, acted: Sequence[Acted], most_ahead: int) -> None:
        """
        Take in the actions of a tick, one for each actor.

        Up to `most_ahead` ticks after it may be played by the stand-ins: no one waits for them.
        """

    def lose(self, reason: str) -> None:
        """Take in the end of the stream by either side; nothing arrives after that."""


class Hosting(Protocol):
    """The hosted environments of a server."""

    def completed(self, params: TrialParams) -> TrialParams:
        """
        Return the parameters of a hosted trial, checked and with its configuration in place.

        Raises TrialError for those that the guest cannot have.
        """

    def pacing(self, params: TrialParams) -> Pacing:
        """Return the time of the ticks of a trial with these parameters."""

    def open(self, trial: HostedTrial) -> HostedEnvironment:
        """Start an environment. Raises TrialError if it cannot be started."""

    def describe(self) -> Description:
        """Return what the trials play, without the live trials."""
