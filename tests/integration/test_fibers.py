import asyncio
import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import wasmtime._func
from tests.integration.callback_policy import (
    FAKE_ACTION,
    answered_by,
    assert_host_works,
    assert_works,
)
from tests.integration.guest_text import (
    ACTION,
    ACTIONS,
    ACTOR,
    CONNECT,
    FEATURES,
    FUTURE,
    HANDLE,
    LOG,
    MODEL,
    POINTMASS,
    PUSH,
    START,
    SUBMIT,
    data,
    function,
    i32,
    logging_of,
    module,
    python,
)
from tests.waiting import eventually
from wasmtime import _bindings as raw

from arkml import Host
from arkml.errors import (
    GuestBusy,
    GuestCancelled,
    GuestFailed,
    GuestTimeout,
    GuestTrap,
    ModuleRejected,
    StackExhausted,
    UsageError,
)
from arkml.guests.guest import calls_of
from arkml.limits import KIB, Limits
from arkml.runtime import bindings, fiber, native
from arkml.runtime.deadline import TICK, TURN_TICKS
from arkml.runtime.fiber import Pause

# 1. One call at a time per Store.


def test_a_call_from_another_thread_is_refused_while_a_guest_runs(host, on_thread):
    guest = host.load(ACTOR)
    running = on_thread(lambda: guest.call("spin", budget=0.3), announced=True)

    with pytest.raises(GuestBusy, match="one call at a time"):
        guest.call("answer")
    with pytest.raises(GuestBusy):
        guest.close()
    with pytest.raises(GuestBusy):
        host.close()
    assert isinstance(running.result(), GuestTimeout)


def test_a_refused_call_makes_no_call_into_the_library(host, on_thread, monkeypatch):
    guest = host.load(ACTOR)
    main, touched = threading.get_ident(), []

    def watched(name):
        plain = getattr(raw, name)

        def call(*arguments):
            if threading.get_ident() == main:
                touched.append(name)
            return plain(*arguments)

        monkeypatch.setattr(raw, name, call)

    running = on_thread(lambda: guest.call("spin", budget=0.3), announced=True)
    for name in ("wasmtime_instance_export_get", "wasmtime_memory_size", "wasmtime_global_set"):
        watched(name)
    for name in ("answer", "no such function"):
        with pytest.raises(GuestBusy):
            guest.call(name)
    with pytest.raises(GuestBusy):
        guest.read_memory(0, 4)
    with pytest.raises(GuestBusy):
        guest.write_memory(0, b"four")

    assert touched == []
    assert isinstance(running.result(), GuestTimeout)


def test_a_call_from_a_log_handler_is_refused(actor, on_log):
    refused = []

    def call(_record):
        with pytest.raises(GuestBusy) as error:
            actor.call("answer")
        refused.append(error.value)

    on_log(call)
    actor.call("announce")

    assert len(refused) == 1
    assert actor.call("answer") == 42


def test_a_call_from_a_policy_is_refused_and_the_call_goes_on(actor):
    refused = []

    def act(_batch):
        for work in (lambda: actor.call("answer"), actor.close):
            with pytest.raises(GuestBusy):
                work()
            refused.append(work)

    answered_by(actor, act)

    assert actor.call("step", 3) == 0
    assert len(refused) == 2
    assert actor.call("action", 2) == FAKE_ACTION


def test_another_guest_may_be_called_from_a_policy(host, actor):
    other = host.load(ACTOR)
    found = []
    answered_by(actor, lambda _batch: found.append(other.call("answer")))

    assert actor.call("step", 1) == 0
    assert found == [42]


async def test_a_second_call_is_refused_while_the_first_is_awaited(host):
    guest = host.load(ACTOR)
    first = asyncio.create_task(guest.call_async("spin", budget=0.1))
    await asyncio.sleep(0)
    with pytest.raises(GuestBusy):
        guest.call("answer")
    with pytest.raises(GuestBusy):
        await guest.call_async("answer")

    with pytest.raises(GuestTimeout):
        await first


# 2. Clean-up after a dropped call or a trap.


