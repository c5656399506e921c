"""States of guests beside other policies, masks, brains, and calls that are in progress."""

import logging

import numpy as np
import pytest
from tests.integration.guest_text import (
    ACTIONS,
    ACTOR,
    FEATURES,
    GUESTS,
    HANDLE,
    LOG,
    MODEL,
    START,
    SUBMIT,
    VALUES,
    data,
    function,
    i32,
    logging_of,
    module,
    opening,
)
from tests.integration.snapshot_files import altered
from tests.integration.test_policy_changes import (
    MASKS,
    PUSH,
    adding,
    choosing,
    linear,
    noisy,
    player,
)

from arkml import GuestEnv, GuestSnapshot
from arkml.batches import ROW
from arkml.errors import GuestBusy, StateRefused
from arkml.guests.guest import calls_of

CHOOSING = choosing([0, 0, 0])
ADD, REMOVE = "ark-core-v4.core__add_debug_context", "ark-core-v4.core__remove_debug_context"
ONE_BY_ONE = module(
    data(MODEL, CHOOSING),
    opening("open", MODEL, len(CHOOSING), HANDLE),
    function(
        "push",
        f"""(call ${PUSH} (i64.load {i32(HANDLE)}) (i64.const 4) {i32(0)} (f32.const 0)
          {i32(FEATURES)} {i32(2)} {i32(MASKS)} {i32(1)})""",
        result="i32",
    ),
    function(
        "submit",
        f"""(call ${SUBMIT} (i64.load {i32(HANDLE)}) {i32(ACTIONS)} (local.get $n)
          {i32(VALUES)} (local.get $n))""",
        params="(param $n i32)",
        result="i32",
    ),
    uses=(START, PUSH, SUBMIT),
    memory='(memory (export "memory") 4)',
)
"""A guest whose pushes, each with a mask, and submits are calls of their own."""
SUM = adding((1, 0))
DOUBLE = linear((2, 0))
OTHER_SUM = adding((10, 0))
WIDE_SUM = adding((1, 0), width=3)


def opened(host, *models, actions=1):
    """A guest with an open session of the first model, which sees a one."""
    guest = host.load(player(*models, actions=actions))
    guest.write_memory(FEATURES, np.float32([1, 0]).tobytes())
    assert guest.call("open0") == 0
    return guest


def acted(guest, steps=1):
    """The actions of an agent in some steps."""
    found = []
    for _ in range(steps):
        assert guest.call("step", 1) == 0
        found.append(np.frombuffer(guest.read_memory(ACTIONS, 4), "<f4").item())
    return found


def mask(guest, choice):
    guest.write_memory(MASKS, f"mask/0/{choice}".encode().ljust(28, b"\0") + b"\0\0\x80\x3f")


# What agents remember, and policies that change between a snapshot and a restore.


def test_agents_of_a_policy_of_the_host_remember_what_they_did(make_host):
    host = make_host(policy=SUM)
    guest = opened(host, DOUBLE)
    acted(guest, 3)
    state = guest.snapshot()
    again = opened(make_host(policy=SUM), DOUBLE)
    again.restore(GuestSnapshot.load(bytes(state)))

    assert acted(guest, 2) == [4, 5]
    guest.restore(state)
    assert acted(guest, 2) == acted(again, 2) == [4, 5]


def test_agents_keep_what_they_remember_with_another_policy_of_the_same_width(make_host):
    host = make_host(policy=SUM)
    guest = opened(host, DOUBLE)
    acted(guest, 3)
    state = guest.snapshot()
    host.use(OTHER_SUM).result()
    acted(guest, 5)
    guest.restore(state)

    assert acted(guest) == [13]


