import gc
import logging
import os
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from tests.integration.callback_policy import FAKE_ACTION, CallbackPolicy, assert_works
from tests.integration.guest_text import (
    ACTION,
    ACTIONS,
    ACTOR,
    FEATURES,
    GUESTS,
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
    opening,
    python,
    wasi,
)

from arkml.errors import (
    EntryPointMissing,
    GuestBusy,
    GuestCancelled,
    GuestExit,
    GuestFailed,
    GuestTimeout,
    GuestTrap,
    InstanceLimitExceeded,
    StackExhausted,
    UsageError,
)
from arkml.guests.fleet import _FRAME as FRAME
from arkml.guests.guest import calls_of
from arkml.guests.shares import FleetShares
from arkml.host import loader_of
from arkml.limits import Limits
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.results import BOOL

SCRIPTED = module(
    data(MODEL, POINTMASS),
    # what each guest is to do in its next frames, one byte a frame
    "(global $next (mut i32) (i32.const 4096))",
    function(
        "open",
        f"(call ${START} {i32(2)} {i32(1)} {i32(MODEL)} {i32(len(POINTMASS))} {i32(0)}"
        f" {i32(HANDLE)})",
        result="i32",
    ),
    f"""(func $push (param $row i32) (result i32)
      (f32.store {i32(FEATURES)}
        (f32.add (f32.load {i32(72)}) (f32.convert_i32_u (local.get $row))))
      (f32.store {i32(FEATURES + 4)} (f32.const 0.5))
      (call ${PUSH} (i64.load {i32(HANDLE)}) (i64.extend_i32_u (local.get $row)) {i32(0)}
        (f32.const 0) {i32(FEATURES)} {i32(2)} (f32.const 0)))""",
    f"""(func $submit (param $rows i32) (result i32)
      (call ${SUBMIT} (i64.load {i32(HANDLE)}) {i32(ACTIONS)} (local.get $rows) {i32(0x18000)}
        (local.get $rows)))""",
    function(
        "frame",
        """(local $rows i32) (local $row i32) (local $code i32)
        (local.set $rows (i32.load8_u (global.get $next)))
        (global.set $next (i32.add (global.get $next) (i32.const 1)))
        (if (i32.eq (local.get $rows) (i32.const 255)) (then unreachable))
        (if (i32.eq (local.get $rows) (i32.const 254)) (then (loop $more (br $more))))
        (if (i32.eq (local.get $rows) (i32.const 253))
          (then (return (call $submit (i32.const 3)))))
        (if (i32.eqz (local.get $rows)) (then (return (i32.const 100))))
        (loop $more
          (local.set $code (i32.or (local.get $code) (call $push (local.get $row))))
          (local.set $row (i32.add (local.get $row) (i32.const 1)))
          (br_if $more (i32.lt_u (local.get $row) (local.get $rows))))
        (i32.or (local.get $code) (call $submit (local.get $rows)))""",
        result="i32",
    ),
    function(
        "frames",
        """(local $code i32)
        (loop $more
          (local.set $code (i32.or (local.get $code) (call $frame)))
          (local.set $n (i32.sub (local.get $n) (i32.const 1)))
          (br_if $more (local.get $n)))
        (local.get $code)""",
        params="(param $n i32)",
        result="i32",
    ),
    uses=(START, PUSH, SUBMIT),
    memory='(memory (export "memory") 4)',
)
"""A guest that does in each frame what is written at 4096: push that many rows, or one of these."""

SKIP, WRONG, SPIN, TRAP = 0, 253, 254, 255
SKIPPED, REFUSED = 100, 5


def write(guest, script, offset=0.0):
    guest.write_memory(4096, bytes(script))
    guest.write_memory(72, np.float32(offset).tobytes())


def actions(guest, rows):
    return np.frombuffer(guest.read_memory(ACTIONS, 4 * rows), "<f4").tolist()


def wanted(offset, rows):
    return [-(offset + row) - 1.5 * 0.5 for row in range(rows)]


def outcomes(result):
    """Return the values of a call of a fleet, with the errors of guests that failed among them."""
    return [result.failures.get(place, value) for place, value in enumerate(result.values)]


@pytest.fixture
def fleet(host):
    """Eight guests of SCRIPTED with open sessions; guest n has offset 10 n."""
    made = host.fleet(SCRIPTED, 8)
    assert made.call("open").values == [0] * 8
    for number, guest in enumerate(made.guests):
        write(guest, [1] * 64, 10 * number)
    return made


def test_every_guest_gets_its_own_answers(fleet):
    for _ in range(5):
        assert fleet.call("frame").values == [0] * 8

    assert [actions(guest, 1) for guest in fleet.guests] == [wanted(10 * n, 1) for n in range(8)]
    assert fleet.statistics.submits == 40
    assert fleet.statistics.rows == 40


def test_guests_that_push_different_numbers_of_rows_change_nothing_for_others(fleet):
    counts = [1, 7, 2, 64, 65, 3, 130, 1]
    for guest, count, number in zip(fleet.guests, counts, range(8), strict=True):
        write(guest, [count, 1, count], 10 * number)
    for _ in range(3):
        assert fleet.call("frame").values == [0] * 8

    for number, (guest, count) in enumerate(zip(fleet.guests, counts, strict=True)):
        assert actions(guest, count) == wanted(10 * number, count), number


