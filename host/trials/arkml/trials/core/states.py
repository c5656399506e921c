"""The states of a trial and of its participants, as transition tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum

from arkml.trials.wire.common_pb2 import TrialState

INITIALIZING, PENDING, RUNNING, TERMINATING, ENDED = (
    TrialState.INITIALIZING,
    TrialState.PENDING,
    TrialState.RUNNING,
    TrialState.TERMINATING,
    TrialState.ENDED,
)
"""The states of TrialState, which looks each of them up by its name."""


class TrialCause(Enum):
    """The causes for which a trial changes its state."""

    PARAMETERS = "the parameters are final"
    FIRST_OBSERVATION = "the environment sent its first observations"
    SOFT_END = "the end was requested, or the environment announced it"
    ALL_LEFT = "all acknowledged the end"
    HARD_END = "the trial was cut off"


TRIAL: Mapping[TrialState, Mapping[TrialCause, TrialState]] = {
    INITIALIZING: {
        TrialCause.PARAMETERS: PENDING,
        TrialCause.HARD_END: ENDED,
    },
    PENDING: {
        TrialCause.FIRST_OBSERVATION: RUNNING,
        TrialCause.HARD_END: ENDED,
    },
    RUNNING: {
        TrialCause.SOFT_END: TERMINATING,
        TrialCause.HARD_END: ENDED,
    },
    TERMINATING: {
        TrialCause.ALL_LEFT: ENDED,
        TrialCause.HARD_END: ENDED,
    },
    ENDED: {},
}
"""Next state of a trial by its state and the cause; other causes change nothing."""


class Phase(StrEnum):
    """
    The phases of an actor or the environment in its trial.

    Their values are the words by which errors and the documentation name them.
    """

    ABSENT = "absent"
    STANDBY = "standby"
    CALLED = "called"
    READY = "ready"
    PLAYING = "playing"
    LEAVING = "leaving"
    OVER = "over"


class Move(StrEnum):
    """The moves by which an actor or the environment changes its phase."""

    STAND_BY = "it is left to its stand-in"
    TAKE_OVER = "a person takes it over"
    CALL = "it is called"
    JOIN = "it joins by itself"
    ACCEPT = "it sends init_output"
    OBSERVE = "it gets, or sends, an observation"
    PLAY = "it sends an action"
    TALK = "it sends a reward or a message"
    LAST = "it gets LAST"
    ANNOUNCE = "it sends LAST"
    ACKNOWLEDGE = "it sends LAST_ACK"
    LOSE = "its connection is lost"


ACTOR: Mapping[Phase, dict[Move, Phase]] = {
    Phase.ABSENT: {Move.CALL: Phase.CALLED, Move.JOIN: Phase.READY, Move.LOSE: Phase.OVER},
    Phase.STANDBY: {},
    Phase.CALLED: {Move.ACCEPT: Phase.READY, Move.LOSE: Phase.OVER},
    Phase.READY: {
        Move.OBSERVE: Phase.PLAYING,
        Move.PLAY: Phase.READY,
        Move.TALK: Phase.READY,
        Move.LOSE: Phase.OVER,
    },
    Phase.PLAYING: {
        Move.OBSERVE: Phase.PLAYING,
        Move.PLAY: Phase.PLAYING,
        Move.TALK: Phase.PLAYING,
        Move.LAST: Phase.LEAVING,
        Move.LOSE: Phase.OVER,
    },
    Phase.LEAVING: {
        Move.PLAY: Phase.LEAVING,
        Move.TALK: Phase.LEAVING,
        Move.ACKNOWLEDGE: Phase.OVER,
        Move.LOSE: Phase.OVER,
    },
    Phase.OVER: {},
}
"""Next phase of an actor by its phase and the move; any other move is a breach of protocol."""

HOSTED_ACTOR: Mapping[Phase, Mapping[Move, Phase]] = {
    **{
        phase: {
            step: Phase.STANDBY if step is Move.LOSE else after for step, after in moves.items()
        }
        for phase, moves in ACTOR.items()
    },
    Phase.ABSENT: {
        Move.STAND_BY: Phase.STANDBY,
        Move.CALL: Phase.CALLED,
        Move.JOIN: Phase.READY,
        Move.LOSE: Phase.STANDBY,
    },
    Phase.STANDBY: {Move.TAKE_OVER: Phase.READY},
    Phase.LEAVING: ACTOR[Phase.LEAVING],
}
"""Phases of an actor in a hosted trial: if it is lost, its stand-in takes over."""

ENVIRONMENT: Mapping[Phase, Mapping[Move, Phase]] = {
    Phase.ABSENT: {Move.CALL: Phase.CALLED, Move.LOSE: Phase.OVER},
    Phase.STANDBY: {},
    Phase.CALLED: {Move.ACCEPT: Phase.READY, Move.LOSE: Phase.OVER},
    Phase.READY: {
        Move.OBSERVE: Phase.PLAYING,
        Move.TALK: Phase.READY,
        Move.LOSE: Phase.OVER,
    },
    Phase.PLAYING: {
        Move.OBSERVE: Phase.PLAYING,
        Move.TALK: Phase.PLAYING,
        Move.LAST: Phase.LEAVING,
        Move.ANNOUNCE: Phase.LEAVING,
        Move.LOSE: Phase.OVER,
    },
    Phase.LEAVING: {
        Move.OBSERVE: Phase.LEAVING,
        Move.TALK: Phase.LEAVING,
        Move.ANNOUNCE: Phase.LEAVING,
        Move.ACKNOWLEDGE: Phase.OVER,
        Move.LOSE: Phase.OVER,
    },
    Phase.OVER: {},
}
"""Next phase of an environment by its phase and the move."""
