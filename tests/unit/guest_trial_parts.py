"""Hosted trials for the tests of what is learned from them: parameters and entries."""

import numpy as np
from tests.unit.datalog_parts import observations

from arkml.trials.core.hosting import HOSTED, Acted, ActionNote
from arkml.trials.core.outputs import Entry, EntryKind
from arkml.trials.wire.common_pb2 import (
    ActorParams,
    EnvironmentParams,
    SerializedMessage,
    TrialParams,
)
from arkml.trials.wire.guest_pb2 import Action, ActionSpace, GuestConfig, Observation


def hosted_params(*actors, environment=None):
    """Parameters of a trial with walkers, which have two actions, and flyers, which choose."""
    spaces = [
        ActionSpace(actor_class="walker", low=[-1, -1], high=[1, 1]),
        ActionSpace(actor_class="flyer", low=[-2], high=[2], branches=[3]),
    ]
    config = SerializedMessage(content=GuestConfig(action_spaces=spaces).SerializeToString())
    return TrialParams(
        environment=environment
        or EnvironmentParams(name="env", endpoint="local://", implementation=HOSTED, config=config),
        actors=[
            ActorParams(name=name, actor_class=name.rpartition("_")[0], endpoint="local://")
            for name in actors or ("walker_0", "walker_1")
        ],
    )


def observed(tick, *values, **more):
    """The observations of a tick, one for each actor, of agents that are there."""
    messages = [Observation(**{"present": True, "values": one, **more}) for one in values]
    contents = [message.SerializeToString() for message in messages]
    return observations(tick, *contents, actors_map=range(len(contents)))


def played(tick, name="walker_0", note="given", origin="ann", idle=0.0, action=(0.5, -0.5)):
    """An action of a tick."""
    content = Action(continuous=action).SerializeToString()
    made = Acted(content, ActionNote(note), origin, idle)
    return Entry(EntryKind.ACTION, tick, 7, name, "", content, made.noted, origin)


def same_rows(one, other):
    """Return whether two RowColumns are equal, byte for byte."""
    pairs = zip(one.arrays(), other.arrays(), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)
