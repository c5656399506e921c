import re
import signal
import subprocess
import sys
import time
from dataclasses import fields

import numpy as np
import pytest
import wasmtime
from tests.integration.callback_policy import answered_by, assert_host_works, assert_works
from tests.integration.guest_text import (
    ACTOR,
    HANDLE,
    LOG,
    MODEL,
    POINTMASS,
    RETURN,
    SLEEPER,
    START,
    WITH_NNEF,
    data,
    function,
    i32,
    logging_of,
    module,
    opening,
    wasi,
)
from tests.integration.hostile_fleet import GREEDY, greedy_fleet
from tests.integration.scripted_hive import ScriptedHive, raw
from tests.integration.training_guest import LOCAL, V1, V2, TrainingGuest
from tests.unit import policy_models as build
from tests.unit.policy_models import node, numpy_helper, port
from tests.waiting import eventually

from arkml import HiveGrant, Host
from arkml.errors import (
    FunctionTooLarge,
    GuestTimeout,
    GuestTrap,
    InstanceLimitExceeded,
    LinkError,
    MemoryLimitExceeded,
    ModuleRejected,
    ModuleTooComplex,
    ModuleTooLarge,
    StackExhausted,
    TableLimitExceeded,
)
from arkml.guests.guest import calls_of
from arkml.limits import KIB, Limits
from arkml.runtime.wasi.linking import Directory, WasiGrant
from arkml.sessions.results import BOOL

PAGE = 65_536
SLACK = 1.0  # seconds of processor time after the deadline; `make bench` has the real ones
INVALID_ARGUMENTS, NOT_FOUND, UNAVAILABLE = 5, 6, 7
MFILE = 33  # the errno of WASI


def acting(host):
    guest = host.load(ACTOR)
    assert guest.call("open") == 0
    return guest


def test_every_limit_has_a_test_here():
    source = "\n".join(name for name in globals() if name.startswith("test_the_limit_of_"))

    for limit in fields(Limits):
        assert f"test_the_limit_of_{limit.name}_" in source, limit.name


def test_the_limit_of_module_bytes_is_kept(make_host):
    size = len(module(function("answer", i32(42), result="i32")))
    padding = data(0, b"x" * 5000)
    host = make_host(limits=Limits(module_bytes=4096))

    assert size < 4096
    assert host.load(module(function("answer", i32(42), result="i32"))).call("answer") == 42
    with pytest.raises(ModuleTooLarge, match=r"bytes, more than the 4,096 allowed"):
        host.load(module(padding))


def test_the_limit_of_module_bytes_holds_for_text_before_it_is_read(make_host):
    host = make_host(limits=Limits(module_bytes=4096))
    with pytest.raises(ModuleTooLarge):
        host.load(module(";; " + "x" * 5_000_000))


def test_the_limit_of_function_bytes_is_kept(make_host):
    host = make_host(limits=Limits(function_bytes=1000))
    nops = "(nop)" * 2000
    with pytest.raises(FunctionTooLarge, match=r"function .* bytes, more than the 1,000 allowed"):
        host.load(module(function("large", nops)))

    assert host.load(module(function("small", nops[:400]))).call("small") is None


def test_a_function_over_the_limit_is_refused_at_once(host):
    text = function("large", "(drop (i32.add (i32.const 1) (i32.const 2)))" * 400_000)
    started = time.process_time()
    binary = bytes(wasmtime.wat2wasm(module(text).decode()))
    written = time.process_time()
    with pytest.raises(FunctionTooLarge):
        host.load(binary)

    assert time.process_time() - written < written - started  # a 200th of it when measured


def test_the_limit_of_compile_seconds_is_kept(make_host):
    text = module(function("large", "(drop (i32.load (i32.const 77)))" * 20_000))
    with pytest.raises(ModuleTooComplex, match=r"not compiled in time: .*compile_seconds"):
        make_host(limits=Limits(compile_seconds=0.01)).load(text)

    assert make_host().load(text).call("large") is None


def test_the_limit_of_memory_bytes_is_kept_at_start(make_host):
    host = make_host(limits=Limits(memory_bytes=4 * PAGE))

    assert host.load(module(memory='(memory (export "memory") 4)')).failure is None
    for memory in ("(memory 5)", '(import "env" "memory" (memory 5))'):
        with pytest.raises(MemoryLimitExceeded, match="memory at start"):
            host.load(module(memory=memory))


