"""PPO as a learner: its rollouts, versions, state and exports."""

import json
import mmap
import subprocess
import sys
import threading

import jax
import jax.monitoring
import numpy as np
import pytest

from arkml.abi.codes import EpisodeState
from arkml.hive.protocol.rows import META, Place, RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Diverged, State
from arkml.learning.checkpoint_files import Checkpoint, CheckpointDamaged, Checkpoints
from arkml.learning.networks import answer
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo

AGENTS = 4
SETTINGS = {
    "hidden": 8, "batch_size": 16, "rollout_rows": 64, "epochs": 2, "branches": (3,),
    "algorithm": "ppo", "learning_rate_init": 1e-2, "learning_rate_end": 1e-2, "gamma": 0.9,
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def compilations():
    """A process that ends while a thread compiles ends badly."""
    yield
    join_compilations()


def join_compilations():
    for thread in threading.enumerate():
        if thread.name == "arkml-compile":
            thread.join()


@pytest.fixture
def programs():
    """The programs that JAX compiles or finds in its cache, on any thread."""
    join_compilations()  # of tests before this one
    compiled = []

    def count(event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(count)
    yield compiled
    jax.monitoring.unregister_event_duration_listener(count)


class Player:
    """
    A host that plays with PPO's own policy.

    It has one continuous action and three choices, one of which is masked. The choice that matches
    the feature is rewarded. `sent` has the bodies as they would be in the log, `scores` the
    log-probabilities of their actions.
    """

    def __init__(self, ppo, normalizer, seed=0):
        self.ppo, self.normalizer = ppo, normalizer
        self.random = np.random.default_rng(seed)
        self.sent, self.scores, self.rewards = [], [], []
        self.step, self.reward = 0, np.zeros(AGENTS, np.float32)
        ppo.name_metrics(["fps", "mask/0/0", "mask/0/1", "mask/0/2"])
        self.version = 0
        self.load()

    def load(self):
        self.normalizer.adopt()
        self.ppo.policy()
        self.version += 1
        self.ppo.published(self.version)
        self.weights, self.scaling = self.ppo._exported

    def frame(self):
        rows = RowColumns.empty(AGENTS, 3, 2, AGENTS)
        rows.agent[:] = range(AGENTS)
        rows.step[:] = self.step
        rows.version[:] = self.version
        rows.state[:] = EpisodeState.RUNNING if self.step else EpisodeState.INITIAL
        rows.reward[:] = self.reward
        wanted = self.random.integers(0, 3, AGENTS)
        masked = (wanted + self.random.integers(1, 3, AGENTS)) % 3
        rows.features[:] = 30 * np.eye(3)[wanted] + 5
        rows.meta[:] = list(zip(range(AGENTS), 1 + masked, np.ones(AGENTS), strict=True))
        outputs = answer(self.weights.actor, self.scaling.features(rows.features))
        noise = self.random.standard_normal(AGENTS)
        rows.action[:, 0] = outputs[:, 0] + np.exp(self.weights.log_std[0]) * noise
        logits = outputs[:, 1:].astype(np.float64)
        logits[range(AGENTS), masked] = -np.inf
        shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        rows.action[:, 1] = (shares.cumsum(1) > self.random.random((AGENTS, 1))).argmax(1)
        density = -0.5 * noise**2 - self.weights.log_std[0] - 0.5 * np.log(2 * np.pi)
        chosen = rows.action[:, 1].astype(int)
        self.scores += (density + np.log(shares[range(AGENTS), chosen])).tolist()
        self.reward = 10 * (chosen == wanted).astype(np.float32)
        self.rewards.append(self.reward.mean())
        self.step += 1
        self.sent.append(rows)
        give(self.ppo, self.normalizer, rows)

    def play(self, frames):
        for _ in range(frames):
            self.frame()

    def learn(self):
        while not self.ppo.is_ready:
            self.frame()
        losses = self.ppo.train(self.ppo.pace.due(self.ppo.buffer.rows, self.ppo.n_opts))
        self.load()
        return losses


def give(made, normalizer, rows):
    added = made.buffer.add(0, RowKind.TRAINING, rows)
    normalizer.observe(rows.features, added.returns)


def ppo(lag=1, **changes):
    of = Settings(**({"features": 3, "actions": 2} | SETTINGS | changes))
    normalizer = Normalizer(3, active=True)
    return Ppo(of, normalizer, lag=lag), normalizer


def flat(algorithm):
    return b"".join(tensor.tobytes() for tensor in algorithm.state().tensors.values())


def test_it_learns_what_is_rewarded():
    player = Player(*ppo(epochs=8))
    player.play(5)
    before = np.mean(player.rewards)
    for _ in range(12):
        player.learn()

    assert before < 7.0
    assert np.mean(player.rewards[-16:]) > 8.0


def test_one_program_evaluates_and_one_updates_whatever_the_rows(programs):
    made, normalizer = ppo()
    player = Player(made, normalizer)
    player.learn()
    for frames in (17, 25, 31):
        player.play(frames)
        player.learn()
    first = len(programs)
    player.learn()

    assert first == len(programs) == 2


def test_updates_read_rows_where_they_are(monkeypatch):
    """XLA copies memory that does not begin at 64 bytes, with an allocation for each call."""
    player = Player(*ppo())
    read = []

    def called(function, *arguments):
        if function is player.ppo._make_updates:
            read.append([column.ctypes.data for column in arguments[1] if column.size])
        return Ppo.called(player.ppo, function, *arguments)

    monkeypatch.setattr(player.ppo, "called", called)
    for _ in range(3):
        player.learn()

    assert len(read) == 3
    assert read[0] == read[1] == read[2]
    assert all(address % mmap.PAGESIZE == 0 for address in read[0])


def test_the_learning_rate_follows_how_far_updates_move_the_policy():
    made, _ = ppo(target_kl=0.02)
    rates = []
    for divergence in (0.05, 0.05, 0.03, 0.005, 0.005, 0.005, *(1.0,) * 40):
        made._adapt(divergence)
        rates.append(made._rate_share)

    assert rates[:6] == pytest.approx([1 / 1.5, 1 / 1.5**2, 1 / 1.5**2, 1 / 1.5, 1.0, 1.0])
    assert rates[-1] == 0.01


def test_a_rate_that_was_lowered_is_the_one_of_the_next_updates_and_survives_a_restart():
    player = Player(*ppo(target_kl=1e-9, learning_rate_init=1e-2, learning_rate_end=1e-2))
    first, second = player.learn(), player.learn()
    state = player.ppo.state()
    again, _ = ppo()
    again.restore(State(state.tensors, json.loads(json.dumps(state.plain))))
    kept, _ = ppo(target_kl=0.0)
    kept._adapt(1.0)

    assert first["train/learning_rate"] == pytest.approx(1e-2)
    assert second["train/learning_rate"] == pytest.approx(1e-2 / 1.5)
    assert again._rate_share == pytest.approx(1.5**-2)
    assert again._advantages == player.ppo._advantages
    assert kept._rate_share == 1.0


def test_a_rollout_without_a_choice_leaves_the_learning_rate_as_it_was():
    made, normalizer = ppo(actions=1, branches=(1,))
    made.published(1)
    made._adapt(1.0)
    for step in range(17):
        rows = RowColumns.empty(AGENTS, 3, 1)
        rows.agent[:], rows.step[:], rows.version[:] = range(AGENTS), step, 1
        rows.state[:] = EpisodeState.RUNNING if step else EpisodeState.INITIAL
        give(made, normalizer, rows)
    made.train(made.pace.due(0, 0))

    assert made._rate_share == pytest.approx(1 / 1.5)


def test_losses_have_the_tags_of_stable_baselines3():
    player = Player(*ppo())
    losses = player.learn()

    assert set(losses) == {
        "train/approx_kl",
        "train/clip_fraction",
        "train/entropy_loss",
        "train/explained_variance",
        "train/gradient_norm",
        "train/learning_rate",
        "train/loss",
        "train/n_updates",
        "train/policy_gradient_loss",
        "train/stale_share",
        "train/std",
        "train/value_loss",
    }
    assert losses["train/n_updates"] == player.ppo.n_opts == 2 * 4
    assert losses["train/std"] == pytest.approx(1.0, abs=0.2)
    assert losses["train/gradient_norm"] > 0.0
    assert losses["train/stale_share"] == 0.0


def test_a_rollout_is_learned_from_only_after_its_policy_is_published():
    made, normalizer = ppo()
    player = Player(made, normalizer)
    player.play(17)
    made.train(made.pace.due(0, 0))
    made.policy()
    player.play(17)
    before = (made.buffer.is_full, made.is_ready, made.pace.holds)
    made.published(2)

    assert before == (True, False, True)
    assert made.is_ready


def test_log_probabilities_are_those_of_the_version_that_acted():
    made, normalizer = ppo()
    player = Player(made, normalizer)
    player.learn()
    at = len(player.scores)
    acting = player.weights, player.scaling, player.version
    player.play(7)
    made.policy()  # an export that is not published
    player.learn()
    second = len(player.scores)
    new = player.weights, player.scaling, player.version
    player.weights, player.scaling, player.version = acting  # a host that is one version behind
    player.play(9)
    player.weights, player.scaling, player.version = new
    player.play(9)
    normalizer.adopt()
    rollout = made.buffer.take()
    rows, _, _ = made._prepare(rollout)

    assert at < second
    assert np.unique(rollout.versions).tolist() == [acting[2], new[2]]
    acted = player.scores[second - AGENTS : -AGENTS]  # the newest rows have no next one yet
    np.testing.assert_allclose(rows.log_probs, acted, atol=1e-4)


def test_without_a_lag_only_rows_of_the_newest_version_are_learned_from():
    player = Player(*ppo(lag=0))
    player.learn()
    player.play(5)

    assert set(player.ppo.buffer.take().versions.tolist()) == {2}


def test_masked_choices_are_kept_apart_in_every_row():
    player = Player(*ppo())
    player.play(10)
    rollout = player.ppo.buffer.take()
    chosen = rollout.actions[:, 1].astype(int)

    assert (rollout.allowed.sum(1) == 2).all()
    assert rollout.allowed[range(len(chosen)), chosen].all()


@pytest.mark.parametrize("frames", [0, 9, 16])
def test_a_restart_continues_bit_for_bit(frames):
    made, normalizer = ppo()
    player = Player(made, normalizer)
    player.learn()
    player.learn()
    player.play(frames)
    state = made.state()
    plain = json.loads(json.dumps(state.plain))
    statistics = json.loads(json.dumps(normalizer.as_json()))
    again, restored = ppo(seed=9)
    restored.restore(statistics)
    again.restore(State({name: tensor.copy() for name, tensor in state.tensors.items()}, plain))
    again.name_metrics(["fps", "mask/0/0", "mask/0/1", "mask/0/2"])
    for rows in player.sent:  # the log is read again
        again.buffer.add(0, RowKind.TRAINING, rows)
    ready = again.is_ready
    again.policy()
    again.published(player.version + 1)
    known = len(player.sent)
    player.play(20 - frames)
    for rows in player.sent[known:]:
        give(again, restored, rows)
    before = flat(again)
    for one in (made, again):
        one.train(one.pace.due(0, 0))

    assert not ready
    assert flat(made) == flat(again) != before
    assert made.n_opts == again.n_opts
    assert made.metrics() == again.metrics()
    assert {made.metrics()[f"hive/{kind}_rows"] for kind in ("stale", "excess")} == {0.0}


def test_a_checkpoint_of_a_policy_without_continuous_actions_is_read_back(tmp_path):
    made, _ = ppo(branches=(3, 2))
    made.policy()
    made.published(1)
    Checkpoints(tmp_path).save(Checkpoint("run", {}, 0, 0, Place(0, 0), made.state(), {}))
    again, _ = ppo(branches=(3, 2), seed=5)
    before = flat(again)
    again.restore(Checkpoints(tmp_path).newest().state)

    assert flat(again) == flat(made) != before
    assert again.state().plain == made.state().plain


def test_a_run_that_begins_with_the_state_of_another_learns_from_its_own_rows():
    other = Player(*ppo())
    for _ in range(3):
        other.learn()
    made, normalizer = ppo()
    made.restore(other.ppo.state())
    made.pace.begin(0, 0)
    player = Player(made, normalizer)
    player.learn()

    assert made.buffer.learned_rows == made.buffer.rows
    assert made.n_opts == other.ppo.n_opts + 8


def test_a_state_of_another_network_does_not_fit():
    state = ppo(hidden=16)[0].state()
    made, _ = ppo()

    with pytest.raises(CheckpointDamaged, match="does not fit"):
        made.restore(state)


@pytest.mark.parametrize(
    "damaged",
    [
        {"random": {}},
        {"newest": 3},
        {"before": {"x": {}}},
        {"learned_rows": None},
        {"newest": {"1": {}}},
    ],
)
def test_a_state_without_its_parts_is_refused_and_changes_nothing(damaged):
    made, _ = ppo()
    before = flat(made)
    state = ppo(seed=5)[0].state()

    with pytest.raises(CheckpointDamaged):
        made.restore(State(state.tensors, state.plain | damaged))

    assert flat(made) == before


def test_updates_that_are_not_finite_are_not_applied():
    made, normalizer = ppo()
    Player(made, normalizer).play(17)
    made.buffer._room["reward"][7] = np.nan
    before, plain = flat(made), made.state().plain

    with pytest.raises(Diverged, match="not applied"):
        made.train(8)

    assert flat(made) == before
    assert made.state().plain == plain
    assert made.n_opts == 0


def test_the_same_seed_learns_the_same_bit_for_bit():
    states = []
    for seed in (2**60 + 1, 2**60 + 1, 5):
        player = Player(*ppo(seed=seed))
        player.learn()
        states.append(flat(player.ppo))

    assert states[0] == states[1] != states[2]


def test_an_export_is_checked_before_and_after_updates_and_statistics():
    player = Player(*ppo())
    models = [player.ppo.policy()]
    for _ in range(2):
        player.learn()
        models.append(player.ppo.policy())

    assert [model.n_opts for model in models] == [0, 8, 16]
    assert len({model.model for model in models}) == 3


def test_rows_that_are_not_learned_from_are_metrics():
    player = Player(*ppo())
    player.learn()
    player.learn()
    player.version = 1
    player.play(3)

    assert player.ppo.metrics() == {
        "replay/fill": 1 / 16, "replay/rollout_rows": 64.0, "hive/stale_rows": 12.0,
        "hive/excess_rows": 0.0,
    }  # fmt: skip


def test_the_first_policy_does_not_import_jax():
    code = "import sys, arkml.learning.ppo; print('jax' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


def test_masks_of_other_metrics_are_not_read():
    made, _ = ppo()
    made.name_metrics(["mask/1/0", "masks/0/0", "mask/0/0/0"])
    made.published(1)
    rows = RowColumns.empty(2, 3, 2, 3)
    rows.version[:], rows.step[:] = 1, [0, 1]
    rows.meta[:] = np.array([(0, 0, 1.0), (0, 1, 1.0), (0, 2, 1.0)], META)
    made.buffer.add(0, RowKind.TRAINING, rows)

    assert made.buffer.take().allowed.tolist() == [[True, True, True]]
