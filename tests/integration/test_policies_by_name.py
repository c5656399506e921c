"""Policies of the embedder for some sessions, by the name or the shape that these have."""

from __future__ import annotations

import json

import numpy as np
import pytest
import wasmtime
from tests.integration.guest_text import (
    ACTION,
    ACTIONS,
    ACTOR,
    FEATURES,
    MODEL,
    POINTMASS,
    PUSH,
    START,
    SUBMIT,
    data,
    function,
    i32,
    module,
)

from arkml import Host
from arkml.errors import ModelRejected, UsageError
from arkml.host import idle_policies_of

GUEST = module(
    data(MODEL, POINTMASS),
    function(
        "open",
        f"""(call ${START} (local.get $features) (local.get $actions) {i32(MODEL)}
          {i32(len(POINTMASS))} {i32(0)} (local.get $at))""",
        params="(param $features i32) (param $actions i32) (param $at i32)",
        result="i32",
    ),
    function(
        "ask",
        f"""(drop (call ${PUSH} (i64.load (local.get $at)) (i64.const 1) {i32(0)} (f32.const 0)
          {i32(FEATURES)} (local.get $features) (f32.const 0)))
        (drop (call ${SUBMIT} (i64.load (local.get $at)) {i32(ACTIONS)} (local.get $actions)
          {i32(0x18000)} {i32(1)}))
        (f32.load {i32(ACTIONS)})""",
        params="(param $features i32) (param $actions i32) (param $at i32)",
        result="f32",
    ),
    uses=(START, PUSH, SUBMIT),
    memory='(memory (export "memory") 4)',
)
REFUSED = 5


def answering(number):
    """Return a policy whose actions are all `number`, for sessions of any shape."""
    policies = answering.__dict__.setdefault("policies", {})

    def policy(observations):
        return np.full((len(observations), answering.width), number, np.float32)

    return policies.setdefault(number, policy)


class Fixed:
    """A policy object that answers with one number."""

    num_features, num_actions = 2, 1

    def __init__(self, number):
        self.number = number

    def act(self, batch):
        batch.actions[:] = self.number

    def forget(self, key): ...


def declaring(**behaviors):
    """Return the guest with a section that declares these behaviors: features and actions."""
    return with_spec({
        name: {
            "observations": [{"shape": [features]}],
            "actions": {"continuous": actions},
        }
        for name, (features, actions) in behaviors.items()
    })  # fmt: skip


def with_spec(behaviors):
    """Return the guest with a section that declares `behaviors` as they are."""
    spec = json.dumps({"behaviors": behaviors}).encode()
    binary = bytes(wasmtime.wat2wasm(GUEST.decode() if isinstance(GUEST, bytes) else GUEST))
    name = b"arkml.spec"
    content = bytes([len(name)]) + name + spec
    return binary + b"\0" + _leb(len(content)) + content


def _leb(number):
    more, low = number >> 7, number & 0x7F
    return bytes([low | 0x80]) + _leb(more) if more else bytes([low])


def answers(guest, features, actions, at=8):
    """Return the first action of a session of this shape, or the code of its refusal."""
    answering.width = actions
    code = guest.call("open", features, actions, at)
    return code or guest.call("ask", features, actions, at)


def test_a_declared_behavior_is_answered_by_the_policy_of_its_name():
    policies = {"goblin": answering(1), "orc": answering(2), (2, 1): answering(3)}
    with Host(policies=policies) as host:
        guest = host.load(declaring(goblin=(2, 1), orc=(5, 2)))

        assert answers(guest, 2, 1) == 1
        assert answers(guest, 5, 2, at=16) == 2


@pytest.mark.parametrize("key", ["goblin", "goblin.wasm"])
@pytest.mark.parametrize("name", ["goblin", "goblin.wasm"])
def test_a_guest_is_answered_by_the_policy_of_its_name(key, name):
    with Host(policies={key: answering(1), (2, 1): answering(3)}) as host:
        assert answers(host.load(GUEST, name=name), 2, 1) == 1
        assert answers(host.load(GUEST, name="orc"), 2, 1) == 3


