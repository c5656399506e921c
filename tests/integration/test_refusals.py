"""Refused pushes and submits leave their reason: in the log, in counts, and in a trap after it."""

from unittest.mock import patch

import numpy as np
import pytest
from tests.integration.callback_policy import CallbackPolicy
from tests.integration.guest_text import (
    ACTIONS,
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
)

from arkml.abi.layout import slots
from arkml.errors import GuestTrap, Unavailable
from arkml.guests.guest import calls_of
from arkml.limits import Limits
from arkml.runtime.shared_engine import TABLES
from arkml.runtime.shim.control_block import RefusalReason
from arkml.runtime.shim.refusal_reasons import RefusalNotes
from arkml.runtime.shim.render import noted

METADATA_PUSH = "ark-ml-v1.ml__push_inference_observation_with_metadata"
TRAINING_PUSH = "ark-ml-v1.ml__push_training_observation"
_HANDLE = f"(i64.load {i32(HANDLE)})"
_MEMORY = 4 << 16


def push(features=2, *, pointer=FEATURES, state=0, handle=_HANDLE):
    return (
        f"(call ${PUSH} {handle} (i64.const 1) {i32(state)} (f32.const 0) {i32(pointer)}"
        f" {i32(features)} (f32.const 0))"
    )


def submit(actions=1, values=1, *, pointer=ACTIONS, handle=_HANDLE):
    return f"(call ${SUBMIT} {handle} {i32(pointer)} {i32(actions)} {i32(0x18000)} {i32(values)})"


_SAYS = f"""(call ${METADATA_PUSH} {_HANDLE} (i64.const 1) {i32(0)} (f32.const 0)
  {i32(FEATURES)} {i32(2)} {i32(FEATURES)} {i32(1 << 30)})"""
_OTHER_KIND = f"""(call ${TRAINING_PUSH} {_HANDLE} (i64.const 1) {i32(0)} (f32.const 0)
  {i32(FEATURES)} {i32(2)} {i32(0)} {i32(0)} (f32.const 0))"""

CASES = {
    RefusalReason.SESSION: (
        push(handle="(i64.const 77)"),
        f"{PUSH} answered NOT_FOUND: no session has the handle 0x4d",
    ),
    RefusalReason.KIND: (
        _OTHER_KIND,
        f"{TRAINING_PUSH} answered NOT_FOUND: the handle 0x1 is of an inference session,"
        " not a training session",
    ),
    RefusalReason.STATE: (
        push(state=9),
        f"{PUSH} answered INVALID_ARGUMENTS: 9 is not an episode state, which are 0 RUNNING,"
        " 1 TERMINAL, 2 INTERRUPTED, 3 INITIAL",
    ),
    RefusalReason.FEATURES: (
        push(11),
        f"{PUSH} answered INVALID_ARGUMENTS: 11 features, the session has 2",
    ),
    RefusalReason.METADATA: (
        _SAYS,
        f"{METADATA_PUSH} answered INVALID_ARGUMENTS: {1 << 30} items of metadata,"
        f" {(1 << 31) // 32} are allowed",
    ),
    RefusalReason.OUTSIDE: (
        push(pointer=_MEMORY - 4),
        f"{PUSH} answered INVALID_ARGUMENTS: an argument ends at byte {_MEMORY + 4} of a memory"
        f" of {_MEMORY} bytes",
    ),
    RefusalReason.ACTIONS: (
        f"(drop {push()}) {submit(3)}",
        f"{SUBMIT} answered INVALID_ARGUMENTS: room for 3 actions, the pushed rows need 1",
    ),
    RefusalReason.VALUES: (
        f"(drop {push()}) {submit(1, 4)}",
        f"{SUBMIT} answered INVALID_ARGUMENTS: room for 4 values, 1 rows are pushed",
    ),
    RefusalReason.HOST: (
        f"(drop {push()}) (drop {push()}) (local.set $code {push()}) (drop {submit(2, 2)})"
        " (local.get $code)",
        f"{PUSH} answered INVALID_ARGUMENTS: a batch of 3 rows is over the limit of 2",
    ),
}
"""What makes a guest's call refused, and the sentence that it leaves."""


