"""Calls of one guest that the native library runs by itself, with the answers to its submits."""

import struct
import threading
from functools import partial

import numpy as np
import pytest
from tests.benchmarks.subjects import bench_guest
from tests.integration.callback_policy import FAKE_ACTION, CallbackPolicy
from tests.integration.guest_text import (
    ACTION,
    ACTOR,
    FEATURES,
    HANDLE,
    MODEL,
    POINTMASS,
    PUSH,
    START,
    SUBMIT,
    data,
    function,
    i32,
    module,
    opening,
    python,
)
from tests.integration.snapshot_guest import memory_of
from tests.unit import policy_models as build

import arkml
from arkml import Host, Limits
from arkml.abi.codes import ErrorCode
from arkml.errors import GuestBusy, GuestTimeout, GuestTrap
from arkml.guests.call_loop import CallLoop
from arkml.guests.guest import calls_of
from arkml.runtime import exported_function, native, single_calls
from arkml.runtime.single_calls import SingleCalls

needs_library = pytest.mark.skipif(native.LIBRARY is None, reason="it is of calls by the library")
SLOW = 60.0  # a budget of one's own has Python follow each step of a call


@pytest.fixture(params=["wasm", "onnxruntime"])
def host(request):
    with Host(backend=request.param) as host:
        yield host


@pytest.fixture
def answered(monkeypatch):
    """The submits that Python answers, as a list that grows."""
    seen = []
    answer = CallLoop.answer

    def answer_seen(self):
        seen.append(self.instance.number)
        return answer(self)

    monkeypatch.setattr(CallLoop, "answer", answer_seen)
    return seen


def opened(host):
    """An actor whose session of one row the library answers from now on."""
    guest = host.load(ACTOR)
    assert guest.call("open") == 0
    assert guest.call("step", 1) == 0
    return guest


def by_library(answered, submits, most):
    """
    Whether the library has answered submits, but for less than `most`: `answered` by Python.

    Without the library Python has answered all.
    """
    return answered == submits if native.LIBRARY is None else answered < most


def see(guest, position, velocity):
    guest.write_memory(FEATURES, struct.pack("<ff", position, velocity))


def test_submits_are_answered_without_python_and_by_the_same_bits(host, answered):
    guest, other = opened(host), opened(host)
    answered.clear()
    drawn = np.random.default_rng(1).normal(size=(200, 2)).astype(np.float32)
    for position, velocity in drawn.tolist():
        see(guest, position, velocity)
        see(other, position, velocity)
        assert guest.call("step", 1) == 0
        assert other.call("step", 1, budget=SLOW) == 0
        assert guest.call("action", 0) == other.call("action", 0)

    assert answered.count(calls_of(other).instance.number) == 200
    of_guest = answered.count(calls_of(guest).instance.number)
    assert by_library(of_guest, 200, 100)  # those of a busy machine, after a stretch of 1 ms


def test_a_guest_of_a_fleet_calls_alone_what_only_its_fleet_has_called():
    exports = function("first", ""), function("second", i32(7), result="i32")
    with Host() as host, host.fleet(module(*exports), 2) as fleet:
        fleet.call("second")
        guest = fleet.guests[1]
        guest.call("first")
        guest.call("first")  # by the library from here on

        assert guest.call("second") == 7


@needs_library
def test_a_call_that_a_signal_handler_cut_off_may_be_followed_by_others(monkeypatch):
    address_of = exported_function.ctypes.addressof

    def ring(room):
        if not isinstance(room, exported_function._Words):
            return address_of(room)
        monkeypatch.undo()
        raise KeyboardInterrupt

    exports = function("first", ""), function("second", i32(7), result="i32")
    with Host() as host, host.load(module(*exports)) as guest:
        guest.call("first")
        guest.call("second")  # by the library from here on
        monkeypatch.setattr(exported_function.ctypes, "addressof", ring)
        with pytest.raises(KeyboardInterrupt):
            guest.call("second")

        assert guest.call("second") == 7


