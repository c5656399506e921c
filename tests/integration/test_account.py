"""Guests pay for what the host does for them, and for nothing else."""

import gc
import os
import re
import subprocess
import sys
import time

import pytest
from tests.integration.callback_policy import CallbackPolicy
from tests.integration.command_line import GUESTS
from tests.integration.guest_text import (
    ACTIONS,
    ACTOR,
    FEATURES,
    HANDLE,
    LOG,
    MODEL,
    POINTMASS,
    PUSH,
    START,
    SUBMIT,
    VALUES,
    data,
    function,
    i32,
    logging_of,
    module,
    opening,
    wasi,
)
from tests.integration.hostile_fleet import (
    GREEDY,
    GUEST,
    MODE,
    ROWS,
    Harm,
    greedy_fleet,
    hostile_fleet,
    spend,
    states,
)
from tests.integration.hostile_holders import HOLDER
from tests.integration.hostile_holders import MODEL as MODEL_AT
from tests.unit import policy_models as build

from arkml.base.child_time import add_child_seconds
from arkml.errors import GuestTimeout
from arkml.guests.batching import Batcher, Group
from arkml.guests.guest import calls_of
from arkml.limits import MIB, Limits
from arkml.runtime import account as accounts
from arkml.runtime import bindings, native, rounds
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.session_table import TrainingStart

POLL = bindings.poll
NPC = GUESTS / "c_npc.wasm"
FLEET = int(os.environ.get("ARKML_HOSTILE_FLEET", "200"))
BUDGET = 0.1
SLACK = 0.5  # seconds of processor time by which a frame may be over its budgets


def cpu_seconds(work):
    """Return the processor seconds of `work` on this thread, and the error it raised, if any."""
    started, error = time.thread_time(), None
    try:
        work()
    except GuestTimeout as raised:
        error = raised
    return time.thread_time() - started, error


def hostile(host, harm):
    guest = host.load(GUEST)
    assert guest.call("open") == guest.call("open_slow") == 0
    guest.write_memory(MODE, bytes([harm]))
    return guest


@pytest.mark.parametrize(
    "harm",
    [Harm.WASM_LOOP, Harm.IMPORT_LOOP, Harm.LOG_FLOOD, Harm.SLOW_MODEL, Harm.SUBMIT_LOOP],
)
def test_a_guest_pays_for_all_that_is_done_in_its_call(host, harm):
    guest = hostile(host, harm)
    seconds, error = cpu_seconds(lambda: guest.call("ark_applet_update", budget=BUDGET))

    assert "over its budget of 0.1 s" in str(error)
    assert guest.account.run_seconds > 0.5 * seconds


def test_the_account_says_for_what_a_guest_was_charged(host):
    guest = hostile(host, Harm.SLOW_MODEL)
    vetting = guest.account.vetting_seconds
    with pytest.raises(GuestTimeout):
        guest.update(budget=BUDGET)
    models = guest.account
    importing = hostile(host, Harm.IMPORT_LOOP)
    with pytest.raises(GuestTimeout):
        importing.update(budget=BUDGET)
    figures = importing.account.as_dict()

    assert vetting > 0
    assert models.model_seconds > BUDGET / 2
    assert models.model_seconds > models.wasm_seconds
    assert figures["import_seconds"] > BUDGET / 4
    assert figures["run_seconds"] == pytest.approx(
        sum(figures[f"{kind}_seconds"] for kind in ("wasm", "import", "copy", "vetting", "model"))
    )
    assert figures["memory_bytes"] == 40 * 65_536


def test_copies_to_larger_columns_are_charged(actor):
    actor.call("push_many", 5_000)

    assert actor.account.copy_seconds > 0
    assert actor.account.column_bytes >= 5_000 * 48