def test_a_file_that_is_refused_is_named(tmp_path):
    """By its name, whatever refuses it, and once."""
    junk, large, alien = (tmp_path / f"{name}.wasm" for name in ("junk", "large", "alien"))
    junk.write_text("junk")
    large.write_bytes(wasmtime.wat2wasm("(module (memory 100))"))
    alien.write_bytes(wasmtime.wat2wasm('(module (import "space" "ship" (func)))'))
    refusals = ((junk, ModuleRejected), (large, MemoryLimitExceeded), (alien, LinkError))
    with Host(limits=Limits(memory_bytes=1 << 20)) as host:
        for path, error in refusals:
            with pytest.raises(error, match=rf"^{path.name}\b(?!.*{path.name})"):
                host.load(path)
        with pytest.raises(ModuleRejected, match=r"^the module is not WebAssembly"):
            host.load(b"junk")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"guest_bytes": 4 * PAGE}, "the 262,144 that Limits.guest_bytes leaves it"),
        ({"guest_bytes": 1}, "the 1 that Limits.guest_bytes leaves it"),
    ],
)
def test_a_memory_that_does_not_fit_at_start_is_refused_with_the_limit_that_refuses_it(
    make_host, limits, reason
):
    with pytest.raises(MemoryLimitExceeded, match=f"needs 327,680 bytes .* {reason}"):
        make_host(limits=Limits(**limits)).load(module(memory="(memory 5)"))


def test_the_limit_of_memory_bytes_lets_memory_grow_answer_minus_one(make_host):
    guest = make_host(limits=Limits(memory_bytes=6 * PAGE)).load(ACTOR)

    assert guest.call("grow", 3) == -1
    assert guest.call("grow", 2) == 4
    assert guest.call("grow", 1) == -1
    assert guest.call("grow", 0) == 6
    assert guest.call("pages") == 6
    assert_works(guest)


def test_filling_all_of_the_memory_of_the_default_limit_ends_soon_after_the_budget(host):
    pages = Limits().memory_bytes // PAGE
    fill = f"(memory.fill {i32(0)} {i32(1)} {i32((pages - 1) * PAGE)})"
    guest = host.load(
        module(
            function("fill", fill),
            function("fill_again", f"(loop $more {fill} (br $more))"),
            memory=f"(memory {pages})",
        )
    )
    started = time.process_time()
    guest.call("fill", budget=None)
    once = time.process_time() - started
    started = time.process_time()
    with pytest.raises(GuestTimeout):
        guest.call("fill_again", budget=0.05)

    # One instruction is not cut short.
    assert time.process_time() - started < 0.05 + 2 * once + SLACK


def test_a_memory_does_not_grow_over_its_own_maximum(host):
    guest = host.load(
        module(
            function("grow", "(memory.grow (local.get 0))", "(param i32)", "i32"),
            memory="(memory 1 3)",
        )
    )

    assert guest.call("grow", 3) == -1
    assert guest.call("grow", 2) == 1
    assert guest.call("grow", 1) == -1


def test_the_limit_of_tables_is_kept(make_host):
    host = make_host(limits=Limits(tables=2))

    assert host.load(module("(table 1 funcref)" * 2)).failure is None
    with pytest.raises(TableLimitExceeded, match="3 tables, more than the 2 allowed"):
        host.load(module("(table 1 funcref)" * 3))


def test_the_limit_of_table_elements_is_kept(make_host):
    host = make_host(limits=Limits(table_elements=100))
    grow = "(table.grow $t (ref.null func) (local.get 0))"
    guest = host.load(module("(table $t 60 funcref)", function("grow", grow, "(param i32)", "i32")))

    assert guest.call("grow", 41) == -1
    assert guest.call("grow", 40) == 60
    with pytest.raises(TableLimitExceeded, match="table elements at start"):
        host.load(module("(table 101 funcref)"))


def growing(*minima):
    """A module with tables that grow as far as they can, which `grown` does and returns the sum."""
    tables = "".join(
        f'(table $t{index} {minimum} funcref) (export "t{index}" (table $t{index}))'
        for index, minimum in enumerate(minima)
    )
    grow = "".join(
        f"""(loop $more (br_if $more (i32.ne (i32.const -1)
          (table.grow $t{index} (ref.null func) (i32.const 1)))))"""
        for index in range(len(minima))
    )
    sizes = "(i32.const 0)"
    for index in range(len(minima)):
        sizes = f"(i32.add {sizes} (table.size $t{index}))"
    return module(tables, function("grown", f"{grow} {sizes}", result="i32"))


@pytest.mark.parametrize(
    ("minima", "total"),
    [
        ((0,), 100), ((60,), 100), ((0, 0), 100), ((60, 0), 100), ((60, 40), 100),
        ((90, 0, 0), 100), ((1, 2, 3, 4, 5, 6, 7), 98), ((0,) * 16, 96),
    ],
)  # fmt: skip
def test_the_limit_of_table_elements_is_that_of_all_tables_when_they_grow(make_host, minima, total):
    host = make_host(limits=Limits(table_elements=100))

    assert host.load(growing(*minima)).call("grown") == total