@needs_library
def test_answers_that_a_signal_handler_cut_off_do_not_count(host, monkeypatch):
    def ring(_):
        raise KeyboardInterrupt

    guest = bench_guest(host, 1, 8)
    guest.call("frame")
    calls, region = calls_of(guest).fiber._single, calls_of(guest).instance.regions[0]
    assert calls._own.answer_count == 1
    monkeypatch.setattr(single_calls, "enumerate", ring, raising=False)
    with pytest.raises(KeyboardInterrupt):
        calls.add(1, region, "another run", is_of_guest=True)

    assert calls._own.answer_count == 0
    monkeypatch.undo()
    calls.add(2, region, "a third run", is_of_guest=True)
    assert [one.record for one in calls._answers[:3]] == [0, 1, 2]
    assert calls._own.answer_count == 3
    calls.forget()
    assert guest.call("frame") == 0


def test_large_batches_are_answered_without_python_and_by_the_same_bits(answered):
    with Host() as host:
        guest, other = bench_guest(host, 700, 64), bench_guest(host, 700, 64)
        answered.clear()
        for _ in range(20):
            assert guest.call("frame") == other.call("frame", budget=SLOW) == 0

        assert answered.count(calls_of(other).instance.number) == 20
        assert by_library(answered.count(calls_of(guest).instance.number), 20, 10)
        assert memory_of(guest) == memory_of(other)


def test_rows_that_subnormal_numbers_would_make_slow_have_these_set_to_zero(answered):
    wide = 256
    model = build.model(
        [
            build.node("MatMul", "obs small", "a"),
            build.node("MatMul", "a smaller", "b"),  # 6.4e-40 for an observation of 0.5, 0
            build.node("MatMul", "b large", "actions"),
        ],
        [build.port("obs", "N", 2)],
        [build.port("actions", "N", 1)],
        [
            build.weight("small", np.full((2, wide), 5e-21)),
            build.weight("smaller", np.full((wide, wide), 1e-21)),
            build.weight("large", np.full((wide, 1), 1e36)),
        ],
    )
    with Host(policy=model) as host:
        guest = opened(host)
        see(guest, 0.5, 0.0)
        shown = {}
        for rows in (1, 112):
            for _ in range(5):
                assert guest.call("step", rows) == 0
            shown[rows] = guest.call("action", rows - 1)
        answered.clear()
        for _ in range(40):
            assert guest.call("step", 112) == 0

        assert shown[1] == pytest.approx(0.164, rel=0.02)
        assert shown[112] == guest.call("action", 0) == 0.0
        assert by_library(len(answered), 40, 40)
        assert np.float32(1e-30) * np.float32(1e-10)  # this thread computes with them as before


def test_another_number_of_rows_is_answered_by_python_at_first(host, answered):
    guest = opened(host)
    answered.clear()
    for rows in [3] * 20 + [1] * 20:
        assert guest.call("step", rows) == 0
        assert [guest.call("action", row) for row in range(rows)] == [ACTION] * rows

    assert len(answered) >= 2
    assert by_library(len(answered), 40, 20)


def test_a_session_that_is_opened_again_is_answered_by_its_own_model(host):
    guest = opened(host)
    for _ in range(3):
        assert guest.call("close") == 0
        assert guest.call("step", 1) != 0  # the handle names nothing
        assert guest.call("open") == 0
        see(guest, 2.0, 0.0)
        assert guest.call("step", 1) == 0
        assert guest.call("step", 1) == 0
        assert guest.call("action", 0) == -2.0


def test_another_policy_of_the_host_answers_at_once(host):
    guest = opened(host)
    assert guest.call("step", 1) == 0
    host.use(CallbackPolicy(lambda _: None)).result()
    assert guest.call("step", 1) == 0
    assert guest.call("action", 0) == FAKE_ACTION


def test_a_model_that_is_not_run_again_is_not_run_by_the_library(host):
    guest = opened(host)
    stopped = calls_of(guest).instance.library.workspace.stopped
    session = calls_of(guest).services.sessions.at(0)
    limit = session.policy._limit
    limit.fail("the model ran too long")
    assert stopped
    assert guest.call("step", 1) == ErrorCode.UNAVAILABLE


