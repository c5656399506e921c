"""Frames of a fleet: each guest is parked at the end of its frame, in one call."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest
from tests.integration.callback_policy import CallbackPolicy
from tests.integration.command_line import ENVIRONMENT, GUESTS, ROOT
from tests.integration.guest_text import (
    ACTIONS,
    ALLOCATOR,
    FEATURES,
    HANDLE,
    INPUT,
    LOG,
    MODEL,
    POINTMASS,
    POLL_BOOL,
    PUSH,
    RETURN,
    START,
    SUBMIT,
    data,
    function,
    i32,
    logging_of,
    module,
    opening,
    python,
)

from arkml.abi.codes import ErrorCode
from arkml.envs.core.fleet_env import FleetEnv
from arkml.errors import (
    EntryPointMissing,
    GuestBusy,
    GuestCancelled,
    GuestFailed,
    GuestTimeout,
    GuestTrap,
)
from arkml.guests.guest import calls_of
from arkml.limits import Limits
from arkml.runtime import bindings, fiber, lockstep, rounds
from arkml.runtime.deadline import TURN_TICKS
from arkml.runtime.mappings import MAPPINGS_PER_GUEST
from arkml.runtime.store import GuestStore
from arkml.sessions.results import BOOL

SCRIPT, BEGUN, ENDED, LENGTH, TURNS = 4096, 4100, 4104, 4108, 4112
ACT, SKIP, TWICE, TRAP, SPIN, LATE_TRAP, RETURNS, READS, POLLS, BURNS = range(10)
_RUNNING_TEXT, _SAY_RUNNING = logging_of("running", at=512)
_SUBMIT_ONE = f"""
  (drop (call ${PUSH} (i64.load {i32(HANDLE)}) (i64.const 1) {i32(0)} (f32.const 0)
    {i32(FEATURES)} {i32(2)} (f32.const 0)))
  (drop (call ${SUBMIT} (i64.load {i32(HANDLE)}) {i32(ACTIONS)} {i32(1)} {i32(0x18000)}
    {i32(1)}))"""


def _count(address):
    return f"(i32.store {i32(address)} (i32.add (i32.load {i32(address)}) (i32.const 1)))"


def _in(kind, body):
    return f"(if (i32.eq (local.get $script) {i32(kind)}) (then {body}))"


PLAYER = module(
    data(MODEL, POINTMASS),
    _RUNNING_TEXT,
    ALLOCATOR,
    opening("open", MODEL, len(POINTMASS), HANDLE),
    function(
        "ark_applet_update",
        f"""(local $script i32) (local $turns i32) (local.set $script (i32.load8_u {i32(SCRIPT)}))
        {_count(BEGUN)}
        {_in(TRAP, "(call $deeper)")}
        {_in(SPIN, f"{_SAY_RUNNING} (loop $more (br $more))")}
        {_in(RETURNS, f"(drop (call ${RETURN} {i32(BEGUN)} {i32(4)} {i32(1)}))")}
        {_in(READS, f"(i32.store {i32(LENGTH)} (call ${INPUT} {i32(5000)} {i32(12)} {i32(0)}))")}
        {
            _in(
                POLLS,
                f"(local.set $turns {i32(40)}) (loop $more (drop (call ${POLL_BOOL}"
                f" (i64.load {i32(LENGTH)}) {i32(5000)}))"
                " (local.set $turns (i32.sub (local.get $turns) (i32.const 1)))"
                " (br_if $more (local.get $turns)))",
            )
        }
        {
            _in(
                BURNS,
                f"(local.set $turns (i32.load {i32(TURNS)})) (loop $more"
                " (local.set $turns (i32.sub (local.get $turns) (i32.const 1)))"
                " (br_if $more (local.get $turns)))",
            )
        }
        (if (i32.lt_u (i32.sub (local.get $script) {i32(SKIP)}) (i32.const 1)) (then)
          (else {_SUBMIT_ONE}))
        {_in(TWICE, _SUBMIT_ONE)}
        {_in(LATE_TRAP, "(call $deeper)")}
        {_count(ENDED)}""",
    ),
    "(func $deeper (call $deepest)) (func $deepest unreachable)",
    function("sum", "(i32.add (local.get 0) (local.get 1))", "(param i32 i32)", "i32"),
    function("begun", f"(i32.load {i32(BEGUN)})", result="i32"),
    function("take", f"(call ${INPUT} {i32(5000)} {i32(12)} {i32(0)})", "(param i32 i32)", "i32"),
    uses=(START, PUSH, SUBMIT, LOG, RETURN, INPUT, POLL_BOOL),
    memory='(memory (export "memory") 4)',
)
"""An applet that does in each frame what is written at SCRIPT, and counts beginnings and ends."""


def script(guest, kind):
    guest.write_memory(SCRIPT, bytes([kind]))


def word(guest, address):
    return int.from_bytes(guest.read_memory(address, 4), "little")


def frames(fleet):
    """How many frames each guest has begun, and how many it has ended."""
    return [(word(guest, BEGUN), word(guest, ENDED)) for guest in fleet.guests]


def put(guest, position):
    guest.write_memory(FEATURES, np.float32([position, 0.5]).tobytes())


def action(guest):
    return float(np.frombuffer(guest.read_memory(ACTIONS, 4), "<f4")[0])


@pytest.fixture
def fleet(host):
    """Five guests of PLAYER with open sessions; guest n is at position n."""
    made = host.fleet(PLAYER, 5)
    assert made.call("open").values == [0] * 5
    for number, guest in enumerate(made.guests):
        put(guest, number)
    return made


def in_loops(fleet):
    """Which guests are parked in their loops."""
    return [
        calls_of(guest).fiber.lockstep.futures[calls_of(guest).place] != 0 for guest in fleet.guests
    ]


# Where a frame ends.


def test_when_an_update_returns_nothing_of_the_next_frame_has_run(fleet):
    script(fleet.guests[1], TWICE)
    script(fleet.guests[2], SKIP)
    for done in range(1, 5):
        assert fleet.update() == {}
        assert frames(fleet) == [(done, done)] * 5

    assert fleet.statistics.submits == 4 * (3 + 2)
    assert in_loops(fleet) == [True] * 5


def test_frames_act_as_calls_of_the_same_export_do(make_host):
    """The same guests, by frames and by calls, frame after frame."""

    def play(step):
        fleet = make_host(seed=3).fleet(GUESTS / "c_applet.wasm", 4)
        returns = []
        for number in range(40):
            if number == 20:
                fleet.guests[2].call("resize", 11)
            step(fleet)
            returns.append(fleet.call("mean_return").values)
        return returns, fleet.statistics

    by_frames = play(lambda fleet: fleet.update())
    by_calls = play(lambda fleet: fleet.call("ark_applet_update"))

    assert by_frames == by_calls
    assert by_frames[1].submits >= 160


def test_a_guest_is_in_one_call_frame_after_frame(fleet, monkeypatch):
    fleet.update()
    begun = []
    call = lockstep._call_async
    monkeypatch.setattr(lockstep, "_call_async", lambda *raw: begun.append(raw) or call(*raw))
    for _ in range(3):
        fleet.update()

    assert begun == []


def test_a_frame_that_returns_something_is_called_again_each_time(host):
    fleet = host.fleet(module(function("ark_applet_update", i32(7), result="i32")), 2)

    assert [fleet.update() for _ in range(3)] == [{}, {}, {}]
    assert in_loops(fleet) == [False, False]


def test_a_module_without_a_frame_is_refused_each_time(host):
    fleet = host.fleet(module(function("answer", i32(42), result="i32")), 2)
    for _ in range(2):
        with pytest.raises(EntryPointMissing, match="ark_applet_update"):
            fleet.update()

    assert fleet.call("answer").values == [42, 42]


# Between two frames.


def test_memory_is_read_and_written_between_frames(fleet):
    fleet.update()
    for number, guest in enumerate(fleet.guests):
        put(guest, 10 * number)
    fleet.update()

    assert [action(guest) for guest in fleet.guests] == [-10 * n - 0.75 for n in range(5)]


def test_a_guest_is_called_between_frames_and_nothing_else_of_it_runs(fleet):
    fleet.update()
    answers = [fleet.guests[3].call("sum", 4, number) for number in range(3)]

    assert answers == [4, 5, 6]
    assert in_loops(fleet) == [True, True, True, False, True]
    assert frames(fleet) == [(1, 1)] * 5
    assert fleet.update() == {}
    assert frames(fleet) == [(2, 2)] * 5
    assert [action(guest) for guest in fleet.guests] == [-n - 0.75 for n in range(5)]


def test_a_guest_runs_a_frame_by_itself_between_frames_of_the_fleet(fleet):
    fleet.update()
    fleet.guests[0].update()
    fleet.update()

    assert frames(fleet) == [(3, 3), *[(2, 2)] * 4]


def test_the_fleet_is_called_between_frames_with_arguments_and_results(fleet):
    for done in range(1, 4):
        fleet.update()
        assert fleet.call("sum", done, 1, only=[4, 0]).values == [done + 1] * 2
        assert fleet.call("begun").values == [done] * 5

    assert frames(fleet) == [(3, 3)] * 5


async def _called(guest):
    return await guest.call_async("sum", 1, 2)


def test_a_guest_is_awaited_between_frames(fleet):
    import asyncio

    fleet.update()

    assert asyncio.run(_called(fleet.guests[1])) == 3
    assert fleet.update() == {}


def test_guests_join_between_frames(fleet):
    fleet.update()
    fleet.update()
    (late,) = fleet.join()
    late.call("open")
    put(late, 9)
    fleet.update()

    assert frames(fleet) == [*[(3, 3)] * 5, (1, 1)]
    assert action(late) == -9.75


def test_a_guest_is_closed_between_frames_and_another_one_joins(fleet):
    fleet.update()
    fleet.guests[2].close()
    first, second = fleet.update(), fleet.update()
    (late,) = fleet.join()
    late.call("open")
    fleet.update()

    assert list(first) == [2]
    assert isinstance(first[2], GuestFailed)
    assert second == {}
    assert fleet.guests[2] is late
    assert [word(guest, ENDED) for guest in fleet.guests] == [4, 4, 1, 4, 4]


def test_an_idle_fleet_is_closed_and_leaves_no_call_and_no_store(host):
    before = set(GuestStore._open)
    fleet = host.fleet(PLAYER, 3)
    fleet.call("open")
    fleet.update()
    fleet.close()

    assert set(GuestStore._open) == before
    with pytest.raises(GuestFailed, match="closed"):
        fleet.guests[0].call("begun")


def test_calls_from_inside_of_a_frame_are_refused_as_ever(host):
    fleet = host.fleet(PLAYER, 2)
    refused = []

    def act(_batch):
        for work in (fleet.update, fleet.close, lambda: fleet.guests[0].call("begun")):
            with pytest.raises(GuestBusy):
                work()
            refused.append(work)

    _answered_by(fleet, CallbackPolicy(act))
    fleet.update()
    fleet.update()

    assert len(refused) == 6
    assert frames(fleet) == [(2, 2)] * 2


def _answered_by(fleet, policy):
    for guest in fleet.guests:
        handle = calls_of(guest).services.sessions.open_inference(policy, 2, 1)
        guest.write_memory(HANDLE, handle.to_bytes(8, "little"))


def test_another_thread_runs_the_next_frame(fleet, on_thread):
    fleet.update()
    others = [on_thread(fleet.update).result() for _ in range(3)]
    fleet.update()

    assert others == [{}] * 3
    assert frames(fleet) == [(5, 5)] * 5


# What is by frame, and not by call.


def test_each_frame_has_the_whole_budget(fleet):
    for guest in fleet.guests:
        script(guest, BURNS)
        guest.write_memory(TURNS, (2_000_000).to_bytes(4, "little"))
    fleet.update(budget=None)
    spent = max(calls_of(guest).account.used for guest in fleet.guests)
    budget = 8 * spent + 0.2
    failures = [fleet.update(budget=budget) for _ in range(int(2 * budget / spent) + 1)]

    assert failures == [{}] * len(failures)


def test_a_frame_in_which_all_guests_are_slow_ends_within_the_time_of_a_call(make_host):
    host = make_host(limits=Limits(call_seconds=0.5, run_seconds=2.0))
    with host.fleet(PLAYER, 6) as fleet:
        fleet.call("open")
        fleet.update()
        for guest in fleet.guests[1:]:
            script(guest, SPIN)
        failures = fleet.update()
        later = fleet.update()
        used = [calls_of(guest).account.used for guest in fleet.guests]

    assert failures.keys() == {1, 2, 3, 4, 5}
    assert {type(error) for error in failures.values()} == {GuestTimeout}
    assert all("Limits.call_seconds" in str(error) for error in failures.values())
    assert {type(error) for error in later.values()} == {GuestFailed}
    assert sum(used) < 4.0  # of 10.0, the budgets of five


def test_a_frame_that_never_ends_is_dropped_and_the_others_have_theirs(fleet):
    fleet.update()
    script(fleet.guests[2], SPIN)
    failures = fleet.update(budget=0.06)
    script(fleet.guests[4], SPIN)
    later = fleet.update(budget=0.06)

    assert [type(error) for error in failures.values()] == [GuestTimeout]
    assert {n: type(error) for n, error in later.items()} == {2: GuestFailed, 4: GuestTimeout}
    assert [word(fleet.guests[n], ENDED) for n in (0, 1, 3)] == [3] * 3
    assert fleet.guests[2].live_handles == 0


def test_input_and_output_of_a_call_are_not_those_of_the_next_frame(fleet):
    guest = fleet.guests[0]
    fleet.update()
    script(guest, READS)
    given = guest.invoke("take", b"twelve bytes").status
    fleet.update()
    code = word(guest, LENGTH)
    script(guest, RETURNS)
    fleet.update()
    returned = guest.return_slice
    script(guest, ACT)
    fleet.update()

    assert (given, code) == (0, ErrorCode.INVALID_ARGUMENTS)  # there are no twelve bytes of input
    assert returned == b"\x03"
    assert guest.return_slice is None


def test_polls_of_futures_are_counted_by_frame(fleet):
    guest = fleet.guests[0]
    handle, _ = calls_of(guest).services.futures.open(BOOL)
    guest.write_memory(LENGTH, handle.to_bytes(8, "little"))
    script(guest, POLLS)
    counts = []
    for _ in range(3):
        fleet.update()
        counts.append(calls_of(guest).services.pending_polls)

    assert counts == [40] * 3


def test_statistics_are_by_frame(fleet):
    counts = []
    for _ in range(3):
        fleet.update()
        counts.append((fleet.statistics.submits, fleet.statistics.rows))

    assert counts == [(5, 5), (10, 10), (15, 15)]


@pytest.mark.parametrize("kind", [TRAP, LATE_TRAP])
def test_a_trap_fails_its_guest_in_that_frame_and_shows_its_own_functions(fleet, kind):
    assert fleet.update() == {}
    script(fleet.guests[3], kind)
    failures, later = fleet.update(), fleet.update()

    assert isinstance(failures[3], GuestTrap)
    assert [frame.function for frame in failures[3].frames] == [
        "deepest",
        "deeper",
        "ark_applet_update",
    ]
    assert list(failures) == list(later) == [3]
    assert fleet.guests[3].failure is failures[3]
    assert [word(fleet.guests[n], ENDED) for n in (0, 1, 2, 4)] == [3] * 4


def test_an_environments_backtrace_shows_the_guests_functions_only():
    """It traps in its tenth frame, which runs in the loop."""
    errors = []
    with FleetEnv(GUESTS / "c_walkers.wasm", 2, configure=(1, 1, 1, 2, 10)) as env:
        step = env.reset(1)
        while not errors:
            step = env.step(np.zeros((2, 1), np.float32), step.observations)
            errors = [found.error for found in step.steps.values() if found.error]

    assert all("arkml" not in frame.module for error in errors for frame in error.frames)
    assert errors[0].frames[-1].function == "ark_applet_update"


# Turns, interrupts.


native_call = ctypes.CFUNCTYPE(
    ctypes.c_void_p, *[ctypes.c_void_p] * 3, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
    *[ctypes.c_void_p] * 2,
)  # fmt: skip
native_delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
native_poll = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
"""A function of Python in the place of wasmtime's, which the native library calls."""


