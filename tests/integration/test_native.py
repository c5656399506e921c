"""Rounds of a fleet: by the native library, on one thread and on several, and in Python."""

import logging
import math
import os
import re
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.guest_text import GUESTS, POINTMASS, python
from tests.integration.test_environment import INITIAL, RUNNING, scripted
from tests.waiting import eventually

import arkml
from arkml import Limits
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.errors import UsageError
from arkml.guests.fleet import _FRAME as FRAME
from arkml.runtime import native, threads

WAYS = {"python": (None, 1), **{str(n): (native.LIBRARY, n) for n in (1, 2, 3, 8)}}
"""The library, or None for Python, and the number of threads."""


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Run rounds by each way; returns the number of threads."""
    return take(monkeypatch, request.param)


def take(monkeypatch, name):
    library, count = WAYS[name]
    monkeypatch.setattr(native, "LIBRARY", library)
    return count


def always(fleet):
    """Let all threads take part in each round, however short it is."""
    rounds_of(fleet)._state.is_measured = 0


def rounds_of(fleet):
    return fleet._parts.lockstep._rounds


def test_the_library_is_built_wherever_tests_run():
    assert native.MISSING == ""
    assert native.LIBRARY is not None


# What guests do in a frame, by the number that `do` was given.
MIXED = b"""(module
  (import "ark-core-v3" "core__log" (func $log (param i32 i32 i32) (result i32)))
  (import "ark-time-v1" "time__time_utc" (func $utc (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "frame 00")
  (global $kind (mut i32) (i32.const 0))
  (global $frame (mut i32) (i32.const 0))
  (global $sum (mut i32) (i32.const 1))
  (func (export "do") (param i32) (global.set $kind (local.get 0)))
  (func (export "sum") (result i32) (global.get $sum))
  (func $work (param $rounds i32)
    (loop $more
      (global.set $sum (i32.add (i32.mul (global.get $sum) (i32.const 1664525))
        (i32.const 1013904223)))
      (br_if $more (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1))))))
  (func $say
    (i32.store8 (i32.const 71) (i32.add (i32.const 48)
      (i32.rem_u (global.get $frame) (i32.const 10))))
    (drop (call $log (i32.const 2) (i32.const 64) (i32.const 8))))
  (func (export "ark_applet_update")
    (global.set $frame (i32.add (global.get $frame) (i32.const 1)))
    (call $work (i32.const 50))
    (if (i32.eq (global.get $kind) (i32.const 1)) (then (call $say)))
    (if (i32.eq (global.get $kind) (i32.const 2)) (then (call $utc (i32.const 16)) (call $say)))
    (if (i32.eq (global.get $kind) (i32.const 3)) (then
      (drop (memory.grow (i32.const 1)))))
    (if (i32.eq (global.get $kind) (i32.const 4)) (then
      (if (i32.eq (global.get $frame) (i32.const 3)) (then unreachable))))
    (if (i32.eq (global.get $kind) (i32.const 5)) (then (call $work (i32.const 20000))))
    (if (i32.eq (global.get $kind) (i32.const 6)) (then
      (if (i32.eq (global.get $frame) (i32.const 2)) (then
        (i32.store (i32.const -4) (i32.const 1))))))))"""
KINDS = 7


def play(kinds, frames, count, caplog, monkeypatch, library):
    """Play a fleet, and return all that can be seen of it but times."""
    monkeypatch.setattr(native, "LIBRARY", library)
    caplog.clear()
    with arkml.Host(threads=count) as host, host.fleet(MIXED, len(kinds), name="mixed") as fleet:
        always(fleet)
        for index, kind in enumerate(kinds):
            fleet.call("do", kind, only=[index])
        failures = [
            {index: f"{type(error).__name__}: {error}" for index, error in fleet.update().items()}
            for _ in range(frames)
        ]
        sums = fleet.call("sum")
        pages = [guest.account.memory_bytes for guest in fleet.guests]
        return {
            "failures": failures,
            "sums": sums.values,
            "failed": sorted(sums.failures),
            "statistics": fleet.statistics,
            "memory": pages,
            "log": [(record.name, record.getMessage()) for record in caplog.records],
        }


@settings(max_examples=12)
@given(
    kinds=st.lists(st.integers(0, KINDS - 1), min_size=1, max_size=40),
    frames=st.integers(1, 6),
)
def test_a_fleet_is_the_same_on_any_number_of_threads(kinds, frames):
    handler = _Records()
    logger = logging.getLogger("arkml")
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        with pytest.MonkeyPatch.context() as patch:
            seen = [
                play(kinds, frames, count, handler, patch, library)
                for library, count in WAYS.values()
            ]
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)

    assert all(one == seen[0] for one in seen[1:])
    logged = sum(1 for kind in kinds if kind in (1, 2))
    assert len(seen[0]["log"]) >= logged * frames


class _Records(logging.Handler):
    """Keeps records, as pytest's `caplog` does, for each example anew."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)

    def clear(self):
        self.records = []