def test_a_run_that_fails_in_the_library_is_made_again_by_python(answered):
    with Host() as host:
        guest = opened(host)
        assert guest.call("step", 1) == 0
        answered.clear()
        session = calls_of(guest).services.sessions.at(0)
        options = session.policy._model._options
        options.terminate = True
        assert guest.call("step", 1) == ErrorCode.UNAVAILABLE
        options.terminate = False
        assert guest.call("step", 1) == 0
        assert guest.call("action", 0) == ACTION

    assert answered


def test_features_that_are_not_finite_are_counted(host, caplog):
    guest = opened(host)
    see(guest, float("nan"), 0.0)
    assert guest.call("step", 1) == 0
    assert guest.statistics.non_finite_features == 1
    assert guest.call("action", 0) == 0.0  # NaN, sent as zero
    assert "non-finite" in caplog.text


def test_time_of_the_model_is_charged_and_told(host):
    guest = opened(host)
    before = guest.account
    for _ in range(50):
        guest.call("step", 1)
    after = guest.account

    assert 0 < after.model_seconds - before.model_seconds < after.run_seconds - before.run_seconds
    assert after.policy_seconds == before.policy_seconds == 0
    assert after.wasm_seconds > before.wasm_seconds
    last = calls_of(guest).account.last_call()
    assert 0 < last.model_seconds < after.model_seconds - before.model_seconds
    guest.call("answer")
    assert calls_of(guest).account.last_call().model_seconds == 0


def test_time_of_a_policy_of_the_host_is_told_and_not_charged():
    with Host(backend="wasm", policy=POINTMASS) as host:
        guest = opened(host)
        before = guest.account
        for _ in range(50):
            guest.call("step", 1)
        after = guest.account

    assert after.policy_seconds > before.policy_seconds
    assert after.model_seconds == 0


def test_calls_of_python_and_of_the_library_share_one_account(host):
    guest = opened(host)
    account = calls_of(guest).account
    for budget in (SLOW, None, SLOW, None):
        before = guest.account.model_seconds
        guest.call("step", 1, **({} if budget is None else {"budget": budget}))
        told = account.last_call().model_seconds
        assert told == pytest.approx(guest.account.model_seconds - before)
        assert told > 0


STRETCH = 0.3  # seconds, far from what a run takes on a busy machine


@needs_library
@pytest.mark.parametrize("is_of_model", [False, True])
def test_a_long_stretch_is_charged_once(host, monkeypatch, is_of_model):
    guest = opened(host)
    lockstep, before, asked = calls_of(guest).instance.lockstep, guest.account, []

    def stretch(_):
        asked.append(1)
        return STRETCH, is_of_model

    monkeypatch.setattr(SingleCalls, "stretch", stretch)
    monkeypatch.setattr(lockstep, "counted", partial(counted_wholly, lockstep))
    rows = 1
    while not asked:  # a call may be Python's from its beginning
        rows = rows % 8 + 1  # others than before, so that Python goes on
        assert guest.call("step", rows) == 0

    after = guest.account
    assert after.run_seconds - before.run_seconds >= STRETCH
    assert (after.model_seconds - before.model_seconds >= STRETCH) == is_of_model
    assert lockstep._charged <= sum(lockstep.used)


def counted_wholly(lockstep, seconds, **_):
    """Count a stretch as `Lockstep.counted` does where the thread had the processor."""
    lockstep._charged = sum(lockstep.used) + seconds
    return seconds


@pytest.mark.parametrize("function", ["submit_for_ever", "spin"])
def test_a_call_without_an_end_is_ended_by_its_budget(function):
    with Host(backend="wasm", limits=Limits(run_seconds=0.4)) as host:
        guest = opened(host)
        guest.call("step", 4)
        with pytest.raises(GuestTimeout, match=r"budget of 0\.4 s"):
            guest.call(function)
        with host.load(ACTOR) as other:
            other.call("open")
            assert other.call("step", 1) == 0


def test_a_trap_behind_an_answered_submit_is_told(host):
    guest = opened(host)
    guest.call("burn_and_submit", 10, 3)
    with pytest.raises(GuestTrap):
        guest.call("boom")
    with pytest.raises(arkml.GuestFailed):
        guest.call("step", 1)


