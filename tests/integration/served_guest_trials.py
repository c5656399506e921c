"""Servers of a guest's trials in the process of a test: their logs, and the people who play."""

import asyncio
from contextlib import asynccontextmanager

from tests.waiting import PATIENCE

from arkml.guest_trials.guest_hosting import GuestHosting
from arkml.guest_trials.guest_trials_options import GuestTrialsOptions
from arkml.trials import Server
from arkml.trials.core.hosting import HOSTED
from arkml.trials.datalog.datalog import Datalog
from arkml.trials.datalog.reader import DatalogReader
from arkml.trials.server.server_options import TrialsOptions
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import Action as SentAction
from arkml.trials.wire.common_pb2 import (
    CommunicationState,
    EnvironmentParams,
    TrialParams,
    TrialState,
)
from arkml.trials.wire.environment_pb2 import ObservationSet
from arkml.trials.wire.guest_pb2 import Action, GuestConfig, Observation
from arkml.trials.wire.lifecycle_pb2 import TrialListRequest, TrialStartRequest

NORMAL, LAST = CommunicationState.NORMAL, CommunicationState.LAST
LAST_ACK, END = CommunicationState.LAST_ACK, CommunicationState.END


@asynccontextmanager
async def served(module, data=None, environment=None, *, learned=lambda log: log, **options):
    """A server of trials of `module`; with `data` they are logged there."""
    options = GuestTrialsOptions(module=module, environment=environment or {}, **options)
    with GuestHosting(options) as hosting:
        log = None if data is None else await asyncio.to_thread(Datalog, data)
        try:
            trial_log = None if log is None else learned(log)
            async with Server(TrialsOptions(), trial_log=trial_log, hosting=hosting) as server:
                yield server
        finally:
            if log is not None:
                await asyncio.to_thread(log.close)


async def started(server, trial_id="", *, clients=(), max_steps=0, **config):
    """Start a trial whose other actors are left to stand-ins; return its id."""
    environment = EnvironmentParams(name="env", endpoint="local://", implementation=HOSTED)
    environment.config.content = GuestConfig(**config).SerializeToString()
    params = TrialParams(environment=environment, max_steps=max_steps)
    for name in clients:
        params.actors.add(
            name=name, actor_class=name.rpartition("_")[0], endpoint="cogment://client"
        )
    request = TrialStartRequest(trial_id_requested=trial_id, params=params, user_id="eve")
    return (await server.trials.start(request)).trial_id


async def until_ended(server, *trial_ids):
    """Wait until trials have ended."""
    left = set(trial_ids)
    async with asyncio.timeout(PATIENCE):
        async for entry in server.trials.watch(TrialListRequest()):
            if entry.state == TrialState.ENDED:
                left.discard(entry.trial_id)
            if not left:
                return


async def until_tick(server, trial_id, tick):
    """Wait until a trial has observations of a tick; return the view of them."""
    async with asyncio.timeout(PATIENCE):
        async for view in server.players.look(trial_id):
            if view.tick_id >= tick:
                return view
    raise AssertionError(f"trial {trial_id} ended before tick {tick}")


class Seat:
    """
    A person, or a client, who plays for an actor: it implements Sender.

    `observations` are those that came, by tick; `respond`, if it is given, is called with each and
    returns the values of an action, or None.
    """

    def __init__(self, user="ann", respond=None):
        self.user = user
        self.observations = {}
        self.inits = 0
        self.states = []
        self.is_closed = False
        self.receiver = None
        self._respond = respond
        self._early = []
        self._event = asyncio.Event()

    async def take_over(self, server, trial_id, name):
        """Take an actor over. Raises TrialError if that cannot be."""
        slot = ActorInitialOutput(actor_name=name)
        self.begin(await server.players.take_over(trial_id, slot, self.user, self))
        return self

    async def join(self, server, trial_id, name):
        """Join as a client of Cogment's protocol."""
        slot = ActorInitialOutput(actor_name=name)
        self.begin(await server.trials.join(trial_id, slot, self))
        return self

    def begin(self, receiver):
        """Answer from now on, also what came before the receiver was there."""
        self.receiver = receiver
        early, self._early = self._early, []
        for message in early:
            self._answer(message)

    def act(self, *continuous, choices=(), tick=-1):
        """Send an action."""
        content = Action(continuous=continuous, choices=choices).SerializeToString()
        self.send_action(content, tick)

    def send_action(self, content, tick):
        """Send the content of an action."""
        action = SentAction(tick_id=tick, content=content)
        self.receiver.receive(ActorRunTrialOutput(state=NORMAL, action=action))

    def hand_back(self):
        """End the stream in order."""
        self.receiver.receive(ActorRunTrialOutput(state=END))

    def drop(self):
        """Lose the connection."""
        self.receiver.lose("the connection was lost")

    async def until(self, condition):
        """Wait until `condition(self)` is true."""
        async with asyncio.timeout(PATIENCE):
            while not condition(self):
                self._event.clear()
                await self._event.wait()

    # Sender

    def send(self, message):
        assert not self.is_closed
        if self.receiver is None:
            self._early.append(message)
        else:
            self._answer(message)

    def close(self):
        self.is_closed = True
        self._event.set()

    def _answer(self, message):
        kind = message.WhichOneof("data")
        self._event.set()
        if kind == "init_input":
            self.inits += 1
        elif kind == "observation":
            seen = message.observation
            assert seen.tick_id not in self.observations
            observed = self.observations[seen.tick_id] = Observation.FromString(seen.content)
            action = None if self._respond is None else self._respond(observed)
            if action is not None and message.state == NORMAL:
                self.act(*action, tick=seen.tick_id)
        if message.state != NORMAL:
            self.states.append(message.state)
        if message.state == LAST and kind is None:
            self.receiver.receive(ActorRunTrialOutput(state=LAST_ACK))


def logs(data):
    """Return the entries of each trial of a log without times, and its reason, by its id."""
    with DatalogReader(data) as reader:
        records = {one.id: one for one in reader.trials()}
        return {
            name: ([timeless(entry) for entry in reader.entries(record)], record.reason)
            for name, record in records.items()
        }


def timeless(entry):
    """Return an entry of the log without times."""
    content = entry.content
    if entry.kind == "observations":
        observed = ObservationSet.FromString(content)
        observed.timestamp = 0
        content = observed.SerializeToString(deterministic=True)
    note = entry.note.split()[0] if entry.kind == "action" else entry.note
    return entry.kind, entry.tick, entry.name, entry.sender, content, note, entry.origin