def test_a_state_whose_agents_remember_more_is_refused_and_changes_nothing(make_host):
    host = make_host(policy=SUM)
    guest = opened(host, DOUBLE)
    acted(guest, 2)
    state = guest.snapshot()
    host.use(WIDE_SUM).result()
    before = acted(guest, 2)
    with pytest.raises(StateRefused, match="remember 1 numbers, those of the present policy 3"):
        guest.restore(state)

    assert acted(guest) == [before[-1] + 1]
    host.use(SUM).result()
    guest.call("step", 1)
    guest.restore(state)
    assert acted(guest) == [3]


def test_agents_of_a_policy_with_noise_alone_remember_no_number(make_host):
    hosts = [make_host(policy=policy) for policy in (noisy((2, 0)), SUM)]
    guests = [opened(host, DOUBLE) for host in hosts]
    for guest in guests:
        acted(guest, 2)
    states = [guest.snapshot() for guest in guests]

    with pytest.raises(StateRefused, match="remember 1 numbers, those of the present policy 0"):
        guests[0].restore(states[1])
    with pytest.raises(StateRefused, match="remember 0 numbers, those of the present policy 1"):
        guests[1].restore(states[0])


def test_agents_that_a_policy_began_to_keep_after_the_snapshot_begin_anew(make_host):
    host = make_host()
    guest = opened(host, DOUBLE)
    acted(guest, 2)
    state = guest.snapshot()
    host.use(SUM).result()
    assert acted(guest, 2) == [1, 2]
    guest.restore(state)

    assert acted(guest, 2) == [1, 2]
    kept = guest.snapshot()
    assert acted(guest, 2) == [3, 4]
    guest.restore(kept)
    assert acted(guest, 2) == [3, 4]


def test_a_policy_that_keeps_no_agents_takes_a_state_with_agents(make_host):
    host = make_host(policy=SUM)
    guest = opened(host, DOUBLE)
    acted(guest, 2)
    state = guest.snapshot()
    host.use(None).result()
    guest.restore(state)

    assert acted(guest, 2) == [2, 2]
    host.use(SUM).result()
    assert len(acted(guest, 2)) == 2
    guest.restore(state)
    assert acted(guest, 2) == [3, 4]


def test_a_session_that_was_closed_and_opened_with_another_model_is_the_first_again(make_host):
    host = make_host()
    guest = opened(host, SUM, DOUBLE)
    acted(guest, 2)
    state = guest.snapshot()
    assert guest.call("open1") == 0
    double = guest.snapshot()
    for _ in range(2):
        guest.restore(state)
        assert acted(guest) == [3]
        assert guest.live_handles == 1
        guest.restore(double)
        assert acted(guest) == [2]
        assert guest.live_handles == 2


# Masks.


@pytest.mark.parametrize("way", ["here", "elsewhere", "from a file"])
def test_rows_that_wait_have_their_masks_after_a_restore(make_host, way):
    host = make_host(policy=choosing([3, 2, 1]))
    guest = host.load(ONE_BY_ONE)
    assert guest.call("open") == 0
    for masked, expected in ((0, 1), (1, 0)):
        mask(guest, masked)
        guest.call("push")
        state = guest.snapshot()
        mask(guest, 1 - masked)
        guest.call("push")
        guest.call("submit", 2)
        other = guest if way == "here" else host.load(ONE_BY_ONE)
        other.restore(GuestSnapshot.load(bytes(state)) if way == "from a file" else state)
        other.call("submit", 1)

        assert np.frombuffer(other.read_memory(ACTIONS, 4), "<f4").tolist() == [expected]


def words(*numbers):
    return np.array(numbers, "<u4").tobytes()


def many_items(rows):
    _, _, size, _ = np.frombuffer(rows["metadata"][:16], "<u4").tolist()
    rows["metadata"] = words(0, 1 << 31, size, 0)