@pytest.mark.parametrize("function_name", ["push_then_boom", "push_for_ever", "submit_for_ever"])
def test_a_failed_guest_leaves_nothing_to_later_guests(host, function_name):
    program = host.compile(ACTOR)
    first = host.load(program)
    assert first.call("open") == 0
    with pytest.raises((GuestTrap, GuestTimeout)) as error:
        first.call(function_name, budget=0.06)
    second = host.load(program)

    assert first.failure is error.value
    assert calls_of(first).services.live_handles == 0
    assert calls_of(first).services.live_futures == 0
    assert second.call("open") == 0
    assert second.call("submit", 0) == 0  # no row of the first guest is left in the queue
    assert_works(second)


def test_a_failed_guest_is_refused_with_the_reason(host):
    guest = host.load(ACTOR)
    with pytest.raises(GuestTrap):
        guest.call("boom")

    with pytest.raises(GuestFailed, match=r"failed before.*unreachable") as error:
        guest.call("answer")
    assert error.value.__cause__ is guest.failure


def test_a_failing_guest_does_not_disturb_one_that_is_suspended(host):
    program = host.compile(ACTOR)
    waiting, failing = host.load(program), host.load(program)
    for guest in (waiting, failing):
        assert guest.call("open") == 0

    def fail(_batch):
        with pytest.raises(GuestTrap):
            failing.call("push_then_boom")

    answered_by(waiting, fail)

    assert waiting.call("step", 4) == 0
    assert waiting.call("action", 3) == FAKE_ACTION
    assert calls_of(failing).services.live_handles == 0


def test_two_thousand_cancelled_calls_take_no_memory(host):
    program = host.compile(ACTOR)
    status = Path("/proc/self/statm")

    def cancel():
        guest = host.load(program)
        guest.call("open")
        calls_of(guest).begin("step", (4,))
        assert calls_of(guest).fiber.advance() is Pause.SUBMIT
        calls_of(guest).abandon(GuestCancelled("dropped"))
        guest.close()

    def resident():
        return int(status.read_text().split()[1]) * 4096

    for _ in range(200):
        cancel()
    before = resident()
    for _ in range(2000):
        cancel()

    assert resident() - before < 8 << 20
    assert_host_works(host)


async def test_a_cancelled_task_drops_its_call(host):
    guest = host.load(ACTOR)
    guest.call("open")
    task = asyncio.create_task(guest.call_async("submit_for_ever", budget=None))
    await asyncio.sleep(0.03)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert isinstance(guest.failure, GuestCancelled)
    assert calls_of(guest).services.live_handles == 0
    with pytest.raises(GuestFailed):
        guest.call("answer")
    guest.close()


# 3. Why it suspended: turns that the epoch takes away are no submits.


def test_turns_that_are_taken_away_between_submits_change_no_answer(host):
    guest = host.load(ACTOR)
    rows = []
    answered_by(guest, lambda batch: rows.append(len(batch)))
    guest.call("burn_and_submit", 60_000_000, 6, budget=None)

    assert guest.account.run_seconds > TICK * TURN_TICKS  # turns are taken away
    assert rows == [1] * 6
    assert guest.statistics.submits == 6
    assert_works(guest)


def test_the_ticker_rests_while_no_call_is_in_flight(host):
    guest = host.load(ACTOR)
    guest.call("answer")
    ticker = host._loader.engine.ticker

    assert eventually(lambda: ticker.parked)
    with pytest.raises(GuestTimeout):
        guest.call("spin", budget=0.06)


# 4. Exceptions of handlers and policies never run on a fiber.


def test_a_policy_that_raises_is_answered_with_a_code(actor, caplog):
    def act(_batch):
        raise RuntimeError("a bug of the policy")

    answered_by(actor, act)

    assert actor.call("step", 2) == 4
    assert "a bug of the policy" in caplog.text
    assert actor.failure is None
    assert actor.call("submit", 0) == 0  # a failing submit empties the queue


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_error_goes_through_the_call_and_fails_the_guest(host, actor, kind):
    def act(_batch):
        raise kind

    answered_by(actor, act)
    with pytest.raises(kind):
        actor.call("step", 2)

    assert actor.failure is not None
    assert calls_of(actor).services.live_handles == 0
    assert_host_works(host)


