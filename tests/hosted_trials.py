"""A small hosting of trials whose environment counts, and the people who play in them."""

import asyncio

from tests.driven_trial import LAST, LAST_ACK, observations, ready, standing_by, word
from tests.waiting import PATIENCE

from arkml.trials.core.error import TrialError
from arkml.trials.core.hosting import HostedTick, Pacing, StandIn
from arkml.trials.wire.common_pb2 import CommunicationState, SerializedMessage, TrialParams
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput
from arkml.trials.wire.players_pb2 import Description

REFUSED = b"refuse"
UNOPENED = b"do not open"


class CountingHosting:
    """
    Hosts environments whose observations are the tick, and whose stand-ins act "s" of version "v".

    Each steps by itself, or with `is_stepped` once for each `step()`. `ends_after` is the number of
    ticks, None without end. A configuration of REFUSED or UNOPENED is what it says.
    """

    def __init__(self, pacing=None, *, ends_after=None, is_stepped=False):
        self.environments = []
        self.ends_after = ends_after
        self.is_stepped = is_stepped
        self._pacing = pacing or Pacing()

    def completed(self, params):
        completed = TrialParams()
        completed.CopyFrom(params)
        if params.trial_config.content == REFUSED:
            raise TrialError("the guest cannot have this configuration")
        completed.environment.config.CopyFrom(params.trial_config)
        if not completed.actors:
            completed.actors.extend([standing_by("a0"), standing_by("a1")])
        return completed

    def pacing(self, params):  # noqa: ARG002  of Hosting
        return self._pacing

    def open(self, trial):
        environment = CountingEnvironment(trial, self)
        self.environments.append(environment)
        return environment

    def describe(self):
        return Description(guest="counting", tick_rate=self._pacing.rate)


class CountingEnvironment:
    """One environment. `acted` are the actions of each tick, `lines` its other messages."""

    def __init__(self, trial, hosting):
        self.trial = trial
        self.acted = []
        self.lines = []
        self.lost = []
        self.params_config = None
        self._hosting = hosting
        self._count = 0
        self._is_last = False
        self._is_due = False  # the actions of the last tick are there
        self._arrived = asyncio.Event()

    async def until_acted(self, ticks):
        """Wait for the actions of a number of ticks."""
        async with asyncio.timeout(PATIENCE):
            while len(self.acted) < ticks:
                self._arrived.clear()
                await self._arrived.wait()

    def receive(self, message):
        assert not self.lost
        self.lines.append(word(message))
        if message.HasField("init_input"):
            self.params_config = message.init_input.config.content
            self._count = len(message.init_input.actors_in_trial)
            if self.params_config == UNOPENED:
                self.trial.receive(
                    EnvRunTrialOutput(state=CommunicationState.END, details="no guest")
                )
                return
            self.trial.receive(ready())
            self._become_due()
        elif message.state == LAST:
            self._is_last = True

    def act(self, tick, acted, most_ahead):
        del most_ahead  # it plays no ticks ahead
        assert not self.lost
        assert tick == len(self.acted)
        self.acted.append(acted)
        self._arrived.set()
        self._become_due()

    def lose(self, reason):
        assert not self.lost
        self.lost.append(reason)

    def step(self):
        """Observe the next tick, whose actions are due."""
        assert self._is_due
        self._is_due = False
        tick = len(self.acted)
        if tick == self._hosting.ends_after and not self._is_last:
            self._is_last = True
            self.trial.receive(EnvRunTrialOutput(state=LAST))
        is_last = self._is_last  # the trial may answer the observations with its LAST
        stand_ins = [] if is_last else [StandIn(b"s", "v")] * self._count
        observed = observations(self._count, tick, b"%d" % tick).observation_set
        self.trial.observe(HostedTick([], observed, stand_ins))
        if is_last:
            self.trial.receive(EnvRunTrialOutput(state=LAST_ACK))

    def _become_due(self):
        self._is_due = True
        if not self._hosting.is_stepped:
            asyncio.get_running_loop().call_soon(self._step_if_live)

    def _step_if_live(self):
        if self._is_due and not self.lost:
            self.step()


class Person:
    """A Sender that keeps what one who plays is sent, and plays with the receiver it gets."""

    def __init__(self):
        self.lines = []
        self.is_closed = False
        self.receiver = None
        self._arrived = asyncio.Event()

    def send(self, message):
        assert not self.is_closed
        self.lines.append(word(message))
        self._arrived.set()

    def close(self):
        self.is_closed = True
        self._arrived.set()

    async def until(self, line):
        """Wait for a message whose words begin with `line`."""
        async with asyncio.timeout(PATIENCE):
            while not any(one.startswith(line) for one in self.lines):
                self._arrived.clear()
                await self._arrived.wait()


def config(content):
    return SerializedMessage(content=content)
