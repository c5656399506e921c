import contextlib
import sys
import threading

import numpy as np
import pytest
from tests.integration.callback_policy import assert_host_works, assert_works
from tests.integration.guest_text import ACTION, ACTOR, GUESTS, SLEEPER

from arkml.errors import GuestBusy, GuestCancelled, GuestTimeout
from arkml.guests.guest import calls_of
from arkml.runtime.interrupts import GUARD
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.results import BOOL


def test_two_threads_step_a_fleet_each(make_host, on_thread):
    host = make_host()
    program = host.compile(GUESTS / "c_applet.wasm")
    alone = host.fleet(program, 1)
    fleets = [host.fleet(program, 20) for _ in range(2)]

    def play(fleet):
        for _ in range(60):
            assert fleet.update() == {}
        return fleet.call("mean_return").values

    running = [on_thread(lambda fleet=fleet: play(fleet)) for fleet in fleets]
    returns = [one.result() for one in running]
    for _ in range(60):
        alone.update()

    assert returns[0] == returns[1] == alone.call("mean_return").values * 20
    assert all(fleet.statistics.submits == 1200 for fleet in fleets)


def test_each_thread_has_its_guest(host, on_thread):
    program = host.compile(ACTOR)

    def play():
        guest = host.load(program)
        for _ in range(20):
            assert_works(guest)
        guest.close()
        return "fine"

    running = [on_thread(play) for _ in range(6)]

    assert [one.result() for one in running] == ["fine"] * 6


def test_hosts_may_be_made_used_and_closed_on_any_thread(make_host, on_thread):
    def play():
        host = make_host()
        guest = host.load(ACTOR)
        assert_works(guest)
        host.close()
        return "fine"

    running = [on_thread(play) for _ in range(4)]

    assert [one.result() for one in running] == ["fine"] * 4


def test_a_guest_may_go_from_thread_to_thread(host, on_thread):
    guest = host.load(ACTOR)
    assert on_thread(lambda: guest.call("open")).result() == 0
    assert guest.call("push_many", 3) == 0
    assert on_thread(lambda: guest.call("submit", 3)).result() == 0

    assert guest.call("action", 2) == ACTION
    assert on_thread(lambda: guest.call("close")).result() == 0
    on_thread(guest.close).result()


def test_of_threads_that_race_for_a_guest_one_wins_and_the_others_are_told(host, on_thread):
    guest = host.load(ACTOR)
    guest.call("open")
    start = threading.Barrier(4)

    def race():
        start.wait()
        done = refused = 0
        for _ in range(300):
            try:
                assert guest.call("step", 4) == 0
                done += 1
            except GuestBusy:
                refused += 1
        return done, refused

    running = [on_thread(race) for _ in range(4)]
    outcomes = [one.result() for one in running]

    assert all(done + refused == 300 for done, refused in outcomes)
    assert guest.statistics.submits == sum(done for done, _ in outcomes) > 0
    assert guest.call("action", 3) == ACTION


@contextlib.contextmanager
def closed_meanwhile(function, close):
    """Have `close` called by another thread as soon as this one calls a function of that name."""

    def called(frame, event, _argument):
        if event == "call" and frame.f_code.co_name == function:
            sys.setprofile(None)
            thread = threading.Thread(target=close)
            thread.start()
            thread.join()

    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_a_guest_that_two_threads_close_is_freed_once(make_host):
    host = make_host()
    guest = host.load(GUESTS / "c_applet.wasm")
    guest.update()
    used = host.account.run_seconds
    with closed_meanwhile("kept", guest.close):
        guest.close()

    assert host.account.run_seconds == used


def test_a_host_that_two_threads_close_is_closed_once(make_host):
    host = make_host()
    guest = host.load(GUESTS / "c_applet.wasm")
    users = GUARD._users
    with closed_meanwhile("held_back", host.close):
        host.close()

    assert GUARD._users == users - 1
    assert calls_of(guest).instance.is_closed


def test_a_guest_that_computes_leaves_the_interpreter_to_others(host, on_thread):
    guest = host.load(ACTOR)
    running = on_thread(lambda: guest.call("spin", budget=None), announced=True)
    guest.cancel()  # this thread has the interpreter, though the guest never ends

    assert isinstance(running.result(), GuestCancelled)


def test_deadlines_of_guests_on_several_threads_are_kept(host, on_thread):
    guests = [host.load(ACTOR) for _ in range(4)]

    running = [on_thread(lambda guest=guest: guest.call("spin", budget=0.1)) for guest in guests]

    assert [type(one.result()) for one in running] == [GuestTimeout] * 4
    assert all(guest.account.run_seconds >= 0.1 for guest in guests)


def test_one_host_answers_alike_on_every_thread(make_host, on_thread):
    """Noise hangs on seed, session and agent, not on who runs first."""

    def play(threads):
        host = make_host(seed=5)
        program = host.compile(GUESTS / "ark_api" / "cmdlet_infer_016.wasm")
        guests = [host.load(program, name=f"g{number}") for number in range(3)]
        if threads:
            running = [on_thread(lambda g=guest: g.run_cmdlet("infer det")) for guest in guests]
            return [one.result() for one in running]
        return [guest.run_cmdlet("infer det") for guest in guests]

    assert play(threads=True) == play(threads=False)


def test_loading_while_others_run_disturbs_nobody(host, on_thread):
    program = host.compile(ACTOR)
    guest = host.load(program)
    guest.call("open")
    stop = threading.Event()

    def churn():
        count = 0
        while not stop.is_set():
            with host.load(program) as other:
                assert other.call("open") == 0
                assert other.call("step", 70) == 0  # its region grows
                count += 1
        return count

    churning = on_thread(churn)
    actions = []
    for rows in range(1, 200):
        assert guest.call("step", rows) == 0
        actions.append(guest.call("action", rows - 1))
    stop.set()

    assert churning.result() > 0
    assert np.unique(actions).tolist() == [ACTION]


@pytest.mark.parametrize("name", ["spin", "push_for_ever", "submit_for_ever"])
def test_a_call_can_be_cancelled_from_another_thread(host, on_thread, name):
    guest = host.load(ACTOR)
    guest.call("open")
    running = on_thread(lambda: guest.call(name, budget=None), announced=True)
    guest.cancel()
    outcome = running.result()

    assert isinstance(outcome, GuestCancelled)
    assert guest.failure is outcome
    assert calls_of(guest).services.live_handles == 0
    assert_host_works(host)


def test_a_sleep_and_a_poll_can_be_cancelled_from_another_thread(make_host, on_thread):
    host = make_host(wasi=WasiGrant())
    sleeper, poller = host.load(SLEEPER), host.load(ACTOR)
    handle, _ = calls_of(poller).services.futures.open(BOOL)
    for guest, arguments in ((sleeper, ("sleep_long",)), (poller, ("poll_until_ready", handle))):
        running = on_thread(lambda g=guest, a=arguments: g.call(*a, budget=None), announced=True)
        guest.cancel()

        assert isinstance(running.result(), GuestCancelled)


def test_cancelling_between_calls_does_nothing(host):
    guest = host.load(ACTOR)
    guest.cancel()

    assert guest.call("answer") == 42
    guest.cancel()
    assert_works(guest)