def refused_by(text, *, then=""):
    """An applet with an open session, of which `boom` traps after a refused call."""
    used = [name for name in (PUSH, SUBMIT, METADATA_PUSH, TRAINING_PUSH) if f"${name} " in text]
    return module(
        data(MODEL, POINTMASS),
        opening("ark_initialize", MODEL, len(POINTMASS), HANDLE),
        function("ark_applet_update", f"(local $code i32) (drop {_last(text)}) {then}"),
        function("bang", "unreachable"),
        function("boom", f"(local $code i32) (drop {_last(text)}) unreachable"),
        uses=(START, *used),
        memory='(memory (export "memory") 4)',
    )


def _last(text):
    """A function body whose last expression is the code of the refused call."""
    return f"(block (result i32) {text})"


@pytest.fixture
def limited(make_host):
    return make_host(limits=Limits(rows=2))


@pytest.mark.parametrize("reason", CASES, ids=lambda reason: reason.name)
def test_a_refusal_is_in_the_log_once_in_the_counts_and_in_the_trap_that_follows(
    limited, reason, caplog
):
    text, sentence = CASES[reason]
    guest = limited.load(refused_by(text), name="npc")
    for _ in range(3):
        guest.update()
    counted = guest.statistics.refusals[sentence]
    with pytest.raises(GuestTrap) as caught:
        guest.call("boom")
    said = [record.message for record in caplog.records if record.name == "arkml.guest.npc"]

    assert counted == 3
    assert said.count(sentence) == 1
    assert f"before it {sentence}" in str(caught.value)
    assert str(caught.value).startswith("npc trapped: unreachable")


def test_every_reason_has_its_case():
    assert CASES.keys() == set(RefusalReason) - {
        RefusalReason.GIVEN
    }  # needs a run: with the training sessions


@pytest.mark.parametrize(
    ("api", "row"), list(noted(TABLES)), ids=lambda one: getattr(one, "name", "")
)
def test_every_push_and_submit_notes_its_own_name(host, api, row):
    name = f"{api.module}.{api.symbol(row)}"
    kinds = [slot.wasm for slot in slots(row)]
    call = f"(call $refused {' '.join(f'({kind}.const 0)' for kind in kinds)})"
    text = (
        f'(module (import "{api.module}" "{api.symbol(row)}" (func $refused (param'
        f' {" ".join(kinds)}) (result i32))) (memory (export "memory") 1)'
        f' (func (export "go") (result i32) {call}))'
    )
    guest = host.load(text.encode())
    guest.call("go")

    assert guest.statistics.refusals == {
        f"{name} answered NOT_FOUND: no session has the handle 0x0": 1
    }


def test_a_trap_in_a_later_call_does_not_name_what_was_refused_before(host):
    guest = host.load(refused_by(push(11)))
    guest.update()
    with pytest.raises(GuestTrap) as caught:
        guest.call("bang")

    assert "before it" not in str(caught.value)


def test_a_fleet_says_once_what_is_refused_to_all_and_counts_them_together(host, caplog):
    fleet = host.fleet(refused_by(push(11)), 5, name="npc")
    for _ in range(3):
        assert fleet.update() == {}
    failures = fleet.call("boom").failures
    ((sentence, count),) = fleet.statistics.refusals.items()
    lines = [record.message for record in caplog.records if "features" in record.message]

    assert lines == [sentence]
    assert count == 20
    assert all(f"before it {sentence}" in str(error) for error in failures.values())


def test_a_loop_of_frames_names_the_refusal_in_the_frame_that_traps(host):
    fleet = host.fleet(refused_by(push(11), then="unreachable"), 2)
    failures = fleet.update()

    assert len(failures) == 2
    assert all("11 features, the session has 2" in str(error) for error in failures.values())


