"""`arkml evaluate` as its users have it, and the progress of `arkml.evaluate`."""

import re
import signal

import numpy as np
import pytest
from tests.integration.command_line import GUESTS, POLICIES, arkml, start
from tests.integration.test_environment import INITIAL, RUNNING, TERMINAL, scripted
from tests.unit.policy_models import model, node, port, weight

from arkml import evaluate
from arkml.policies.constant import zeros

REACH, CORRIDOR, APPLET = (
    GUESTS / f"{name}.wasm" for name in ("c_sparse_reach", "c_corridor", "c_applet")
)


def reach(*, noise):
    """actions = features @ weights (+ epsilon): thrust to the target."""
    steps = [node("MatMul", "obs w", "steady" if noise else "actions")]
    given = [port("obs", "N", 4)]
    if noise:
        steps.append(node("Add", "steady epsilon", "actions"))
        given.append(port("epsilon", "N", 2))
    weights = np.array([[5, 0], [0, 5], [-2.5, 0], [0, -2.5]])
    return model(steps, given, [port("actions", "N", 2)], [weight("w", weights)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("policies")
    (path / "good.onnx").write_bytes(reach(noise=False))
    (path / "noisy.onnx").write_bytes(reach(noise=True))
    still = model(
        [node("MatMul", "obs w", "actions")],
        [port("obs", "N", 4)],
        [port("actions", "N", 2)],
        [weight("w", np.zeros((4, 2)))],
    )
    (path / "still.onnx").write_bytes(still)
    return path


def test_returns_that_are_not_finite_are_shown_told_and_null_in_json(folder):
    rows = [(INITIAL, 0), (RUNNING, "nan"), (TERMINAL, 1)]
    (folder / "nan.wat").write_bytes(scripted(*[[(1, *row)] for row in rows]))
    (folder / "zeros.onnx").write_bytes(zeros(1, 1))
    words = ("evaluate", "nan.wat", "--policy", "zeros.onnx", "--episodes", "1")
    shown, told = arkml(*words, cwd=folder), arkml(*words, "--json", cwd=folder)

    assert (shown.status, told.status) == (0, 0), shown.err + told.err
    assert " nan " in shown.out
    assert "1 of 1 episodes have a return that is not finite, because the guest gave" in shown.err
    (rated,) = told.json["policies"]
    assert (rated["mean_return"], rated["mean_length"]) == (None, 2.0)


def test_policies_are_compared_by_their_episodes(folder):
    words = ("evaluate", REACH, "--policy", "good.onnx", "--policy", "still.onnx")
    shown = arkml(*words, "--episodes", "20", cwd=folder, COLUMNS="120")
    told = arkml(*words, "--episodes", "20", "--json", cwd=folder)
    known = [evaluate(REACH, folder / name, episodes=20) for name in ("good.onnx", "still.onnx")]

    assert (shown.status, told.status) == (0, 0), shown.err + told.err
    assert (told.json["guest"], told.json["episodes"]) == ("c_sparse_reach.wasm", 20)
    assert len(told.json["policies"]) == 2
    for one, rated, name in zip(
        told.json["policies"], known, ("good.onnx", "still.onnx"), strict=True
    ):
        returns = rated.returns
        assert one.pop("seconds") > 0
        assert one == {
            "policy": name,
            "episodes": 20,
            "mean_return": returns.mean(),
            "standard_error": pytest.approx(returns.std(ddof=1) / 20**0.5),
            "standard_deviation": returns.std(),
            "lowest_return": returns.min(),
            "highest_return": returns.max(),
            "mean_length": rated.lengths.mean(),
            "success_rate": rated.success_rate,
            "frames": rated.frames,
            "shortfall": "",
        }
    good, still = re.findall(r"^ (good|still)\.onnx +([-\d.]+)", shown.out, re.MULTILINE)
    assert float(good[1]) == pytest.approx(known[0].mean_return, rel=1e-3)
    assert float(still[1]) == pytest.approx(known[1].mean_return, rel=1e-3)
    assert float(good[1]) > float(still[1])


def test_noise_and_its_seed_are_those_of_the_library(folder):
    words = ("evaluate", REACH, "--policy", "noisy.onnx", "--episodes", "10", "--noise", "--json")
    told = [arkml(*words, "--seed", seed, cwd=folder).json["policies"][0] for seed in "12"]
    known = [
        evaluate(REACH, folder / "noisy.onnx", episodes=10, deterministic=False, seed=seed)
        for seed in (1, 2)
    ]

    assert [one["mean_return"] for one in told] == [one.mean_return for one in known]
    assert told[0]["mean_return"] != told[1]["mean_return"]


def test_one_episode_has_no_standard_error_and_no_deviation(folder):
    words = ("evaluate", REACH, "--policy", "good.onnx", "--episodes", "1")
    shown, told = (arkml(*words, *more, cwd=folder, COLUMNS="120") for more in ([], ["--json"]))
    (one,) = told.json["policies"]

    assert (one["standard_error"], one["standard_deviation"]) == (None, None)
    assert "±" not in shown.out
    assert " - " in shown.out


def test_missing_episodes_are_told_with_the_file(folder):
    words = ("evaluate", REACH, "--policy", "good.onnx", "--episodes", "500", "--frames", "100")
    ended = arkml(*words, "--json", cwd=folder)
    (one,) = ended.json["policies"]

    assert ended.status == 0
    assert 0 < one["episodes"] < 500
    assert f"good.onnx: {one['shortfall']}\n" in ended.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((REACH,), "Missing option"),
        ((REACH, "--policy", "no.onnx"), "no.onnx"),
        ((REACH, "--policy", "good.onnx", "--episodes", "0"), "--episodes 0: it takes"),
        ((APPLET, "--policy", "good.onnx"), "starts no training"),
        ((REACH, "--policy", "good.onnx", "--frames", "1"), "no episode ended within 1 frames"),
        ((CORRIDOR, "--policy", "good.onnx"), "the model takes 4 features"),
    ],
)
def test_misuse_is_a_sentence(folder, words, text):
    ended = arkml("evaluate", *words, "--json", cwd=folder)

    assert ended.status == 2
    assert text in ended.err
    assert text in ended.json["error"]