def test_a_slow_function_of_the_embedder_is_shown_and_kills_no_guest(make_host):
    def slow(observations):
        time.sleep(0.06)
        return observations[:, :1]

    host = make_host(policy=slow, limits=Limits(run_seconds=0.1, call_seconds=0.2))
    guest = host.load(ACTOR)
    fleet = host.fleet(ACTOR, 3)
    guest.call("open")
    fleet.call("open")
    guest.call("burn_and_submit", 10, 10)
    failures = fleet.call("burn_and_submit", 10, 10).failures

    assert failures == {}
    assert guest.account.policy_seconds >= 0.6
    assert guest.account.model_seconds == guest.account.vetting_seconds == 0
    assert sum(each.account.policy_seconds for each in fleet.guests) >= 0.6


def test_a_policy_object_of_the_embedder_is_not_charged(make_host):
    guest = make_host(policy=CallbackPolicy(lambda _: None)).load(ACTOR)
    guest.call("open")
    guest.call("step", 3)

    assert guest.account.policy_seconds > 0
    assert guest.account.model_seconds == 0


def test_a_game_with_frames_notices_nothing_of_the_default_budget(host):
    guest = host.load(GUEST)
    guest.call("open")
    guest.write_memory(MODE, bytes([Harm.GREED]))
    spend([guest], 0.004)
    for _ in range(30):
        guest.update()

    assert guest.failure is None
    assert guest.account.run_seconds > 0.03


def test_the_account_of_a_host_is_the_sum_of_its_guests_also_of_closed_ones(host):
    guests = [host.load(ACTOR) for _ in range(2)]
    for guest in guests:
        guest.call("burn", 200_000)
    before = [guest.account for guest in guests]
    guests[0].close()

    assert guests[0].account.wasm_seconds == before[0].wasm_seconds
    assert host.account.wasm_seconds == pytest.approx(sum(each.wasm_seconds for each in before))
    assert host.account.memory_bytes == before[1].memory_bytes


def test_a_fleet_charges_runs_of_a_common_model_by_rows(host):
    fleet = hostile_fleet(host, 2, {})
    fleet.guests[0].write_memory(ROWS, (3).to_bytes(4, "little"))
    for _ in range(5):
        fleet.update()
    shares = [guest.account.model_seconds for guest in fleet.guests]

    assert shares[0] == pytest.approx(3 * shares[1])
    assert fleet.account.model_seconds == pytest.approx(sum(shares))


def test_a_thread_that_did_not_run_does_not_pay():
    accounts.counted_seconds(0.01)
    counted = accounts.counted_seconds(3.0)

    assert counted < 1.0
    assert accounts.counted_seconds(3.0, may_wait=True) == 3.0


@pytest.fixture
def collecting(caplog):
    """Have Python look at all objects while a guest logs; the handler outlives the test."""
    caplog.set_level("INFO")

    def collect(_record):
        return gc.collect() >= 0

    caplog.handler.addFilter(collect)
    yield caplog
    caplog.handler.removeFilter(collect)


def test_a_guest_does_not_pay_for_garbage_of_the_whole_process(make_host, collecting):
    """An embedder has millions of objects."""
    objects = [[number] for number in range(1_000_000)]
    collected, _ = cpu_seconds(gc.collect)
    text, say = logging_of("I was here")
    guest = make_host(limits=Limits(run_seconds=collected / 2)).load(
        module(text, function("say", say), uses=(LOG,))
    )
    for _ in range(3):
        guest.call("say")

    assert collecting.messages == 3 * ["I was here"]
    assert guest.account.run_seconds < collected
    assert len(objects) == 1_000_000


STOPPED = """
import os, subprocess, time
from arkml import Host

MODULE = '''(module (memory (export "memory") 1) (func (export "count") (local i32)
  (loop (br_if 0 (i32.lt_u (local.tee 0 (i32.add (local.get 0) (i32.const 1)))
                           (i32.const 400000000))))))'''
with Host() as host:
    guest = host.load(MODULE.encode(), name="counting")
    for _ in range(3):
        until = time.thread_time() + 0.8
        while time.thread_time() < until:  # work of the embedder, from one call to the next
            pass
        stop = f"sleep 0.02; kill -STOP {os.getpid()}; sleep 1.5; kill -CONT {os.getpid()}"
        held_up = subprocess.Popen(["sh", "-c", stop])
        guest.call("count", budget=0.8)
        held_up.wait()
"""


