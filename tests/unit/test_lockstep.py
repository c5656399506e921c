"""Calls of many guests in lockstep, by guests of a few lines."""

import numpy as np
import pytest

from arkml.errors import GuestBusy
from arkml.limits import Limits
from arkml.runtime import account as accounts
from arkml.runtime import lockstep as lockstep_module
from arkml.runtime import rounds
from arkml.runtime.account import Account, counted_seconds
from arkml.runtime.columns.slabs import Columns
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.engine import Engine
from arkml.runtime.exported_function import ResultRoom, calls_of
from arkml.runtime.lockstep import Lockstep
from arkml.runtime.sandbox import Sandbox
from arkml.runtime.shim import control_block as at

GUEST = b"""(module
  (import "ark-time-v1" "time__time_utc" (func $utc (param i32)))
  (memory (export "memory") 1)
  (func (export "frame")
    (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
    (if (i32.eq (i32.load (i32.const 0)) (i32.load (i32.const 4))) (then unreachable)))
  (func (export "sum") (param i32 i32) (result i32)
    (i32.add (local.get 0) (i32.add (local.get 1) (i32.load (i32.const 0)))))
  (func (export "ask") (call $utc (i32.const 16)))
  (func (export "fail") (result i32) unreachable)
  (func (export "spin") (loop $more (br $more))))"""
FRAMES, TRAPS_AT = 0, 4  # addresses in the guest's memory


@pytest.fixture(scope="module")
def engine():
    made = Engine(Limits())
    yield made
    made.close()


@pytest.fixture
def make(engine):
    """Make guests whose calls are in one lockstep."""
    module = CompiledModule(engine, GUEST, "guest", Limits())
    together, columns = Lockstep(engine.arena), Columns(engine.arena, Limits())
    made = []

    def guests(count):
        new = [Sandbox(engine, module, columns, together, None) for _ in range(count)]
        made.extend(new)
        return new

    yield guests
    for sandbox in made:
        sandbox.close()


def go_on():
    """Let a round go on, as a check without a signal does."""


def free_blocks(arena):
    """Where the next control blocks would lie."""
    blocks = [arena.allocate(at.CONTROL_SIZE) for _ in range(4)]
    for block in blocks:
        arena.free(block, at.CONTROL_SIZE)
    return sorted(blocks)


def places(guests):
    return tuple(guest.place for guest in guests)


def loops(guests):
    return calls_of([guest.loop_function("frame") for guest in guests])


def frames(guest):
    guest.memory.pages = 1
    return int.from_bytes(guest.memory.read(FRAMES, 4), "little")


def trap_at(guest, frame):
    guest.memory.pages = 1
    guest.memory.write(TRAPS_AT, frame.to_bytes(4, "little"))


def run_frame(guests):
    together, chosen = guests[0].lockstep, places(guests)
    together.allow(1.0)
    together.begin_frames(chosen, loops(guests))
    return together.advance(chosen, go_on)


def test_guests_take_the_first_place_that_is_free(make):
    guests = make(4)
    first = places(guests)
    for guest in (guests[2], guests[1]):
        guest.close()

    assert first == (0, 1, 2, 3)
    assert places(make(3)) == (1, 2, 4)


def test_a_guest_that_is_refused_in_a_round_leaves_its_place_and_its_column_memory(make, engine):
    guests = make(3)
    together = guests[0].lockstep
    guests[1].close()
    before = free_blocks(engine.arena)
    together._rounds._state.runs = 1
    for _ in range(3):
        with pytest.raises(GuestBusy, match="cannot be joined"):
            make(1)
    together._rounds._state.runs = 0

    assert free_blocks(engine.arena) == before
    assert places(make(2)) == (1, 3)


def test_calls_end_with_results_side_by_side(make):
    guests = make(3)
    together, chosen = guests[0].lockstep, places(guests)
    room = ResultRoom(guests[0].entry("sum"), [guest.function("sum") for guest in guests])
    room.set_arguments((3, 4), None, 3)
    together.allow(None)
    together.begin_calls(chosen, room.calls)
    turn = together.advance(chosen, go_on)
    failed = together.end(turn.ended)

    assert [list(part) for part in turn[:3]] == [[0, 1, 2], [], []]
    assert failed == []
    assert room.results() == [7, 7, 7]
    assert together.futures.tolist() == [0, 0, 0]