def test_raising_handlers_never_end_the_process():
    script = """
import logging
from arkml import Host
from arkml.runtime.wasi.linking import WasiGrant
from tests.integration.guest_text import ACTOR

class Raising(logging.Handler):
    def emit(self, record):
        raise self.error

logging.raiseExceptions = False
handler = Raising()
logging.getLogger("arkml.guest").addHandler(handler)
logging.getLogger("arkml.guest").setLevel(logging.INFO)
logging.getLogger("arkml").addHandler(logging.NullHandler())
with Host() as host:
    for error in (RuntimeError("no"), KeyboardInterrupt(), SystemExit(3), MemoryError()):
        handler.error = error
        guest = host.load(ACTOR)
        try:
            guest.call("announce")
        except BaseException as caught:
            assert caught is error, caught
        other = host.load(ACTOR)
        assert other.call("open") == 0
        assert other.call("step", 3) == 0
        print("fine")
"""
    run = python(script)

    assert run.stderr == ""
    assert run.stdout == "fine\n" * 4
    assert run.returncode == 0


def test_a_raising_signal_handler_never_ends_the_process():
    script = """
import gc, logging, random, signal
from arkml import Host
from tests.integration.guest_text import ACTOR

class Alarm(BaseException):
    pass

def ring(*_):
    raise Alarm

signal.signal(signal.SIGALRM, ring)
logging.disable(logging.CRITICAL)
random.seed(4)
host = Host()
program = host.compile(ACTOR)
alarms, kept = 0, []
gc.disable()  # Python swallows what is raised in callbacks of the collector, and in finalizers
for turn in range(60):
    guest = host.load(program)
    kept.append(guest)
    guest.call("open")
    name = ("spin", "push_for_ever", "submit_for_ever")[turn % 3]
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.008))
        guest.call(name, budget=2)
    except Alarm:
        alarms += 1
other = host.load(program)
assert other.call("open") == 0
assert other.call("step", 3) == 0
print(alarms)
"""
    run = python(script)

    assert run.stderr == ""
    assert (run.stdout, run.returncode) == ("60\n", 0)


def test_what_wasmtime_keeps_for_the_next_exception_is_never_used(actor, host):
    def act(_batch):
        raise KeyboardInterrupt

    answered_by(actor, act)
    with pytest.raises(KeyboardInterrupt):
        actor.call("step", 1)

    assert wasmtime._func.LAST_EXCEPTION is None
    with pytest.raises(GuestTrap):
        host.load(ACTOR).call("boom")
    assert wasmtime._func.LAST_EXCEPTION is None


def test_guests_suspend_by_a_callback_in_python_where_there_is_no_native_library():
    script = """
from arkml.runtime import native
native.LIBRARY = None
from arkml import Host
from arkml.errors import GuestTimeout
from tests.integration.callback_policy import assert_works
from tests.integration.guest_text import ACTOR
with Host() as host:
    guest = host.load(ACTOR)
    for _ in range(200):
        assert_works(guest)
    guest.call("open")
    try:
        guest.call("submit_for_ever", budget=0.05)
    except GuestTimeout:
        print("fine")
    try:
        host.load(ACTOR).call("spin", budget=0.2)
    except GuestTimeout as error:
        print([frame.function for frame in error.frames])
    fleet = host.fleet(ACTOR, 50)
    assert fleet.call("open").values == [0] * 50
    assert fleet.call("step", 3).values == [0] * 50
"""
    run = python(script)

    assert (run.stdout, run.stderr, run.returncode) == ("fine\n['spin']\n", "", 0)


# 6. Stack sizes.


@pytest.mark.parametrize("size", [-1, 0, 1, 1000, 1 << 40, 1 << 62, 1 << 64])
def test_a_stack_size_that_would_end_the_process_is_refused(size):
    script = f"""
from arkml import Host
from arkml.errors import UsageError
from arkml.limits import Limits
try:
    Host(limits=Limits(wasm_stack={size}))
except UsageError as error:
    print(error)
"""
    run = python(script)

    assert run.stderr == ""
    assert "stack" in run.stdout
    assert str(size) in run.stdout
    assert run.returncode == 0