def test_tables_with_a_maximum_leave_the_rest_to_the_others(make_host):
    host = make_host(limits=Limits(table_elements=100))
    tables = "(table $fixed 10 10 funcref) (table $small 0 5 funcref) (table $free 0 funcref)"
    grow = "(table.grow $free (ref.null func) (local.get 0))"
    guest = host.load(module(tables, function("grow", grow, "(param i32)", "i32")))

    assert guest.call("grow", 86) == -1
    assert guest.call("grow", 85) == 0


def test_the_limit_of_instances_is_kept(make_host):
    host = make_host(limits=Limits(instances=3))
    guests = [host.load(ACTOR) for _ in range(3)]
    with pytest.raises(InstanceLimitExceeded, match="3 guests"):
        host.load(ACTOR)
    guests[1].close()

    assert_host_works(host)


def test_the_limit_of_instances_holds_for_fleets(make_host):
    host = make_host(limits=Limits(instances=3))
    with pytest.raises(InstanceLimitExceeded):
        host.fleet(ACTOR, 4)

    assert len(host.fleet(ACTOR, 3)) == 3


def test_the_limit_of_handles_is_kept(make_host):
    guest = make_host(limits=Limits(handles=3)).load(ACTOR)

    assert [guest.call("open") for _ in range(4)] == [0, 0, 0, UNAVAILABLE]
    assert calls_of(guest).services.live_handles == 3
    assert guest.call("close") == 0
    assert guest.call("open") == 0
    assert guest.call("step", 2) == 0


def test_the_limit_of_futures_is_kept(make_host):
    guest = make_host(limits=Limits(futures=3)).load(ACTOR)

    assert [guest.call("connect") for _ in range(4)] == [0, 0, 0, UNAVAILABLE]
    assert calls_of(guest).services.live_futures == 3
    assert_works(guest)


def test_the_limit_of_rows_is_kept(make_host):
    guest = acting(make_host(limits=Limits(rows=100)))

    assert guest.call("push_many", 100) == 0
    assert guest.call("push", 1) == INVALID_ARGUMENTS
    assert guest.call("submit", 100) == 0
    assert guest.call("action", 99) == guest.call("action", 0)
    assert guest.call("step", 101) == INVALID_ARGUMENTS
    assert guest.call("step", 100) == 0


def test_a_row_limit_below_the_first_size_of_a_region_is_kept(make_host):
    guest = acting(make_host(limits=Limits(rows=10)))

    assert guest.call("push_many", 10) == 0
    assert guest.call("push", 1) == INVALID_ARGUMENTS
    assert guest.call("submit", 10) == 0


def test_a_guest_that_pushes_over_the_limit_in_a_loop_does_not_flood_the_log(make_host, caplog):
    guest = acting(make_host(limits=Limits(rows=100)))
    guest.call("push_many", 5_000)

    assert 1 <= len(caplog.records) < 100


METADATA = "ark-ml-v3.ml__push_inference_observation"


def test_the_limit_of_metadata_bytes_is_kept(make_host):
    """One metric of v3 takes 72 bytes, and 16 for the row that it came with."""
    guest = make_host(limits=Limits(metadata_bytes=1024)).load(
        module(
            data(MODEL, POINTMASS),
            function(
                "open",
                f"(call ${START} {i32(2)} {i32(1)} {i32(MODEL)} {i32(len(POINTMASS))} {i32(0)}"
                f" {i32(8)})",
                result="i32",
            ),
            function(
                "push",
                f"(call ${METADATA} (i64.load {i32(8)}) (i64.const 1) {i32(0)} (f32.const 0)"
                f" {i32(64)} {i32(2)} {i32(2048)} (local.get $items))",
                params="(param $items i32)",
                result="i32",
            ),
            uses=(START, METADATA),
        )
    )
    assert guest.call("open") == 0

    assert guest.call("push", 15) == INVALID_ARGUMENTS
    assert guest.call("push", 11) == 0
    assert [guest.call("push", 1) for _ in range(3)] == [0, 0, INVALID_ARGUMENTS]
    assert guest.call("push", 0) == 0


def test_the_limit_of_column_bytes_is_kept(make_host):
    """A row of two features and one action takes 48 bytes; a region starts with 64 rows."""
    guest = acting(make_host(limits=Limits(column_bytes=48 * 200)))

    assert guest.call("push_many", 128) == 0
    assert guest.call("push", 1) == UNAVAILABLE
    assert guest.call("submit", 128) == 0
    assert guest.call("step", 3) == 0


def test_the_limit_of_column_bytes_holds_for_a_new_session(make_host):
    guest = make_host(limits=Limits(column_bytes=1000)).load(ACTOR)

    assert guest.call("open") == UNAVAILABLE
    assert calls_of(guest).services.live_handles == 0


