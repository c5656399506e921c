"""`arkml record` as its users have it, and `arkml.record` as a program calls it."""

import hashlib
import json

import numpy as np
import pytest
from tests.integration.command_line import GUESTS, POLICIES, arkml
from tests.integration.test_environment import INITIAL, RUNNING, TERMINAL, scripted
from tests.unit.policy_models import model, node, port, weight

from arkml import evaluate, record
from arkml.demonstrations.demonstration_files import read_demonstrations
from arkml.errors import NotFound, UsageError
from arkml.policies.constant import zeros

SPARSE, APPLET = GUESTS / "c_sparse_reach.wasm", GUESTS / "c_applet.wasm"
COIN = GUESTS / "c_coin.wasm"
CORRIDOR = GUESTS / "c_corridor.wasm"


def to_the_target(observations):
    """Thrust to the target of a reach, slower near it."""
    return np.clip(5 * observations[:, :2] - 2.5 * observations[:, 2:], -1, 1)


def test_a_recording_holds_what_the_policy_did_and_what_came_of_it(tmp_path):
    recording = record(SPARSE, to_the_target, tmp_path / "reach.npz", episodes=20)
    rated = evaluate(SPARSE, to_the_target, episodes=20)
    rows = read_demonstrations(tmp_path / "reach.npz").columns
    goes_on = (rows.state == 0) | (rows.state == 3)

    assert recording.returns.tolist() == rated.returns.tolist()
    assert recording.lengths.tolist() == rated.lengths.tolist()
    assert (recording.rows, recording.frames) == (len(rows), rated.frames)
    assert rows.reward.sum() == recording.returns.sum()
    assert np.allclose(rows.action[goes_on], to_the_target(rows.features)[goes_on], atol=1e-6)
    assert not rows.action[~goes_on].any()
    assert sorted(set(rows.agent.tolist())) == list(range(rows.agent.max() + 1))


def test_frames_without_episodes_are_recorded_to_their_number(tmp_path):
    seen = []
    recording = record(
        SPARSE, to_the_target, tmp_path / "reach.npz", frames=60,
        progress=lambda frames, episodes: seen.append((frames, episodes)),
    )  # fmt: skip

    assert recording.frames == 60
    assert len(recording.returns) == 16
    assert seen[-1] == (60, 31)


def test_a_recording_has_as_many_long_episodes_as_the_guest_and_all_of_them_whole(tmp_path):
    recording = record(COIN, lambda rows: np.zeros((len(rows), 1)), tmp_path / "c.npz", episodes=64)
    rows = read_demonstrations(tmp_path / "c.npz").columns

    assert len(recording.returns) == 64
    assert 10 < (recording.lengths == 200).sum() < 54  # within 5.5 deviations of a half
    assert recording.rows == len(rows) == recording.lengths.sum() + 64
    assert np.isin(rows.state, (0, 3)).sum() == recording.lengths.sum()
    assert recording.shortfall == ""


@pytest.mark.parametrize("guest", ["c_coin", "c_coin_costs"])
def test_a_recording_by_frames_prefers_no_short_episodes(tmp_path, guest):
    guest, file = GUESTS / f"{guest}.wasm", tmp_path / "c.npz"
    recording = record(guest, zeros(1, 1), file, frames=450)
    rated = evaluate(guest, zeros(1, 1), episodes=48)

    assert sorted(recording.returns) == sorted(rated.returns)
    assert sorted(recording.lengths) == sorted(rated.lengths)
    assert read_demonstrations(file).episodes == 79
    assert recording.shortfall == (
        "48 of 79 episodes count, as many of each agent as ended within 450 frames; the file has"
        " the rows of all"
    )


def test_a_recording_by_frames_says_which_agents_ended_no_episode(tmp_path):
    recording = record(COIN, lambda rows: np.zeros((len(rows), 1)), tmp_path / "c.npz", frames=100)

    assert "agents ended no episode within 100 frames" in recording.shortfall
    assert recording.mean_return is None


def test_the_file_of_a_guest_with_branches_says_their_choices(tmp_path):
    record(CORRIDOR, lambda rows: np.zeros((len(rows), 2)), tmp_path / "rows.npz", frames=3)

    assert read_demonstrations(tmp_path / "rows.npz").branches == (4, 4)