def test_a_turn_that_ran_out_between_frames_costs_one_resume(fleet, monkeypatch):
    for guest in fleet.guests:
        script(guest, SKIP)
    for _ in range(2):
        fleet.update()
    polled = []
    count = native_poll(lambda future: polled.append(future) or bindings.poll(future))
    monkeypatch.setattr(rounds, "_poll", count)  # where Python runs the round
    fleet._parts.lockstep._rounds._state.poll = ctypes.cast(count, ctypes.c_void_p).value
    fleet.update()
    in_time, engine = len(polled), calls_of(fleet.guests[0]).instance._sandbox.engine.engine
    for _ in range(2 * TURN_TICKS):
        engine.increment_epoch()
    fleet.update()

    assert in_time == 5
    assert len(polled) - in_time == 10
    assert frames(fleet) == [(4, 4)] * 5


def test_an_interrupt_drops_the_guests_inside_of_the_frame_and_no_other(fleet):
    def act(_batch):
        raise KeyboardInterrupt

    fleet.update()
    for number in (0, 3):
        script(fleet.guests[number], SKIP)
    policy = CallbackPolicy(act)
    for number in (1, 2, 4):
        guest = fleet.guests[number]
        handle = calls_of(guest).services.sessions.open_inference(policy, 2, 1)
        guest.write_memory(HANDLE, handle.to_bytes(8, "little"))
    with pytest.raises(KeyboardInterrupt):
        fleet.update()

    assert [guest.failure is not None for guest in fleet.guests] == [False, True, True, False, True]
    assert list(fleet.update()) == [1, 2, 4]
    assert [word(fleet.guests[n], ENDED) for n in (0, 3)] == [3, 3]


