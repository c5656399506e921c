"""What the result of a training says of its rows, and how it is shown."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.integration.command_line import GUESTS

from arkml.cli.training_display import document_of, show
from arkml.cli.training_display import shown as evaluation_line
from arkml.errors import NothingLearned, RunAborted
from arkml.guests.counts import Statistics
from arkml.runtime.module.description import describe
from arkml.runtime.module.parsing import parse
from arkml.server.metrics import evaluation_points
from arkml.training.results import (
    Evaluation,
    LearningCurve,
    TrainedPolicy,
    TrainingResult,
    metrics_of,
)
from arkml.training.training_options import TrainingOptions

MODULE = describe(parse((GUESTS / "c_cartpole.wasm").read_bytes()))
SENTENCE = "ark-ml-v1.ml__push_training_observation answered INVALID_ARGUMENTS: 11 features, …"
CURVE = LearningCurve(np.array([10, 20]), np.array([1.0, 2.0]))
NONE = LearningCurve(np.zeros(0, np.int64), np.zeros(0))
RESULT = TrainingResult(
    run_id="1",
    run_name="pole",
    directory=Path("out"),
    end_reason="frames",
    best=TrainedPolicy("best", bytes(200_000), None),
    last=TrainedPolicy("now", bytes(200_000), None),
    training_curve=CURVE,
    evaluation_curve=NONE,
    evaluation_returns=np.zeros(100),
    evaluations=(),
    frames=20,
    seconds=1.0,
    late_frames=None,
    rows=20,
    updates=4,
    versions=2,
    metrics={"rollout/equal_rewards": 0.0, "features/constant": 0.0},
    files={},
)


def shown(result, capsys):
    options = TrainingOptions(directory=Path("out"), name="pole.wasm")
    show(document_of(Path("pole.wasm"), MODULE, options, result), is_new=True)
    return capsys.readouterr().out


def test_a_healthy_training_has_nothing_to_say_of_its_rows(capsys):
    text = shown(RESULT, capsys)

    assert RESULT.health == ()
    assert "beware" not in text
    assert "refused" not in text


@pytest.mark.parametrize(
    ("others", "declared", "command"),
    [
        ({}, (), "arkml run pole.wasm --policy a.onnx"),
        (
            {"cart": (2, 1)},
            ("cart", "pole"),
            "arkml evaluate pole.wasm --policy a.onnx --other cart=a.cart.onnx",
        ),
        (
            {"cart": (2, 1), "lost": None},
            ("cart", "pole", "lost"),
            "arkml evaluate pole.wasm --policy a.onnx --other cart=a.cart.onnx --behavior pole",
        ),
        (
            {"cart": (3, 1)},
            ("cart", "pole", "rail"),
            "arkml run pole.wasm --policy pole=a.onnx --policy cart=a.cart.onnx",
        ),
        (
            {"cart": (3, 1)},
            ("pole",),
            "arkml run pole.wasm --policy 2,1=a.onnx --policy 3,1=a.cart.onnx",
        ),
    ],
)
def test_a_policy_of_one_run_of_several_is_played_by_its_agents_alone(others, declared, command):
    options = TrainingOptions(directory=Path("out"), name="pole.wasm")
    one = {"observations": [{"shape": [2]}], "actions": {"continuous": 1}}
    spec = json.dumps({"behaviors": dict.fromkeys(declared, one)}).encode() if declared else None
    policies = {
        name: TrainedPolicy("now", b"", shape and Path(f"a.{name}.onnx"), shape=shape)
        for name, shape in others.items()
    }
    best = replace(RESULT.best, path=Path("a.onnx"), shape=(2, 1))
    result = replace(RESULT, files={"onnx": Path("a.onnx")}, best=best, other_policies=policies)
    module = replace(MODULE, spec=spec)

    assert document_of(Path("pole.wasm"), module, options, result)["play"] == command


@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        ({"time/episodes": 0.0}, "no episode of the training ended: there is no return to rate"),
        ({"time/episodes": 9.0}, "the episodes that began first have not ended, and only later"),
        ({}, "no episode of the training was reported: there is no return to rate a policy by"),
    ],
)
def test_a_training_without_a_mean_return_says_why(capsys, metrics, sentence):
    unrated = TrainedPolicy("now", bytes(200_000), None)
    text = shown(replace(RESULT, training_curve=NONE, best=unrated, metrics=metrics), capsys)

    assert sentence in " ".join(text.split())


@pytest.mark.parametrize("episodes", [{}, {"time/episodes": 9.0}])
@pytest.mark.parametrize("evaluated", [CURVE, NONE])
def test_a_policy_that_was_rated_is_not_called_unrated(episodes, evaluated):
    rated = replace(RESULT, training_curve=NONE, evaluation_curve=evaluated, metrics=episodes)

    assert rated.health == ()


EVALUATED = replace(
    RESULT,
    evaluation_curve=CURVE,
    evaluations=tuple(
        Evaluation(version, 9, returns, (3,) * len(returns), None)
        for version, returns in ((3, (100.0, 300.0)), (4, (100.0, 280.0) * 10), (5, (150.0,)))
    ),
)


@pytest.mark.parametrize(
    ("best", "sentence"),
    [
        (("evaluation", 190.0), "(by evaluations: 190 ± 21 in 20 episodes)"),
        (("evaluation", 150.0), "(by evaluations: 150 in 1 episode)"),
        (("evaluation", 250.0), "(by evaluations)"),
        (("training", 190.0), "(by training episodes that began under it, or beside it)"),
        ((None, None), "(by evaluations)"),
    ],
)
def test_the_table_says_by_what_the_best_policy_is_rated(capsys, best, sentence):
    rated_by, score = best
    policy = TrainedPolicy("best", b"", None, score, rated_by)
    text = " ".join(shown(replace(EVALUATED, best=policy), capsys).split())

    assert sentence in text
    assert "last evaluation 150 (1 episode)" in text
    assert "while training 1 -> 2 " in text
    assert "while training" not in shown(RESULT, capsys)


def test_the_table_and_the_document_have_the_episodes_after_the_choice(capsys):
    again = Evaluation(2, None, (160.0, 180.0), (10, 10), None)
    policy = TrainedPolicy("best", b"", None, 190.0, "evaluation", again)
    result = replace(EVALUATED, best=policy)
    options = TrainingOptions(directory=Path("out"), name="pole.wasm")
    document = document_of(Path("pole.wasm"), MODULE, options, result)
    text = " ".join(shown(result, capsys).split())

    assert "(by evaluations: 190 ± 21 in 20 episodes; 170 ± 10 in 2 after the choice)" in text
    assert document["policy"]["confirmed"] == {
        "episodes": 2, "mean": 170.0, "standard_deviation": 10.0, "standard_error": 10.0,
        "success_rate": None,
    }  # fmt: skip


def test_the_line_and_the_document_have_the_error_of_a_rating():
    policy = TrainedPolicy("best", b"", None, math.nextafter(190.0, 0.0), "evaluation")
    result = replace(EVALUATED, best=policy)
    options = TrainingOptions(directory=Path("out"), name="pole.wasm")
    document = document_of(Path("pole.wasm"), MODULE, options, result)
    lines = [evaluation_line(one) for one in result.evaluations]
    error = 90 / 19**0.5

    assert lines == ["200 ± 100 (2 episodes)", "190 ± 21 (20 episodes)", "150 (1 episode)"]
    assert document["policy"]["rated_by"] == "evaluations"
    assert document["policy"]["episodes"] == 20
    assert document["policy"]["score_error"] == pytest.approx(error)
    assert [one["standard_error"] for one in document["evaluations"]] == [
        100.0, pytest.approx(error), None,
    ]  # fmt: skip


def test_episodes_that_end_in_evaluations_only_are_told():
    metrics = {"time/episodes": 0.0}
    rated = replace(RESULT, training_curve=NONE, evaluation_curve=CURVE, metrics=metrics)

    assert rated.health == ("no episode of the training ended",)


@pytest.mark.parametrize(
    ("updates", "error", "is_shown"),
    [
        (4, RunAborted("run 'pole' is aborted"), True),
        (0, RunAborted("run 'pole' is aborted: its learner ended 5 times"), False),
        (4, NothingLearned("nothing was learned since it was resumed"), False),
    ],
)
def test_a_policy_that_learned_nothing_is_not_to_be_played(updates, error, is_shown):
    options = TrainingOptions(directory=Path("out"), name="pole.wasm")
    files = {"onnx": Path("out/pole.onnx")}
    result = replace(RESULT, updates=updates, errors=(error,), files=files)

    assert bool(document_of(Path("pole.wasm"), MODULE, options, result)["play"]) is is_shown


def test_equal_rewards_and_constant_features_are_told(capsys):
    metrics = {"rollout/equal_rewards": 1.0, "features/constant": 3.0}
    text = shown(replace(RESULT, metrics=metrics), capsys)

    assert "all rewards were equal" in text
    assert "3 features had one value only" in text
    one = replace(RESULT, metrics={"features/constant": 1.0})
    assert one.health == ("1 feature had one value only, which tells a policy nothing",)


def test_values_outside_of_their_bounds_are_told():
    one = replace(RESULT, metrics={"features/outside": 1_234.0})

    assert one.health == (
        "1,234 values of images, or of the categories and numbers of entities that were sampled,"
        " were outside of their bounds, and were clipped",
    )


@pytest.mark.parametrize(("count", "rows"), [(1, "1 row was"), (1_234, "1,234 rows were")])
def test_rows_with_numbers_that_are_not_finite_are_told(count, rows):
    one = replace(RESULT, metrics={"features/non_finite": float(count)})

    assert one.health == (f"{rows} not learned from: numbers in them were not finite",)


def test_refused_rows_are_shown_by_reason(capsys):
    refused = Statistics()
    refused.refusals[SENTENCE] = 1_234
    text = shown(replace(RESULT, statistics=refused), capsys)

    assert "1,234: ark-ml-v1.ml__push_training_observation answered" in text


@pytest.mark.parametrize(
    ("curve", "rating"),
    [(NONE, "training episodes that began under it, or beside it"), (CURVE, "evaluations")],
)
def test_the_best_policy_is_shown_with_what_rates_it(curve, rating, capsys):
    text = shown(replace(RESULT, evaluation_curve=curve), capsys)

    assert f"(by {rating})" in " ".join(text.split())


def test_a_result_is_shown_without_the_bytes_of_its_policies():
    text = repr(RESULT)

    assert len(text) < 2_000
    assert "\\x00" not in text


@pytest.mark.parametrize("successes", [None, (True, False, False)])
def test_the_metrics_of_an_evaluation_are_those_that_a_hive_keeps(successes):
    evaluation = Evaluation(3, 400, (1.0, 4.0, -2.5), (10, 20, 5), successes)
    kept = {name: value for name, _, value in evaluation_points(evaluation.report(), 400)}

    assert metrics_of(evaluation) == pytest.approx(kept)