def test_guests_that_skip_a_frame_change_nothing_for_others(fleet):
    for number, guest in enumerate(fleet.guests):
        write(guest, [1, SKIP if number % 3 == 0 else 1, 1], 10 * number)
    codes = [fleet.call("frame").values for _ in range(3)]

    assert codes[0] == codes[2] == [0] * 8
    assert codes[1] == [SKIPPED, 0, 0, SKIPPED, 0, 0, SKIPPED, 0]
    assert [actions(guest, 1) for guest in fleet.guests] == [wanted(10 * n, 1) for n in range(8)]


@pytest.mark.parametrize("failing", [[0], [7], [3, 4], [0, 2, 4, 6]])
def test_guests_that_fail_change_nothing_for_others(fleet, failing):
    for number in failing:
        write(fleet.guests[number], [1, TRAP])
    assert fleet.call("frame").values == [0] * 8
    second, third = outcomes(fleet.call("frame")), outcomes(fleet.call("frame"))

    for number, guest in enumerate(fleet.guests):
        if number in failing:
            assert isinstance(second[number], GuestTrap)
            assert isinstance(third[number], GuestFailed)
            assert guest.failure is second[number]
            assert calls_of(guest).services.live_handles == 0
        else:
            assert (second[number], third[number]) == (0, 0)
            assert actions(guest, 1) == wanted(10 * number, 1)


def test_a_guest_that_never_ends_is_dropped_and_the_others_are_answered(fleet):
    write(fleet.guests[2], [SPIN])
    results = outcomes(fleet.call("frame", budget=0.06))

    assert isinstance(results[2], GuestTimeout)
    assert [r for n, r in enumerate(results) if n != 2] == [0] * 7
    assert fleet.call("frame").values[3:] == [0] * 5


def test_a_guest_whose_submit_is_refused_changes_nothing_for_others(fleet):
    write(fleet.guests[5], [1, WRONG, 1], 50)
    codes = [fleet.call("frame").values for _ in range(3)]

    assert codes[1] == [0, 0, 0, 0, 0, REFUSED, 0, 0]
    assert codes[2] == [0] * 8
    assert actions(fleet.guests[5], 1) == wanted(50, 1)


def test_each_submit_is_a_step_however_many_a_guest_makes_in_one_call(fleet):
    """Guest n makes n + 1 submits in one call; those that end early wait for nobody."""
    for number, guest in enumerate(fleet.guests):
        write(guest, [1 + number % 3] * 8, 10 * number)
    results = [guest.call("frames", number + 1) for number, guest in enumerate(fleet.guests)]
    alone = fleet.statistics.submits

    assert results == [0] * 8
    assert alone == sum(range(1, 9))
    for guest in fleet.guests:
        guest.write_memory(4096, bytes([2] * 64))
    assert fleet.call("frames", 5).values == [0] * 8
    assert fleet.statistics.submits == alone + 40
    for number, guest in enumerate(fleet.guests):
        assert actions(guest, 2) == wanted(10 * number, 2)


def test_a_round_answers_all_suspended_guests_by_one_policy_run(host):
    fleet = host.fleet(ACTOR, 6)
    batches = []
    policy = CallbackPolicy(lambda batch: batches.append(len(batch)))
    for guest in fleet.guests:
        handle = calls_of(guest).services.sessions.open_inference(policy, 2, 1)
        guest.write_memory(HANDLE, handle.to_bytes(8, "little"))
    assert fleet.call("step", 4).values == [0] * 6
    assert fleet.call("step", 1).values == [0] * 6
    assert fleet.call("step", 3, only=[1, 4]).values == [0] * 2

    assert batches == [24, 6, 6]
    assert fleet.guests[4].call("action", 2) == FAKE_ACTION


def test_guests_of_two_policies_are_answered_by_two_runs(host):
    fleet = host.fleet(ACTOR, 6)
    runs = []
    policies = [CallbackPolicy(lambda b, n=n: runs.append((n, len(b)))) for n in range(2)]
    for number, guest in enumerate(fleet.guests):
        handle = calls_of(guest).services.sessions.open_inference(policies[number % 2], 2, 1)
        guest.write_memory(HANDLE, handle.to_bytes(8, "little"))
    assert fleet.call("step", 2).values == [0] * 6

    assert sorted(runs) == [(0, 6), (1, 6)]


def test_a_policy_that_fails_fails_no_guest(host, caplog):
    fleet = host.fleet(ACTOR, 4)

    def fail(_batch):
        raise RuntimeError("a bug of the policy")

    bad, good = CallbackPolicy(fail), CallbackPolicy(lambda _batch: None)
    for number, guest in enumerate(fleet.guests):
        handle = calls_of(guest).services.sessions.open_inference(bad if number < 2 else good, 2, 1)
        guest.write_memory(HANDLE, handle.to_bytes(8, "little"))

    assert fleet.call("step", 2).values == [4, 4, 0, 0]
    assert "a bug of the policy" in caplog.text
    assert all(guest.failure is None for guest in fleet.guests)
    assert fleet.call("submit", 0).values == [0] * 4


