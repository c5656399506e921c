"""Hosted trials of a real server, whose ticks are those that a test asks for."""

import asyncio
import contextlib

from tests.waiting import PATIENCE

from arkml.trials.core.hosting import HOSTED, STAND_IN, HostedTick, Pacing, StandIn
from arkml.trials.core.outputs import EntryKind
from arkml.trials.core.parameters import LOCAL
from arkml.trials.server.server import Server
from arkml.trials.server.server_options import TrialsOptions
from arkml.trials.wire.common_pb2 import (
    ActorParams,
    CommunicationState,
    EnvironmentParams,
    Reward,
    RewardSource,
    TrialParams,
)
from arkml.trials.wire.environment_pb2 import EnvInitialOutput, EnvRunTrialOutput, ObservationSet
from arkml.trials.wire.guest_pb2 import Action, Observation
from arkml.trials.wire.lifecycle_pb2 import TrialStartRequest
from arkml.trials.wire.players_pb2 import ActorClass, Description

CLASS = "ball"
STANDING = Action(continuous=[0.0]).SerializeToString()
NORMAL, LAST, LAST_ACK, END = (
    CommunicationState.NORMAL,
    CommunicationState.LAST,
    CommunicationState.LAST_ACK,
    CommunicationState.END,
)


def observation(tick, slot):
    """The observation of a slot in a tick."""
    return Observation(present=True, values=[tick, slot]).SerializeToString()


class HandDriven:
    """
    The Hosting of a server.

    A trial begins with tick 0; `tick` begins the next one, and a tick ends once all people have
    acted. Stand-ins do not move. Observations have `padding` at their end.
    """

    def __init__(self):
        self.server = None
        self.people = _People(self)
        self.padding = b""
        self._environments = {}
        self._changed = asyncio.Event()

    async def start(self, trial_id, names=("ball_0", "ball_1")):
        """Start a trial, all of whose actors are left to their stand-ins."""
        params = TrialParams(
            environment=EnvironmentParams(
                name="env", endpoint=f"{LOCAL}://", implementation=HOSTED
            ),
            actors=[
                ActorParams(
                    name=name, actor_class=CLASS, endpoint=f"{LOCAL}://", implementation=STAND_IN
                )
                for name in names
            ],
        )
        request = TrialStartRequest(trial_id_requested=trial_id, params=params)
        await self.server.trials.start(request)

    def tick(self, trial_id):
        """Begin the next tick."""
        self._environments[trial_id].observe()

    async def applied(self, trial_id, tick):
        """The actions of a tick once it has ended: who acted, empty for stand-ins, and how."""
        applied = self._environments[trial_id].applied
        await self._until(lambda: tick in applied)
        return [(one.origin, one.content) for one in applied[tick]]

    async def events(self, trial_id, count):
        """The first take-overs and hand-backs: the actor, the person, and which of the two."""
        events = self.people.events.setdefault(trial_id, [])
        await self._until(lambda: len(events) >= count)
        return events[:count]

    async def end(self, trial_id):
        """Have a trial end with one more tick."""
        await self.server.trials.terminate([trial_id], is_hard=False)
        self.tick(trial_id)

    def fail(self, trial_id, reason):
        """Have the environment of a trial fail."""
        ending = EnvRunTrialOutput(state=END, details=reason)
        self._environments[trial_id].trial.receive(ending)

    def lookers(self, trial_id):
        """The number of those who look at a trial."""
        return len(self.server.orchestrator.live(trial_id).lookers)

    def note_change(self):
        self._changed.set()

    async def _until(self, condition):
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    # Hosting

    def completed(self, params):
        return params

    def pacing(self, _):
        return Pacing(rate=0.0, away=1_000.0)

    def open(self, trial):
        made = self._environments[trial.trial_id] = _Environment(self, trial)
        return made

    def describe(self):
        classes = [ActorClass(name=CLASS, behavior="Ball!", low=[-1], high=[1])]
        return Description(guest="ball.wasm", classes=classes, is_recorded=True)


class _People:
    """A TrialLog of take-overs and hand-backs alone."""

    failure = ""

    def __init__(self, game):
        self.events = {}
        self._game = game

    def add(self, trial_id, *entries):
        for entry in entries:
            if entry.kind is EntryKind.EVENT and entry.origin:
                kind = next((one for one in ("taken over", "handed back") if one in entry.note), "")
                self.events.setdefault(trial_id, []).append((entry.name, entry.origin, kind))
                self._game.note_change()

    def begin(self, *_):
        pass

    def state(self, *_):
        pass

    def end(self, *_):
        pass


class _Environment:
    """A HostedEnvironment whose observations are the number of the tick and that of the slot."""

    def __init__(self, game, trial):
        self.trial = trial
        self.applied = {}
        self._game = game
        self._tick = -1
        self._is_last = False

    def receive(self, message):
        if message.state == LAST:
            self._is_last = True
        elif message.WhichOneof("data") == "init_input":
            self._names = [actor.name for actor in message.init_input.actors_in_trial]
            self.trial.receive(EnvRunTrialOutput(state=NORMAL, init_output=EnvInitialOutput()))
            self.observe()

    def act(self, tick, acted, most_ahead):
        del most_ahead  # it plays no ticks ahead
        self.applied[tick] = list(acted)
        self._game.note_change()
        if self._is_last:
            self.observe()
            self.trial.receive(EnvRunTrialOutput(state=LAST_ACK))

    def lose(self, reason):
        self.lost = reason

    def observe(self):
        slots = range(len(self._names))
        if self._tick >= 0:
            for name in self._names:
                sources = [RewardSource(value=0.5, confidence=1)]
                reward = Reward(tick_id=-1, receiver_name=name, sources=sources)
                self.trial.receive(EnvRunTrialOutput(state=NORMAL, reward=reward))
        self._tick += 1
        observed = ObservationSet(
            tick_id=-1,
            observations=[observation(self._tick, slot) + self._game.padding for slot in slots],
            actors_map=slots,
        )
        self.trial.observe(HostedTick([], observed, [StandIn(STANDING)] * len(slots)))


@contextlib.asynccontextmanager
async def hosting_by_hand(**options):
    """A server with hosted trials; yields what drives them."""
    game = HandDriven()
    async with Server(TrialsOptions(**options), trial_log=game.people, hosting=game) as game.server:
        yield game
        await game.server.close(0.0)  # at once: no tick comes any more
