"""States of fleets, which are copied side by side: those that guests would have one by one."""

import random

import pytest
from tests.integration.snapshot_guest import MANY_SESSIONS, MODELS

from arkml import FleetSnapshot, Host, Limits
from arkml.errors import GuestBusy, StateRefused
from arkml.guests.guest import calls_of
from arkml.limits import MIB
from arkml.runtime import native
from arkml.runtime.bindings import packed_globals
from arkml.sessions.services import Services

LINEAR, ADDING = 0, 1
GLOBALS = ("i32", "i64", "f32", "f64", "v128")


@pytest.fixture(params=["native", "pure"])
def library(request, monkeypatch):
    """Run the test with the native library and without it."""
    if request.param == "pure":
        monkeypatch.setattr(native, "LIBRARY", None)


def parts(state):
    """What a state has, in values that can be compared."""
    services = state.services
    sessions = [
        (one.index, one.key, one.widths, one.opened_with[0].digest) for one in services.sessions
    ]
    agents = [
        None if one.agents is None else [column.tolist() for column in one.agents]
        for one in services.sessions
    ]
    return (
        bytes(state.wasm.memory), packed_globals(state.wasm.globals, GLOBALS),
        services.handles, services.keys, services.contexts, sessions, agents,
        state.rows, state.compiler, state.startup,
    )  # fmt: skip


def one_by_one(fleet):
    return [parts(guest.snapshot().state) for guest in fleet.guests]


def side_by_side(state):
    return [parts(each) for each in state.states]


def change(draw, fleet):
    """Let one guest of a fleet do something that its state has."""
    guest = draw.choice(fleet.guests)
    match draw.randrange(9):
        case 0:
            guest.call("open", draw.randrange(3), draw.choice([LINEAR, LINEAR, ADDING]))
        case 1:
            guest.call("close", draw.randrange(3))
        case 2:
            guest.call("push", draw.randrange(3), draw.randint(1, 3), draw.random(), 1)
        case 3:
            guest.call("submit", draw.randrange(3), draw.randrange(3), 1)
        case 4:
            guest.call("grow", draw.randrange(2))
        case 5:
            guest.call("use_up_a_handle")
        case 6:
            calls_of(guest).services.log.add_context("level", str(draw.random()))
        case 7:
            guest.restore(draw.choice(fleet.guests).snapshot())
        case _:
            fleet.call("turn")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("seed", range(12))
def test_a_fleet_has_the_states_that_its_guests_have(seed):
    draw = random.Random(seed)
    with Host() as host, host.fleet(MANY_SESSIONS, 4) as fleet:
        saved = []
        for _ in range(40):
            for _ in range(draw.randrange(4)):
                change(draw, fleet)
            state, expected = fleet.snapshot(), one_by_one(fleet)
            assert side_by_side(state) == expected
            saved.append((state, expected))
            if draw.random() < 0.4:
                state, expected = draw.choice(saved)
                if draw.random() < 0.2:
                    state = FleetSnapshot.load(bytes(state))
                fleet.restore(state)
                assert one_by_one(fleet) == expected


@pytest.mark.usefixtures("library")
def test_guests_that_had_none_are_left_out(host):
    with host.fleet(MANY_SESSIONS, 4) as fleet:
        fleet.call("turn")
        fleet.guests[1].close()
        state = fleet.snapshot()
        expected = side_by_side_but(state, 1)
        fleet.replace(fleet.guests[1])
        fleet.call("turn")
        fleet.restore(state)

        assert len(state) == 4
        assert fleet.guests[1].account.memory_bytes == 0
        assert side_by_side_but(fleet.snapshot(), 1) == expected


def side_by_side_but(state, index):
    assert state.states[index] is None
    return [parts(each) for each in state.states if each is not None]


def test_agents_are_saved_once_another_policy_keeps_some(host):
    with host.fleet(MANY_SESSIONS, 2) as fleet:
        fleet.call("open", 0, LINEAR)
        before = fleet.snapshot()
        fleet.use(MODELS["adding"]).result()
        fleet.call("push", 0, 7, 2.0, 1)
        fleet.call("submit", 0, 1, 1)
        later = fleet.snapshot()

        assert [sessions_of(each)[0].agents for each in before.states] == [None, None]
        assert [len(sessions_of(each)[0].agents.ids) for each in later.states] == [1, 1]


def sessions_of(state):
    return state.services.sessions


def test_each_guest_is_charged_for_its_part_of_a_fleets_snapshots(host):
    with host.fleet(MANY_SESSIONS, 3) as fleet:
        fleet.call("open", 0, LINEAR, only=[1])
        states = [fleet.snapshot(), fleet.guests[2].snapshot()]
        held = [guest.account.snapshot_bytes for guest in fleet.guests]
        sizes = [each.nbytes for each in states[0].states]
        model = len(states[0].states[1].services.models[0].data)

        assert held == [sizes[0], sizes[1] + model, 2 * sizes[2]]
        states.append(fleet.snapshot())
        held = [guest.account.snapshot_bytes for guest in fleet.guests]
        assert held == [2 * sizes[0], 2 * sizes[1] + model, 3 * sizes[2]]
        del states[0]
        held = [guest.account.snapshot_bytes for guest in fleet.guests]
        assert held == [sizes[0], sizes[1] + model, 2 * sizes[2]]
        states.clear()
        assert [guest.account.snapshot_bytes for guest in fleet.guests] == [0, 0, 0]


def test_memory_grows_by_what_a_dropped_snapshot_had(make_host):
    fleet = make_host(limits=Limits(guest_bytes=3 * MIB)).fleet(MANY_SESSIONS, 2)
    for guest in fleet.guests:
        guest.write_memory(0, b"x" * (128 << 10))
    states = [fleet.snapshot() for _ in range(12)]

    assert fleet.call("grow", 30).values == [-1, -1]
    states.clear()
    assert fleet.call("grow", 30).values == [2, 2]


@pytest.mark.parametrize("index", [0, 2])
def test_a_state_is_not_restored_while_a_memory_is_looked_at(host, index):
    with host.fleet(MANY_SESSIONS, 3) as fleet:
        fleet.call("turn")
        state = fleet.snapshot()
        fleet.call("turn")
        one = fleet.guests[1].snapshot()
        with fleet.guests[index].memory(), pytest.raises(GuestBusy, match="is in use"):
            fleet.restore(state)
        with fleet.guests[index].memory(), pytest.raises(GuestBusy, match="is in use"):
            fleet.guests[index].restore(one)

        assert fleet.call("turn").values == [3, 3, 3]


def test_a_guest_that_runs_into_a_limit_fails_alone(host):
    with host.fleet(MANY_SESSIONS, 3) as fleet:
        fleet.call("turn")
        state = fleet.snapshot()
        fleet.call("turn")
        calls_of(fleet.guests[1]).services.__class__ = FullServices
        calls_of(fleet.guests[1]).services.log.add_context("level", "3")
        with pytest.raises(StateRefused, match="no room"):
            fleet.restore(state)

        assert [guest.failure is None for guest in fleet.guests] == [True, False, True]
        assert fleet.call("turn").values[::2] == [2, 2]


class FullServices(Services):
    """Services that no state can be loaded into."""

    __slots__ = ()

    def load(self, _saved):
        raise StateRefused("no room")
