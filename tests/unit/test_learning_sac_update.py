"""The updates of soft actor-critic beside numpy in float64, and beside stable-baselines3's."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import DummyVecEnv

from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Layer
from arkml.learning.normalizer import Scaling
from arkml.learning.replay_buffer import BatchBlock
from arkml.learning.sac_state import first_state, rates_of
from arkml.learning.sac_update import (
    LOG_ALPHA,
    Noise,
    actor_loss_of,
    critic_loss_of,
    make_updates,
    returns,
    sample,
    update,
)

FEATURES, ACTIONS, BATCH = 3, 2, 32
KEY = np.uint32([1, 2])
SETTINGS = Settings(FEATURES, ACTIONS, hidden=16, batch_size=BATCH, tau=0.02, gamma=0.9)
SCALING = Scaling(
    np.array([0.5, -1.0, 2.0], np.float32), np.array([2.0, 0.5, 1.0], np.float32), 3.0
)
UPDATE = jax.jit(update)


def batch(seed):
    random = np.random.default_rng(seed)
    normal = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731
    discounts = np.where(random.random(BATCH) < 0.2, 0.0, 0.9).astype(np.float32)
    actions = np.tanh(normal(BATCH, ACTIONS))
    images = np.zeros((BATCH, 0), np.uint8)
    rows = BatchBlock(
        normal(BATCH, FEATURES), actions, normal(BATCH, FEATURES), normal(BATCH), discounts,
        images, images,
    )  # fmt: skip
    return rows, Noise(normal(BATCH, ACTIONS), normal(BATCH, ACTIONS))


def state():
    made = first_state(SETTINGS)
    random = np.random.default_rng(3)  # biases that are not zero
    for network in (made.actor, made.critics, made.targets):
        for layer in network:
            layer.bias[:] = random.uniform(-0.3, 0.3, layer.bias.shape)
    return made


def doubled(network):
    return [Layer(*(np.asarray(x, np.float64) for x in layer)) for layer in network]


def forward(network, inputs, critic=None):
    for number, (weight, bias) in enumerate(network):
        if critic is not None:
            weight, bias = weight[critic], bias[critic]
        inputs = inputs @ weight + bias
        if number + 1 < len(network):
            inputs = np.maximum(inputs, 0.0)
    return inputs


def sample_64(actor, features, noise):
    mean, log_std = np.split(forward(actor, features), 2, -1)
    log_std = np.clip(log_std, -20, 2)
    actions = np.tanh(mean + np.exp(log_std) * noise)
    density = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    return actions, (density - np.log(1 - actions**2 + 1e-6)).sum(-1)


def returns_64(critics, features, actions):
    pairs = np.concatenate([features, actions], -1)
    return np.stack([forward(critics, pairs, number)[:, 0] for number in range(2)])


def critic_loss_64(critics, features, actions, wanted):
    return 0.5 * ((returns_64(critics, features, actions) - wanted) ** 2).mean(1).sum()


def actor_loss_64(actor, critics, features, noise, alpha):
    actions, log_prob = sample_64(actor, features, noise)
    return (alpha * log_prob - returns_64(critics, features, actions).min(0)).mean()


def gradient_64(loss, network):
    """Central differences of a loss with respect to each number of a network."""
    gradients = []
    for layer in network:
        parts = []
        for values in layer:
            gradient = np.zeros_like(values)
            for place in np.ndindex(values.shape):
                kept, step = values[place], 1e-6
                values[place] = kept + step
                above = loss()
                values[place] = kept - step
                gradient[place] = (above - loss()) / (2 * step)
                values[place] = kept
            parts.append(gradient)
        gradients.append(Layer(*parts))
    return gradients


def test_actions_and_log_probabilities_are_those_of_numpy():
    made, (rows, noise) = state(), batch(0)
    actions, log_prob = sample(made.actor, rows.features, noise.here)
    expected = sample_64(doubled(made.actor), rows.features, noise.here)

    np.testing.assert_allclose(actions, expected[0], atol=1e-5)
    np.testing.assert_allclose(log_prob, expected[1], atol=1e-4)
    np.testing.assert_allclose(
        returns(made.critics, rows.features, actions),
        returns_64(doubled(made.critics), rows.features, expected[0]),
        atol=1e-5,
    )


def test_the_loss_of_the_critics_and_its_gradient_are_those_of_numpy():
    made, (rows, noise) = state(), batch(1)
    wanted = noise.here[:, 0]
    (loss, _), gradients = jax.value_and_grad(critic_loss_of, has_aux=True)(
        made.critics, rows.features, rows.actions, wanted
    )
    critics = doubled(made.critics)
    numpy = lambda: critic_loss_64(critics, rows.features, rows.actions, wanted)  # noqa: E731

    assert float(loss) == pytest.approx(numpy(), rel=1e-5)
    assert_near(gradients, gradient_64(numpy, critics))


def test_the_loss_of_the_actor_and_its_gradient_are_those_of_numpy():
    made, (rows, noise) = state(), batch(2)
    (loss, _), gradients = jax.jit(jax.value_and_grad(actor_loss_of, has_aux=True))(
        made.actor, made.critics, rows.features, noise.here, np.float32(0.3)
    )
    actor, critics = doubled(made.actor), doubled(made.critics)
    numpy = lambda: actor_loss_64(actor, critics, rows.features, noise.here, 0.3)  # noqa: E731

    assert float(loss) == pytest.approx(numpy(), rel=1e-5)
    assert_near(gradients, gradient_64(numpy, actor))


def test_an_update_scales_features_and_rewards_and_bootstraps_with_the_discounts():
    made, (rows, noise) = state(), batch(4)
    _, losses, _ = UPDATE(made, rows, noise, rates_of(SETTINGS, SCALING))
    here = np.clip((rows.features - SCALING.mean) * SCALING.inverse, -10, 10)
    following = np.clip((rows.following - SCALING.mean) * SCALING.inverse, -10, 10)
    next_actions, log_prob = sample_64(doubled(made.actor), following, noise.following)
    lowest = returns_64(doubled(made.targets), following, next_actions).min(0)
    wanted = rows.rewards / 3.0 + rows.discounts * (lowest - log_prob)  # the temperature is 1

    assert float(losses.critics) == pytest.approx(
        critic_loss_64(doubled(made.critics), here, rows.actions, wanted), rel=1e-4
    )


def test_scaled_rewards_are_bounded():
    made, (rows, noise) = state(), batch(4)
    scaling = replace(SCALING, reward_bound=0.5)
    wide = rows._replace(rewards=1e30 * np.sign(rows.rewards))
    bounded = rows._replace(rewards=0.5 * SCALING.reward * np.sign(rows.rewards))
    _, losses, _ = UPDATE(made, wide, noise, rates_of(SETTINGS, scaling))
    _, expected, _ = UPDATE(made, bounded, noise, rates_of(SETTINGS, SCALING))

    assert float(losses.critics) == pytest.approx(float(expected.critics), rel=1e-5)


def test_targets_follow_at_tau():
    made, (rows, noise) = state(), batch(5)
    after, *_ = UPDATE(made, rows, noise, rates_of(SETTINGS, SCALING))

    for old, new, critic in zip(made.targets, after.targets, after.critics, strict=True):
        np.testing.assert_allclose(
            new.weight, 0.98 * old.weight + 0.02 * np.asarray(critic.weight), atol=1e-6
        )


def test_figures_are_those_of_the_last_batch_and_of_the_gradients_of_all_updates():
    made, rates = state(), rates_of(SETTINGS, SCALING)
    drawn = [batch(seed)[0] for seed in (6, 7, 8)]
    block = BatchBlock(*(np.stack(column) for column in zip(*drawn, strict=True)))
    key = KEY
    outcome = jax.jit(make_updates)(made, block, np.int32(3), key, rates)
    squares = []
    for rows in drawn:
        pair = jax.random.normal(jax.random.fold_in(key, made.n_opts), (2, BATCH, ACTIONS))
        before = made.critic_moments.first
        made, losses, seen = UPDATE(made, rows, Noise(*pair), rates)
        gradients = jax.tree.map(
            lambda a, b: (b - 0.9 * a) / 0.1, before, made.critic_moments.first
        )
        squares.append(sum(float(np.square(leaf).sum()) for leaf in jax.tree.leaves(gradients)))
    figures = outcome.figures

    assert float(figures.q_mean) == pytest.approx(float(seen.expected.mean()), rel=1e-4)
    assert float(figures.q_min) == pytest.approx(float(seen.expected.min()), rel=1e-4)
    assert float(figures.q_max) == pytest.approx(float(seen.expected.max()), rel=1e-4)
    errors = np.abs(np.asarray(seen.expected) - np.asarray(seen.wanted))
    assert float(figures.td_error) == pytest.approx(errors.mean(), rel=1e-4)
    assert float(figures.critic_norm) == pytest.approx(np.sqrt(np.mean(squares)), rel=2e-3)
    assert float(losses.entropy) != 0.0


def test_many_updates_in_one_call_are_those_of_many_calls_bit_for_bit():
    rates, key, compiled = rates_of(SETTINGS, SCALING), KEY, jax.jit(make_updates)
    drawn = [batch(seed)[0] for seed in range(5)]
    block = BatchBlock(*(np.stack(column) for column in zip(*drawn, strict=True)))
    once = compiled(state(), block, np.int32(5), key, rates)
    many = state()
    for number in range(5):
        first = BatchBlock(*(np.roll(column, -number, axis=0) for column in block))
        many = compiled(many, first, np.int32(1), key, rates).state

    for ours, theirs in zip(jax.tree.leaves(once.state), jax.tree.leaves(many), strict=True):
        np.testing.assert_array_equal(ours, theirs)


class Spaces(DummyVecEnv):
    """Spaces without an environment: rows come from the test."""

    def __init__(self):
        self.num_envs = 1
        self.observation_space = spaces.Box(-np.inf, np.inf, (FEATURES,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
        self.render_mode = None
        self.metadata = {}

    def get_attr(self, *_):
        return [None]

    def env_is_wrapped(self, *_):
        return [False]


class Batches:
    """A replay buffer that answers with the batches of a test, in their order."""

    def __init__(self, batches):
        self._batches = iter(batches)

    def sample(self, *_, **__):
        rows = next(self._batches)
        tensor = lambda values: torch.from_numpy(values.reshape(len(values), -1))  # noqa: E731
        return ReplayBufferSamples(
            tensor(rows.features),
            tensor(rows.actions),
            tensor(rows.following),
            tensor((rows.discounts == 0).astype(np.float32)),
            tensor(rows.rewards),
            tensor(np.full(BATCH, 0.9, np.float32)),
        )


def take(layers, network, critic=None):
    """Put our weights into the linear layers of torch."""
    with torch.no_grad():
        for module, (weight, bias) in zip(layers, network, strict=True):
            if critic is not None:
                weight, bias = weight[critic], bias[critic]
            module.weight.copy_(torch.from_numpy(np.array(weight).T))
            module.bias.copy_(torch.from_numpy(np.array(bias)))


def linear(network):
    return [module for module in network if isinstance(module, torch.nn.Linear)]


@pytest.mark.parametrize("alpha", ["auto", 0.2])
def test_ten_updates_are_those_of_stable_baselines3(alpha, monkeypatch):
    settings = Settings(
        FEATURES, ACTIONS, hidden=16, batch_size=BATCH, tau=0.02, alpha=alpha,
        target_entropy=-1.0, learning_rate_init=1e-3,
    )  # fmt: skip
    made = state()
    drawn = [batch(seed) for seed in range(10)]
    theirs = SAC(
        "MlpPolicy", Spaces(), learning_rate=1e-3, buffer_size=1, tau=0.02, device="cpu",
        ent_coef=alpha, policy_kwargs={"net_arch": [16, 16]},
    )  # fmt: skip
    theirs.set_logger(Logger(None, []))
    theirs.replay_buffer = Batches([rows for rows, _ in drawn])
    actor = theirs.actor
    *body, (weight, bias) = made.actor
    take(linear(actor.latent_pi), body)
    take([actor.mu], [(weight[:, :ACTIONS], bias[:ACTIONS])])
    take([actor.log_std], [(weight[:, ACTIONS:], bias[ACTIONS:])])
    for number in range(2):
        take(linear(theirs.critic.q_networks[number]), made.critics, number)
        take(linear(theirs.critic_target.q_networks[number]), made.targets, number)
    noise = iter([part for _, pair in drawn for part in pair])
    monkeypatch.setattr(
        torch.distributions.Normal,
        "rsample",
        lambda self, *_: self.loc + self.scale * torch.from_numpy(next(noise)),
    )
    theirs.train(10, BATCH)
    rates = rates_of(settings, Scaling.identity(FEATURES))
    for rows, pair in drawn:
        made, losses, _ = UPDATE(made, rows, pair, rates)
    *body, (weight, bias) = made.actor

    for module, layer in zip(linear(actor.latent_pi), body, strict=True):
        assert_close(module, layer.weight, layer.bias)
    assert_close(actor.mu, weight[:, :ACTIONS], bias[:ACTIONS])
    assert_close(actor.log_std, weight[:, ACTIONS:], bias[ACTIONS:])
    for network, ours in ((theirs.critic, made.critics), (theirs.critic_target, made.targets)):
        for number in range(2):
            for module, layer in zip(linear(network.q_networks[number]), ours, strict=True):
                assert_close(module, layer.weight[number], layer.bias[number])
    if alpha == "auto":
        assert float(made.log_alpha) == pytest.approx(theirs.log_ent_coef.item(), abs=1e-5)
    assert float(losses.alpha) > 0


@pytest.mark.parametrize(("target", "bound"), [(1e6, max(LOG_ALPHA)), (-1e6, min(LOG_ALPHA))])
def test_a_temperature_without_effect_stays_within_its_bounds(target, bound):
    settings = Settings(FEATURES, ACTIONS, batch_size=BATCH, learning_rate_init=0.1)
    rates = rates_of(settings, Scaling.identity(FEATURES))._replace(target_entropy=target)
    made = state()
    for seed in range(200):
        made, losses, _ = UPDATE(made, *batch(seed), rates)

    assert float(made.log_alpha) == bound
    assert np.isfinite(losses.critics)


def assert_close(module, weight, bias):
    np.testing.assert_allclose(weight, module.weight.detach().numpy().T, atol=1e-4)
    np.testing.assert_allclose(bias, module.bias.detach().numpy(), atol=1e-4)


def assert_near(gradients, expected):
    for ours, theirs in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(ours.weight, theirs.weight, rtol=1e-3, atol=2e-5)
        np.testing.assert_allclose(ours.bias, theirs.bias, rtol=1e-3, atol=2e-5)