def test_the_calls_that_failed_are_named_when_they_are_deleted(make):
    guests = make(3)
    together, chosen = guests[0].lockstep, places(guests)
    calls = [guests[n].entry("fail" if n == 1 else "frame").ready() for n in range(3)]
    together.allow(None)
    together.begin_calls(chosen, np.array(calls, np.uint64))
    failed = together.end(together.advance(chosen, go_on).ended)
    arena = guests[1].engine.arena
    trap = arena.numbers[(guests[1].control + at.TRAP) >> 3]

    assert failed == [1]
    assert trap != 0


def test_a_guest_is_parked_at_the_end_of_each_frame_in_the_same_call(make):
    guests = make(3)
    seen = []
    for done in range(1, 4):
        turn = run_frame(guests)
        seen.append(list(guests[0].lockstep.futures))
        assert [len(part) for part in turn[:3]] == [0, 0, 0]
        assert [frames(guest) for guest in guests] == [done] * 3

    assert seen[0] == seen[1] == seen[2]
    assert not any(guests[0].lockstep.is_in_frame(place) for place in range(3))


def test_a_call_lets_a_parked_guest_out_of_its_loop_and_runs_nothing_else(make):
    guests = make(2)
    together = guests[0].lockstep
    run_frame(guests)
    entry = guests[0].entry("sum")
    entry.set_arguments((1, 1))
    together.begin(0, entry.ready())
    together.advance((0,), go_on)
    together.end((0,))

    assert entry.result() == 3  # one frame
    assert together.futures[0] == 0
    assert together.futures[1] != 0
    run_frame(guests)
    assert [frames(guest) for guest in guests] == [2, 2]


def test_dropping_a_parked_guest_runs_nothing_of_it(make):
    (guest,) = make(1)
    run_frame([guest])
    guest.lockstep.drop(0)
    guest.lockstep.drop(0)

    assert guest.lockstep.futures.tolist() == [0]
    assert frames(guest) == 1


def test_a_trap_in_a_frame_ends_the_loop_of_its_guest_only(make):
    guests = make(3)
    trap_at(guests[1], 2)
    run_frame(guests)
    turn = run_frame(guests)
    in_frame = [guests[0].lockstep.is_in_frame(place) for place in range(3)]
    failed = guests[0].lockstep.end(turn.ended)

    assert list(turn.ended) == failed == [1]
    assert in_frame == [False, True, False]


def test_a_loop_runs_ahead_as_many_frames_as_it_is_told(make):
    guests = make(2)
    together, chosen = guests[0].lockstep, np.array([0, 1])
    run_frame(guests)
    together.run_ahead(chosen, 3)
    ended, submits = together.resume(chosen, go_on)

    assert ended.tolist() == [True, True]
    assert submits.tolist() == [False, False]
    assert [frames(guest) for guest in guests] == [5, 5]
    assert together.frames(chosen).tolist() == [5, 5]


def test_a_guest_that_calls_the_host_is_left_to_its_fiber(make):
    guests = make(2)
    together = guests[0].lockstep
    calls = [guests[0].entry("ask").ready(), guests[1].entry("frame").ready()]
    together.allow(None)
    together.begin_calls((0, 1), np.array(calls, np.uint64))
    turn = together.advance((0, 1), go_on)

    assert list(turn.ended) == [1]
    assert list(turn.other) == [0]
    assert together.is_in_frame(0)


def test_a_guest_whose_turn_ran_out_runs_once_more_and_is_then_left_to_its_fiber(make, engine):
    (guest,) = make(1)
    together = guest.lockstep
    together.allow(None)
    together.begin_calls((0,), np.array([guest.entry("spin").ready()], np.uint64))
    engine.ticker.running.add(id(guest))
    engine.ticker.wake()
    try:
        turn = together.advance((0,), go_on)
    finally:
        engine.ticker.running.discard(id(guest))

    assert list(turn.other) == [0]
    assert turn.is_late
    assert together.used[0] > 0