def test_refusals_in_a_call_of_the_library_are_told(host, caplog):
    guest = opened(host)
    guest.call("push_many", 1)
    assert guest.call("submit", 0) != 0  # no room for the action
    assert "submit" in caplog.text
    assert guest.call("step", 1) == 0


def test_a_guest_that_waits_in_a_game_function_may_not_be_called():
    calls = []

    def ask() -> None:
        with pytest.raises(GuestBusy):
            guest.call("ask")
        calls.append(1)

    text = module(
        '(func (export "ask") (call $ask))', imports=('(import "env" "ask" (func $ask))',)
    )
    with Host(backend="wasm", imports={("env", "ask"): ask}) as own:
        guest = own.load(text)
        for _ in range(3):
            guest.call("ask")

    assert calls == [1] * 3


TWO = module(
    data(MODEL, POINTMASS),
    opening("open_first", MODEL, len(POINTMASS), HANDLE),
    opening("open_second", MODEL, len(POINTMASS), HANDLE + 8),
    function(
        "ark_applet_update",
        "".join(
            f"(f32.store {i32(FEATURES)} (f32.const {position}))"
            f"(drop (call ${PUSH} (i64.load {i32(HANDLE + 8 * n)}) (i64.const 1) {i32(0)}"
            f" (f32.const 0) {i32(FEATURES)} {i32(2)} (f32.const 0)))"
            f"(drop (call ${SUBMIT} (i64.load {i32(HANDLE + 8 * n)}) {i32(800 + 4 * n)} {i32(1)}"
            f" {i32(840)} {i32(1)}))"
            for n, position in enumerate((1.0, 2.0))
        ),
    ),
    uses=(START, PUSH, SUBMIT),
    memory='(memory (export "memory") 4)',
)


def test_two_sessions_of_a_guest_are_told_apart(host, answered):
    guest = host.load(TWO)
    guest.call("open_first")
    guest.call("open_second")
    for _ in range(20):
        guest.write_memory(800, bytes(8))
        guest.update()
        assert struct.unpack("<ff", guest.read_memory(800, 8)) == (-1.0, -2.0)

    assert len(answered) >= 2
    assert by_library(len(answered), 40, 20)


def test_threads_that_share_a_model_do_not_disturb_each_other(host):
    wrong = []

    def play(guest, position):
        see(guest, position, 0.0)
        for _ in range(3000):
            guest.call("step", 1)
            if guest.call("action", 0) != -position:
                wrong.append(position)

    guests = [opened(host) for _ in range(4)]
    threads = [
        threading.Thread(target=play, args=(guest, float(n + 1))) for n, guest in enumerate(guests)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_a_fork_may_run_a_model_that_a_thread_of_its_parent_runs():
    python("""
import os, threading
from arkml import Host
from tests.integration.test_single_calls import opened

host = Host(backend="wasm")
guest = opened(host)
other = opened(host)
ends = threading.Event()

def play():
    while not ends.is_set():
        other.call("step", 1)

thread = threading.Thread(target=play)
thread.start()
for _ in range(20):
    child = os.fork()
    if not child:
        codes = [guest.call("step", 1) for _ in range(20)]
        os._exit(any(codes))
    assert os.waitpid(child, 0)[1] == 0
ends.set()
thread.join()
""")


def test_a_guest_without_the_library_is_answered_alike(monkeypatch, host, answered):
    monkeypatch.setattr(native, "LIBRARY", None)
    guest = opened(host)
    answered.clear()
    for _ in range(3):
        assert guest.call("step", 1) == 0
        assert guest.call("action", 0) == ACTION

    assert len(answered) == 3


def test_a_traced_guest_is_followed_step_by_step(tmp_path, answered):
    path = tmp_path / "actor.trace"
    with Host(backend="wasm", trace=path) as host:
        guest = opened(host)
        answered.clear()
        for _ in range(5):
            guest.call("step", 1)

    assert len(answered) == 5
    assert path.stat().st_size
