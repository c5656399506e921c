"""Guests with discrete actions in runs: their masks, their rows, and the pace of a version."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.integration.command_line import CORRIDOR, GUESTS, with_spec
from tests.integration.hive_service import grant_of
from tests.integration.training_guest import LOCAL, V1, V2, TrainingGuest
from tests.waiting import eventually

import arkml
from arkml import HiveGrant, Host
from arkml.abi.codes import EpisodeState, ErrorCode
from arkml.errors import InvalidArguments, ModelRejected
from arkml.hive.embedded import EmbeddedHive
from arkml.hive.protocol.masks import mask_names
from arkml.hive.protocol.rows import read_records
from arkml.host import hives_of
from arkml.learning.algorithm import Layer
from arkml.learning.normalizer import Scaling
from arkml.learning.policy_graph import to_onnx
from arkml.learning.ppo import PpoWeights

CHOOSERS = GUESTS / "c_choosers.wasm"
LEARNER = str(Path(__file__).with_name("ppo_learner.py"))
ENDED = (EpisodeState.TERMINAL, EpisodeState.INTERRUPTED)
PICKER, DRIVER = 1, 2
BRANCHES = {PICKER: (3, 2), DRIVER: (3,)}
MASKED = -7.0  # a reward with the penalty of a masked choice is below this, any other above


@pytest.fixture
def hive(tmp_path):
    with EmbeddedHive(tmp_path, {"learner": [LEARNER], "spare": False}) as made:
        yield made


def rows_of(host):
    """The rows of the host's run that its hive has, 0 before there is one."""
    runs = hives_of(host).client().runs().result()
    return sum(run.rows for run in runs)


def play(host, guest, rows):
    """Play frames until the hive has that many rows."""

    def has_played():
        guest.update()
        return rows_of(host) >= rows

    eventually(has_played)


def bodies(directory):
    """All columns of the log, in order, and the names of their metadata."""
    (run,) = (directory / "runs").iterdir()
    names = json.loads((run / "run.json").read_text())["names"]
    found = []
    for path in sorted((run / "rows").glob("*.rows")):
        data = memoryview(path.read_bytes())
        found += [record.columns for record in read_records(data, 0, len(data))]
    return found, names


def allowed(columns, choices):
    """The masks of a body, [rows, choices]."""
    marks = np.ones((len(columns), choices), bool)
    masks = columns.meta[columns.meta["name"] < choices]
    marks[masks["row"][masks["value"] != 0], masks["name"][masks["value"] != 0]] = False
    return marks


def masks_of(kind, features):
    """The allowed choices by the rules of choosers.c: [rows, choices]."""
    marks = np.ones((len(features), sum(BRANCHES[kind])), bool)
    if kind == PICKER:
        marks[features[:, 0] == 0, 0] = False
        marks[features[:, 0] == 1, 2] = False
        marks[features[:, 2] == 1, 4] = False
    else:
        marks[np.abs(features[:, 0]) > 0.5, 2] = False
    return marks


@pytest.mark.learns
@pytest.mark.parametrize("kind", [PICKER, DRIVER], ids=["discrete", "hybrid"])
@pytest.mark.parametrize("instances", [1, 3])
def test_choices_are_played_and_kept_with_their_masks(tmp_path, hive, kind, instances):
    with Host(hive=grant_of(hive, wait_for_learner=True, shared=True)) as host:
        many = host.fleet(CHOOSERS, instances)
        for number, guest in enumerate(many.guests):
            guest.call("configure", 1 + number, kind)
        many.initialize()
        play(host, many, 400)
    found, names = bodies(tmp_path)
    choices, branches = sum(BRANCHES[kind]), BRANCHES[kind]
    counted = np.zeros(choices, int)
    for columns in found:
        live = ~np.isin(columns.state, ENDED)
        marks = allowed(columns, choices)
        assert np.array_equal(marks[live], masks_of(kind, columns.features)[live])
        start = 0
        for branch, size in enumerate(branches):
            place = columns.action.shape[1] - len(branches) + branch
            chosen = columns.action[live, place].astype(int)
            assert np.array_equal(chosen, columns.action[live, place])
            assert marks[live, start + chosen].all()
            counted += np.bincount(start + chosen, minlength=choices)
            start += size
        assert (columns.reward > MASKED).all()

    assert names[:choices] == mask_names(branches)
    assert (counted > 0).all()
    if kind == DRIVER:
        raw = np.concatenate([columns.action[:, :2] for columns in found])
        assert (np.abs(raw) > 1).any()