class Clocks:
    """Clocks that stand still: of the wall and of the thread's processor time."""

    def __init__(self, monkeypatch):
        self.wall, self.processor = 1000.0, 50.0
        monkeypatch.setattr(lockstep_module, "_clock", lambda: self.wall)
        monkeypatch.setattr(rounds, "_clock", lambda: self.wall)
        monkeypatch.setattr(accounts, "_processor_clock", lambda: self.processor)

    def run(self, wall, processor):
        self.wall += wall
        self.processor += processor


SHORT, HELD_UP = (0.0005, 0.0005), (0.005, 0.0002)  # seconds by the wall, and of processor time


@pytest.fixture
def clocks(monkeypatch):
    return Clocks(monkeypatch)


@pytest.mark.parametrize("waits_inside", [True, False])
def test_a_guest_that_was_held_up_is_not_charged_again_for_short_stretches(
    make, clocks, waits_inside
):
    (guest,) = make(1)
    account = Account(guest.lockstep, guest.place, waits_inside=waits_inside)
    guest.lockstep.read_clock(clocks.wall)
    for stretch in (*[SHORT] * 10, HELD_UP) * 3:
        clocks.run(*stretch)
        account.charge_import(stretch[0])

    assert account.used == pytest.approx(3 * (10 * 0.0005 + 0.0002))
    assert account.extra == pytest.approx(3 * 0.0048 if waits_inside else 0.0)


def test_guests_of_a_round_are_not_charged_for_each_other(make, clocks, monkeypatch):
    guests = make(11)
    together, chosen = guests[0].lockstep, places(guests)
    stretches = iter([*[SHORT] * 20, HELD_UP, HELD_UP])  # two for each

    def poll(_):
        clocks.run(*next(stretches))
        return False

    monkeypatch.setattr(rounds, "_poll", poll)
    together._rounds._library = None  # in Python, as the clocks are
    together.allow(None)
    together.begin_frames(chosen, loops(guests))
    together.advance(chosen, go_on)  # each twice: they seem to be at the ends of their turns

    assert together.used[:10] == pytest.approx([2 * 0.0005] * 10)
    assert together.used[10] == pytest.approx(2 * 0.0002)


def test_waits_and_late_charges_are_not_taken_for_processor_time(make, clocks):
    """A guest that is charged for a wait, or for a model afterwards, pays for what it runs."""
    (guest,) = make(1)
    account = Account(guest.lockstep, guest.place)
    guest.lockstep.read_clock(clocks.wall)
    account.add_wait(0.25, is_charged=True)
    account.add_run(0.25, is_of_guest=True)
    clocks.run(0.125, 0.125)
    account.charge_import(0.125)

    assert account.used == pytest.approx(0.25 + 0.25 + 0.125)


def test_what_another_lockstep_read_is_not_counted_with_its_own_charges(make, clocks):
    """Between two readings that it does not know, it cannot know what was charged."""
    (guest,) = make(1)
    account = Account(guest.lockstep, guest.place)
    guest.lockstep.read_clock(clocks.wall)
    clocks.run(0.0005, 0.0005)
    account.charge_import(0.0005)
    counted_seconds(0.0005)  # as another one does
    clocks.run(0.005, 0.004)
    account.charge_import(0.005)

    assert account.used == pytest.approx(0.0005 + 0.004)


def test_a_guest_near_the_end_of_its_budget_is_left_to_its_fiber(make):
    guests = make(2)
    together = guests[0].lockstep
    calls = [guests[0].entry("ask").ready(), guests[1].entry("frame").ready()]
    together.allow(0.0)  # the alert is at 0 seconds
    together.begin_calls((0, 1), np.array(calls, np.uint64))
    turn = together.advance((0, 1), go_on)

    assert together.alert == 0
    assert (list(turn.ended), list(turn.other)) == ([1], [0])


def test_a_guest_that_is_freed_takes_its_call_with_it(make):
    guests = make(2)
    together = guests[0].lockstep
    run_frame(guests)
    guests[0].close()
    run_frame(guests[1:])

    assert together.futures[0] == 0
    assert frames(guests[1]) == 2


def test_the_slot_of_the_loop_is_set_once(make):
    (guest,) = make(1)
    loop = guest.loop("frame")

    assert guest.loop("frame") is loop
    assert guest.loop("ask") is None  # the slot is taken
    assert guest.loop("sum") is None
    assert make(1)[0].loop("gone") is None