def row(**fields):
    """Change fields of the first row that waits."""

    def change(rows):
        found = np.frombuffer(rows["columns"][0], ROW).copy()
        for name, value in fields.items():
            found[name][0] = value
        rows["columns"] = [found.tobytes(), *rows["columns"][1:]]

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda rows: rows.update(words=[2, 0, 0]), "bytes of rows are not 2 rows"),
        (lambda rows: rows.update(words=[0, 0, 0]), "bytes of rows are not 0 rows"),
        (lambda rows: rows.update(words=[1, 1, 0]), "1 rows end an episode"),
        (lambda rows: rows.update(words=[1, 0]), "damaged"),
        (lambda rows: rows["columns"].__setitem__(0, bytes(7)), "damaged"),
        (lambda rows: rows["columns"].__setitem__(1, bytes(4)), "cannot reshape|broadcast"),
        (lambda rows: rows["columns"].__setitem__(1, b"\xff" * 8), "features are not finite"),
        (lambda rows: rows["columns"].__setitem__(2, bytes(3)), "are not 1 rows"),
        (row(state=4), "rows end an episode"),
        (row(given=1), "a row has actions of another width"),
        (row(moved=32), "a row has actions of another width"),
        (row(metadata=2), "more or fewer items of metadata"),
        (lambda rows: rows.update(metadata=rows["metadata"][:-4]), "metadata of rows is cut off"),
        (lambda rows: rows.update(metadata=rows["metadata"][:12]), "metadata of rows is cut off"),
        (lambda rows: rows.update(metadata=b""), "more or fewer items of metadata"),
        (lambda rows: rows.update(metadata=words(7, 1, 68, 0) + bytes(68)), "bytes in row 7"),
        (lambda rows: rows.update(metadata=words(0, 1, 12, 0) + bytes(12)), "12 bytes in row 0"),
        (many_items, "metadata of rows is cut off"),
        (lambda rows: rows.update(metadata=2 * rows["metadata"]), "bytes in row 0"),
    ],
)
def test_rows_in_a_file_that_no_guest_pushed_are_refused(make_host, change, sentence):
    host = make_host(policy=choosing([3, 2, 1]))
    guest = host.load(ONE_BY_ONE)
    assert guest.call("open") == 0
    mask(guest, 0)
    guest.call("push")
    state = guest.snapshot()
    file = altered(state, lambda guest: change(guest["rows"][0]))
    other = host.load(ONE_BY_ONE)
    with pytest.raises(StateRefused, match=sentence):
        other.restore(GuestSnapshot.load(file))
    moved = altered(state, lambda guest: guest["rows"].update({9: guest["rows"][0]}))
    with pytest.raises(StateRefused, match="rows wait in no session"):
        GuestSnapshot.load(moved)
    guest.restore(GuestSnapshot.load(bytes(state)))
    guest.call("submit", 1)
    assert np.frombuffer(guest.read_memory(ACTIONS, 4), "<f4").tolist() == [1]


def test_masks_of_a_batch_before_the_restore_are_not_those_of_the_next(make_host):
    host = make_host(policy=choosing([3, 2, 1]))
    guest = opened(host, choosing([0, 0, 0]))
    state = guest.snapshot()
    mask(guest, 0)
    masked = acted(guest)
    guest.restore(state)

    assert (masked, acted(guest)) == ([1], [0])


# Brains of `ark-ml-inference-v0`.


def test_handles_of_brains_that_were_used_up_since_are_as_before(make_host):
    guest = make_host().load(ACTOR)
    calls = calls_of(guest).services.handler("ark-ml-inference-v0")
    first = guest.snapshot()
    used = calls.create_runtime()
    calls.destroy_runtime(used)
    second = guest.snapshot()
    upcoming = calls.create_runtime()
    calls.destroy_runtime(upcoming)
    for state, handle in ((first, used), (second, upcoming), (first, used)):
        guest.restore(state)
        made = calls.create_runtime()
        calls.destroy_runtime(made)

        assert made == handle
    assert used != upcoming


# Contexts of the log.