def test_full_adjacent_regions_are_one_view_and_others_are_compacted_once(host):
    """Both ways give the same actions, and the first does not copy."""
    fleet = host.fleet(ACTOR, 4)
    addresses = []
    policy = CallbackPolicy(lambda batch: addresses.append(batch.features.ctypes.data))
    for guest in fleet.guests:
        handle = calls_of(guest).services.sessions.open_inference(policy, 2, 1)
        guest.write_memory(HANDLE, handle.to_bytes(8, "little"))
    arena = host._loader.engine.arena
    for _ in range(2):
        fleet.call("step", 1)
    fleet.call("step", 1, only=[0, 2, 3])

    assert arena.base < addresses[0] == addresses[1] < arena.base + (4 << 30)
    assert not arena.base <= addresses[2] < arena.base + (4 << 30)


def test_a_fleet_acts_as_its_guests_would_alone(make_host):
    program_file = GUESTS / "c_applet.wasm"
    host, single = make_host(), make_host().load(program_file)
    fleet = host.fleet(program_file, 30)
    for guest in fleet.guests[::4]:
        guest.call("resize", 11)
    single.call("resize", 8)
    other = make_host().load(program_file)
    other.call("resize", 11)
    for _ in range(102):
        assert fleet.update() == {}
        single.update()
        other.update()

    returns = fleet.call("mean_return").values
    assert set(returns[::4]) == {other.call("mean_return")}
    assert set(returns[1::4] + returns[2::4]) == {single.call("mean_return")}
    assert fleet.call("status").values == [0] * 30


def test_noise_does_not_depend_on_the_size_of_the_fleet(make_host):
    """Guest n of a fleet draws what guest n of a larger one does."""
    model = (GUESTS / "ark_api" / "src" / "models" / "stoch.onnx").read_bytes()
    text = module(
        data(8192, model),
        function(
            "open",
            f"(call ${START} {i32(8)} {i32(3)} {i32(8192)} {i32(len(model))} {i32(0)}"
            f" {i32(HANDLE)})",
            result="i32",
        ),
        function(
            "step",
            f"""(drop (call ${PUSH} (i64.load {i32(HANDLE)}) (i64.const 3) {i32(0)} (f32.const 0)
                {i32(FEATURES)} {i32(8)} (f32.const 0)))
            (call ${SUBMIT} (i64.load {i32(HANDLE)}) {i32(128)} {i32(3)} {i32(160)} {i32(1)})""",
            result="i32",
        ),
        uses=(START, PUSH, SUBMIT),
        memory='(memory (export "memory") 2)',
    )

    def play(size, only=None):
        with make_host(seed=11).fleet(text, size) as fleet:
            assert fleet.call("open").values == [0] * size
            for _ in range(3):
                fleet.call("step", only=only)
            return [guest.read_memory(128, 12) for guest in fleet.guests]

    small, large = play(2), play(9)

    assert small == large[:2]
    assert len(set(large)) == 9
    assert play(9, only=[8, 1])[1] == small[1]


# Who takes part.


def test_only_some_guests_can_be_called(fleet):
    assert fleet.call("frame", only=[6, 1]).values == [0, 0]
    assert [guest.statistics.submits for guest in fleet.guests] == [0, 1, 0, 0, 0, 0, 1, 0]
    assert fleet.call("frame", only=[]).values == []


def test_guests_may_join_later(fleet):
    fleet.call("frame")
    (late,) = fleet.join()
    assert late.call("open") == 0
    write(late, [1] * 8, 80)
    for _ in range(3):
        assert fleet.call("frame").values == [0] * 9

    assert len(fleet) == 9
    assert actions(late, 1) == wanted(80, 1)
    assert actions(fleet.guests[0], 1) == wanted(0, 1)


def test_those_who_join_are_initialized(host):
    fleet = host.fleet(GUESTS / "c_applet.wasm", 2)
    fleet.update()
    fleet.join(3)
    assert fleet.update() == {}

    assert fleet.call("frames").values == [2, 2, 1, 1, 1]
    assert fleet.call("status").values == [0] * 5


def test_a_guest_may_be_closed_while_the_others_go_on(fleet):
    fleet.guests[3].close()
    results = outcomes(fleet.call("frame"))

    assert isinstance(results[3], GuestFailed)
    assert [r for n, r in enumerate(results) if n != 3] == [0] * 7


def test_a_closed_guest_is_reported_once_by_whatever_call_comes_first(fleet):
    fleet.guests[3].close()
    first = fleet.call("frame", only=[2, 3])
    later = [fleet.call("frame", only=[2, 3]), fleet.call("frame"), fleet.call("frames", 2)]

    assert list(first.failures) == [1]
    assert [result.failures for result in later] == [{}, {}, {}]
    assert later[0].values == [0, None]
    assert later[1].values == later[2].values == [0, 0, 0, None, 0, 0, 0, 0]