def test_an_episode_whose_first_row_is_not_finite_is_rated_and_not_recorded(tmp_path):
    turns = [
        [(1, INITIAL, "nan")], [(1, RUNNING, 1)], [(1, TERMINAL, 1)],
        [(2, INITIAL, 0)], [(2, RUNNING, "inf")], [(2, TERMINAL, 1)],
    ]  # fmt: skip
    made = record(scripted(*turns), zeros(1, 1), tmp_path / "rows.npz", episodes=2, frames=9)
    rows = read_demonstrations(tmp_path / "rows.npz").columns

    assert made.returns.tolist() == [2.0, np.inf]
    assert made.shortfall.startswith("1 of 2 episodes have a return that is not finite")
    assert (rows.state.tolist(), made.rows) == ([INITIAL, TERMINAL], 2)


def test_a_guest_that_starts_no_training_cannot_be_recorded(tmp_path):
    with pytest.raises(NotFound, match="starts no training: it imports no function"):
        record(APPLET, POLICIES / "mlp_f8_a3.onnx", tmp_path / "rows.npz", frames=3)
    assert not (tmp_path / "rows.npz").exists()


def test_a_name_without_a_format_is_refused_before_the_guest_runs(tmp_path):
    with pytest.raises(UsageError, match="written to FILE"):
        record(SPARSE, to_the_target, tmp_path / "rows.txt", frames=3)


def noisy_reach():
    """actions = features @ weights + epsilon: thrust to the target, with noise."""
    steps = [node("MatMul", "obs w", "steady"), node("Add", "steady epsilon", "actions")]
    ports = [port("obs", "N", 4), port("epsilon", "N", 2)]
    weights = np.array([[5, 0], [0, 5], [-2.5, 0], [0, -2.5]])
    return model(steps, ports, [port("actions", "N", 2)], [weight("w", weights)])


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """The file of a policy with noise, of 4 features and 2 actions."""
    path = tmp_path_factory.mktemp("policy") / "reach.onnx"
    path.write_bytes(noisy_reach())
    return path


def test_the_command_records_a_file_and_describes_it(tmp_path, policy):
    words = ("record", SPARSE, "--policy", policy, "--frames", "120")
    ended = arkml(*words, "-o", tmp_path / "rows.npz", "--json")
    again = arkml(*words, "-o", tmp_path / "again.npz")
    noisy = arkml(*words, "-o", tmp_path / "noisy.npz", "--noise", "--seed", "3")
    first, second, third = (
        read_demonstrations(tmp_path / f"{name}.npz") for name in ("rows", "again", "noisy")
    )

    assert (ended.status, again.status, noisy.status) == (0, 0, 0), ended.err + noisy.err
    assert ended.json["rows"] == len(first)
    assert (ended.json["episodes"], first.episodes) == (48, 63)
    assert "48 of 63 episodes count, as many of each agent as ended within 120" in ended.err
    assert ended.json["file"] == str(tmp_path / "rows.npz")
    assert first.sha256 == hashlib.sha256(SPARSE.read_bytes()).hexdigest()
    assert first.digest == second.digest != third.digest
    assert "mean return" in again.out


def test_the_command_writes_a_dataset_of_minari(tmp_path, policy):
    target = tmp_path / "reach-v0"
    ended = arkml("record", SPARSE, "--policy", policy, "--frames", "60", "-o", target)
    metadata = json.loads((target / "data/metadata.json").read_text())

    assert ended.status == 0, ended.err
    assert metadata["total_episodes"] == read_demonstrations(target).episodes
    assert metadata["arkml_guest"] == "c_sparse_reach.wasm"


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("-o", "rows.pkl"), 2, "written to FILE.npz, or to NAME-v0"),
        (("-o", "rows.npz", "--episodes", "0"), 2, "--episodes 0: it takes a whole number from 1"),
        ((), 2, "Missing option"),
        (("-o", SPARSE), 2, "is the file that is read"),
        (("-o", "no/such/folder/rows.npz", "--frames", "2"), 2, "cannot be written"),
    ],
)
def test_misuse_of_the_command_is_a_sentence(tmp_path, policy, words, status, text):
    ended = arkml("record", SPARSE, "--policy", policy, *words, cwd=tmp_path)

    assert ended.status == status
    assert text in ended.err


def test_a_policy_of_other_widths_is_refused(tmp_path):
    policy = POLICIES / "mlp_f8_a3.onnx"
    ended = arkml("record", SPARSE, "--policy", policy, "--frames", "3", "-o", tmp_path / "r.npz")

    assert ended.status == 2
    assert "features" in ended.err