@pytest.mark.parametrize("size", [16 * KIB, 64 * KIB, 512 * KIB, 2048 * KIB, 16384 * KIB])
def test_recursion_exhausts_the_stack_and_nothing_else(make_host, size):
    host = make_host(limits=Limits(wasm_stack=size))
    guest = host.load(ACTOR)
    with pytest.raises(StackExhausted, match="stack"):
        guest.call("recurse")

    with host.load(ACTOR) as other:
        assert other.call("answer") == 42


def test_recursion_on_a_thread_with_a_small_stack_exhausts_only_the_guests(host, on_thread):
    before = threading.stack_size(256 * KIB)
    try:
        guest = host.load(ACTOR)
        error = on_thread(lambda: guest.call("recurse")).result()
    finally:
        threading.stack_size(before)

    assert isinstance(error, StackExhausted)
    assert_host_works(host)


def test_recursion_over_imports_exhausts_only_the_guests_stack(host):
    text, say = logging_of("deep")
    guest = host.load(
        module(text, function("deep", f"{say} (call $deep)"), uses=(LOG,)), name="deep"
    )
    with pytest.raises(StackExhausted):
        guest.call("deep", budget=None)

    assert_host_works(host)


# 7. Shared memories.


@pytest.mark.parametrize(
    "memory",
    ["(memory 1 2 shared)", '(import "env" "memory" (memory 1 2 shared))'],
    ids=["declared", "imported"],
)
def test_a_guest_with_a_shared_memory_is_refused_when_it_is_loaded(host, memory):
    with pytest.raises(ModuleRejected, match="shared memory"):
        host.load(module(function("f", ""), memory=memory))


# 10. Start functions.


def test_an_endless_start_function_runs_into_the_deadline(make_host):
    host = make_host(limits=Limits(run_seconds=0.1))
    guest = module(function("loop", "(loop $more (br $more))"), "(start $loop)")
    with pytest.raises(GuestTimeout, match=r"over its budget of 0\.1 s"):
        host.load(guest)

    assert_host_works(host)


def test_many_endless_start_functions_leave_the_host_usable(make_host):
    host = make_host(limits=Limits(run_seconds=0.011))
    program = host.compile(module(function("loop", "(loop $more (br $more))"), "(start $loop)"))
    for _ in range(20):
        with pytest.raises(GuestTimeout):
            host.load(program)

    with host.load(ACTOR) as guest:  # its model takes longer than that on a busy machine
        assert guest.call("answer") == 42


def test_a_start_function_may_use_every_import(host):
    body = f"""
      (i32.store {i32(32)} (call ${PUSH} (i64.const 1) (i64.const 1) {i32(0)} (f32.const 0)
        {i32(FEATURES)} {i32(2)} (f32.const 0)))
      (i32.store {i32(36)}
        (call ${START} {i32(2)} {i32(1)} {i32(MODEL)} {i32(len(POINTMASS))} {i32(0)} {i32(HANDLE)}))
      (i32.store {i32(40)} (call ${PUSH} (i64.load {i32(HANDLE)}) (i64.const 1) {i32(0)}
        (f32.const 0) {i32(FEATURES)} {i32(2)} (f32.const 0)))
      (i32.store {i32(44)}
        (call ${SUBMIT} (i64.load {i32(HANDLE)}) {i32(48)} {i32(1)} {i32(52)} {i32(1)}))"""
    guest = host.load(
        module(
            data(MODEL, POINTMASS),
            data(FEATURES, np.float32([0.5, -0.25]).tobytes()),
            f"(func $begin {body}) (start $begin)",
            uses=(START, PUSH, SUBMIT),
        )
    )

    codes = np.frombuffer(guest.read_memory(32, 16), "<u4")
    assert codes.tolist() == [6, 0, 0, 0]  # before start_inference a handle names nothing
    assert np.frombuffer(guest.read_memory(48, 4), "<f4") == np.float32(ACTION)


# Traps of the C API.