def test_changes_of_a_fleet_by_many_threads_are_whole(host):
    """Each is made alone, or GuestBusy says that another thread was there."""
    fleet = host.fleet(ACTOR, 3)
    begin, before = threading.Barrier(4), sys.getswitchinterval()

    def change(seed):
        chance = random.Random(seed)
        begin.wait()
        for _ in range(60):
            guest = chance.choice(fleet.guests)
            act = chance.choice([fleet.join, partial(fleet.replace, guest), guest.close])
            if len(fleet) > 4:
                act = partial(fleet.remove, guest)
            with suppress(GuestBusy, UsageError):  # the second: another thread has removed it
                act()

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(change, range(4)))
    finally:
        sys.setswitchinterval(before)
    for guest in fleet.guests:
        if calls_of(guest).instance.is_closed:
            fleet.replace(guest)

    assert len({guest.name for guest in fleet.guests}) == len(fleet)
    assert fleet.call("answer").values == [42] * len(fleet)


def test_a_removed_guest_is_closed_and_those_after_it_move_up(fleet):
    gone, next_one = fleet.guests[3], fleet.guests[4]
    fleet.call("frame")
    fleet.remove(gone)

    assert fleet.call("frame").values == [0] * 7
    assert fleet.guests[3] is next_one
    assert len(fleet) == 7
    assert fleet.statistics.submits == 8 + 7
    with pytest.raises(GuestFailed, match="is closed"):
        gone.call("frame")


def test_a_fleet_may_lose_all_its_guests_and_get_others(host):
    fleet = host.fleet(GUESTS / "c_applet.wasm", 2)
    fleet.update()
    for guest in fleet.guests:
        fleet.remove(guest)
    alone = fleet.update()
    fleet.join(3)

    assert alone == {}
    assert fleet.update() == {}
    assert fleet.call("frames").values == [1, 1, 1]
    assert fleet.statistics.submits == 2 + 3


def test_a_guest_is_replaced_in_its_place_by_one_that_is_initialized(host):
    fleet = host.fleet(GUESTS / "c_applet.wasm", 3)
    fleet.update()
    first, gone, last = fleet.guests
    new = fleet.replace(gone)

    assert fleet.guests == (first, new, last)
    assert new.name == gone.name
    assert fleet.update() == {}
    assert fleet.call("frames").values == [2, 1, 2]
    with pytest.raises(GuestFailed, match="is closed"):
        gone.call("frames")


def test_a_guest_is_replaced_without_a_look_at_all_others(host):
    steps = []
    for size in (4, 400):
        fleet, seen = host.fleet(ACTOR, size), []
        fleet.replace(fleet.guests[1])  # what the first one makes, the next ones find
        sys.setprofile(lambda _frame, event, _thing, seen=seen: seen.append(event))
        try:
            fleet.replace(fleet.guests[2])
        finally:
            sys.setprofile(None)
        steps.append(len(seen))

    assert steps[1] < steps[0] + 100


def test_guests_keep_their_indices_and_names_whoever_comes_and_goes(host):
    chance, fleet, other = random.Random(3), host.fleet(ACTOR, 5), host.fleet(ACTOR, 1)
    for _ in range(120):
        guests = fleet.guests
        names = [guest.name for guest in guests]
        index = chance.randrange(len(guests))
        guest, change = guests[index], chance.choice(["close", "fail", "join", "remove", "replace"])
        if change == "close":
            guest.close()
            other.join()  # which takes the place in memory of the one that was closed
        elif change == "fail":
            with suppress(GuestTrap, GuestFailed):
                guest.call("boom")
            fleet.replace(guest)
        elif change == "join":
            fleet.join()
        elif change == "remove" and len(guests) > 2:
            fleet.remove(guest)
            del names[index]
        elif change == "replace":
            new = fleet.replace(guest)
            assert fleet.guests == (*guests[:index], new, *guests[index + 1 :])

        now = [guest.name for guest in fleet.guests]
        live = [(i, calls_of(one)) for i, one in enumerate(fleet.guests)]
        live = [(i, calls) for i, calls in live if not calls.instance.is_closed]
        assert now[: len(names)] == names
        assert len(set(now)) == len(now)
        noted = [calls.instance.lockstep.indices[calls.place] for _, calls in live]
        assert noted == [i for i, _ in live]
        assert fleet._members.labels == {
            one: int(one.name.rpartition("#")[2]) for one in fleet.guests
        }


def test_a_failed_guest_is_reported_until_it_is_replaced(fleet):
    write(fleet.guests[5], [TRAP])
    before = [fleet.call("frame").failures for _ in range(2)]
    new = fleet.replace(fleet.guests[5])
    new.call("open")
    write(new, [1])

    assert [list(failures) for failures in before] == [[5], [5]]
    assert fleet.call("frame").failures == {}


def test_the_noise_of_a_replaced_guest_is_not_that_of_the_one_before(host):
    fleet = host.fleet(GUESTS / "c_applet.wasm", 2)
    numbers = {calls_of(guest).instance.number for guest in fleet.guests}
    for _ in range(3):
        numbers.add(calls_of(fleet.replace(fleet.guests[0])).instance.number)

    assert len(numbers) == 5