BOTH = {"spec": {"actions": {"continuous": 1, "discrete": [9]}}}


def start(host, name="both", **settings):
    """A guest in a run of one continuous action and a branch of nine choices."""
    guest = TrainingGuest(host)
    return guest, guest.start(name, json.dumps({"arkml": BOTH | settings}))


def test_a_guest_is_answered_with_choices_and_clipped_actions(tmp_path, hive):
    with Host(hive=grant_of(hive, wait_for_learner=True)) as host:
        guest, context = start(host)
        rows = [(agent, EpisodeState.INITIAL, 0.0, 3.0) for agent in range(200)]
        code, actions, _ = guest.submit(context, rows)
        eventually(lambda: rows_of(host) >= 200)
    (columns,), _ = bodies(tmp_path)

    assert code is ErrorCode.SUCCESS
    assert np.array_equal(actions[:, 1], columns.action[:, 1])
    assert actions[:, 1].max() > 1
    assert np.array_equal(actions[:, 0], np.clip(columns.action[:, 0], -1, 1))
    assert np.abs(columns.action[:, 0]).max() > 1


@pytest.mark.parametrize("kind", ["demonstration", "augmented"])
def test_rows_with_actions_of_their_own_are_refused_by_an_algorithm_that_cannot_use_them(
    hive, kind, caplog
):
    with Host(hive=grant_of(hive, wait_for_learner=True)) as host:
        guest, context = start(host)
        name = f"ml__submit_training_{kind}_observations"
        code = guest.proxy.code(V1, name, context)
        answered, *_ = guest.submit(context, [(1, EpisodeState.INITIAL, 0.0, 0.0)])

    assert code is ErrorCode.UNAVAILABLE
    assert (
        f"learns by ppo, from rows of its own policy only: it takes no {kind} rows" in caplog.text
    )
    assert answered is ErrorCode.SUCCESS


@pytest.mark.learns
@pytest.mark.parametrize("block", [True, False])
def test_a_version_whose_rollout_is_full_holds_up_frames_in_block_mode_only(tmp_path, hive, block):
    with Host(hive=grant_of(hive, wait_for_learner=block)) as host:
        guest, context = start(host, rollout=8)
        state, versions = EpisodeState.INITIAL, []

        def has_played():
            nonlocal state
            code, *_ = guest.submit(context, [(1, state, 0.0, 1.0)])
            state = EpisodeState.RUNNING
            versions.append(version_of(host))
            return code is ErrorCode.SUCCESS and versions[-1] >= 4

        eventually(has_played)
    found, _ = bodies(tmp_path)
    acted = np.concatenate([columns.version for columns in found])

    assert {1, 2, 3} <= set(acted.tolist())
    if block:
        assert np.bincount(acted)[1:4].min() >= 8


