"""A project of well-known message types, and the far ends of sessions, for tests of the SDK."""

import asyncio
from types import SimpleNamespace

from google.protobuf.wrappers_pb2 import BoolValue, Int32Value, Int64Value, StringValue

from arkml.trials import ActorClass, ActorClassList, ActorParameters, TrialParameters
from arkml.trials.sdk.actor_session import ActorSession
from arkml.trials.sdk.environment_session import EnvironmentSession
from arkml.trials.wire.actor_pb2 import ActorInitialInput, ActorRunTrialInput
from arkml.trials.wire.common_pb2 import CommunicationState, Observation, TrialActor
from arkml.trials.wire.environment_pb2 import ActionSet, EnvInitialInput, EnvRunTrialInput

NORMAL, HEARTBEAT, LAST, LAST_ACK, END = (
    CommunicationState.NORMAL,
    CommunicationState.HEARTBEAT,
    CommunicationState.LAST,
    CommunicationState.LAST_ACK,
    CommunicationState.END,
)

PLAYER = ActorClass("player", Int32Value, Int64Value, StringValue)
TEACHER = ActorClass("teacher", None, BoolValue, StringValue)

SETTINGS = SimpleNamespace(
    actor_classes=ActorClassList(PLAYER, TEACHER),
    trial=SimpleNamespace(config_type=Int32Value),
    environment=SimpleNamespace(config_type=Int32Value),
)


class Ends:
    """A Sender that keeps what is sent."""

    def __init__(self):
        self.sent = []
        self.is_closed = False
        self._arrived = asyncio.Event()

    def send(self, message):
        if not self.is_closed:
            self.sent.append(message)
            self._arrived.set()

    def close(self):
        self.is_closed = True
        self._arrived.set()

    def kinds(self):
        """What was sent: the data of normal messages, and the other states, in order."""
        return [
            message.WhichOneof("data")
            if message.state == NORMAL
            else CommunicationState.Name(message.state)
            for message in self.sent
        ]

    async def until(self, condition):
        while not condition():
            self._arrived.clear()
            await self._arrived.wait()


def actor(ends, *, has_joined=False, init=None):
    init = init or ActorInitialInput(actor_name="ann", actor_class="player", env_name="world")
    return ActorSession("t", init, PLAYER, ends, impl_name="impl", has_joined=has_joined)


def environment(ends, names=("ann", "bob"), init=None):
    """An environment with the given players, and the teacher `tim`."""
    actors = [TrialActor(name=name, actor_class="player") for name in names]
    actors.append(TrialActor(name="tim", actor_class="teacher"))
    init = init or EnvInitialInput(name="world", actors_in_trial=actors)
    return EnvironmentSession("t", init, SETTINGS, ends, impl_name="default")


def observed(tick, text="", state=NORMAL):
    content = StringValue(value=text).SerializeToString()
    observation = Observation(tick_id=tick, timestamp=7, content=content)
    return ActorRunTrialInput(state=state, observation=observation)


def acted(tick, *contents, unavailable=()):
    actions = ActionSet(tick_id=tick, timestamp=7, actions=contents, unavailable_actors=unavailable)
    return EnvRunTrialInput(state=NORMAL, action_set=actions)


def number(value):
    return Int64Value(value=value).SerializeToString()


async def events_of(session):
    return [event async for event in session.all_events()]


def parameters(environment_endpoint, actors, **attributes):
    """Parameters of a trial; `actors` has the endpoint and the implementation of each name."""
    params = TrialParameters(SETTINGS, environment_endpoint=environment_endpoint, **attributes)
    for name, (endpoint, implementation) in actors.items():
        params.actors.append(
            ActorParameters(
                SETTINGS, "player", name=name, endpoint=endpoint, implementation=implementation
            )
        )
    return params