def test_lines_of_the_log_end_with_the_contexts_of_the_state(make_host, caplog):
    text, say = logging_of("hello")
    guest = make_host().load(
        module(
            text,
            data(64, b"levelonetwo"),
            function("say", say),
            function("one", f"(call ${ADD} {i32(64)} {i32(5)} {i32(69)} {i32(3)})"),
            function("two", f"(call ${ADD} {i32(64)} {i32(5)} {i32(72)} {i32(3)})"),
            function("none", f"(call ${REMOVE} {i32(64)} {i32(5)})"),
            uses=(LOG, ADD, REMOVE),
        )
    )
    states = {"": guest.snapshot()}
    for name in ("one", "two"):
        guest.call(name)
        states[name] = guest.snapshot()
        guest.call("none")
    told = []
    caplog.set_level(logging.INFO, logger="arkml.guest")
    for name in ("one", "", "two", "one"):
        guest.restore(states[name])
        caplog.clear()
        guest.call("say")
        told.append([word in caplog.text for word in ("hello", "one", "two")])

    assert told == [
        [True, True, False], [True, False, False], [True, False, True], [True, True, False]
    ]  # fmt: skip


# Guests that are in a call, and modules whose state cannot be copied.


def test_a_policy_that_acts_neither_saves_nor_restores_the_guest_that_waits_for_it(make_host):
    errors = []

    def policy(observations):
        for work in (guest.snapshot, lambda: guest.restore(state)):
            with pytest.raises(GuestBusy) as raised:
                work()
            errors.append(str(raised.value))
        return 2 * observations[:, :1]

    host = make_host(policy=policy)
    guest = opened(host, DOUBLE)
    state = guest.snapshot()

    assert acted(guest, 2) == [2, 2]
    assert len(errors) == 4
    guest.restore(state)
    assert acted(guest) == [2]


def test_a_guest_that_an_environment_holds_in_a_submit_is_left_alone():
    path, one = GUESTS / "c_pendulum.wasm", {"configure": (1, 3)}
    with GuestEnv(path, **one) as env, GuestEnv(path, **one) as same:
        other = same.host.load(env.module)
        state = GuestSnapshot.load(bytes(other.snapshot()))
        rows = []
        for each in (env, same):
            step = each.reset(seed=3)
            for turn in range(20):
                if each is env:
                    with pytest.raises(GuestBusy, match="waits in a submit for its answer"):
                        env.guest.snapshot()
                    with pytest.raises(GuestBusy, match="waits in a submit for its answer"):
                        env.guest.restore(state)
                step = each.step(np.full((1, 1), np.float32(turn / 20)))
                rows.append(step.decisions[0].observations.tobytes())

    assert rows[:20] == rows[20:]
    assert len(set(rows)) == 20


OBJECTS = "(type $pair (struct (field i32))) (global (mut (ref null $pair)) (ref.null $pair))"
UNCOPIED = {
    "objects that wasmtime collects": module(OBJECTS),
    "instructions that may change a table of \\(ref null 0\\)": module(
        "(type $f (func)) (table $calls 4 (ref null $f))",
        function("change", "(table.set $calls (i32.const 0) (ref.null $f))"),
    ),
    "a global of type funcref that changes": module(
        "(global (mut funcref) (ref.null func))", function("f", "")
    ),
    "10,001 globals that change": module("(global (mut i32) (i32.const 0))" * 10_001),
}


@pytest.mark.parametrize("reason", UNCOPIED)
def test_a_module_whose_state_cannot_be_copied_is_refused_in_a_sentence(make_host, reason):
    host = make_host()
    guest, fleet = host.load(UNCOPIED[reason]), host.fleet(UNCOPIED[reason], 2)
    for each in (guest, fleet, fleet.guests[0]):
        with pytest.raises(StateRefused, match=f"cannot be saved: it has {reason}"):
            each.snapshot()

    assert guest.account.snapshot_bytes == 0
    assert guest.failure is None