def version_of(host):
    return hives_of(host).client().runs().result()[0].policy_version


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"discrete": [3, 2, 4]}, "0 continuous actions and 3 branches, where it has 2 actions"),
        ({"continuous": 2, "discrete": [3]}, "2 continuous actions and 1 branches"),
        ({"continuous": 3}, "3 continuous actions and 0 branches, where it has 2 actions"),
        ({"continuous": -1, "discrete": [3]}, "Expected `int` >= 0 - at `$.actions.continuous`"),
        ({"discrete": [3, 0]}, "Expected `int` >= 1 - at `$.actions.discrete[1]`"),
        ({"discrete": [3, 2.5]}, "Expected `int`, got `float` - at `$.actions.discrete[1]`"),
        ({"discrete": [3, True]}, "Expected `int`, got `bool` - at `$.actions.discrete[1]`"),
        ({"discrete": 3}, "Expected `array`, got `int` - at `$.actions.discrete`"),
        ({"descrete": [3]}, "unknown field `descrete` - at `$.actions`: did you mean discrete?"),
        ({"branches": [3]}, "field `branches` - at `$.actions`: it takes continuous, low, high, d"),
        ({"discrete": [4096, 4096]}, "declares 8192 choices in all branches: a run takes 4096"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused_with_its_reason(caplog, spec, sentence):
    settings = json.dumps({"arkml": {"spec": {"actions": spec}}})
    with Host(hive=HiveGrant()) as host:
        guest = TrainingGuest(host)
        code, _ = guest.ask(V2, "start_training", *LOCAL, "game", "chooser", 3, 2, 0, settings)
        embedded = hives_of(host)._embedded

    assert code is ErrorCode.INVALID_ARGUMENTS
    assert "'chooser'" in caplog.text
    assert sentence in caplog.text
    assert embedded.pid is None


def test_sac_is_refused_for_choices_with_the_algorithm_that_takes_them(caplog):
    settings = json.dumps({"arkml": BOTH | {"algorithm": "sac"}})
    with Host(hive=HiveGrant()) as host:
        guest = TrainingGuest(host)
        code, _ = guest.ask(V2, "start_training", *LOCAL, "game", "both", 3, 2, 0, settings)

    assert code is ErrorCode.INVALID_ARGUMENTS
    assert 'branches of 9 choices; use "ppo"' in caplog.text


def test_a_run_of_other_branches_is_not_joined(hive):
    with Host(hive=grant_of(hive, resume=True)) as host:
        start(host)
        guest = TrainingGuest(host)
        other = json.dumps({"arkml": {"spec": {"actions": {"discrete": [4, 9]}}}})
        future = guest.handle(V2, "start_training", *LOCAL, "game", "both", 3, 2, 0, other)
        guest.wait(V1, "training_handle", future)
        code, _ = guest.take(V1, "training_handle", future, 8)

    assert code is ErrorCode.INVALID_ARGUMENTS


def insisting(features, bias, branches):
    """A policy of PPO that wants the same choices always, and takes masks."""
    actor = (Layer(np.zeros((features, len(bias)), "f4"), np.float32(bias)),)
    critic = (Layer(np.zeros((features, 1), "f4"), np.zeros(1, "f4")),)
    none = np.zeros(0, "f4")
    return to_onnx(PpoWeights(Scaling.identity(features), actor, critic, none, branches))


def test_an_evaluation_never_takes_a_masked_choice():
    # to the left, also from the first cell, and flag up
    model = insisting(3, [10, 0, 0, 0, 10], (3, 2))
    rated = arkml.evaluate(CHOOSERS, model, episodes=10)

    assert len(rated.returns) >= 10
    assert (rated.returns / rated.lengths > MASKED).all()
    assert rated.returns.min() / rated.lengths.max() > -4.01


RUNNER = insisting(6, [0, 0, 5, 10, 0, 3, 3, 3], (4, 4))  # runs, and has a key for each door


def run_into_doors(features):
    """A policy of the embedder, which knows of no masks: it runs, with the first key."""
    return np.tile(np.float32([3, 1]), (len(features), 1))


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("policy", [RUNNER, run_into_doors], ids=["model", "function"])
def test_a_policy_that_plays_never_takes_a_masked_choice(caplog, policy, instances):
    with Host(policy=policy) as host:
        many = host.fleet(CORRIDOR, instances)
        for number, guest in enumerate(many.guests):
            guest.call("configure", 5, number)
        for _ in range(200):
            many.update()
        forbidden = [guest.call("forbidden") for guest in many.guests]
        rows = sum(guest.statistics.rows for guest in many.guests)

    assert forbidden == [0] * instances
    assert rows == 1_000 * instances
    assert caplog.text.count("it has no input action_masks") == (policy is run_into_doors)


def test_a_run_and_an_evaluation_of_one_policy_have_equal_returns():
    rated = arkml.evaluate(CORRIDOR, RUNNER, episodes=100)
    with Host(policy=RUNNER, deterministic=True) as host:
        guest = host.load(CORRIDOR)
        while guest.call("episodes") < 100:
            guest.update()
        played = guest.call("mean_return")

    error = rated.returns.std() / len(rated.returns) ** 0.5
    assert played == pytest.approx(rated.returns.mean(), abs=5 * error)


BIAS = np.float32([0, 0, 5, 10, 0, 3, 3, 3])  # that of RUNNER


def exported(nodes, outputs, masks=0, batch="N"):
    """A model of the corridor's six features in the form of an exporter."""
    constants = {
        "ones": np.zeros((6, 8), "f4"), "bias": BIAS, "closed": np.float32(-1e9),
        "parts": np.array([4, 4]), "one": np.float32(1), "sum": np.zeros((6, 1), "f4"),
    }  # fmt: skip
    inputs = {"obs": 6, "action_masks": masks} if masks else {"obs": 6}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["obs", "ones", "bias"], ["scores"]), *nodes],
        "exported",
        [helper.make_tensor_value_info(n, 1, [batch, w]) for n, w in inputs.items()],
        [
            helper.make_tensor_value_info(name, kind, [batch, *rest])
            for name, kind, *rest in outputs
        ],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()