def test_a_fleet_is_as_before_if_a_new_guest_does_not_begin(host):
    fleet = host.fleet(ACTOR.replace(b'"boom"', b'"ark_initialize"'), 2, initialize=False)
    before = fleet.guests
    for change in (fleet.join, lambda: fleet.replace(before[1])):
        with pytest.raises(GuestTrap):
            change()

    assert fleet.guests == before
    assert fleet.call("answer").values == [42, 42]


@pytest.mark.parametrize("change", ["remove", "replace"])
def test_a_guest_of_another_fleet_or_of_none_is_refused(fleet, change):
    gone = fleet.guests[0]
    fleet.remove(gone)
    for other in (gone, 3, None):
        with pytest.raises(UsageError, match="is not in <Fleet of 7 guests of"):
            getattr(fleet, change)(other)

    assert fleet.call("frame").values == [0] * 7


def test_the_guests_of_a_fleet_are_changed_by_its_methods_alone(fleet):
    with pytest.raises(AttributeError):
        fleet.guests = []
    with pytest.raises(AttributeError):
        fleet.guests.append(fleet.guests[0])

    assert len(fleet) == 8


def test_frames_over_the_share_are_not_those_of_the_guest_that_was_there_before():
    shares = FleetShares(1)
    slow = {0: 1.0, 1: 0.1, 2: 0.1}
    first = shares.judge(slow, 1.0)
    shares.forget(0)

    assert first == shares.judge(slow, 1.0) == {}
    assert list(shares.judge(slow, 1.0)) == [0]


_SAYS, _SAY = logging_of("hello", at=512)
SAYER = module(
    _SAYS,
    data(MODEL, POINTMASS),
    opening("ark_initialize", MODEL, len(POINTMASS), HANDLE),
    function(
        "ark_applet_update",
        f"""{_SAY}
        (drop (call ${PUSH} (i64.load {i32(HANDLE)}) (i64.const 1) {i32(0)} (f32.const 0)
          {i32(FEATURES)} {i32(2)} (f32.const 0)))
        (drop (call ${SUBMIT} (i64.load {i32(HANDLE)}) {i32(ACTIONS)} {i32(1)} {i32(0x18000)}
          {i32(1)}))""",
    ),
    uses=(LOG, START, PUSH, SUBMIT),
    memory='(memory (export "memory") 4)',
)
"""An applet that logs a line in each frame and submits a row."""


def _close_and_join(fleet):
    fleet.guests[1].close()
    fleet.update()
    fleet.join()


def _remove_and_join(fleet):
    fleet.remove(fleet.guests[1])
    fleet.join()


def _replace(fleet):
    fleet.replace(fleet.guests[1])


def _sizes(host, fleet):
    """What grows if anything is kept of a guest that is gone."""
    gc.collect()
    lockstep = calls_of(fleet.guests[0]).instance.lockstep
    return (
        len(fleet), len(lockstep.futures), len(lockstep.used), len(loader_of(host)._instances),
        len(loader_of(host)._left), len(logging.Logger.manager.loggerDict),
    ), len(gc.get_objects())  # fmt: skip


@pytest.mark.parametrize("change", [_close_and_join, _remove_and_join, _replace])
def test_nothing_is_left_of_guests_that_came_and_went(host, change):
    fleet = host.fleet(SAYER, 4)

    def births(count):
        for _ in range(count):
            change(fleet)
            fleet.update()
        assert fleet.update() == {}
        return _sizes(host, fleet)

    births(5)
    before, objects_before = births(20)
    after, objects_after = births(60)

    assert after == before
    assert objects_after - objects_before < 60


def test_closed_guests_are_no_part_of_the_frames_after_their_report(host):
    fleet = host.fleet(SAYER, 40)
    for guest in fleet.guests[2:]:
        guest.close()
    reported = fleet.update()
    fleet.update()
    call = fleet._call(FRAME)

    assert list(reported) == list(range(2, 40))
    assert [len(part) for part in (call._places, call._refused, call._closed)] == [2, 0, 0]


def test_guests_may_be_called_one_by_one_between_calls(fleet):
    fleet.call("frame")
    assert fleet.guests[4].call("frame") == 0
    assert fleet.call("frame").values == [0] * 8
    assert fleet.guests[4].statistics.submits == 3


def test_a_call_inside_a_call_of_the_fleet_is_refused(host):
    fleet = host.fleet(ACTOR, 3)
    refused = []

    def act(_batch):
        for work in (lambda: fleet.call("answer"), lambda: fleet.guests[0].call("answer")):
            with pytest.raises(GuestBusy):
                work()
            refused.append(True)

    policy = CallbackPolicy(act)
    for guest in fleet.guests:
        handle = calls_of(guest).services.sessions.open_inference(policy, 2, 1)
        guest.write_memory(HANDLE, handle.to_bytes(8, "little"))
    assert fleet.call("step", 2).values == [0] * 3

    assert refused == [True, True]
    assert fleet.call("answer").values == [42] * 3