@pytest.mark.parametrize("instances", [1, 2])
def test_a_submit_that_the_host_refuses_says_its_error(host, caplog, instances):
    fleet = host.fleet(refused_by(f"(drop {push()}) {submit()}"), instances)

    def act(_batch):
        raise Unavailable("no room for the noise")

    for guest in fleet.guests:
        session = calls_of(guest).services.sessions.open_inference(CallbackPolicy(act), 2, 1)
        guest.write_memory(HANDLE, session.to_bytes(8, "little"))
    fleet.update()
    fleet.update()
    sentence = f"{SUBMIT} answered UNAVAILABLE: no room for the noise"

    assert fleet.statistics.refusals == {sentence: 2 * instances}
    assert [r.message for r in caplog.records if "no room" in r.message] == [sentence]


def test_an_import_that_python_refuses_is_in_the_trap_that_follows(host):
    guest = host.load(
        module(
            function(
                "boom",
                f"(drop (call ${START} {i32(2)} {i32(1)} {i32(64)} {i32(9)} {i32(0)} {i32(8)}))"
                " unreachable",
            ),
            function("later", "unreachable"),
            function(
                "refused",
                f"(drop (call ${START} {i32(2)} {i32(1)} {i32(64)} {i32(9)} {i32(0)} {i32(8)}))",
            ),
            uses=(START,),
            memory='(memory (export "memory") 1)',
        )
    )
    other = host.load(guest.module)
    with pytest.raises(GuestTrap, match=rf"before it {START} answered INVALID_ARGUMENTS: ."):
        guest.call("boom")
    other.call("refused")
    with pytest.raises(GuestTrap) as caught:
        other.call("later")

    assert "before it" not in str(caught.value)


def test_a_refusal_that_follows_from_another_one_does_not_hide_it(host, caplog):
    guest = host.load(refused_by(f"(drop {push(11)}) {submit()}"), name="npc")
    for _ in range(3):
        guest.update()

    assert [message.partition(" answered ")[0] for message in caplog.messages] == [PUSH, SUBMIT]


def test_the_sentence_on_a_refusal_is_made_once_only(host, caplog):
    guest = host.load(refused_by(f"(drop {push(11)}) {submit()}"), name="npc")
    with patch.object(
        RefusalNotes, "sentence", autospec=True, side_effect=RefusalNotes.sentence
    ) as made:
        for _ in range(3):
            guest.update()

    assert made.call_count == len(caplog.messages) == 2


def test_an_import_whose_arguments_cannot_be_read_is_said_once_and_counted(host, caplog):
    call = f"(call ${START} {i32(2)} {i32(1)} {i32(-9)} {i32(9)} {i32(0)} {i32(8)})"
    guest = host.load(module(function("ask", f"(drop {call})"), uses=(START,)))
    for _ in range(3):
        guest.call("ask")
    ((sentence, count),) = guest.statistics.refusals.items()

    assert sentence.startswith(f"{START} answered INVALID_ARGUMENTS: 9 bytes at 0xfffffff7 end")
    assert count == 3
    assert caplog.messages.count(sentence) == 1


def test_non_finite_actions_are_said_once_of_a_fleet_too(host, caplog):
    fleet = host.fleet(refused_by(f"(drop {push()}) {submit()}"), 3)

    for guest in fleet.guests:
        policy = CallbackPolicy(lambda _: None)
        policy.act = lambda batch: batch.actions.fill(np.nan)
        session = calls_of(guest).services.sessions.open_inference(policy, 2, 1)
        guest.write_memory(HANDLE, session.to_bytes(8, "little"))
    for _ in range(3):
        fleet.update()
    lines = [r.message for r in caplog.records if "non-finite" in r.message]

    assert fleet.statistics.non_finite_actions == 9
    assert len(lines) == 1