def test_the_limit_of_snapshot_bytes_is_kept(make_host, caplog):
    guest = make_host(limits=Limits(snapshot_bytes=len(POINTMASS) - 1)).load(ACTOR)

    assert guest.call("open") == INVALID_ARGUMENTS
    assert f"{len(POINTMASS) - 1}" in caplog.text
    assert make_host(limits=Limits(snapshot_bytes=len(POINTMASS))).load(ACTOR).call("open") == 0


def test_the_limit_of_text_bytes_is_kept(make_host, caplog):
    text, say = logging_of("x" * 5_000, at=1000)
    guest = module(text, function("say", say), uses=(LOG,))
    host = make_host(limits=Limits(text_bytes=1000))
    caplog.set_level("INFO")
    host.load(guest).call("say")
    address = " ".join(i32(number) for number in (1000, 1001, 80, 0))
    ask = function("ask", f"(call $ark-ml-v1.ml__can_connect_to_hive {address})", result="i32")
    asking = host.load(module(text, ask, uses=("ark-ml-v1.ml__can_connect_to_hive",)))
    told = list(caplog.messages)

    assert told == ["x" * 1000 + "… [4000 bytes cut]"]
    assert asking.call("ask") == INVALID_ARGUMENTS
    assert asking.statistics.limits == {"TextTooLong": 1}


def test_the_limit_of_wasm_stack_is_kept(make_host):
    """The deeper stack goes deeper, in about the ratio of the sizes."""
    counting = module(
        function(
            "dive",
            "(i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))"
            " (call $dive)",
        )
    )
    depths = []
    for size in (64 * KIB, 640 * KIB):
        host = make_host(limits=Limits(wasm_stack=size))
        guest = host.load(counting)
        with pytest.raises(StackExhausted):
            guest.call("dive")
        depths.append(int.from_bytes(guest.read_memory(0, 4), "little"))
        shallow = host.load(
            module(
                function(
                    "dive",
                    """(if (local.get 0)
                        (then (call $dive (i32.sub (local.get 0) (i32.const 1)))))""",
                    "(param i32)",
                )
            )
        )
        assert shallow.call("dive", 500) is None

    assert 8 < depths[1] / depths[0] < 12


def test_the_limit_of_run_seconds_is_kept(make_host):
    guest = make_host(limits=Limits(run_seconds=0.1)).load(ACTOR)
    started, ran = time.perf_counter(), time.thread_time()
    with pytest.raises(GuestTimeout, match=r"over its budget of 0\.1 s"):
        guest.call("spin")

    assert time.perf_counter() - started >= 0.1
    assert time.thread_time() - ran < 0.1 + SLACK


def test_the_limit_of_call_seconds_is_kept(make_host):
    host = make_host(wasi=WasiGrant(), limits=Limits(call_seconds=0.15))
    guest = host.load(SLEEPER)
    centuries = (1 << 63) - 1  # 292 years, in nanoseconds
    with pytest.raises(GuestTimeout, match=r"with its waits, over the limit of 0\.15 s"):
        guest.call("sleep", centuries)

    assert host.load(SLEEPER).call("sleep", 200_000_000, budget=None) == 0
    assert host.load(SLEEPER).call("sleep", 200_000_000, budget=1.0) == 0


def test_the_limit_of_call_seconds_is_kept_in_a_fleet(make_host):
    host = make_host(wasi=WasiGrant(), limits=Limits(call_seconds=0.1))
    fleet = host.fleet(SLEEPER, 3)
    result = fleet.call("sleep", 10**15)

    assert sorted(result.failures) == [0, 1, 2]
    assert all("with its waits" in str(error) for error in result.failures.values())


HELD_UP = """
import sys
import arkml

limits = arkml.Limits(run_seconds=60.0, call_seconds=0.5)
with arkml.Host(limits=limits) as host:
    guest = host.load(sys.stdin.buffer.read())
    print("ready", flush=True)
    guest.call("count", 10_000_000, budget=None)
    count = int(0.3 * 10_000_000 / guest.account.wasm_seconds)  # for so many seconds of its own
    for _ in range(12):
        guest.call("count", count)
    print("alive", flush=True)
"""
COUNT = module(
    function(
        "count",
        "(loop $on (local.set 0 (i32.sub (local.get 0) (i32.const 1))) (br_if $on (local.get 0)))",
        "(param i32)",
    )
)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="the system stops no processes")
def test_a_guest_that_waits_for_nothing_may_be_held_up_for_longer_than_a_call_may_wait():
    with subprocess.Popen(
        [sys.executable, "-c", HELD_UP], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        process.stdin.write(COUNT)
        process.stdin.close()
        process.stdin = None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(3):
            time.sleep(0.4)  # a call is in progress nearly always
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.6)
            process.send_signal(signal.SIGCONT)
        out, errors = process.communicate(timeout=300)

    assert out == b"alive\n", errors.decode()