def test_ctrl_c_drops_the_guest_that_spins_and_the_others_live():
    script_ = f"""
from arkml import Host
from tests.integration import test_fleet_frames as our
from tests.waiting import signal_in_call
with Host() as host:
    fleet = host.fleet(our.PLAYER, 4)
    fleet.call("open")
    fleet.update()
    for number, guest in enumerate(fleet.guests):
        our.script(guest, our.SPIN if number == 1 else our.SKIP)
    signal_in_call(fleet.guests[1])
    try:
        fleet.update(budget=None)
    except KeyboardInterrupt:
        print("interrupted")
    print([guest.failure is not None for guest in fleet.guests])
    print(list(fleet.update()), our.frames(fleet)[{0}])
"""
    run = python(script_, cwd=ROOT)

    assert run.stdout.splitlines() == [
        "interrupted",
        "[False, True, False, False]",
        "[1] (3, 3)",
    ], run.stderr


def test_a_frame_is_cancelled_from_another_thread_and_the_others_live(fleet, on_thread):
    fleet.update()
    script(fleet.guests[2], SPIN)
    running = on_thread(lambda: fleet.update(budget=None), announced=True)
    fleet.guests[0].cancel()
    outcome = running.result()

    assert isinstance(outcome, GuestCancelled) or list(outcome) == [2]
    assert [n for n, guest in enumerate(fleet.guests) if guest.failure is not None] == [2]
    assert list(fleet.update()) == [2]
    assert [word(fleet.guests[n], ENDED) for n in (0, 1, 3, 4)] == [3] * 4