def test_a_thread_that_was_held_up_in_a_call_does_not_cost_the_guest_its_life():
    ended = subprocess.run(
        [sys.executable, "-c", STOPPED], capture_output=True, text=True, timeout=300
    )

    assert ended.stderr == ""
    assert ended.returncode == 0


def test_guests_do_not_pay_for_threads_that_hold_the_interpreter(monkeypatch, make_host):
    """Without the library each poll gives the interpreter's lock away, and waits to have it."""

    def poll(future):
        ended = POLL(future)
        time.sleep(0.0003)  # as for a thread of the embedder that draws
        return ended

    monkeypatch.setattr(native, "LIBRARY", None)
    monkeypatch.setattr(rounds, "_poll", poll)
    fleet = make_host().fleet(NPC, 100)
    began = time.perf_counter()
    for _ in range(3):
        fleet.update()
    took = time.perf_counter() - began

    assert took > 0.09
    assert fleet.account.wasm_seconds < took / 3


def test_a_guest_does_not_pay_for_the_child_processes_of_earlier_calls():
    add_child_seconds(5.0)
    accounts.read_processor_clock()
    time.sleep(0.05)

    assert accounts.counted_seconds(0.05) < 0.02


PUSH_NOTED = "ark-ml-v1.ml__push_training_observation_with_metadata"
SUBMIT_TRAINING = "ark-ml-v1.ml__submit_training_observations"
ITEM = 0x1000
TRAINING = module(
    data(ITEM, b"speed"),
    function(
        "step_for_ever",
        f"""(loop $more
          (drop (call ${PUSH_NOTED} (i64.load {i32(HANDLE)}) (i64.const 1) {i32(0)} (f32.const 0)
            {i32(FEATURES)} {i32(2)} {i32(0)} {i32(0)} {i32(ITEM)} {i32(1)}))
          (drop (call ${SUBMIT_TRAINING} (i64.load {i32(HANDLE)}) {i32(ACTIONS)} {i32(1)}
            {i32(VALUES)} {i32(1)}))
          (br $more))""",
    ),
    uses=(PUSH_NOTED, SUBMIT_TRAINING),
    memory='(memory (export "memory") 4)',
)


class SlowNotes:
    """A sink of transitions for which noting a metric takes a while: `seconds` by the clock."""

    def __init__(self):
        self.seconds = 0.0

    def note(self, _batch, _metadata):
        began, until = time.perf_counter(), time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        self.seconds += time.perf_counter() - began

    def held(self):
        return None

    def leave(self, *, stop):
        pass


@pytest.mark.parametrize("size", [1, 3])
def test_a_guest_pays_for_the_metadata_that_it_pushes_in_a_training(host, size):
    fleet, notes = host.fleet(TRAINING, size), SlowNotes()
    for guest in fleet.guests:
        policy = CallbackPolicy(lambda _: None)
        handle = calls_of(guest).services.sessions.open_training(TrainingStart(policy, 2, 1, notes))
        guest.write_memory(HANDLE, handle.to_bytes(8, "little"))
    began = time.perf_counter()
    failures = fleet.call("step_for_ever", budget=0.1).failures
    others = time.perf_counter() - began - notes.seconds
    used = [guest.account for guest in fleet.guests]

    assert [type(failure) for failure in failures.values()] == [GuestTimeout] * size
    assert min(one.import_seconds for one in used) > 0.08
    assert sum(one.policy_seconds for one in used) < others  # by the clock, as policies are counted


