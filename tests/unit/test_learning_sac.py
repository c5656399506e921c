"""What we rely on in stable-baselines3, and what we make of it."""

import numpy as np
import pytest
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from arkml.errors import InvalidSettings
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.segments import Place
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Diverged
from arkml.learning.checkpoints import Checkpoint, CheckpointDamaged, Checkpoints
from arkml.learning.export import check, to_onnx
from arkml.learning.normalizer import Normalizer
from arkml.learning.replay_buffer import ReplayBuffer
from arkml.learning.sac import Sac, SpacesOnly

SETTINGS = {"hidden": 8, "batch_size": 16, "memory_min_size": 10, "memory_max_size": 1_000}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def filled(count=200, agents=4):
    memory = ReplayBuffer(1_000, 3, 2, gamma=0.9)
    random = np.random.default_rng(0)
    rows = RowColumns.empty(count, 3, 2)
    rows.agent[:] = np.arange(count) % agents
    rows.step[:] = np.arange(count) // agents
    rows.state[:agents] = 3
    rows.features[:] = random.standard_normal((count, 3))
    rows.features[:, 2] = 5.0
    rows.reward[:] = 30 * random.standard_normal(count)
    rows.action[:] = random.uniform(-1, 1, (count, 2))
    added = memory.add(0, RowKind.TRAINING, rows)
    normalizer = Normalizer(3, active=True)
    normalizer.observe(rows.features, added.returns)
    return memory, normalizer


def sac(**changes):
    memory, normalizer = filled()
    return Sac(Settings(3, 2, **(SETTINGS | changes)), memory, normalizer)


def flat(algorithm):
    made = algorithm.weights()
    layers = [*made.body, made.mean, made.log_std, *(x for q in made.critics for x in q)]
    return b"".join(x.weight.tobytes() + x.bias.tobytes() for x in layers)


class Recording:
    """A replay buffer that keeps what it was asked and answers with ones."""

    def __init__(self, discounts):
        self.asked = []
        self._discounts = discounts

    def sample(self, batch_size, env=None):
        self.asked.append((batch_size, env))
        ones = torch.ones(batch_size, 1)
        return ReplayBufferSamples(ones, ones * 0, ones, ones * 0, ones, ones * self._discounts)


def bare(**changes):
    return SAC("MlpPolicy", SpacesOnly(1, 1), buffer_size=1, seed=0, device="cpu", **changes)


def test_train_takes_its_batches_from_sample_of_whatever_the_replay_buffer_is():
    model = bare()
    model.set_logger(Logger(None, []))
    model.replay_buffer = Recording(0.5)
    model.train(3, batch_size=5)

    assert model.replay_buffer.asked == [(5, None)] * 3
    assert model._n_updates == 3


def test_train_uses_the_discounts_of_the_samples():
    losses = []
    for discount in (0.0, 1.0):
        model = bare(ent_coef=0.0)
        model.set_logger(Logger(None, []))
        model.replay_buffer = Recording(discount)
        with torch.no_grad():
            for network in model.critic_target.q_networks:
                network[-1].bias += 100.0
        model.train(1, batch_size=5)
        losses.append(model.logger.name_to_value["train/critic_loss"])

    assert losses[0] < 10.0
    assert losses[1] > 1_000.0


def test_train_needs_a_logger_first():
    model = bare()
    model.replay_buffer = Recording(0.5)

    with pytest.raises(AttributeError, match="_logger"):
        model.train(1)


def test_train_writes_the_losses_under_the_tags_we_pass_on():
    losses = sac().train(2)

    assert set(losses) == {
        "train/actor_loss",
        "train/critic_loss",
        "train/ent_coef",
        "train/ent_coef_loss",
        "train/learning_rate",
        "train/n_updates",
    }
    assert losses["train/n_updates"] == 2


def test_the_learning_rate_goes_down_with_the_updates():
    changes = {"learning_rate_init": 1e-2, "learning_rate_end": 1e-3, "learning_rate_steps": 4}
    made = sac(**changes)
    rates = [made.train(1)["train/learning_rate"] for _ in range(6)]

    assert rates == pytest.approx([1e-2, 7.75e-3, 5.5e-3, 3.25e-3, 1e-3, 1e-3])