# Native memory.


def test_a_future_is_never_polled_after_its_end_and_always_deleted_in_fleets(host, monkeypatch):
    ended, live, begun = set(), set(), []
    poll, delete, call = bindings.poll, bindings.delete_future, lockstep._call_async

    def polling(future):
        assert future not in ended, "polled after its end"
        done = poll(future)
        if done:
            ended.add(future)
        return done

    def deleting(future):
        live.discard(future)
        ended.discard(future)
        delete(future)

    def beginning(*raw):
        future = call(*raw)
        live.add(future)
        begun.append(future)
        return future

    checked = native_poll(polling)
    monkeypatch.setattr(fiber, "_poll", polling)
    monkeypatch.setattr(rounds, "_POLL", ctypes.cast(checked, ctypes.c_void_p).value)
    began, deleted = native_call(beginning), native_delete(deleting)
    for name, callback in (("_CALL_ASYNC", began), ("_DELETE", deleted)):
        monkeypatch.setattr(rounds, name, ctypes.cast(callback, ctypes.c_void_p).value)
    for owner, name, replaced in (
        (lockstep, "_call_async", beginning),
        (bindings, "delete_future", deleting),
        (rounds, "_call_async", beginning),  # where there is no native library
        (rounds, "_delete", deleting),
        (rounds, "_poll", polling),
    ):
        monkeypatch.setattr(owner, name, replaced)
    fleet = host.fleet(PLAYER, 4)
    fleet.call("open")
    for kind in (ACT, TRAP, ACT, SPIN, ACT):
        script(fleet.guests[1 if kind is TRAP else 2], kind)
        fleet.update(budget=0.06)
        fleet.guests[0].call("begun")
    fleet.call("sum", 1, 2)
    fleet.update()
    fleet.close()
    with FleetEnv(GUESTS / "c_cartpole.wasm", 3, configure=(1, "{seed}"), host=host) as env:
        step = env.reset(1)
        for _ in range(40):
            step = env.step(np.ones((3, 1), np.float32), step.observations)

    assert len(begun) > 30
    assert ended == live == set()