def choices_of(scores, *, name):
    """Nodes for the choice of the highest score of each branch, as an int64 output."""
    nodes = [helper.make_node("Split", [scores, "parts"], ["first", "second"], axis=1)]
    nodes += [
        helper.make_node("ArgMax", [part], [f"{part}_choice"], axis=1)
        for part in ("first", "second")
    ]
    parts = ["first_choice", "second_choice"]
    return [*nodes, helper.make_node("Concat", parts, [name], axis=1)]


VALUE = helper.make_node("MatMul", ["obs", "sum"], ["24"])
AGENTS = exported(
    [
        helper.make_node("Sub", ["one", "action_masks"], ["barred"]),
        helper.make_node("Mul", ["barred", "closed"], ["penalty"]),
        helper.make_node("Add", ["scores", "penalty"], ["allowed"]),
        *choices_of("allowed", name="discrete_actions"),
    ],
    [("discrete_actions", TensorProto.INT64, 2)],
    8,
)
EXPORTS = {
    "ML-Agents": AGENTS,
    "logits": exported(
        [helper.make_node("Identity", ["scores"], ["logits"]), VALUE],
        [("logits", TensorProto.FLOAT, 8), ("24", TensorProto.FLOAT, 1)],
        batch=1,
    ),
    "q-values": exported(
        [helper.make_node("Identity", ["scores"], ["13"])], [("13", TensorProto.FLOAT, 8)], batch=1
    ),
    "choices": exported(
        [VALUE, *choices_of("scores", name="106")],
        [("24", TensorProto.FLOAT, 1), ("106", TensorProto.INT64, 2)],
        batch=1,
    ),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_policies_of_other_trainers_play_by_the_declared_branches(name):
    rated = [arkml.evaluate(CORRIDOR, model, episodes=40) for model in (EXPORTS[name], RUNNER)]
    with Host(policy=EXPORTS[name]) as host:
        guest = host.load(CORRIDOR)
        for _ in range(200):
            guest.update()
        forbidden = guest.call("forbidden")

    assert forbidden == 0
    if name != "choices":  # which cannot know the masks: the lowest allowed choice is taken
        assert rated[0].returns.tolist() == rated[1].returns.tolist()


def test_an_output_that_is_named_acts_in_evaluations_and_hosts():
    outputs = [(name, TensorProto.FLOAT, 8) for name in ("a", "b")]
    nodes = [
        helper.make_node("Neg", ["scores"], ["a"]),
        helper.make_node("Identity", ["scores"], ["b"]),
    ]
    model = exported(nodes, outputs)
    best = arkml.evaluate(CORRIDOR, RUNNER, episodes=20).returns.tolist()

    assert arkml.evaluate(CORRIDOR, model, outputs="b", episodes=20).returns.tolist() == best
    assert arkml.evaluate(CORRIDOR, model, outputs=["a"], episodes=20).returns.tolist() != best
    with pytest.raises(InvalidArguments, match="2 outputs that could be the 2 actions"):
        arkml.evaluate(CORRIDOR, model, episodes=20)
    with pytest.raises(ModelRejected, match="no output 'c', only a: 8, b: 8"):
        arkml.evaluate(CORRIDOR, model, outputs="c", episodes=20)


def test_a_declaration_that_cannot_be_read_is_said_once_where_a_policy_plays(caplog):
    module = with_spec(CORRIDOR, {"brains": {}})
    with Host(policy=run_into_doors) as host, host.fleet(module, 2) as fleet:
        for _ in range(2):
            fleet.update()

    assert caplog.text.count("arkml.spec: Object contains unknown field `brains`") == 1


@pytest.mark.parametrize("takes_masks", [True, False])
def test_masks_without_declared_branches_are_refused_or_said_to_have_no_effect(caplog, takes_masks):
    other = {"behaviors": {"picker": {"actions": {"continuous": 2}}}}
    module = with_spec(CORRIDOR, other)
    policy = RUNNER if takes_masks else run_into_doors
    with Host(policy=policy) as host:
        guest = host.load(module)
        for _ in range(3):
            guest.update()
        status = guest.call("status")

    if takes_masks:
        assert status == ErrorCode.INVALID_ARGUMENTS
        assert "the guest masks choices that the policy cannot be told" in caplog.text
    else:
        assert status == 0
        assert caplog.text.count("masks of choices have no effect") == 1