def test_nothing_of_a_fleet_changes_while_it_is_in_a_call(host):
    fleet = host.fleet(ACTOR.replace(b'"announce"', b'"ark_initialize"'), 3)
    refused = []

    def act(_batch):
        for work in (fleet.join, fleet.initialize, fleet.guests[1].close, fleet.close, host.close):
            with pytest.raises(GuestBusy):
                work()
            refused.append(work)

    policy = CallbackPolicy(act)
    for guest in fleet.guests:
        handle = calls_of(guest).services.sessions.open_inference(policy, 2, 1)
        guest.write_memory(HANDLE, handle.to_bytes(8, "little"))
    assert fleet.call("step", 2).values == [0] * 3

    assert len(refused) == 5
    assert len(fleet) == 3
    assert fleet.call("answer").values == [42] * 3


def test_other_guests_may_be_loaded_and_called_from_the_policy_of_a_fleet(host):
    fleet = host.fleet(ACTOR, 2)
    found = []

    def act(_batch):
        with host.load(ACTOR) as other:
            assert_works(other)
        found.append(host.fleet(ACTOR, 2).call("answer").values)

    policy = CallbackPolicy(act)
    for guest in fleet.guests:
        handle = calls_of(guest).services.sessions.open_inference(policy, 2, 1)
        guest.write_memory(HANDLE, handle.to_bytes(8, "little"))

    assert fleet.call("step", 2).values == [0] * 2
    assert found == [[42, 42]]


@pytest.mark.parametrize("only", [[1, 1], [8], [-1], [0, 3, 0]])
def test_a_guest_takes_part_in_a_call_once(fleet, only):
    with pytest.raises(UsageError, match="only"):
        fleet.call("frame", only=only)

    assert fleet.call("frame").values == [0] * 8


def test_guests_that_submit_for_ever_use_up_their_own_budgets(host):
    fleet = host.fleet(ACTOR, 3)
    fleet.call("open")
    results = outcomes(fleet.call("submit_for_ever", budget=0.05))

    assert [type(result) for result in results] == [GuestTimeout] * 3
    assert all(calls_of(guest).services.live_handles == 0 for guest in fleet.guests)


def test_a_guest_that_pushes_for_ever_is_dropped_while_others_sit_in_a_submit(fleet):
    for number, guest in enumerate(fleet.guests):
        write(guest, [1, 1] if number != 4 else [1, SPIN], 10 * number)
    results = outcomes(fleet.call("frames", 2, budget=0.06))

    assert isinstance(results[4], GuestTimeout)
    assert [r for n, r in enumerate(results) if n != 4] == [0] * 7
    assert actions(fleet.guests[7], 1) == wanted(70, 1)


def test_features_that_are_not_finite_concern_only_their_own_guest(fleet):
    write(fleet.guests[2], [2] * 4, float("nan"))
    for _ in range(2):
        assert fleet.call("frame").values == [0] * 8

    bad = fleet.guests[2].statistics
    assert (bad.non_finite_features, bad.non_finite_actions) == (4, 4)
    assert actions(fleet.guests[2], 2) == [0, 0]
    assert fleet.statistics.non_finite_features == 4
    for number in (0, 1, 3, 7):
        assert actions(fleet.guests[number], 1) == wanted(10 * number, 1)


def test_a_guest_of_a_fleet_can_be_cancelled_from_another_thread(host, on_thread):
    fleet = host.fleet(ACTOR, 2)
    running = on_thread(lambda: fleet.call("spin", budget=None), announced=True)
    fleet.guests[0].cancel()
    outcome = running.result()

    assert isinstance(outcome, GuestCancelled) or all(
        isinstance(error, GuestCancelled) for error in outcome.failures.values()
    )


def test_what_concerns_all_is_raised_and_fails_nobody(fleet):
    with pytest.raises(EntryPointMissing):
        fleet.call("gone")
    with pytest.raises(UsageError):
        fleet.call("frame", 1)
    with pytest.raises(UsageError):
        fleet.call("frames")
    with pytest.raises(UsageError):
        fleet.join(0)

    assert fleet.call("frame").values == [0] * 8


def test_a_closed_fleet_takes_no_guests(fleet):
    fleet.close()
    fleet.close()

    for change in (fleet.join, partial(fleet.replace, fleet.guests[0])):
        with pytest.raises(UsageError, match="is closed: make another one"):
            change()
    assert fleet.update().keys() == set(range(8))
    fleet.remove(fleet.guests[0])
    assert len(fleet) == 7


def test_an_interrupt_in_the_policy_drops_every_call(host):
    fleet = host.fleet(ACTOR, 3)

    def act(_batch):
        raise KeyboardInterrupt

    policy = CallbackPolicy(act)
    for guest in fleet.guests:
        handle = calls_of(guest).services.sessions.open_inference(policy, 2, 1)
        guest.write_memory(HANDLE, handle.to_bytes(8, "little"))
    with pytest.raises(KeyboardInterrupt):
        fleet.call("step", 2)

    assert all(guest.failure is not None for guest in fleet.guests)
    assert all(calls_of(guest).services.live_handles == 0 for guest in fleet.guests)
    fleet.close()
    assert_works(host.load(ACTOR))