def test_without_steps_the_first_learning_rate_stays():
    made = sac(learning_rate_init=1e-2, learning_rate_end=1e-4)
    rates = [made.train(1)["train/learning_rate"] for _ in range(2)]

    assert rates == [1e-2, 1e-2]


def test_an_entropy_coefficient_that_is_a_number_stays():
    losses = sac(alpha=1).train(2)

    assert losses["train/ent_coef"] == 1.0
    assert "train/ent_coef_loss" not in losses


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gamma": 0.99}, 0.05),
        ({"gamma": 0.5}, 1.0),
        ({"gamma": 1.0}, 0.001),
        ({"normalize": False}, 1.0),
    ],
)
def test_an_entropy_coefficient_that_is_learned_begins_at_the_scale_of_rewards(changes, expected):
    assert sac(**changes).train(1)["train/ent_coef"] == pytest.approx(expected)


def test_samples_are_normalized_and_rewards_scaled():
    memory, normalizer = filled()
    made = Sac(Settings(3, 2, rollout_length=2, **SETTINGS), memory, normalizer)
    normalizer.adopt()
    drawn = made._model.replay_buffer.sample(500)

    assert drawn.observations[:, :2].std(0).numpy() == pytest.approx([1.0, 1.0], abs=0.2)
    assert drawn.observations[:, 2].abs().max() < 1e-3
    assert drawn.rewards.shape == drawn.dones.shape == drawn.discounts.shape == (500, 1)
    assert {round(float(value), 4) for value in drawn.discounts} == {0.81, 0.9}
    assert 3.0 < drawn.rewards.std() < 10.0


def test_an_export_answers_as_the_learner_before_and_after_updates_and_statistics():
    memory, normalizer = filled()
    made = Sac(Settings(3, 2, **SETTINGS), memory, normalizer)
    for _ in range(3):
        weights = made.weights()
        check(to_onnx(weights), weights, made.answer)
        normalizer.adopt()
        made.train(5)


def test_weights_are_a_copy():
    made = sac()
    before = made.weights()
    kept = before.mean.weight.copy()
    made.train(3)

    assert before.mean.weight.tolist() == kept.tolist()


def test_the_same_seed_makes_the_same_weights_bit_for_bit():
    first = sac(seed=2**60 + 1)
    first.train(10)
    second = sac(seed=2**60 + 1)
    second.train(10)
    other = sac(seed=5)
    other.train(10)

    assert flat(first) == flat(second) != flat(other)


def test_a_restored_learner_goes_on_as_if_nothing_had_happened(tmp_path):
    made = sac()
    made.train(5)
    state = made.state()
    kept = Checkpoints(tmp_path)
    kept.save(Checkpoint("run", {}, 5, 0, Place(0, 0), state, {}))
    made.train(5)
    again = sac(seed=9)
    again.restore(kept.newest().state)
    again.train(5)

    assert again.n_opts == made.n_opts == 10
    assert flat(again) == flat(made)


@pytest.mark.parametrize("changes", [{"hidden": 16}, {"alpha": 0.5}])
def test_a_state_of_another_network_does_not_fit(changes):
    state = sac(**changes).state()

    with pytest.raises(CheckpointDamaged):
        sac().restore(state)


def test_losses_that_are_no_numbers_are_told_at_once():
    memory, normalizer = filled()
    made = Sac(Settings(3, 2, **SETTINGS), memory, normalizer)
    memory._rewards[:] = np.nan

    with pytest.raises(Diverged, match="critic_loss became nan"):
        made.train(1)


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(InvalidSettings, match="cuda"):
        sac(device="cuda")


def test_the_environment_is_never_stepped():
    environment = SpacesOnly(3, 2)

    assert environment.num_envs == 1
    assert environment.observation_space.shape == (3,)
    with pytest.raises(NotImplementedError):
        environment.reset()
