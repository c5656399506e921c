"""Messages that are almost what a trial expects."""

from google.protobuf.message import DecodeError
from tests.driven_trial import (
    action,
    joining,
    message_for,
    observations,
    ready,
    reward_for,
)

from arkml.trials.wire.actor_pb2 import ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import CommunicationState
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput

STATES = [*CommunicationState.values(), -1, 6, 2**31 - 1]
TICKS = [-(2**63), -2, -1, 0, 1, 2, 2**31, 2**63 - 1]
NUMBERS = [0.0, 1.0, -1.0, 3e38, -3e38, float("nan"), float("inf"), 1e-45]
NAMES = ["", "*", "*.*", "player.*", "a0", "a1", "env", "nothing", "a" * 10_000, "é\0"]


def of_actor(chance):
    """Return what an actor might send, at the wrong moment or in a wrong form."""
    kind = chance.choice(["action", "reward", "message", "init_output", "details", None])
    message = ActorRunTrialOutput(state=chance.choice([1, 1, *STATES]))
    if kind == "action":
        message.action.CopyFrom(action(chance.randbytes(3), chance.choice(TICKS)).action)
    elif kind == "init_output":
        made = joining(chance.choice(NAMES)).init_output
        message.init_output.CopyFrom(made)
    else:
        _fill(message, kind, chance)
    return _damaged(message, chance)


def of_environment(chance, actors):
    """Return what an environment of a trial with `actors` might send."""
    kind = chance.choice(["observation_set", "reward", "message", "init_output", "details", None])
    message = EnvRunTrialOutput(state=chance.choice([1, 1, *STATES]))
    if kind == "observation_set":
        count = chance.choice([actors, actors, actors - 1, actors + 1, 0])
        made = observations(count, chance.choice([-1, -1, *TICKS])).observation_set
        if chance.random() < 0.3:
            made.actors_map[:] = [chance.choice([-1, 0, 1, 2**31 - 1]) for _ in range(count)]
        message.observation_set.CopyFrom(made)
    elif kind == "init_output":
        message.init_output.CopyFrom(ready().init_output)
    else:
        _fill(message, kind, chance)
    return _damaged(message, chance)


def _fill(message, kind, chance):
    tick, name = chance.choice(TICKS), chance.choice(NAMES)
    if kind == "reward":
        source = chance.choice(NUMBERS), chance.choice(NUMBERS)
        message.reward.CopyFrom(reward_for(name, source, tick=tick))
    elif kind == "message":
        message.message.CopyFrom(message_for(name, tick))
    elif kind == "details":
        message.details = name


def _damaged(message, chance):
    """Return the message with some bytes changed, where that is still a message."""
    if chance.random() < 0.7:
        return message
    content = bytearray(message.SerializeToString())
    for _ in range(chance.randint(1, 3)):
        if content:
            content[chance.randrange(len(content))] = chance.randrange(256)
    try:
        return type(message).FromString(bytes(content))
    except DecodeError:
        return message