def test_results_come_in_the_order_of_the_guests_and_with_their_types(host):
    fleet = host.fleet(
        module(
            function("double", "(f64.mul (local.get 0) (f64.const 2))", "(param f64)", "f64"),
            function("pair", "(i32.const -1) (i64.const -2)", result="i32 i64"),
            function("nothing", ""),
            function("own", "(i32.load (i32.const 0))", result="i32"),
        ),
        3,
    )
    for number, guest in enumerate(fleet.guests):
        guest.write_memory(0, (number - 1).to_bytes(4, "little", signed=True))

    assert fleet.call("double", 1.25).values == [2.5] * 3
    assert fleet.call("pair").values == [(-1, -2)] * 3
    assert fleet.call("nothing").values == [None] * 3
    assert fleet.call("own").values == [-1, 0, 1]


def test_guests_that_start_by_a_start_function_are_started_together(host):
    fleet = host.fleet(
        module(
            "(func $begin (i32.store (i32.const 0) (i32.const 7))) (start $begin)",
            function("own", "(i32.load (i32.const 0))", result="i32"),
        ),
        3,
        initialize=False,
    )
    assert fleet.call("own").values == [0] * 3

    assert fleet.initialize() == {}
    assert fleet.call("own").values == [7] * 3


def test_a_guest_that_fails_to_initialize_is_told_and_the_others_go_on(host):
    fleet = host.fleet(ACTOR.replace(b'"recurse"', b'"_initialize"'), 2, initialize=False)
    failures = fleet.initialize()

    assert list(failures) == [0, 1]
    assert {type(error).__name__ for error in failures.values()} == {"StackExhausted"}
    assert [type(result) for result in outcomes(fleet.call("answer"))] == [GuestFailed] * 2


def test_a_fleet_whose_guests_fail_to_initialize_is_not_made(host):
    broken = ACTOR.replace(b'"recurse"', b'"_initialize"')
    with pytest.raises(StackExhausted, match=r"guest#0"):
        host.fleet(broken, 2)

    assert len(host._loader._instances) == 0


def test_a_fleet_is_as_before_when_those_who_join_fail_to_initialize(host):
    text = module(
        function("_initialize", "(if (i32.load (i32.const 0)) (then unreachable))"),
        function("own", "(i32.const 1)", result="i32"),
    )
    fleet = host.fleet(text, 2)
    make = fleet._make

    def poisoned(number, module):
        guest = make(number, module)
        memory = calls_of(guest).instance._sandbox.memory
        memory.pages = 1
        memory.write(0, b"\x01")
        return guest

    fleet._make = poisoned
    with pytest.raises(GuestTrap):
        fleet.join(3)

    assert len(fleet) == 2
    assert fleet.call("own").values == [1, 1]
    assert len(host._loader._instances) == 2


# Waiting.


def test_guests_that_sleep_wait_together(make_host, caplog):
    """Guest n sleeps for 40 (n + 1) ms; all say that they fall asleep before one wakes."""
    caplog.set_level("INFO", logger="arkml.guest")
    (asleep, say_asleep), (awake, say_awake) = logging_of("asleep"), logging_of("awake", at=2000)
    sleeper = module(
        asleep,
        awake,
        function(
            "sleep",
            f"""(memory.fill (i32.const 0) (i32.const 0) (i32.const 48))
            (i32.store (i32.const 16) (i32.const 1))
            (i64.store (i32.const 24) (i64.load (i32.const 256)))
            {say_asleep}
            (call $poll_oneoff (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))
            {say_awake}""",
            result="i32",
        ),
        uses=(LOG,),
        imports=(wasi("poll_oneoff", "i32 i32 i32 i32"),),
    )
    fleet = make_host(wasi=WasiGrant()).fleet(sleeper, 4)
    for number, guest in enumerate(fleet.guests):
        guest.write_memory(256, (40_000_000 * (number + 1)).to_bytes(8, "little"))

    assert fleet.call("sleep", budget=0.05).values == [0] * 4
    assert caplog.messages == ["asleep"] * 4 + ["awake"] * 4


def test_input_wakes_a_fleet_that_waits_for_it_or_for_a_clock(make_host):
    waiter = module(
        function(
            "wait",
            """(i32.store (i32.const 16) (i32.const 1))
            (i64.store (i32.const 24) (i64.const 3600000000000))
            (i32.store8 (i32.const 56) (i32.const 1))
            (call $poll_oneoff (i32.const 0) (i32.const 128) (i32.const 2) (i32.const 256))""",
            result="i32",
        ),
        imports=(wasi("poll_oneoff", "i32 i32 i32 i32"),),
    )
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as source:  # noqa: PTH123  a descriptor
        fleet = make_host(wasi=WasiGrant(stdin=source)).fleet(waiter, 2)
        threading.Timer(0.05, os.write, (writer, b"now")).start()
        values = fleet.call("wait").values
    os.close(writer)

    assert values == [0] * 2


def test_guests_that_poll_wait_without_burning_the_processor(host):
    fleet = host.fleet(ACTOR, 3)
    handles = []
    for guest in fleet.guests:
        handle, future = calls_of(guest).services.futures.open(BOOL)
        handles.append(handle)
        threading.Timer(0.15, future.resolve, (True,)).start()
    assert len(set(handles)) == 1
    polls = fleet.call("poll_until_ready", handles[0], budget=None).values

    assert all(64 < count < 20_000 for count in polls)  # without waits, some hundred thousand