UNEVEN = module(
    data(MODEL, POINTMASS),
    opening("open", MODEL, len(POINTMASS), HANDLE),
    function(
        "push",
        f"""(drop (call ${PUSH} (i64.load {i32(HANDLE)}) (i64.extend_i32_u (local.get $agent))
          {i32(0)} (f32.const 0) {i32(FEATURES)} {i32(2)} (f32.const 0)))""",
        params="(param $agent i32)",
    ),
    function(
        "go",
        f"""(local $rows i32) (loop $more
          (local.set $rows (i32.sub (i32.const 3) (local.get $rows)))  ;; 3, 0, 3, ...
          (call $push (i32.const 0))
          (if (local.get $rows) (then (call $push (i32.const 1))))
          (drop (call ${SUBMIT} (i64.load {i32(HANDLE)}) {i32(ACTIONS)}
            (select (i32.const 2) (i32.const 1) (local.get $rows)) {i32(VALUES)}
            (select (i32.const 2) (i32.const 1) (local.get $rows))))
          (local.set $turns (i32.sub (local.get $turns) (i32.const 1)))
          (br_if $more (local.get $turns)))""",
        params="(param $turns i32)",
    ),
    uses=(START, PUSH, SUBMIT),
    memory='(memory (export "memory") 4)',
)


def test_guests_of_a_fleet_pay_for_the_rounds_that_they_make_long(make_host):
    """Each submit has another number of rows, so batches are put together anew for every round."""
    host = make_host(policy=CallbackPolicy(lambda _: None))
    fleet = host.fleet(UNEVEN, 200)
    fleet.call("open")
    failures = {}
    used, _ = cpu_seconds(lambda: failures.update(fleet.call("go", 1 << 30, budget=0.005).failures))
    account = fleet.account

    assert len(failures) == 200
    assert account.run_seconds + account.policy_seconds > 0.7 * used


def test_a_guest_that_is_greedy_frame_by_frame_is_evicted_from_its_fleet(make_host):
    host = make_host(limits=Limits(run_seconds=BUDGET, frames_over_share=2))
    fleet = greedy_fleet(host, BUDGET)
    failed, frames = {}, 0
    while not failed and frames < 60:
        failed, frames = fleet.update(), frames + 1

    assert failed
    assert set(failed) <= GREEDY
    for error in failed.values():
        assert "it is evicted (Limits.frames_over_share)" in str(error)
    assert frames >= 3
    assert fleet.update().keys() == failed.keys()


WAITING = module(
    function(
        "ark_applet_update",
        """(i32.store (i32.const 16) (i32.const 1))
        (i64.store (i32.const 24) (i64.load (i32.const 256)))
        (drop (call $poll_oneoff (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))""",
    ),
    imports=(wasi("poll_oneoff", "i32 i32 i32 i32"),),
)
"""It waits in each frame for the nanoseconds at 256."""


def waiting_fleet(make_host, *seconds):
    """Make a fleet whose budget is a second, of guests that wait for as long in each frame."""
    limits = Limits(run_seconds=1.0, frames_over_share=2)
    fleet = make_host(wasi=WasiGrant(), limits=limits).fleet(WAITING, len(seconds))
    for guest, wait in zip(fleet.guests, seconds, strict=True):
        guest.write_memory(256, int(1e9 * wait).to_bytes(8, "little"))
    return fleet


def test_a_guest_whose_waits_hold_up_frame_after_frame_is_evicted(make_host):
    fleet = waiting_fleet(make_host, 0, 0, 0.75, 0.001)
    frames = [fleet.update() for _ in range(4)]

    assert [set(failed) for failed in frames] == [set(), set(), {2}, {2}]
    assert "it is evicted (Limits.frames_over_share)" in str(frames[2][2])
    [waited] = re.findall(r"held it up for (\S+) s by waits", str(frames[2][2]))
    assert 0.7 <= float(waited) <= fleet.guests[2].account.wait_seconds - 2 * 0.7
    assert fleet.guests[2].account.wait_seconds > 2.2
    assert fleet.guests[2].account.run_seconds < 1.0