def test_one_that_does_not_fit_is_told_and_the_others_are_shown(folder):
    other = POLICIES / "mlp_f8_a3.onnx"
    words = ("evaluate", REACH, "--policy", other, "--policy", "good.onnx", "--episodes", "5")
    shown = arkml(*words, cwd=folder, COLUMNS="120")
    told = arkml(*words, "--json", cwd=folder)
    wrong, good = told.json["policies"]

    assert (shown.status, told.status) == (2, 2)
    assert f"error: {other}: " in shown.err
    assert re.search(r"^ good\.onnx .* 5 ", shown.out, re.MULTILINE)
    assert other.name not in shown.out
    assert (wrong["policy"], set(wrong)) == (str(other), {"policy", "error"})
    assert good["episodes"] == 5


def test_ctrl_c_shows_the_policies_that_have_played(folder):
    words = [REACH, "--policy", folder / "good.onnx", "--policy", folder / "still.onnx"]
    with start("evaluate", *words, "--episodes", "4000", "--frames", "1000000000") as running:
        begun = 0
        while begun < 2:  # policies play
            line = running.stderr.readline()
            assert line
            begun += " host: policy " in line
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=300)

    assert running.returncode == 130, err
    assert re.search(r"^ good\.onnx ", out, re.MULTILINE)
    assert "still.onnx" not in out


def test_progress_has_the_frames_and_the_episodes_so_far():
    seen = []
    rated = evaluate(REACH, zeros(4, 2), episodes=5, progress=lambda *numbers: seen.append(numbers))

    assert [frames for frames, _ in seen] == list(range(1, rated.frames + 1))
    assert seen[-1][1] == 5
    assert sorted(ended for _, ended in seen) == [ended for _, ended in seen]
