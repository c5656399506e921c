"""People who join, take over, act, hand back, drop and end the trials of a guest in any order."""

import asyncio
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.served_guest_trials import Seat, logs, served, started, until_ended

from arkml.trials.core.error import TrialError
from arkml.trials.wire.common_pb2 import Reward
from arkml.trials.wire.environment_pb2 import ObservationSet

CHOOSERS = Path("fixtures/guests/c_choosers.wasm")
NUMBERS = (2, 3)
MASKED = -8.0
"""The reward of a masked choice."""

SLOTS = ("picker_0", "picker_1", "driver_0", "driver_1")
USERS = ("ann", "ben", "cem")

user = st.sampled_from(USERS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("take over"), user, st.sampled_from(SLOTS)),
        st.tuples(
            st.just("act"),
            user,
            st.lists(st.floats(width=32), max_size=3),
            st.lists(st.integers(0, 9), max_size=3),
        ),
        st.tuples(st.just("hand back"), user),
        st.tuples(st.just("drop"), user),
        st.tuples(st.just("ticks"), st.integers(1, 4)),
    ),
    max_size=30,
)


class Table:
    """The people of one trial: each has one seat at most."""

    def __init__(self, server, trial, people):
        self._server, self._trial = server, trial
        self._seats = {}
        self._people = people

    def holder(self, slot):
        """The user who has a slot."""
        open_seats = ((who, one) for who, (one, what) in self._seats.items() if what == slot)
        return next((who for who, one in open_seats if not one.is_closed), None)

    async def step(self, step):
        """Do one thing, if it can be done."""
        what, who, *more = step
        if what == "ticks":
            (trial,) = self._server.orchestrator.live_trials() or [None]
            last = trial.tick + who if trial else 0
            while trial is not None and not trial.is_over and trial.tick < last:
                await asyncio.sleep(0)
            return
        seat, _ = self._seats.get(who, (None, None))
        if what == "take over":
            if seat is None or seat.is_closed:
                await self._take_over(who, *more)
        elif seat is not None and not seat.is_closed:
            if what == "act":
                seat.act(*more[0], choices=more[1])
            elif what == "hand back":
                seat.hand_back()
            else:
                seat.drop()

    async def _take_over(self, who, slot):
        holder = self.holder(slot)
        is_free = holder is None and slot not in self._people
        try:
            seat = await Seat(who).take_over(self._server, self._trial, slot)
        except TrialError:
            is_live = bool(self._server.orchestrator.live_trials())
            assert not (is_free and is_live), f"{slot} was free"
            return
        is_left = holder is not None and self._seats[holder][0].is_closed  # it was away
        assert is_free or is_left, f"{slot} had {holder} already"
        self._seats[who] = seat, slot


@settings(max_examples=25, deadline=None)
@given(steps=steps, end=st.sampled_from(["soft", "hard", "max_steps"]), has_client=st.booleans())
def test_any_sequence_of_what_people_do_keeps_the_rules(tmp_path_factory, steps, end, has_client):
    data = tmp_path_factory.mktemp("log")
    clients = ["picker_1"] if has_client else []
    client = asyncio.run(played(data, steps, end, clients))
    entries, _ = logs(data)["any"]

    assert_each_tick_has_one_action_a_slot(entries)
    assert_no_masked_choice_was_taken(entries)
    seen = observed(entries, clients)
    assert replayed(entries, len(seen), tmp_path_factory.mktemp("replay")) == seen
    if client is not None:
        assert client.inits == 1
        assert sorted(client.observations) == [*range(len(client.observations))]


async def played(data, steps, end, clients):
    """Play one trial; return its client."""
    rate = 0.0 if clients else 500.0
    environment = {"configure": NUMBERS}
    async with served(CHOOSERS, data, environment, tick_rate=rate, away=0.01) as server:
        most = 25 if end == "max_steps" else 0
        trial = await started(server, "any", clients=clients, seed=3, max_steps=most)
        client = None
        if clients:
            client = await Seat("eve", lambda _: []).join(server, trial, clients[0])
        table = Table(server, trial, clients)
        for step in [*steps, ("ticks", 2)]:
            await table.step(step)
        if end != "max_steps":
            await server.trials.terminate([trial], is_hard=end == "hard")
        await until_ended(server, trial)
        assert all(seat.is_closed for seat, _ in table._seats.values())
        return client


def actions_by_tick(entries):
    ticks = {}
    for kind, tick, name, _, content, note, origin in entries:
        if kind == "action":
            assert name not in ticks.setdefault(tick, {}), "two actions of one slot"
            ticks[tick][name] = content, note, origin
    return ticks


def assert_each_tick_has_one_action_a_slot(entries):
    ticks = actions_by_tick(entries)
    assert [*ticks] == [*range(len(ticks))]
    for acted in ticks.values():
        assert sorted(acted) == sorted(SLOTS)
        for _, note, origin in acted.values():
            assert (origin in (*USERS, "eve")) == (note in ("given", "held"))


def assert_no_masked_choice_was_taken(entries):
    rewards = [content for kind, *_, content, _, _ in entries if kind == "reward"]
    assert all(Reward.FromString(one).value > MASKED for one in rewards)


def observed(entries, clients):
    """The observations of each tick, by slot: those of clients come first."""
    order = [*clients, *(slot for slot in SLOTS if slot not in clients)]
    sets = [ObservationSet.FromString(one[4]) for one in entries if one[0] == "observations"]
    return [
        dict(zip(order, [one.observations[at] for at in one.actors_map], strict=True))
        for one in sets
    ]


def replayed(entries, count, data):
    """The observations that the guest gives for the actions of a log, as many."""
    ticks = actions_by_tick(entries)
    return asyncio.run(replay(ticks, count, data)) if count else []


async def replay(ticks, count, data):
    """Play all slots by clients that send the actions of a log, and return what was observed."""
    async with served(CHOOSERS, data, {"configure": NUMBERS}, tick_rate=0.0) as server:
        trial = await started(server, "any", clients=SLOTS, seed=3)
        seats = [Replaying(slot, ticks) for slot in SLOTS]
        for seat in seats:
            await seat.join(server, trial, seat.slot)
        await seats[0].until(lambda one: len(one.observations) >= count)
        await server.trials.terminate([trial], is_hard=True)
        await until_ended(server, trial)
    return observed(logs(data)["any"][0], SLOTS)[:count]


class Replaying(Seat):
    """A client that sends the actions that a slot has in a log."""

    def __init__(self, slot, ticks):
        super().__init__("eve", lambda _: [])
        self.slot = slot
        self._ticks = ticks

    def act(self, *_, tick):
        content, _, _ = self._ticks.get(tick, {}).get(self.slot, (b"", "", ""))
        self.send_action(content, tick)