def test_a_fleet_is_answered_by_the_policy_of_its_name_and_its_behaviors_come_first():
    policies = {"goblin": answering(1), "boss": answering(2)}
    with Host(policies=policies) as host, host.fleet(
        declaring(boss=(5, 1)), 3, name="goblin"
    ) as fleet:  # fmt: skip
        answering.width = 1
        for features, at, wanted in ((2, 8, 1), (5, 16, 2)):
            assert fleet.call("open", features, 1, at).values == [0] * 3
            assert fleet.call("ask", features, 1, at).values == [wanted] * 3


def test_sessions_without_a_policy_of_their_own_have_that_of_the_host_or_their_snapshot():
    with Host(policies={"goblin": answering(1)}, policy=answering(4)) as host:
        assert answers(host.load(GUEST, name="orc"), 2, 1) == 4
        assert answers(host.load(GUEST, name="goblin"), 2, 1) == 1
    with Host(policies={"goblin": answering(1), (3, 1): answering(2)}) as host:
        guest = host.load(ACTOR, name="orc")
        assert guest.call("open") == 0
        assert guest.call("step", 1) == 0
        assert guest.call("action", 0) == ACTION
        assert guest.account.model_seconds > 0
        assert guest.account.policy_seconds == 0


def test_another_policy_leaves_sessions_that_have_one_of_their_name():
    with Host(policies={"goblin": answering(1)}, policy=answering(4)) as host:
        goblin, orc = host.load(GUEST, name="goblin"), host.load(GUEST, name="orc")
        before = answers(goblin, 2, 1), answers(orc, 2, 1)
        host.use(answering(5)).result()

        assert before == (1, 4)
        assert (goblin.call("ask", 2, 1, 8), orc.call("ask", 2, 1, 8)) == (1, 5)


def test_files_and_objects_are_policies_too():
    with Host(policies={"orc": Fixed(7), "goblin": POINTMASS}) as host:
        assert answers(host.load(GUEST, name="orc"), 2, 1) == 7
        goblin = host.load(GUEST, name="goblin")
        goblin.write_memory(FEATURES, np.float32([1, 2]).tobytes())
        assert answers(goblin, 2, 1) == -1 - 1.5 * 2
        assert goblin.account.model_seconds == 0  # the embedder's, which is not charged


def test_a_session_that_two_policies_are_meant_for_is_refused_with_the_way_out(caplog):
    behaviors = declaring(goblin=(2, 1), orc=(2, 1), troll=(2, 1))
    with Host(policies={"goblin": answering(1), "orc": answering(2)}) as host:
        assert answers(host.load(behaviors), 2, 1) == REFUSED
    assert (
        "policies has one for 'goblin' and 'orc' each, and a session of 2 features and 1 actions"
        " may be of both, since it has no name: give both the same, or let the behaviors differ"
    ) in caplog.text

    for policy in (answering(1), Fixed(1)):
        names = dict.fromkeys(("goblin", "orc", "troll"), policy)
        with Host(policies={**names, "other": answering(2)}) as host:
            assert answers(host.load(behaviors), 2, 1) == 1


@pytest.mark.parametrize("default", [None, answering(3)])
def test_a_policy_of_one_behavior_does_not_answer_others_of_the_same_numbers(caplog, default):
    behaviors = declaring(goblin=(2, 1), orc=(2, 1), troll=(5, 1))
    with Host(policies={"goblin": answering(1), "troll": answering(2)}, policy=default) as host:
        guest = host.load(behaviors)

        assert answers(guest, 2, 1) == REFUSED
        assert answers(guest, 5, 1) == 2
    assert (
        "policies has one for 'goblin', and a session of 2 features and 1 actions may be of 'orc',"
        " too, since it has no name: give both the same"
    ) in caplog.text


def test_the_name_of_a_behavior_is_not_that_of_its_guest():
    with Host(policies={"orc": answering(1)}, policy=answering(3)) as host:
        guest = host.load(declaring(goblin=(2, 1), orc=(5, 1)), name="orc.wasm")

        assert answers(guest, 5, 1) == 1
        assert answers(guest, 2, 1, at=16) == 3