def test_guests_that_poll_for_ever_use_up_their_budget(host):
    fleet = host.fleet(ACTOR, 3)
    handles = [calls_of(guest).services.futures.open(BOOL)[0] for guest in fleet.guests]
    results = outcomes(fleet.call("poll_until_ready", handles[0], budget=0.2))

    assert [type(result) for result in results] == [GuestTimeout] * 3


def test_guests_that_exit_leave_the_others_in_the_fleet(make_host):
    leaver = module(
        function(
            "leave",
            """(if (i32.load (i32.const 0)) (then (call $proc_exit (i32.load (i32.const 0)))))
            (i32.const 42)""",
            result="i32",
        ),
        imports=(wasi("proc_exit", "i32").replace(" (result i32)", ""),),
    )
    fleet = make_host(wasi=WasiGrant()).fleet(leaver, 4)
    fleet.guests[2].write_memory(0, b"\x05\0\0\0")
    results = outcomes(fleet.call("leave"))

    assert [results[0], results[1], results[3]] == [42] * 3
    assert isinstance(results[2], GuestExit)
    assert results[2].status == 5


# Size.


def test_a_large_fleet_acts_rightly_and_is_given_back(host):
    fleet = host.fleet(SCRIPTED, 500)
    assert fleet.call("open").values == [0] * 500
    for number, guest in enumerate(fleet.guests):
        write(guest, [1 + number % 2, 1, 1], number)
    for _ in range(3):
        assert fleet.call("frame").values == [0] * 500
    found = [actions(guest, 1) for guest in fleet.guests]
    fleet.close()

    assert found == [wanted(number, 1) for number in range(500)]
    assert_works(host.load(ACTOR))


def test_a_fleet_that_the_machine_has_no_mappings_for_is_refused_before_anything_is_made(make_host):
    host = make_host(limits=Limits(instances=200_000_000))
    with pytest.raises(InstanceLimitExceeded, match=r"vm\.max_map_count"):
        host.fleet(ACTOR, 100_000_000)

    assert len(host.fleet(ACTOR, 2)) == 2


def test_a_fleet_over_the_limit_of_instances_leaves_nothing_behind(make_host):
    host = make_host(limits=Limits(instances=10))
    for _ in range(3):
        with pytest.raises(InstanceLimitExceeded):
            host.fleet(ACTOR, 11)

    assert len(host.fleet(ACTOR, 10)) == 10


@pytest.mark.parametrize("count", [0, -1])
def test_a_fleet_has_at_least_one_guest(host, count):
    with pytest.raises(UsageError, match="1 at least"):
        host.fleet(ACTOR, count)


def test_a_fleet_of_one_acts_like_a_guest(host):
    with host.fleet(ACTOR, 1) as fleet:
        assert fleet.call("open").values == [0]
        assert fleet.call("step", 3).values == [0]
        assert fleet.call("action", 2).values == [ACTION]


def test_ctrl_c_drops_the_calls_of_a_fleet_that_have_begun():
    script = """
from arkml import Host
from tests.integration.guest_text import ACTOR
from tests.waiting import signal_in_call
with Host(threads=1) as host:
    for name in ("spin", "submit_for_ever"):
        fleet = host.fleet(ACTOR, 5)
        fleet.call("open")
        signal_in_call(fleet.guests[0])
        try:
            fleet.call(name, budget=None)
        except KeyboardInterrupt:
            print("interrupted")
        print([guest.failure is not None for guest in fleet.guests])
        print(host.load(ACTOR).call("answer"))
"""
    run = python(script)

    assert run.stdout.splitlines() == [
        *(
            "interrupted",
            str([True, False, False, False, False]),
            "42",
        ),  # one thread runs the first
        *("interrupted", str([True] * 5), "42"),
    ]
    assert run.stderr == ""


@pytest.mark.parametrize("is_frozen", [False, True], ids=["", "with objects that are frozen"])
def test_a_new_fleet_is_not_looked_through_for_garbage(is_frozen):
    script = f"""
import gc
from arkml import Host
from tests.integration.guest_text import ACTOR
with Host() as host:
    gc.unfreeze()  # where this process is a fork
    host.fleet(ACTOR, 1).close()
    gc.collect()
    if {is_frozen}:
        gc.freeze()
    frozen, looks = gc.get_freeze_count() if {is_frozen} else 0, []
    gc.callbacks.append(lambda phase, info: looks.append(info["generation"]))
    fleet = host.fleet(ACTOR, 200)
    young = len(gc.get_objects(0)) + len(gc.get_objects(1))
    gc.callbacks.clear()
    print(gc.isenabled(), gc.get_freeze_count() >= frozen / 2, sum(looks) == 0, young < 2_000)
    """
    run = python(script)

    assert run.stdout.split() == ["True", "True", "True", str(not is_frozen)]  # young objects
    assert run.stderr == ""


def test_statistics_outlive_the_guest(host):
    guest = host.load(ACTOR)
    guest.call("open")
    guest.call("step", 3)
    before = guest.statistics
    guest.close()

    assert guest.statistics == before
    assert before.submits == 1