@pytest.mark.parametrize("waits", [(0.6,) * 4, (0, 0, 0.02, 0.001)])
def test_guests_that_all_wait_or_wait_a_little_are_not_evicted(make_host, waits):
    fleet = waiting_fleet(make_host, *waits)

    assert [fleet.update() for _ in range(5)] == [{}] * 5


def filled_up(fleet, width, rows):
    """Open sessions until one guest has no room for another; return the bytes that it has left."""
    model = build.noisy(width)
    for guest in fleet.guests:
        guest.write_memory(MODEL_AT, model)
    assert set(fleet.call("open", 1, width, width, len(model)).values) == {0}
    assert set(fleet.call("push", 1, width, rows, 0, 1).values) == {0}
    full = fleet.guests[3]
    while full.call("grow", 1) != -1:
        pass
    slot = 2
    while full.call("open", slot, width, width, len(model)) == 0:
        slot += 1
    return full.module.limits.guest_bytes - full.account.total_bytes


def test_a_guest_without_room_for_its_share_of_a_run_is_answered_apart(make_host, monkeypatch):
    alone = []
    answer_alone = Batcher._answer_alone

    def counted(batcher, failed):
        alone.extend(len(group.guests) for group in failed)
        return answer_alone(batcher, failed)

    monkeypatch.setattr(Batcher, "_fit", lambda *_: None)  # it would give bytes back
    width, rows, most = 64, 4, 8 * MIB
    with make_host(limits=Limits(guest_bytes=most, memory_bytes=most)).fleet(HOLDER, 8) as fleet:
        most -= filled_up(fleet, width, rows)
    host = make_host(limits=Limits(guest_bytes=most, memory_bytes=8 * MIB))
    with host.fleet(HOLDER, 8) as fleet:
        assert filled_up(fleet, width, rows) == 0
        monkeypatch.setattr(Batcher, "_answer_alone", counted)
        for _ in range(20):
            codes = fleet.call("submit", 1, rows * width, rows).values
            assert set(fleet.call("push", 1, width, rows, 0, 1).values) == {0}

    assert [code for place, code in enumerate(codes) if place != 3] == [0] * 7
    assert codes[3] != 0
    assert [count for count in alone if count > 1] == [8]  # once, and not in each frame


def test_a_refusal_of_an_earlier_run_sets_no_guest_apart(make_host, monkeypatch):
    def failing(_):
        raise ValueError("a run that fails for another reason")

    sizes = []
    plan = Batcher._plan

    def planned(batcher, guests):
        plan(batcher, guests)
        sizes.append([len(group.guests) for group in batcher._groups])

    fleet = make_host(policy=lambda observations: observations[:, :1]).fleet(ACTOR, 3)
    fleet.call("open")
    first = calls_of(fleet.guests[0]).instance
    monkeypatch.setattr(Batcher, "_plan", planned)
    monkeypatch.setattr(Group, "_act", failing)
    for _ in range(3):
        first.library.workspace.refused = first.number  # as by a call of that guest alone
        fleet.call("step", 3)

    assert sizes
    assert [size for size in sizes if size != [3]] == []


def test_a_fleet_with_one_hostile_guest_of_each_kind_acts_as_one_without_them(make_host):
    harms = {7 * (harm + 1): harm for harm in Harm if harm is not Harm.NONE}
    host = make_host(limits=Limits(run_seconds=BUDGET))
    fleet, calm = hostile_fleet(host, FLEET, harms), hostile_fleet(host, FLEET, {})
    # Over it in one frame or in several, as fast as the machine is then.
    spend([fleet.guests[7 * (Harm.GREED + 1)]], 0.9 * BUDGET)
    over, out = [], {}
    for _ in range(30):
        usual, _ = cpu_seconds(calm.update)
        alive = sum(fleet.guests[index].failure is None for index in harms)
        started = time.process_time()
        out = fleet.update()
        over.append(time.process_time() - started - 2 * usual - alive * BUDGET)

    assert sorted(out) == sorted(harms)
    assert max(over) < SLACK
    assert states(fleet, harms) == states(calm, harms)