def test_the_limit_of_frames_over_share_is_kept(make_host):
    host = make_host(limits=Limits(frames_over_share=1, run_seconds=0.4))
    fleet = greedy_fleet(host, 0.4)
    seen = []
    while not any(seen) and len(seen) < 60:
        seen.append(fleet.update())

    assert len(seen) >= 2
    assert seen[-1]
    assert seen[-1].keys() <= GREEDY


def test_the_limit_of_nnef_processes_is_kept(make_host):
    guest = make_host(limits=Limits(nnef_processes=0)).load(WITH_NNEF)
    code = guest.call("open")
    other = make_host(limits=Limits(nnef_processes=1)).load(WITH_NNEF)

    assert code == UNAVAILABLE
    assert other.call("open") == 0


def test_the_limit_of_guest_bytes_holds_for_memory_and_sessions_together(make_host):
    """ACTOR has 4 pages, its model 131,354 bytes, and a region of 64 rows 48 bytes for each."""
    host = make_host(limits=Limits(guest_bytes=13 * PAGE))
    guest = host.load(ACTOR)
    assert guest.call("open") == 0

    assert guest.call("grow", 7) == -1
    assert guest.call("grow", 6) == 4
    assert guest.call("push_many", 64) == 0
    assert guest.call("push_many", 2_000) == UNAVAILABLE
    assert guest.account.total_bytes <= 13 * PAGE
    assert guest.statistics.limits["GuestMemoryFull"] >= 1
    assert guest.call("close") == 0
    guest.call("connect")  # an import, after which the host looks again
    assert guest.call("grow", 1) == 10


def test_the_limit_of_guest_bytes_holds_for_a_new_session(make_host):
    guest = make_host(limits=Limits(guest_bytes=4 * PAGE + 1000)).load(ACTOR)

    assert guest.call("open") == UNAVAILABLE
    assert calls_of(guest).services.live_handles == 0
    assert guest.account.session_bytes == 0


RETURNING = module(
    function(
        "give",
        f"(call ${RETURN} {i32(0)} {i32(1)} (local.get $size))",
        params="(param $size i32)",
        result="i32",
    ),
    uses=(RETURN,),
    memory='(memory (export "memory") 8)',
)


def test_the_limit_of_guest_bytes_holds_for_return_slices(make_host):
    guest = make_host(limits=Limits(guest_bytes=12 * PAGE)).load(RETURNING)
    codes = [guest.call("give", 4 * PAGE), guest.call("give", 4 * PAGE + 1)]
    refused = guest.return_slice
    again = guest.call("give", 4 * PAGE)

    assert [*codes, again] == [0, UNAVAILABLE, 0]
    assert refused is None
    assert guest.return_slice == bytes(4 * PAGE)
    assert guest.account.vector_bytes == 4 * PAGE
    assert guest.account.total_bytes == 12 * PAGE
    assert guest.statistics.limits == {"GuestMemoryFull": 1}


