import asyncio
import time

import pytest
from tests.integration.callback_policy import (
    FAKE_ACTION,
    answered_by,
    assert_host_works,
    assert_works,
)
from tests.integration.guest_text import ACTION, ACTOR, python

from arkml.errors import (
    EntryPointMissing,
    GuestBusy,
    GuestCancelled,
    GuestFailed,
    GuestTimeout,
    GuestTrap,
    UsageError,
)
from arkml.guests.guest import calls_of
from arkml.sessions.results import BOOL

TURNS = 4


async def turns(pause=0.0):
    """Take turns of the event loop, which a call that keeps them from other tasks never ends."""
    for _ in range(TURNS):
        await asyncio.sleep(pause)


async def test_an_awaited_call_returns_what_a_plain_one_does(host):
    guest = host.load(ACTOR)

    assert await guest.call_async("open") == 0
    assert await guest.call_async("step", 3) == 0
    assert await guest.call_async("action", 2) == ACTION
    assert await guest.call_async("announce") is None
    assert_works(guest)


@pytest.mark.parametrize("name", ["spin", "push_for_ever", "submit_for_ever"])
async def test_other_tasks_run_while_a_guest_does(host, name):
    guest = host.load(ACTOR)
    guest.call("open")
    endless = asyncio.create_task(guest.call_async(name, budget=None))
    await turns()
    still_runs = not endless.done()
    endless.cancel()
    with pytest.raises(asyncio.CancelledError):
        await endless

    assert still_runs


async def test_other_tasks_run_while_a_guest_polls(host):
    guest = host.load(ACTOR)
    handle, future = calls_of(guest).services.futures.open(BOOL)
    polling = asyncio.create_task(guest.call_async("poll_until_ready", handle, budget=None))
    await turns(0.002)
    still_polls = not polling.done()
    future.resolve(True)

    assert still_polls
    assert await polling > 64


async def test_two_guests_run_at_the_same_time(host):
    program = host.compile(ACTOR)
    guests = [host.load(program) for _ in range(2)]
    for guest in guests:
        guest.call("open")
    ended = []

    async def run(guest, number):
        for _ in range(3):
            await guest.call_async("burn", 80_000_000, budget=None)
            ended.append(number)
        assert await guest.call_async("step", 4) == 0

    await asyncio.gather(*(run(guest, number) for number, guest in enumerate(guests)))

    assert ended.count(0) == ended.count(1) == 3
    assert ended != sorted(ended)
    assert all(guest.call("action", 3) == ACTION for guest in guests)


async def test_many_guests_take_turns(host):
    program = host.compile(ACTOR)
    guests = [host.load(program) for _ in range(40)]

    async def play(guest):
        assert await guest.call_async("open") == 0
        for rows in range(1, 6):
            assert await guest.call_async("step", rows) == 0
        return await guest.call_async("action", 4)

    assert await asyncio.gather(*map(play, guests)) == [ACTION] * 40


@pytest.mark.parametrize("name", ["spin", "push_for_ever", "submit_for_ever"])
async def test_a_call_can_be_cancelled_wherever_the_guest_is(host, name):
    guest = host.load(ACTOR)
    guest.call("open")
    task = asyncio.create_task(guest.call_async(name, budget=None))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert isinstance(guest.failure, GuestCancelled)
    assert calls_of(guest).services.live_handles == 0
    with pytest.raises(GuestFailed, match=r"cancelled"):
        await guest.call_async("answer")
    assert_host_works(host)


async def test_a_timeout_of_the_embedder_cancels_the_call(host):
    guest = host.load(ACTOR)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(guest.call_async("spin", budget=None), 0.03)

    assert isinstance(guest.failure, GuestCancelled)


async def test_a_call_that_was_never_awaited_never_began(host):
    guest = host.load(ACTOR)
    coroutine = guest.call_async("boom")
    coroutine.close()

    assert guest.failure is None
    assert guest.call("answer") == 42