def test_a_future_is_never_polled_after_its_end_and_deleted_once(host, monkeypatch):
    polled, deleted = [], []
    poll, delete = fiber._poll, bindings.delete_future

    def recording(future):
        assert future not in ended, "polled after its end"
        polled.append(future)
        done = poll(future)
        if done:
            ended.add(future)
        return done

    def deleting(future):
        deleted.append(future)
        ended.discard(future)
        delete(future)

    ended = set()
    monkeypatch.setattr(native, "LIBRARY", None)  # which would poll without Python
    monkeypatch.setattr(fiber, "_poll", recording)
    monkeypatch.setattr(bindings, "delete_future", deleting)
    guests = [host.load(ACTOR) for _ in range(3)]
    assert_works(guests[0])
    with pytest.raises(GuestTrap):
        guests[1].call("boom")
    with pytest.raises(GuestTimeout):
        guests[2].call("spin", budget=0.02)
    for guest in guests:
        guest.close()

    assert len(polled) > len(deleted) == 10
    assert ended == set()


def test_imports_without_a_result_write_only_through_their_pointer(host):
    time_utc, create = (
        "ark-time-v1.time__time_utc",
        "ark-ml-inference-v0.ml_inference__create_runtime",
    )
    guest = host.load(
        module(
            function(
                "all",
                f"(memory.fill {i32(0)} {i32(0x3F)} {i32(64)})"
                f"(call ${time_utc} {i32(8)}) (call ${create} {i32(32)})",
            ),
            uses=(time_utc, create),
        )
    )
    before = time.time_ns()
    guest.call("all")
    memory = guest.read_memory(0, 64)

    assert before <= int.from_bytes(memory[8:16], "little") <= time.time_ns()
    assert int.from_bytes(memory[32:36], "little") == 1 + 0
    assert memory[:8] + memory[16:32] + memory[36:] == b"?" * 52


def test_memory_that_grew_in_the_call_receives_results(host):
    """Actions and import results land behind the old end of the memory."""
    far = 4 * 65536
    guest = host.load(
        module(
            data(MODEL, POINTMASS),
            data(FEATURES, np.float32([0.5, -0.25]).tobytes()),
            data(640, b"localhost"),
            function(
                "all",
                f"""
                (if (call ${START} {i32(2)} {i32(1)} {i32(MODEL)} {i32(len(POINTMASS))} {i32(0)}
                      {i32(HANDLE)}) (then unreachable))
                (if (call ${PUSH} (i64.load {i32(HANDLE)}) (i64.const 1) {i32(0)} (f32.const 0)
                      {i32(FEATURES)} {i32(2)} (f32.const 0)) (then unreachable))
                (if (i32.ne (memory.grow {i32(8)}) {i32(1)}) (then unreachable))
                (if (call ${SUBMIT} (i64.load {i32(HANDLE)}) {i32(far)} {i32(1)} {i32(far + 8)}
                      {i32(1)}) (then unreachable))
                (if (call ${CONNECT} {i32(640)} {i32(9)} {i32(1)} {i32(far + 16)})
                      (then unreachable))
                (f32.load {i32(far)})""",
                result="f32",
            ),
            uses=(START, PUSH, SUBMIT, CONNECT),
        )
    )

    assert guest.call("all") == np.float32(ACTION)
    assert int.from_bytes(guest.read_memory(far + 16, 8), "little") > 0


def test_memory_may_be_written_and_read_by_the_host_between_calls_after_growth(actor):
    base = actor.read_memory(FEATURES, 8)
    assert actor.call("grow", 100) == 4
    actor.write_memory(50 * 65536, b"far")

    assert actor.read_memory(50 * 65536, 3) == b"far"
    assert actor.read_memory(FEATURES, 8) == base
    assert_works(actor)


def test_a_call_may_be_resumed_on_other_threads(actor, on_thread):
    entry = calls_of(actor).begin("step", (6,))
    assert calls_of(actor).fiber.advance() is Pause.SUBMIT
    on_thread(calls_of(actor).answer).result()
    assert on_thread(calls_of(actor).fiber.advance).result() is None

    assert calls_of(actor).end(entry) == 0
    assert actor.call("action", 5) == ACTION
    assert on_thread(lambda: actor.call("step", 2)).result() == 0