def test_the_limit_of_guest_bytes_holds_for_pending_vectors(make_host):
    """The model of ACTOR has little more than two pages, and so has its container."""
    size = len(large := build.linear(np.zeros((2 * PAGE // 4, 1))))
    pack = f"(call $ark-ml-v1.ml__onnx_to_cervo {i32(MODEL)} {i32(size)} {i32(0)})"
    take = "(call $ark-core-v4.core__take_host_return_vec (i32.const 0) (i32.load (i32.const 0)))"
    packing = module(
        data(MODEL, large),
        function("pack", pack, result="i32"),
        function("pack_and_take", f"(drop {pack}) {take}", result="i32"),
        uses=("ark-ml-v1.ml__onnx_to_cervo", "ark-core-v4.core__take_host_return_vec"),
        memory='(memory (export "memory") 6)',
    )
    guest = make_host(limits=Limits(guest_bytes=9 * PAGE)).load(packing)
    tight = make_host(limits=Limits(guest_bytes=8 * PAGE)).load(packing)

    assert guest.call("pack") == 0
    assert guest.account.vector_bytes == 3 * PAGE
    assert guest.call("pack_and_take") == 0
    assert guest.account.vector_bytes < 3 * PAGE
    assert tight.call("pack") == UNAVAILABLE
    assert tight.call("pack_and_take") == NOT_FOUND


STATE = 64
RECURRENT = build.model(
    [
        node("ReduceSum", "obs axes", "sum"),
        node("Add", "memory_in sum", "memory_out"),
        node("ReduceSum", "memory_out axes", "actions"),
    ],
    [port("obs", "N", 2), port("memory_in", "N", STATE)],
    [port("actions", "N", 1), port("memory_out", "N", STATE)],
    [numpy_helper.from_array(np.array([1], np.int64), "axes")],
)
"""A model for ACTOR that has 256 bytes of state for each agent, which it takes and returns."""


def recurrent_actor():
    opened = opening("open", MODEL, len(POINTMASS), HANDLE)
    program = ACTOR.replace(data(MODEL, POINTMASS).encode(), data(MODEL, RECURRENT).encode())
    return program.replace(opened.encode(), opening("open", MODEL, len(RECURRENT), HANDLE).encode())


def test_the_limit_of_guest_bytes_holds_for_the_work_space_of_models(make_host):
    guest = make_host(limits=Limits(guest_bytes=11 * PAGE)).load(recurrent_actor())
    assert guest.call("open") == 0
    codes = [guest.call("step", rows) for rows in (64, 1_024, 64)]
    account = guest.account

    assert codes == [0, UNAVAILABLE, 0]
    assert account.work_bytes == 64 * 2 * 4 * STATE
    assert account.total_bytes <= 11 * PAGE
    assert account.total_bytes + 960 * 2 * 4 * STATE > 11 * PAGE
    assert guest.statistics.limits == {"GuestMemoryFull": 1}


def test_the_work_space_of_a_model_of_the_embedder_is_not_charged(make_host):
    guest = make_host(policy=RECURRENT).load(ACTOR)
    assert guest.call("open") == 0

    assert guest.call("step", 256) == 0
    assert guest.account.work_bytes == 0
    assert guest.account.session_bytes == len(POINTMASS)  # its own, which is kept


def test_guests_of_a_fleet_pay_for_the_work_space_of_their_rows(make_host):
    fleet = make_host().fleet(recurrent_actor(), 3)
    fleet.call("open")
    fleet.call("step", 32)
    one, two, three = (guest.account.work_bytes for guest in fleet.guests)

    assert one == two == three == 32 * 2 * 4 * STATE


@pytest.fixture
def slow_hive():
    """A hive that does not answer whether it is there before its gate is open."""
    hive = ScriptedHive()

    def later(hive, handler, body):
        hive.gate.wait(300)
        hive.plainly("health", handler, body)

    hive.gate.clear()
    hive.scripts["health"] = [later]
    yield hive
    hive.close()


def training_guest(make_host, hive, **limits):
    grant = HiveGrant(hive=f"127.0.0.1:{hive.port}")
    return TrainingGuest(make_host(limits=Limits(**limits), hive=grant))


def test_the_limit_of_requests_holds_until_they_are_done(make_host, slow_hive):
    guest = training_guest(make_host, slow_hive, requests=3)
    futures = [guest.handle(V1, "can_connect_to_hive", *LOCAL) for _ in range(3)]
    eventually(lambda: len(slow_hive.times.get("health", [])) == 3)
    for future in futures:
        guest.proxy.code(V1, "ml__drop_future", future)
    code, _ = guest.ask(V1, "can_connect_to_hive", *LOCAL)
    slow_hive.gate.set()
    eventually(lambda: guest.guest.account.request_bytes == 0)
    after = guest.handle(V1, "can_connect_to_hive", *LOCAL)
    guest.wait(V1, "bool", after)

    assert code == UNAVAILABLE
    assert guest.guest.statistics.limits["TooManyRequests"] == 1
    assert guest.take(V1, "bool", after, 1) == (0, b"\x01")


@pytest.mark.parametrize("limit", ["guest_bytes", "host_bytes"])
def test_the_limit_of_guest_bytes_holds_for_what_a_hive_answers(make_host, slow_hive, limit):
    slow_hive.scripts["snapshot"] = [raw(bytes(2 * PAGE))]
    guest = training_guest(make_host, slow_hive, memory_bytes=PAGE, **{limit: 6 * PAGE})
    futures = [guest.handle(V2, "download_snapshot_from_registry", *LOCAL, "run") for _ in range(3)]
    counts = [guest.wait(V1, "vec_u8", future, size=8) for future in futures]
    held = guest.guest.account.request_bytes
    lost = futures[counts.index(0)]
    refused = guest.proxy.code(V1, "ml__take_future_vec_u8", lost, 64, 0)
    for future in futures:
        guest.proxy.code(V1, "ml__drop_future", future)

    assert sorted(counts) == [0, 2 * PAGE, 2 * PAGE]
    assert refused == UNAVAILABLE
    assert 4 * PAGE < held < 5 * PAGE
    assert guest.guest.account.request_bytes == 0


def test_the_limit_of_host_bytes_is_kept(make_host):
    limits = Limits(guest_bytes=8 * PAGE, host_bytes=24 * PAGE)
    host = make_host(limits=limits)
    guests = [host.load(ACTOR) for _ in range(3)]
    with pytest.raises(InstanceLimitExceeded, match=r"over its limit of 1572864 \(Limits\.host_"):
        host.load(ACTOR)
    for guest in guests:  # try to have more than that together
        guest.call("open")
        for size in (1, 100, 1_000, 10_000):
            guest.call("push_many", size)
            guest.call("grow", 1)
        while guest.call("grow", 1) != -1:
            pass

    assert host.account.total_bytes <= 24 * PAGE
    assert host.account.total_bytes > 20 * PAGE
    guests[0].close()
    assert_host_works(host)


def test_the_limit_of_host_bytes_counts_what_the_memory_of_a_guest_may_have(make_host):
    host = make_host(limits=Limits(host_bytes=10 * PAGE))
    small = module(memory='(memory (export "memory") 1 2)')
    with pytest.raises(InstanceLimitExceeded, match=r"6 more, .* 131072 bytes, .* limit of 655360"):
        host.fleet(small, 6)
    guests = [host.load(small) for _ in range(5)]
    with pytest.raises(InstanceLimitExceeded, match="or may have 655360 bytes: 1 more"):
        host.load(small)
    for guest in guests[:2]:
        guest.close()

    assert len(host.fleet(small, 2)) == 2


def test_the_limit_of_host_bytes_counts_sessions_while_they_are_open(make_host):
    """The memory of ACTOR has 4 pages, its session little more than 2."""
    host = make_host(limits=Limits(memory_bytes=4 * PAGE, host_bytes=11 * PAGE))
    first, second = host.load(ACTOR), host.load(ACTOR)
    assert first.call("open") == 0

    assert second.call("open") == UNAVAILABLE
    assert second.statistics.limits["GuestMemoryFull"] == 1
    assert first.call("push_many", 2_000) == UNAVAILABLE
    assert first.call("close") == 0
    assert first.call("connect") in (0, 1)  # what it has less is given back with its next call
    assert second.call("open") == 0
    assert host.account.total_bytes <= 11 * PAGE


def test_the_limit_of_guest_bytes_holds_for_memory_alone(make_host):
    guest = make_host(limits=Limits(guest_bytes=6 * PAGE)).load(ACTOR)

    assert guest.call("grow", 3) == -1
    assert guest.call("grow", 2) == 4


@pytest.mark.parametrize("budget", [0.0, 0.001, 0.03, 0.07, 0.13])
def test_a_budget_of_one_call_is_kept(host, budget):
    guest = host.load(ACTOR)
    started, ran = time.perf_counter(), time.thread_time()
    with pytest.raises(GuestTimeout):
        guest.call("spin", budget=budget)

    assert time.perf_counter() - started >= budget
    assert time.thread_time() - ran < budget + SLACK


def test_the_run_time_of_a_call_is_the_sum_over_its_submits(host):
    guest = acting(host)
    started, ran = time.perf_counter(), time.thread_time()
    with pytest.raises(GuestTimeout):
        guest.call("burn_and_submit", 100_000, 1_000_000, budget=0.15)

    assert time.perf_counter() - started >= 0.15
    assert time.thread_time() - ran < 0.15 + SLACK
    assert guest.statistics.submits > 10


def test_the_time_of_the_policy_is_not_counted(host):
    guest = host.load(ACTOR)
    answered_by(guest, lambda _batch: time.sleep(0.06))
    started = time.perf_counter()
    guest.call("burn_and_submit", 1000, 4, budget=0.1)

    assert time.perf_counter() - started > 0.24


def test_the_time_of_a_suspension_is_not_counted(make_host):
    guest = make_host(wasi=WasiGrant(), limits=Limits(run_seconds=0.05)).load(SLEEPER)
    started = time.perf_counter()

    assert guest.call("sleep", 150_000_000) == 0
    assert time.perf_counter() - started >= 0.15


def test_each_call_has_the_whole_budget(host):
    guest = host.load(ACTOR)
    turns = 20_000_000
    started = time.thread_time()
    guest.call("burn", turns, budget=None)
    once = time.thread_time() - started

    for _ in range(4):
        guest.call("burn", turns, budget=3 * once + 0.03)
    with pytest.raises(GuestTimeout):
        guest.call("burn", 40 * turns, budget=3 * once + 0.03)


def test_no_budget_is_no_limit(make_host):
    guest = make_host(limits=Limits(run_seconds=0.01)).load(ACTOR)
    guest.call("burn", 100_000_000, budget=None)

    assert guest.account.run_seconds > 0.01
    assert make_host(limits=Limits(run_seconds=None)).load(ACTOR).call("burn", 1000) is None


def test_a_guest_that_polls_for_ever_runs_into_the_deadline(host):
    guest = host.load(ACTOR)
    handle, _ = calls_of(guest).services.futures.open(BOOL)
    started, ran = time.perf_counter(), time.thread_time()
    with pytest.raises(GuestTimeout):
        guest.call("poll_until_ready", handle, budget=0.1)

    assert time.perf_counter() - started >= 0.1
    assert time.thread_time() - ran < 0.1 + SLACK
    assert calls_of(guest).services.live_futures == 0


def test_a_flood_of_import_calls_runs_into_the_deadline(host):
    text, say = logging_of("flood")
    guest = host.load(
        module(text, function("flood", f"(loop $more {say} (br $more))"), uses=(LOG,))
    )
    with pytest.raises(GuestTimeout, match=r"over its budget of 0\.05 s"):
        guest.call("flood", budget=0.05)


def test_the_limit_of_log_lines_is_kept(make_host, caplog):
    caplog.set_level("INFO")
    text, say = logging_of("a line")
    guest = module(text, function("flood", say * 50), uses=(LOG,))
    make_host(limits=Limits(log_lines=5)).load(guest).call("flood")

    assert 5 <= len(caplog.records) < 20  # and some more, where 50 lines take a second


def test_the_limit_of_start_seconds_is_kept(make_host):
    spinning = module(function("ark_initialize", "(loop $more (br $more))"))
    busy = module(
        function(
            "ark_initialize",
            """(local $n i32) (loop $more
              (local.set $n (i32.add (local.get $n) (i32.const 1)))
              (br_if $more (i32.lt_u (local.get $n) (i32.const 200000000))))""",
        ),
        function("ark_applet_update", "(loop $more (br $more))"),
    )
    limits = Limits(run_seconds=0.01, start_seconds=0.05)
    for make in (lambda host: host.load(spinning), lambda host: host.fleet(spinning, 2)):
        with pytest.raises(GuestTimeout, match=r"over its budget of 0\.05 s"):
            make(make_host(limits=limits))
    with pytest.raises(GuestTimeout, match=r"over its budget of 0\.2 s"):
        make_host(limits=Limits(run_seconds=0.2, start_seconds=0.1)).load(spinning)
    with pytest.raises(GuestTimeout, match=r"over its budget of 0\.01 s"):
        make_host(limits=Limits(run_seconds=0.01)).load(busy)
    guest = make_host(limits=Limits(run_seconds=0.01, start_seconds=60)).load(busy)

    assert guest.account.run_seconds > 0.01
    with pytest.raises(GuestTimeout, match=r"over its budget of 0\.01 s"):
        guest.update()


def test_the_limit_of_log_bytes_is_kept(make_host, caplog):
    caplog.set_level("INFO")
    text, say = logging_of("å" * 5_000, at=1000)
    guest = module(text, function("say", say), uses=(LOG,))
    make_host(limits=Limits(log_bytes=100)).load(guest).call("say")
    make_host().load(guest).call("say")
    short, whole = (record.getMessage() for record in caplog.records)

    assert short.startswith("å" * 50 + "…")
    assert re.search(r"9900 bytes cut", short)
    assert whole == "å" * 5_000


def test_the_limit_of_descriptors_is_kept(make_host, tmp_path):
    opening = module(
        data(0, b"file"),
        function(
            "open",
            "(call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 4)"
            " (i32.const 1) (i64.const 66) (i64.const 0) (i32.const 0) (i32.const 16))",
            result="i32",
        ),
        imports=(wasi("path_open", "i32 i32 i32 i32 i32 i64 i64 i32 i32"),),
    )
    grant = WasiGrant(directories=[Directory(tmp_path, "/", writable=True)])
    met = {}
    for limit in (0, 4, 6):  # three streams and the directory are descriptors too
        guest = make_host(wasi=grant, limits=Limits(descriptors=limit)).load(opening)
        met[limit] = [guest.call("open") for _ in range(3)]

    assert met == {0: [MFILE] * 3, 4: [MFILE] * 3, 6: [0, 0, MFILE]}


def test_limits_do_not_leak_from_one_host_to_another(make_host):
    small, plain = make_host(limits=Limits(rows=100)), make_host()
    guests = [acting(small), acting(plain)]

    assert [guest.call("push_many", 101) for guest in guests] == [INVALID_ARGUMENTS, 0]


def test_a_trap_names_functions_by_the_beginning_of_long_names(host):
    guest = host.load(f'(module (func ${"n" * 50_000} (export "go") unreachable))'.encode())
    with pytest.raises(GuestTrap) as trapped:
        guest.call("go")

    assert f" {'n' * 200}… " in str(trapped.value)
    assert len(str(trapped.value)) < 1_000
    assert len(trapped.value.frames[0].function) == 201
