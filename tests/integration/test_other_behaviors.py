"""Guests of two behaviors, where one is rated while the other one acts by a policy of its own."""

import json
from concurrent.futures import Future

import numpy as np
import pytest
from tests.integration.command_line import arkml as command
from tests.integration.duel_guest import STEPS, duel
from tests.integration.test_several_behaviors import DRIVER, HUNTER, LENGTH, PICKER, guest
from tests.unit.policy_models import model, node, port, weight

import arkml
from arkml.demonstrations.demonstration_files import read_demonstrations
from arkml.errors import ArkmlError, NotFound, UsageError
from arkml.hive.protocol.runs import RunInfo, Status
from arkml.limits import Limits
from arkml.policies.constant import zeros
from arkml.training.evaluations import EvaluationTask
from arkml.training.periodic_evaluation import PeriodicEvaluation

RIVALS = duel("left", "right", rivals=True)
"""Each gets its own action less that of the other: a return is 16 times their difference."""

SAME, BOTH = guest(PICKER, HUNTER), guest(PICKER, DRIVER)
LEFT, RIGHT = 2, 3
"""The features of the rivals."""


def always(features, action):
    """Return an ONNX policy that takes the same action whatever it observes."""
    return model(
        [
            node("MatMul", "observations none", "zero"), node("Add", "zero bias", "actions"),
            node("MatMul", "observations none", "values"),
        ],
        [port("observations", "n", features)],
        [port("actions", "n", 1), port("values", "n", 1)],
        [weight("none", np.zeros((features, 1))), weight("bias", [action])],
    )  # fmt: skip


QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 128}
STRONG, WEAK = always(LEFT, 0.75), always(RIGHT, 0.25)


def test_the_agents_of_the_other_behavior_act_by_their_policy():
    beside_zeros = arkml.evaluate(RIVALS, STRONG, episodes=3)
    beside_weak = arkml.evaluate(RIVALS, STRONG, episodes=3, others={"right": WEAK})
    beside_function = arkml.evaluate(
        RIVALS, STRONG, episodes=3, others={"right": lambda rows: np.full((len(rows), 1), 0.5)}
    )

    assert beside_zeros.returns.tolist() == [STEPS * 0.75] * 3
    assert beside_weak.returns.tolist() == [STEPS * 0.5] * 3
    assert beside_function.returns.tolist() == [STEPS * 0.25] * 3


def test_the_behavior_without_a_policy_of_its_own_is_rated_whichever_starts_first():
    rated = arkml.evaluate(RIVALS, WEAK, episodes=3, others={"left": STRONG})
    same = arkml.evaluate(SAME, zeros(1, 1), episodes=8, others={"picker": zeros(1, 1)})

    assert rated.returns.tolist() == [STEPS * -0.5] * 3
    assert same.returns.tolist() == [-1_000 * LENGTH] * 8


def test_episodes_that_are_cut_off_have_the_same_others():
    rated = arkml.evaluate(RIVALS, STRONG, episodes=4, others={"right": WEAK}, max_episode_steps=5)

    assert rated.returns.tolist() == [5 * 0.5] * 4


@pytest.mark.parametrize(
    ("module", "others", "behavior", "error", "words"),
    [
        (RIVALS, {"rihgt": WEAK}, None, UsageError, "has 'rihgt', and .* declares left, right"),
        (RIVALS, {"left": STRONG}, "left", UsageError, "'left', whose agents the policy itself"),
        (RIVALS, {"right": STRONG}, None, UsageError, "'right' in `others`: .*2 features .* 3"),
        (RIVALS, {(3, 1): WEAK}, None, UsageError, r"the key \(3, 1\): it takes names"),
        (RIVALS, WEAK, None, UsageError, "others is .*: it takes a dict"),
        (RIVALS, {"right": b"nothing"}, None, ArkmlError, "."),
        (SAME, {"walker": zeros(1, 1)}, "hunter", NotFound, "has a policy of 'walker', and the"),
        (guest(PICKER), {"walker": zeros(1, 1)}, None, NotFound, "started runs of 'picker' only"),
    ],
)
def test_others_that_cannot_act_are_refused_with_the_reason(
    module, others, behavior, error, words, tmp_path
):
    policy = STRONG if module is RIVALS else zeros(1, 1)
    options = {"others": others, "behavior": behavior, "episodes": 2}
    with pytest.raises(error, match=words):
        arkml.evaluate(module, policy, **options)
    with pytest.raises(error, match=words):
        arkml.record(module, policy, tmp_path / "rows.npz", **options)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def folder(tmp_path):
    """A folder with the guest and three policies."""
    for name, data in (("rivals.wat", RIVALS), ("l.onnx", STRONG), ("r.onnx", WEAK)):
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return tmp_path


def test_the_commands_take_the_policies_of_others(folder):
    words = ("--policy", "l.onnx", "--other", "right=r.onnx", "--episodes", "3", "--json")
    rated = command("evaluate", "rivals.wat", *words, cwd=folder)
    recorded = command("record", "rivals.wat", *words, "-o", "rows.npz", cwd=folder)
    rows = read_demonstrations(folder / "rows.npz").columns

    assert rated.status == 0, rated.err
    (figures,) = json.loads(rated.out)["policies"]
    assert figures["mean_return"] == STEPS * 0.5
    assert json.loads(recorded.out)["mean_return"] == STEPS * 0.5
    assert set(rows.reward[rows.step > 0].tolist()) == {0.5}


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (("r.onnx",), "--other r.onnx: it takes NAME=FILE, as goblin=goblin.onnx"),
        (("right=r.onnx", "right=l.onnx"), "--other has r.onnx and l.onnx for 'right'"),
        (("right=gone.onnx",), "--other right=gone.onnx: there is no file gone.onnx"),
        (("right=rivals.wat",), "rivals.wat"),
        (("rihgt=r.onnx",), "declares left, right"),
    ],
)
def test_the_commands_refuse_others_that_cannot_act(folder, others, words):
    named = [word for one in others for word in ("--other", one)]
    refused = command("evaluate", "rivals.wat", "--policy", "l.onnx", *named, cwd=folder)

    assert refused.status == 2
    assert words in refused.err