async def test_a_cancelled_call_does_not_disturb_the_other(host):
    program = host.compile(ACTOR)
    stays, goes = host.load(program), host.load(program)
    stays.call("open")
    going = asyncio.create_task(goes.call_async("submit_for_ever", budget=None))
    staying = asyncio.create_task(stays.call_async("burn_and_submit", 2_000_000, 40, budget=None))
    await asyncio.sleep(0.02)
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    await staying

    assert stays.statistics.submits == 40
    assert stays.call("action", 0) == ACTION


async def test_errors_arrive_through_await(host):
    guest = host.load(ACTOR)
    with pytest.raises(EntryPointMissing):
        await guest.call_async("gone")
    with pytest.raises(UsageError):
        await guest.call_async("burn")
    with pytest.raises(GuestTrap, match="unreachable"):
        await guest.call_async("boom")
    with pytest.raises(GuestFailed):
        await guest.call_async("answer")


async def test_a_policy_may_not_call_its_guest_in_an_awaited_call(host):
    guest = host.load(ACTOR)
    refused = []

    def act(_batch):
        with pytest.raises(GuestBusy):
            guest.call("answer")
        refused.append(True)

    answered_by(guest, act)

    assert await guest.call_async("step", 2) == 0
    assert await guest.call_async("action", 1) == FAKE_ACTION
    assert refused == [True]


async def test_an_awaited_call_may_run_beside_plain_calls_of_other_guests(host):
    spinning, other = host.load(ACTOR), host.load(ACTOR)
    task = asyncio.create_task(spinning.call_async("spin", budget=0.05))
    await asyncio.sleep(0.01)

    assert_works(other)
    with pytest.raises(GuestTimeout):
        await task


async def test_calls_may_go_to_a_thread(host):
    guest = host.load(ACTOR)
    spinning = asyncio.create_task(asyncio.to_thread(guest.call, "spin", budget=None))
    for _ in range(20):
        await asyncio.sleep(0.002)

    assert not spinning.done()
    guest.cancel()
    with pytest.raises(GuestCancelled):
        await spinning


async def test_a_late_task_does_not_keep_the_budget_of_an_early_one(host):
    """The time in which others had their turn is not counted."""
    guest = host.load(ACTOR)

    async def block():
        for _ in range(6):
            time.sleep(0.03)
            await asyncio.sleep(0)

    blocker = asyncio.create_task(block())
    await guest.call_async("burn", 20_000_000, budget=0.15)
    await blocker

    assert guest.failure is None


def test_ctrl_c_ends_an_awaited_sleep_and_the_loop():
    """SIGINT comes 100 ms after the guest fell asleep."""
    script = """
import asyncio
from arkml import Host
from arkml.runtime.wasi.linking import WasiGrant
from tests.integration.guest_text import ACTOR, SLEEPER
from tests.waiting import signal_in_call

async def main():
    await guest.call_async("sleep", 3_600_000_000_000)

with Host(wasi=WasiGrant()) as host:
    guest = host.load(SLEEPER)
    signal_in_call(guest)
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("interrupted")
    print(guest.failure is not None)
    other = host.load(ACTOR)
    print(other.call("answer"))
"""
    run = python(script)

    assert run.stdout.splitlines() == ["interrupted", "True", "42"]
    assert run.stderr == ""


def test_ctrl_c_ends_a_call_of_a_host_that_was_made_inside_the_loop():
    """asyncio's own handler cancels the task that the loop runs."""
    script = """
import asyncio
from arkml import Host
from arkml.errors import GuestCancelled
from arkml.runtime.wasi.linking import WasiGrant
from tests.integration.guest_text import ACTOR, SLEEPER
from tests.waiting import signal_in_call

async def main(text, *arguments):
    with Host(wasi=WasiGrant()) as host:
        guest = host.load(text)
        if text is ACTOR:
            guest.call("open")
        signal_in_call(guest)
        try:
            await guest.call_async(*arguments, budget=None)
        finally:
            print(isinstance(guest.failure, GuestCancelled))

for arguments in ((SLEEPER, "sleep_long"), (ACTOR, "spin"), (ACTOR, "submit_for_ever")):
    try:
        asyncio.run(main(*arguments))
    except KeyboardInterrupt:
        print("interrupted")
"""
    run = python(script)

    assert run.stdout.splitlines() == ["True", "interrupted"] * 3
    assert run.stderr == ""
