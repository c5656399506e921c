"""A hosted trial for tests: it asks its environment for ticks and records what comes."""

import asyncio

from arkml.trials.core.hosting import Acted, ActionNote
from arkml.trials.wire.common_pb2 import CommunicationState, Message, RewardSource, TrialParams
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput
from arkml.trials.wire.guest_pb2 import Action, GuestConfig, Observation, SideChannel

NORMAL, LAST = CommunicationState.NORMAL, CommunicationState.LAST
LAST_ACK, END = CommunicationState.LAST_ACK, CommunicationState.END


class RecordedTrial:
    """
    One trial of a GuestHosting: it implements HostedTrial.

    `ticks` are the observations of each tick by the name of the actor, `rewards` those that came
    before the same tick: (actor, value, user data). `heard` are the answers to messages, (receiver,
    content). `states` are those of other messages, with their details.
    """

    def __init__(self, hosting, trial_id="trial", config=None, params=None, order=None):
        self.trial_id = trial_id
        self.ticks, self.rewards, self.heard, self.states = [], [[]], [], []
        self.offered = ()
        self.deliveries = 0  # of the environment, each of one tick or of several
        self.is_closed = False
        self._event = asyncio.Event()
        given = params or TrialParams()
        if config is not None:
            given.trial_config.content = GuestConfig(**config).SerializeToString()
        self.params = hosting.completed(given)
        self.actors = [(actor.name, actor.actor_class) for actor in self.params.actors]
        if order is not None:
            self.actors = [self.actors[place] for place in order]
        self.environment = hosting.open(self)
        start = EnvRunTrialInput(state=NORMAL)
        start.init_input.name = "env"
        start.init_input.config.CopyFrom(self.params.environment.config)
        for name, actor_class in self.actors:
            start.init_input.actors_in_trial.add(name=name, actor_class=actor_class)
        self.environment.receive(start)

    # HostedTrial

    def observe(self, tick):
        self.pass_over(tick)
        self.deliveries += 1

    def pass_over(self, tick):
        self.offered = tick.stand_ins
        for rewards in tick.rewards:
            for index, value, content in zip(*rewards, strict=True):
                source = RewardSource.FromString(content)
                assert (source.sender_name, source.value, source.confidence) == ("env", value, 1.0)
                self.rewards[-1].append((self.actors[index][0], source.value, source.user_data))
        observed = tick.observations
        contents = [observed.observations[place] for place in observed.actors_map]
        names = [name for name, _ in self.actors]
        observations = map(Observation.FromString, contents)
        self.ticks.append(dict(zip(names, observations, strict=True)))
        self.rewards.append([])
        self._event.set()

    def receive(self, message):
        kind = message.WhichOneof("data")
        if kind == "message":
            channel = SideChannel()
            assert message.message.payload.Unpack(channel)
            self.heard.append((message.message.receiver_name, channel.content))
        elif kind != "init_output":
            self.states.append((message.state, message.details))
        self._event.set()

    def lose(self, reason):
        del reason
        self.is_closed = True

    # The test's side

    @property
    def values(self):
        """Values of all slots in the last tick."""
        return {name: list(one.values) for name, one in self.ticks[-1].items()}

    async def until(self, condition):
        """Wait until a condition holds after something was sent."""
        async with asyncio.timeout(30):
            while not condition():
                self._event.clear()
                await self._event.wait()

    async def tick(self, number):
        """Wait for the observations of a tick."""
        await self.until(lambda: len(self.ticks) > number)
        return self.ticks[number]

    async def end(self):
        """Wait for the end by the environment; return its state and details."""
        await self.until(lambda: self.states and self.states[-1][0] in (LAST_ACK, END))
        return self.states[-1]

    async def act(self, most_ahead=0, **actions):
        """
        Act with messages by names of actors, stand-ins for the rest.

        Returns the next tick, after those that the environment may play ahead.
        """
        acted = [
            Acted(actions[name].SerializeToString(), ActionNote.GIVEN, "ann")
            if name in actions
            else Acted(stand_in.content, ActionNote.STAND_IN, stand_in.origin)
            for (name, _), stand_in in zip(self.actors, self.offered, strict=True)
        ]
        before = self.deliveries
        self.environment.act(len(self.ticks) - 1, acted, most_ahead)
        await self.until(lambda: self.deliveries > before or self.states)
        return self.ticks[-1]

    async def play(self, ticks):
        """Have stand-ins act for some ticks, or to the end."""
        for _ in range(ticks):
            if self.states:
                break
            await self.act()

    def tell(self, content, sender="ann"):
        """Send the guest a message."""
        message = Message(tick_id=-1, sender_name=sender, receiver_name="env")
        message.payload.Pack(SideChannel(content=content))
        self.environment.receive(EnvRunTrialInput(state=NORMAL, message=message))

    def last(self):
        """Request the end as a trial does: the next actions are the last."""
        self.environment.receive(EnvRunTrialInput(state=LAST))


def action(*continuous, choices=()):
    return Action(continuous=continuous, choices=choices)