class Client:
    """A client of a hive that answers at once, and keeps the reports."""

    def __init__(self):
        self.reports = []

    def begin_evaluation(self, run_id, _version):
        return done(RunInfo(run_id, "left", "g", Status.RUNNING, LEFT, 1, 1, rows=7))

    def evaluate(self, _, report):
        self.reports.append(report)
        return done(True)


def done(value):
    future = Future()
    future.set_result(value)
    return future


def rate(versions):
    """
    Rate versions of the left one, given as (own action, action of the right one).

    Returns the reports, what the best version plays afterwards, and the warnings.
    """
    client, warnings = Client(), []
    task = EvaluationTask(
        name="rivals.wasm", arguments=None, limits=Limits(), budgets_every_call=False,
        episodes=2, frames=500,
    )  # fmt: skip
    with PeriodicEvaluation(task, RIVALS) as evaluation:
        evaluation.behavior, evaluation.warn = "left", warnings.append
        for number, (own, other) in enumerate(versions, 1):
            others = {} if other is None else {"right": always(RIGHT, other)}
            evaluation.begin(client, "r", number, always(LEFT, own), others)
            evaluation.wait()
        again = evaluation.play_again(lambda: False)
    return client.reports, again, warnings


def test_the_best_version_plays_again_beside_each_new_one_since_the_others_learn():
    """Against early ones the first version has the highest mean, and the third is the best."""
    reports, again, warnings = rate([(0.25, 0.0), (0.5, 0.75), (0.75, 0.875), (0.5, 0.875)])
    means = [float(np.mean(one.returns)) for one in reports]

    assert means == [STEPS * 0.25, STEPS * -0.25, STEPS * -0.125, STEPS * -0.375]
    assert [one.best_return for one in reports] == [
        None, STEPS * -0.5, STEPS * -0.375, STEPS * -0.125
    ]  # fmt: skip
    assert [len(one.returns) for one in reports] == [2, 4, 4, 2]  # those that seem better play on
    assert (again.version, again.mean_return) == (3, STEPS * -0.125)
    assert len(again.returns) == 100
    assert warnings == []


def test_agents_whose_run_has_no_policy_yet_get_zeros_and_that_is_said_once():
    reports, _, warnings = rate([(0.25, None), (0.5, None), (0.5, 0.25)])

    assert [one.returns[0] for one in reports] == [STEPS * 0.25, STEPS * 0.5, STEPS * 0.25]
    assert warnings == [
        "evaluation of version 1: agents of right got zeros, for there was no policy of that run"
        " yet"
    ]


@pytest.mark.learns
def test_a_training_rates_its_versions_among_the_newest_others(tmp_path):
    rated = []

    def goes_on(state):
        rated.extend(state.evaluations)
        return len(rated) < 3

    result = arkml.train(
        RIVALS, minutes=5, eval_every=100, evaluate_episodes=2,
        settings=QUICK,
        progress=goes_on, directory=tmp_path,
    )  # fmt: skip

    assert len(result.evaluations) >= 3
    assert result.evaluations[0].best_return is None
    assert all(one.best_return is not None for one in result.evaluations[1:])
    assert not [one for one in result.warnings if "zeros" in one]
    assert result.best.rated_by == "evaluation"
    assert result.other_policies["right"].kind == "now"


@pytest.mark.learns
def test_the_command_to_play_of_a_guest_that_only_trains_names_the_others(tmp_path):
    (tmp_path / "both.wat").write_bytes(BOTH)
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(QUICK))
    words = ("--frames", 300, "--eval-every", "never", "--config", settings, "--json")
    trained = command("train", "both.wat", *words, cwd=tmp_path)
    assert trained.status == 0, trained.err
    play = trained.json["play"].split()
    played = command(*play[1:], "--episodes", 3, "--json", cwd=tmp_path)

    assert play[1] == "evaluate"
    assert "--other" in play
    assert played.status == 0, played.err
    assert played.json["policies"][0]["mean_return"] == LENGTH


@pytest.mark.learns
def test_without_evaluations_the_last_policies_are_kept_since_early_ones_had_weak_opponents(
    tmp_path,
):
    result = arkml.train(
        RIVALS, frames=1_200, eval_every=None, directory=tmp_path,
        settings=QUICK,
    )  # fmt: skip

    kinds = (result.best.kind, result.last.kind, result.other_policies["right"].kind)
    assert kinds == ("now", "now", "now")
    assert result.best.onnx == result.last.onnx


@pytest.mark.learns
def test_a_policy_that_was_evaluated_before_stays_the_best_of_a_training_without_evaluations(
    tmp_path,
):
    options = {"frames": 600, "settings": QUICK, "directory": tmp_path, "evaluate_episodes": 2}
    rated = arkml.train(RIVALS, eval_every=100, **options)
    resumed = arkml.train(RIVALS, eval_every=None, resume=True, **options)

    assert (rated.best.kind, resumed.best.kind) == ("best", "best")
    assert resumed.best.onnx == rated.best.onnx
    assert resumed.best.rated_by == "evaluation"