STEPPED = 69


def outcomes(count, steps=60):
    path, with_seed = str(GUESTS / "c_cartpole.wasm"), {"configure": (1, "{seed}")}
    envs = GuestFleetVectorEnv(path, num_envs=STEPPED, threads=count, **with_seed)
    try:
        found = [envs.reset(seed=3)[0]]
        actions = np.random.default_rng(4).choice([-1.0, 1.0], (steps, STEPPED, 1))
        for action in actions.astype(np.float32):
            found += envs.step(action)[:4]
        return found
    finally:
        envs.close()


def test_environments_step_alike_on_any_number_of_threads(monkeypatch):
    found = [outcomes(take(monkeypatch, name)) for name in WAYS]

    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    assert any(marks.any() for marks in found[0][3::4])  # some episodes have ended


def test_a_policy_answers_guests_that_ran_on_threads(way):
    path = str(GUESTS / "c_applet.wasm")
    with arkml.Host(policy=POINTMASS, threads=way) as host, host.fleet(path, 50) as fleet:
        always(fleet)
        for _ in range(5):
            assert fleet.update() == {}

        assert fleet.statistics.rows == 5 * 50 * (fleet.guests[0].statistics.rows // 5)
        assert fleet.statistics.rows > 0


SPINNER = b"""(module
  (memory (export "memory") 1)
  (global $spins (mut i32) (i32.const 0))
  (global $frames (mut i32) (i32.const 0))
  (func (export "spin") (global.set $spins (i32.const 1)))
  (func (export "frames") (result i32) (global.get $frames))
  (func (export "ark_applet_update")
    (global.set $frames (i32.add (global.get $frames) (i32.const 1)))
    (if (global.get $spins) (then (loop $more (br $more))))))"""


def test_a_guest_that_spins_ends_by_its_budget_and_all_others_have_their_frames(way):
    with (
        arkml.Host(threads=way, limits=Limits(run_seconds=0.3)) as host,
        host.fleet(SPINNER, 20) as fleet,
    ):
        always(fleet)
        fleet.call("spin", only=[0, 7])
        failures = fleet.update()

        assert sorted(failures) == [0, 7]
        assert {type(error).__name__ for error in failures.values()} == {"GuestTimeout"}
        others = [n for n in range(20) if n not in failures]
        assert fleet.call("frames", only=others).values == [1] * 18
        assert fleet.update().keys() == failures.keys()


def test_an_interrupt_ends_a_round_of_environments_before_all_guests_had_their_turns(
    way, monkeypatch
):
    """The signal comes while the first of many guests runs, and the round has no time left."""
    module = scripted([(1, INITIAL, 0)], [(1, RUNNING, 0)])
    action = np.zeros((STEPPED, 1), np.float32)
    with FleetEnv(module, STEPPED, threads=way) as fleet:
        step = fleet.reset(seed=1)
        rounds = fleet._resources.lockstep._rounds
        rounds._state.slice = 0.0
        monkeypatch.setattr("arkml.runtime.rounds.SLICE", -1.0)
        plain = type(rounds).run

        def interrupt(*arguments):
            signal.raise_signal(signal.SIGINT)
            plain(*arguments)

        rounds.outcomes[:STEPPED] = native.NOT_RUN
        monkeypatch.setattr(type(rounds), "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fleet.step(action, step.observations)
        monkeypatch.undo()

        assert (rounds.outcomes[:STEPPED] == native.NOT_RUN).any()
        assert not fleet.alive.any()


def test_a_round_of_environments_ends_early_after_a_guest_whose_turn_ran_out(monkeypatch):
    """Where no time is charged the clock is read after each sixteenth guest else."""

    def end():
        raise KeyboardInterrupt

    monkeypatch.setattr("arkml.runtime.rounds.SLICE", 0.001)  # a turn takes more
    limits = Limits(run_seconds=None, call_seconds=None)
    with arkml.Host(threads=1, limits=limits) as host, host.fleet(SPINNER, 20) as fleet:
        fleet.call("spin")
        call, rounds = fleet._call(FRAME), rounds_of(fleet)
        fleet._parts.call_guard.begin("test")
        lockstep = fleet._parts.lockstep
        lockstep.begin_frames(call._places, call._loops)
        with pytest.raises(KeyboardInterrupt):
            rounds.run(
                np.arange(20), native.ANSWER, math.inf, end, lockstep.counted, lockstep._calls
            )
        fleet._parts.call_guard.end()

        assert np.count_nonzero(rounds.outcomes[:20]) == 1


@pytest.mark.parametrize("wrong", [0, -1, 257, "many", 1.5, None, True, 10**30])
def test_a_wrong_number_of_threads_is_refused(wrong):
    with pytest.raises(UsageError, match=r"threads is .*: it takes 'auto' or a number from 1 to"):
        arkml.Host(threads=wrong)


def test_an_environment_gets_threads_for_its_own_host_only():
    path = str(GUESTS / "c_pendulum.wasm")
    with arkml.Host() as host, pytest.raises(UsageError, match="threads= is for an environment's"):
        GuestFleetVectorEnv(path, num_envs=2, host=host, threads=2)


def test_the_processors_are_those_that_the_process_may_use():
    assert threads.number_of_threads("auto") == threads.usable_processors() >= 1
    assert threads.usable_processors() <= len(os.sched_getaffinity(0))
    one = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from arkml.runtime.threads import number_of_threads
print(number_of_threads("auto"))
"""
    assert python(one).stdout == "1\n"


def test_a_library_of_another_build_is_not_used(monkeypatch):
    path = Path(native.__file__).with_name(native.NAME)
    monkeypatch.setattr(native, "BUILD", native.BUILD + 1)

    with pytest.raises(OSError, match=rf"is of build {native.BUILD - 1}, .* needs {native.BUILD}"):
        native.Library(path)


def test_a_file_that_is_no_library_is_not_used(tmp_path):
    (tmp_path / "other.so").write_bytes(b"no library")

    with pytest.raises(OSError, match=re.escape(str(tmp_path / "other.so"))):
        native.Library(tmp_path / "other.so")
    with pytest.raises(OSError, match="is no library of arkml"):
        native.Library(Path("libc.so.6"))


def workers():
    """Return the names and the blocked signals of the threads that run guests."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            name = (task / "comm").read_text().strip()
            if name.startswith("arkml-"):
                blocked = re.search(r"SigBlk:\s*(\w+)", (task / "status").read_text())
                found[name] = int(blocked[1], 16)
    return found


def test_workers_are_named_mask_signals_and_end_with_the_last_host():
    script = """
from tests.integration.test_native import *
before = workers()
with arkml.Host(threads=4) as host, host.fleet(SPINNER, 20) as fleet:
    always(fleet)
    fleet.update()
    now = workers()
    print(before, sorted(now))
    for name in now:  # a thread that has not begun blocks all signals
        eventually(lambda: not workers()[name] >> signal.SIGSEGV - 1 & 1)
        print(bool(workers()[name] >> signal.SIGINT - 1 & 1))
eventually(lambda: not workers())  # a thread that was joined may still be listed
print(native.LIBRARY.workers())
"""
    run = python(script)

    assert run.stdout.splitlines() == [
        "{} ['arkml-001', 'arkml-002', 'arkml-003']",
        *["True"] * 3,
        "(0, False)",
    ], run.stderr


def test_a_fork_begins_without_the_workers_of_its_parent():
    script = """
from tests.integration.test_native import *
with arkml.Host(threads=3) as host, host.fleet(SPINNER, 20) as fleet:
    always(fleet)
    fleet.update()
    child = os.fork()
    if not child:
        print(native.LIBRARY.workers())
        with arkml.Host(threads=3) as own, own.fleet(SPINNER, 20) as other:
            always(other)
            print(other.update(), native.LIBRARY.workers())
        sys.stdout.flush()
        os._exit(0)
    print(os.waitpid(child, 0)[1], fleet.update(), native.LIBRARY.workers())
"""
    run = python(script)

    assert run.stdout.splitlines() == ["(0, False)", "{} (2, False)", "0 {} (2, False)"], run.stderr


def test_a_fork_in_the_middle_of_a_round_has_hosts_of_its_own():
    script = """
from tests.integration.test_native import *
host = arkml.Host(threads=3, limits=arkml.Limits(run_seconds=0.5))
fleet = host.fleet(SPINNER, 20)
always(fleet)
fleet.call("spin", only=[0, 7, 14])
player = threading.Thread(target=lambda: print(sorted(fleet.update())), daemon=True)
player.start()
eventually(lambda: native.LIBRARY.workers() == (2, False))
child = os.fork()
if not child:
    with arkml.Host(threads=3) as own, own.fleet(SPINNER, 20) as other:
        always(other)
        print(other.update(), native.LIBRARY.workers(), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1])
player.join()
fleet.close(), host.close()
"""
    run = python(script)

    assert run.stdout.splitlines() == ["{} (2, False)", "0", "[0, 7, 14]"], run.stderr


def test_a_system_that_allows_no_more_threads_leaves_the_fleet_to_those_that_there_are():
    script = """
from tests.integration.test_native import *
import resource
with arkml.Host(threads=4) as host, host.fleet(SPINNER, 20) as fleet:
    fleet.call("frames")  # which starts the ticker
    always(fleet)
    if os.getuid() == 0:
        os.setresuid(65534, 65534, 65534)  # root has no limit
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    print(fleet.update(), native.LIBRARY.workers())
    print(fleet.update(), fleet.call("frames").values == [2] * 20)
"""
    run = python(script)

    assert run.stdout.splitlines() == ["{} (0, True)", "{} True"], run.stderr


def test_hosts_in_several_threads_run_at_the_same_time():
    def play_one(results, index):
        with arkml.Host(threads=2) as host, host.fleet(MIXED, 30) as fleet:
            always(fleet)
            fleet.call("do", 5)
            for _ in range(20):
                fleet.update()
            results[index] = fleet.call("sum").values

    results = {}
    players = [threading.Thread(target=play_one, args=(results, n)) for n in range(4)]
    for player in players:
        player.start()
    for player in players:
        player.join()

    assert len(results) == 4
    assert all(values == results[0] for values in results.values())


def test_threads_are_for_rounds_that_are_worth_it_and_where_they_help():
    with arkml.Host(threads=2) as host, host.fleet(SPINNER, 20) as fleet:
        state = rounds_of(fleet)._state
        took_part = {}
        for alone, helps in ((1e-9, 1), (1e-3, 1), (1e-3, 0)):
            state.phase, state.left = 2, 10  # it has been decided
            state.alone[:], state.together[:], state.helps = (alone, 1), (alone / 2, 1), helps
            fleet.update()
            took_part[alone, helps] = state.took_part

    assert took_part[1e-9, 1] == took_part[1e-3, 0] == 1
    assert took_part[1e-3, 1] in (1, 2)  # the worker may be late


def test_both_ways_are_tried_again_when_threads_turn_out_slower_and_after_a_while():
    with arkml.Host(threads=2) as host, host.fleet(SPINNER, 20) as fleet:
        state = rounds_of(fleet)._state
        phases = []
        for left, helps in ((10, 1), (0, 0), (10, 0)):
            state.phase, state.left, state.helps = 2, left, helps
            state.alone[:], state.together[:] = (1e-3, 1), (1e3, 1)  # longer than any machine takes
            fleet.update()
            phases.append(state.phase)

    assert phases == [0, 0, 2]


def test_workers_end_when_a_host_is_dropped_without_close():
    script = """
from tests.integration.test_native import *
import gc
host = arkml.Host(threads=3)
fleet = host.fleet(SPINNER, 20)
always(fleet)
fleet.update()
del fleet, host
gc.collect()
eventually(lambda: native.LIBRARY.workers() == (0, False))
print("ended")
"""
    run = python(script)

    assert run.stdout == "ended\n", run.stderr


__all__ = [
    "MIXED",
    "SPINNER",
    "always",
    "arkml",
    "eventually",
    "native",
    "os",
    "rounds_of",
    "signal",
    "sys",
    "threading",
    "workers",
]
