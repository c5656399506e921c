"""Frames of a game's fleets: awaited beside other tasks, and the guests that took longest."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.integration.guest_text import LOG, function, logging_of, module

from arkml import Fleet, GuestTime, Host, Limits
from arkml.errors import GuestBusy, GuestCancelled, UsageError
from arkml.guests import fleet_call
from arkml.guests.guest import calls_of

APPLET = Path(__file__).parents[2] / "fixtures" / "guests" / "c_applet.wasm"
NPC = APPLET.with_name("c_npc.wasm")
LATE = module(
    *logging_of("late")[:1],
    function(
        "ark_applet_update",
        f"""(local $n i32)
        (if (i32.load8_u (i32.const 9)) (then {logging_of("late")[1]}))
        (local.set $n (i32.mul (i32.load8_u (i32.const 8)) (i32.const 1000000)))
        (loop $more
          (local.set $n (i32.sub (local.get $n) (i32.const 1)))
          (br_if $more (i32.gt_s (local.get $n) (i32.const 0))))
        (i32.store (i32.const 16) (i32.add (i32.load (i32.const 16)) (i32.const 1)))
        (loop $ever (br_if $ever (i32.load8_u (i32.const 10))))""",
    ),
    function("frames", "(i32.load (i32.const 16))", result="i32"),
    uses=(LOG,),
)
"""A guest that spins for n million rounds a frame, n at 8, logs if 9 is set, and ends unless 10."""
LONG = Limits(run_seconds=None, call_seconds=None)


async def test_an_awaited_frame_returns_what_a_plain_one_does():
    with Host() as host, host.fleet(LATE, 4) as fleet:
        fleet.guests[2].close()
        failures = await fleet.update_async()

        assert list(failures) == [2]
        assert await fleet.update_async() == fleet.update() == {}
        assert fleet.call("frames", only=[0, 1]).values == [3, 3]


async def test_the_frames_of_several_fleets_run_at_the_same_time():
    met = threading.Barrier(2, timeout=60)

    def policy(observations):
        met.wait()  # the other fleet is in its frame as well, or this raises
        return observations[:, :1]

    with Host(policy=policy) as host, host.fleet(APPLET, 3) as one, host.fleet(APPLET, 2) as other:
        found = await asyncio.gather(one.update_async(), other.update_async())

        assert found == [{}, {}]


async def test_other_tasks_run_and_calls_are_refused_during_an_awaited_frame():
    with Host(limits=LONG) as host, host.fleet(LATE, 2) as fleet:
        fleet.guests[1].write_memory(10, b"\1")
        frame = asyncio.create_task(fleet.update_async(budget=None))
        await _begun(fleet)
        with pytest.raises(GuestBusy):
            await fleet.update_async()
        frame.cancel()
        with pytest.raises(asyncio.CancelledError):
            await frame

        assert isinstance(fleet.guests[1].failure, GuestCancelled)
        assert fleet.guests[0].failure is None
        assert list(fleet.update()) == [1]


async def test_a_frame_that_is_cancelled_twice_has_ended_when_its_task_has():
    with Host(limits=LONG) as host, host.fleet(LATE, 1) as fleet:
        fleet.guests[0].write_memory(10, b"\1")
        frame = asyncio.create_task(fleet.update_async(budget=None))
        await _begun(fleet)
        frame.cancel()
        await asyncio.sleep(0)
        frame.cancel()
        with pytest.raises(asyncio.CancelledError):
            await frame

        assert isinstance(fleet.guests[0].failure, GuestCancelled)


def test_guests_for_which_an_exception_has_no_time_are_let_go_before_the_next_call(monkeypatch):
    monkeypatch.setattr(fleet_call, "_PATIENCE", -1.0)
    cuts = iter([False, True])

    def policy(observations):
        if next(cuts):
            raise KeyboardInterrupt
        return observations[:, :1]

    with Host(policy=policy) as host, host.fleet(APPLET, 3) as fleet, host.load(LATE) as other:
        fleet.update()
        open_sessions = [calls_of(guest).services for guest in fleet.guests]
        with pytest.raises(KeyboardInterrupt):
            fleet.update()

        failures = [guest.failure for guest in fleet.guests]
        text = "its call was cancelled (KeyboardInterrupt)"
        assert [str(error) for error in failures] == [text] * 3
        assert [calls_of(guest).is_given_up for guest in fleet.guests] == [True] * 3
        assert [len(services.sessions._handles) for services in open_sessions] == [1] * 3
        fleet.guests[0].close()
        assert list(fleet.update()) == [0, 1, 2]  # refused, and let go
        other.call("frames")
        assert [calls_of(guest).is_given_up for guest in fleet.guests] == [False] * 3
        assert [len(services.sessions._handles) for services in open_sessions] == [0] * 3


async def _begun(fleet: Fleet) -> None:
    """Wait until the last guest of a fleet is inside of its frame."""
    guard = fleet._parts.call_guard
    while guard._owner is None:
        await asyncio.sleep(0)
    view = fleet.guests[-1]._instance._sandbox.memory
    while not view.pages or not np.frombuffer(view.whole(), np.uint32, 1, 16)[0]:
        view.pages = 1
        await asyncio.sleep(0)


def test_the_guests_that_took_longest_come_first():
    with Host(threads=1) as host, host.fleet(LATE, 6) as fleet:
        for number, rounds in ((4, 30), (1, 8)):
            fleet.guests[number].write_memory(8, bytes([rounds]))
        fleet.update()
        slowest = fleet.slowest(3)

        assert [one.guest for one in slowest[:2]] == [fleet.guests[4], fleet.guests[1]]
        assert all(isinstance(one, GuestTime) for one in slowest)
        assert len(slowest) == 3
        assert slowest[0].milliseconds > slowest[1].milliseconds > slowest[2].milliseconds > 0
        assert slowest[0].usage.wasm_seconds == pytest.approx(slowest[0].milliseconds / 1e3)
        assert len(fleet.slowest(100)) == 6


def test_the_time_of_a_frame_is_by_kind_and_of_this_frame_alone(caplog):
    caplog.set_level("INFO")
    with Host(threads=1) as host, host.fleet(LATE, 3) as fleet:
        fleet.guests[1].write_memory(9, b"\1")
        fleet.update()
        (logging,) = (one for one in fleet.slowest(3) if one.guest is fleet.guests[1])
        first = logging.usage
        fleet.update()
        (logging,) = (one for one in fleet.slowest(3) if one.guest is fleet.guests[1])
        account = fleet.guests[1].account

        assert first.import_seconds > 0
        assert logging.usage.import_seconds > 0
        assert first.import_seconds + logging.usage.import_seconds == pytest.approx(
            account.import_seconds
        )
        assert first.wasm_seconds + logging.usage.wasm_seconds <= account.wasm_seconds
        assert logging.usage.total_bytes == 0
        fleet.guests[1].write_memory(9, b"\0")
        fleet.update()
        (silent,) = (one for one in fleet.slowest(3) if one.guest is fleet.guests[1])
        assert silent.usage.import_seconds == 0


@pytest.mark.parametrize("is_given", [False, True], ids=["model", "policy"])
def test_runs_of_policies_are_those_of_the_last_frame(is_given):
    policy = (lambda observations: -observations[:, :1]) if is_given else None
    name = "policy_seconds" if is_given else "model_seconds"
    with Host(policy=policy, threads=1) as host, host.fleet(APPLET, 3) as fleet:
        for _ in range(50):
            fleet.update()
        before = [getattr(guest.account, name) for guest in fleet.guests]
        fleet.update()
        found = {one.guest: getattr(one.usage, name) for one in fleet.slowest(3)}
        after = [getattr(guest.account, name) for guest in fleet.guests]

        for guest, was, now in zip(fleet.guests, before, after, strict=True):
            assert found[guest] == pytest.approx(now - was)
            assert 0 < found[guest] < was
        for _ in range(50):
            fleet.update()  # nobody looks at the accounts meanwhile
        later = {one.guest: getattr(one.usage, name) for one in fleet.slowest(3)}
        for guest, was in zip(fleet.guests, after, strict=True):
            assert 0 < later[guest] < getattr(guest.account, name) - was


def test_a_guest_that_failed_or_is_closed_takes_no_time():
    with Host() as host, host.fleet(LATE, 3) as fleet:
        fleet.guests[0].write_memory(10, b"\1")
        fleet.update(budget=0.05)
        fleet.update()
        fleet.guests[2].close()

        assert [one.guest for one in fleet.slowest()] == [fleet.guests[1], fleet.guests[0]]
        assert fleet.slowest()[1].milliseconds == 0


@pytest.mark.parametrize("count", [0, -1, 2.5, "5", None, True])
def test_a_number_of_guests_that_is_none_is_refused(count):
    with (
        Host() as host,
        host.fleet(LATE, 1) as fleet,
        pytest.raises(UsageError, match=r"count is .*: it takes a whole number from 1"),
    ):
        fleet.slowest(count)


def test_mods_that_do_as_they_should_live_beside_one_that_spins():
    with Host(limits=Limits.game(), policy=_steer) as host, host.fleet(NPC, 300) as crowd:
        with host.fleet(LATE, 3) as mods:
            mods.guests[1].write_memory(10, b"\1")
            failed = [list(mods.update()) for _ in range(3)]
        crowd.write("player", np.ones((300, 2), np.float32))
        failures = [crowd.update() for _ in range(60)]
        positions = crowd.read("position", np.float32, 2)

        assert failed == [[1]] * 3
        assert failures == [{}] * 60
        assert (positions > 0).all()


def test_frames_with_calls_between_them_are_the_same_as_frames_alone(caplog):
    caplog.set_level("INFO")
    seen = []
    for calls in (0, 1, 2, 3):
        with Host(policy=_steer) as host, host.fleet(NPC, 5) as crowd:
            rng = np.random.default_rng(0)
            for frame in range(12):
                crowd.write("player", rng.normal(size=(5, 2)).astype(np.float32))
                for _ in range(calls if frame % 4 < 2 else 0):
                    crowd.call("hit", 0)
                assert crowd.update() == {}
            seen.append(crowd.read("position", np.float32, 2))
            assert crowd.statistics.submits == 60

    for other in seen[1:]:
        assert np.array_equal(seen[0], other)


def test_guests_go_back_to_their_loops_when_no_call_comes_between():
    with Host(policy=_steer) as host, host.fleet(NPC, 3) as crowd:
        lockstep, places = crowd._parts.lockstep, [calls_of(guest).place for guest in crowd.guests]

        def are_in_loops():
            return [lockstep.futures[place] != 0 for place in places]

        crowd.update()
        first = are_in_loops()
        found = []
        for has_call in (True, True, False, False, True):
            if has_call:
                crowd.call("hit", 0.1)
            crowd.update()
            found.append(are_in_loops())

        assert first == [True] * 3
        assert found == [[one] * 3 for one in (False, False, True, True, False)]


def _steer(seen):
    return seen[:, :2] - seen[:, 2:]