def test_an_idle_fleet_takes_no_more_mappings_than_its_guests_may():
    script_ = f"""
from pathlib import Path
from arkml import Host
from tests.integration.test_fleet_frames import PLAYER
def mappings():
    return Path("/proc/self/maps").read_bytes().count(b"\\n")
host = Host()
program = host.compile(PLAYER)
with host.fleet(program, 1) as first:
    first.call("open")
    first.update()
before = mappings()
fleet = host.fleet(program, 200)
fleet.call("open")
for _ in range(3):
    fleet.update()
print(mappings() - before <= 200 * {MAPPINGS_PER_GUEST} + 20)
host.close()
print(mappings() - before < 20)
"""
    run = python(script_, cwd=ROOT)

    assert run.stdout.splitlines() == ["True", "True"], run.stderr


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "del fleet, host; gc.collect()",
        "fleet = host = program = None; gc.collect()",
        "sys.exit(0)",
        "fleet._itself = fleet; del fleet; gc.collect()",
        "guests = fleet.guests; del fleet; gc.collect(); guests[1].update()",
    ],
)
def test_a_process_ends_well_with_an_idle_fleet(ending):
    run = python(
        f"""
import gc, sys
from arkml import Host
from tests.integration.test_fleet_frames import PLAYER
host = Host()
program = host.compile(PLAYER)
fleet = host.fleet(program, 3)
fleet.call("open")
fleet.update()
fleet.update()
print("idle", flush=True)
{ending}
""",
        cwd=ROOT,
    )

    assert (run.stdout, run.stderr, run.returncode) == ("idle\n", "", 0)


@pytest.mark.parametrize(
    "use",
    ["", "fleet.close(); host.close()", "del fleet, host; gc.collect()", "print(fleet.update())"],
)
def test_a_fork_of_a_process_with_an_idle_fleet_ends_well(use):
    script_ = f"""
import gc, os, sys, warnings
from arkml import Host
from tests.integration import test_fleet_frames as our
warnings.simplefilter("ignore")
host = Host()
fleet = host.fleet(our.PLAYER, 3)
fleet.call("open")
fleet.update()
child = os.fork()
if not child:
    {use or "pass"}
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
fleet.update()
print(our.frames(fleet))
host.close()
"""
    run = subprocess.run(
        [sys.executable, "-c", script_],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    wanted = ["7", "[(2, 2), (2, 2), (2, 2)]"]
    assert [line for line in run.stdout.splitlines() if line != "{}"] == wanted, run.stderr