def test_policies_that_no_session_could_have_are_idle():
    policies = {"goblin": answering(1), "orc": POINTMASS, "boss": answering(2), (8, 8): Fixed(3)}
    with Host(policies=policies) as host:
        guest = host.load(declaring(goblin=(3, 1), orc=(5, 1)))
        assert answers(guest, 3, 1) == 1
        assert answers(guest, 5, 1) == REFUSED  # the model takes two features

        assert idle_policies_of(host) == ["orc", "boss", (8, 8)]
    same = answering(1)
    with Host(policies={"goblin": same, "orc": same}) as host:
        assert answers(host.load(declaring(goblin=(2, 1), orc=(2, 1))), 2, 1) == 1
        assert idle_policies_of(host) == []


@pytest.mark.parametrize(("policies", "text"), [
    ([answering(1)], r"policies is .*: it takes a dict, as \{'goblin': 'goblin.onnx'\}"),
    ({"": answering(1)}, "policies has the key '': it takes the name of a behavior or a guest"),
    ({8: answering(1)}, "policies has the key 8: it takes the name of a behavior or a guest, as"),
    ({(8,): answering(1)}, r"policies has the key \(8,\)"),
    ({(8, -3): answering(1)}, r"policies has the key \(8, -3\)"),
    ({(8, 3.5): answering(1)}, r"policies has the key \(8, 3.5\)"),
    ({"goblin": None}, "policies has None for 'goblin': leave the key out"),
    ({"goblin": 7}, r"^policies\['goblin'\]: policy is of type builtins.int: it takes a path"),
    ({"a": answering(1), "a.wasm": answering(2)}, "'a.wasm' with and without its suffix: keep one"),
])  # fmt: skip
def test_policies_that_mean_nothing_are_refused(policies, text):
    with pytest.raises(UsageError, match=text):
        Host(policies=policies)


def test_a_file_that_cannot_act_is_refused_when_the_host_is_made():
    with pytest.raises(ModelRejected):
        Host(policies={"goblin": b"no model"})


def test_a_missing_file_is_named():
    with pytest.raises(UsageError, match=r"^policies\['goblin'\]: .*nothing\.onnx cannot be read"):
        Host(policies={"goblin": "nothing.onnx"})


def test_a_refused_policy_comes_with_what_is_wrong_with_the_declaration(caplog):
    with Host(policy="fixtures/guests/policies/pointmass.onnx") as host:
        guest = host.load(with_spec({"*": {"actions": {"branches": [5]}}}))

        assert guest.call("open", 7, 1, 8) == REFUSED
    assert "unknown field `branches`" in caplog.text
    assert "the policy that overrides the guest's (pointmass.onnx): the model" in caplog.text


def test_a_name_that_is_almost_that_of_a_guest_is_told_once(caplog):
    policies = {"goblinn": answering(1), "guard1": answering(2), (2, 1): answering(3)}
    with Host(policies=policies) as host:
        for name in ("goblin.wasm", "goblin.wasm", "orc", "guard2", "guards"):
            assert answers(host.load(GUEST, name=name), 2, 1) == 3
        assert answers(host.load(GUEST, name="guard1"), 2, 1) == 2
        assert answers(host.load(GUEST, name="guardl"), 2, 1) == 3

    told = [record.getMessage() for record in caplog.records if "policies has" in record.msg]
    assert told == [
        "policies has 'goblinn', and none for 'goblin.wasm': are they the same?",
        "policies has 'guard1', and none for 'guards': are they the same?",
    ]


def test_a_session_that_no_declaration_fits_is_told(caplog):
    with Host(policies={(2, 1): answering(1), (5, 2): answering(2)}) as host:
        guest = host.load(declaring(goblin=(5, 2)))

        answers(guest, 5, 2)
        assert "arkml.spec" not in caplog.text
        answers(guest, 2, 1, at=16)
    assert "arkml.spec for 'goblin' fits no rows of 2 features and 1 actions" in caplog.text