def test_a_suspended_call_may_be_dropped_on_another_thread(host, actor, on_thread):
    calls_of(actor).begin("step", (6,))
    assert calls_of(actor).fiber.advance() is Pause.SUBMIT
    on_thread(lambda: calls_of(actor).abandon(GuestCancelled("dropped"))).result()
    on_thread(actor.close).result()

    assert_host_works(host)


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "del guest, host; gc.collect()",
        "guest = host = program = None; gc.collect()",
        "sys.exit(0)",
    ],
)
def test_a_process_ends_well_with_a_suspended_guest(ending):
    script = f"""
import gc, sys
from arkml import Host
from arkml.guests.guest import calls_of
from tests.integration.guest_text import ACTOR
host = Host()
program = host.compile(ACTOR)
guest = host.load(program)
guest.call("open")
calls_of(guest).begin("step", (4,))
calls_of(guest).fiber.advance()
print("suspended")
{ending}
"""
    run = python(script)

    assert (run.stdout, run.stderr, run.returncode) == ("suspended\n", "", 0)


def test_a_process_ends_well_while_a_guest_runs_on_a_daemon_thread():
    script = """
import threading, time
from arkml import Host
from tests.integration.guest_text import ACTOR
host = Host()
for name in ("spin", "push_for_ever"):
    guest = host.load(ACTOR)
    guest.call("open")
    threading.Thread(target=guest.call, args=(name,), kwargs={"budget": None}, daemon=True).start()
time.sleep(0.1)
print("leaving")
"""
    run = python(script)

    assert (run.stdout, run.stderr, run.returncode) == ("leaving\n", "", 0)


def test_an_abandoned_coroutine_drops_its_call(host):
    guest = host.load(ACTOR)
    guest.call("open")
    coroutine = guest.call_async("submit_for_ever", budget=None)
    coroutine.send(None)
    coroutine.close()

    assert isinstance(guest.failure, GuestCancelled)
    guest.close()


def test_a_guest_that_is_forgotten_in_a_call_takes_nothing_with_it(host):
    program = host.compile(ACTOR)
    for _ in range(20):
        guest = host.load(program)
        guest.call("open")
        calls_of(guest).begin("step", (4,))
        calls_of(guest).fiber.advance()
        del guest
        gc.collect()

    assert_host_works(host)


def test_closing_is_safe_in_any_order_and_twice():
    host = Host()
    guests = [host.load(ACTOR) for _ in range(3)]
    guests[0].close()
    guests[0].close()
    host.close()
    host.close()

    for guest in guests:
        guest.close()
        with pytest.raises(GuestFailed, match="closed"):
            guest.call("answer")
    with pytest.raises(UsageError, match="closed"):
        host.load(ACTOR)


def test_results_larger_than_31_bits_arrive_signed_and_arguments_wrap(host):
    guest = host.load(
        module(
            function("same", "(local.get 0)", "(param i32)", "i32"),
            function("wide", "(local.get 0)", "(param i64)", "i64"),
            function("both", "(local.get 0) (local.get 1)", "(param f64 f32)", "f64 f32"),
        )
    )

    assert guest.call("same", 0xFFFF_FFFF) == -1
    assert guest.call("wide", 1 << 63) == -(1 << 63)
    assert guest.call("both", 0.1, 0.5) == (0.1, 0.5)
    for arguments in ((), (1, 2), ("one",), (None,)):
        with pytest.raises(UsageError):
            guest.call("same", *arguments)
    assert guest.call("same", 3) == 3


def test_a_column_of_actions_lies_where_the_guest_asked(actor):
    actor.write_memory(ACTIONS, b"?" * 64)
    assert actor.call("step", 2) == 0

    assert np.frombuffer(actor.read_memory(ACTIONS, 8), "<f4").tolist() == [ACTION] * 2
    assert actor.read_memory(ACTIONS + 8, 56) == b"?" * 56
    assert int.from_bytes(actor.read_memory(FUTURE, 8), "little") == 0
