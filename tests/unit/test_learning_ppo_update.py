"""The updates of PPO beside numpy in float64, and beside stable-baselines3's."""

import gymnasium
import jax
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv

from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Layer
from arkml.learning.networks import RecurrentUnit
from arkml.learning.ppo_batches import draw_minibatches, has_choice
from arkml.learning.ppo_state import PpoState, RolloutRows, RowForm, Weights, first_state, rates_of
from arkml.learning.ppo_update import (
    branch_log_probs,
    evaluate,
    losses_of,
    make_updates,
    score,
    update,
)

FEATURES, ROWS = 3, 40
MOST_ROWS, MOST_BATCHES, SIZE = 48, 10, 16
STEPS = 4  # of a sequence, where there is memory
GAMES = [(2, ()), (0, (4,)), (1, (2, 3))]
SCORE = jax.jit(score, static_argnums=0)
EVALUATE = jax.jit(evaluate, static_argnums=0)
UPDATE = jax.jit(update, static_argnums=0)
GRADIENT = jax.jit(jax.value_and_grad(losses_of, has_aux=True), static_argnums=1)
MAKE_UPDATES = jax.jit(make_updates, static_argnums=0)


def made_settings(continuous=1, branches=(2, 3), **changes):
    values = {"hidden": 8, "algorithm": "ppo", "entropy_coefficient": 0.01, "batch_size": 16}
    actions = continuous + len(branches)
    return Settings(FEATURES, actions, branches=branches, **(values | changes))


def made_state(of):
    """A state whose biases and deviations are not zero, and whose policy is not even."""
    made = first_state(of)
    random = np.random.default_rng(3)
    for network in (made.weights.actor, made.weights.critic):
        for layer in network:
            layer.bias[:] = random.uniform(-0.3, 0.3, layer.bias.shape)
    made.weights.actor[-1].weight[:] *= 50
    made.weights.log_std[:] = random.uniform(-0.5, 0.5, of.continuous)
    return made


def made_rows(of, state, count=ROWS, seed=0, masked=0.3, moved=0.1):
    """Rows of a policy that differs from that of the state."""
    random = np.random.default_rng(seed)
    normal = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731
    allowed = random.random((count, sum(of.branches))) >= masked
    actions = normal(count, of.actions)
    first = 0
    for branch, choices in enumerate(of.branches):
        chosen = random.integers(0, choices, count)
        allowed[np.arange(count), first + chosen] = True
        actions[:, of.continuous + branch] = chosen
        first += choices
    features, images = normal(count, FEATURES), np.zeros((count, 0), np.uint8)
    memories = normal(count, of.memory)
    begins = random.random(count) < 0.2
    begins[::STEPS] = True
    memories[begins & (random.random(count) < 0.5)] = 0.0
    log_probs, _ = EVALUATE(
        RowForm.of(of), state.weights, features, images, actions, allowed, memories
    )
    log_probs = np.asarray(log_probs) + moved * normal(count)
    targets = 2 + 3 * normal(count), normal(count)
    chooses = has_choice(of, allowed)
    frames = np.zeros((count, 1), np.int32)
    return RolloutRows(
        features, images, actions, allowed, chooses, log_probs, *targets, memories, begins, frames
    )


def in_sequences(rows):
    """Rows as the update of one minibatch takes them: step by step."""
    order = np.arange(len(rows.begins)).reshape(-1, STEPS).T
    columns = RolloutRows(*(column[order.reshape(-1)] for column in rows))
    return columns._replace(memories=rows.memories[order], begins=rows.begins[order])


def in_order(counts):
    """Marks of rows as `in_sequences` has these."""
    return counts.reshape(-1, STEPS).T.reshape(-1)


def made_updates(of, state, rows, batches, epochs=1):
    """Updates in one shape for all tests, complete before numpy's arrays change."""
    rates = rates_of(of, 0)
    rows = RolloutRows(*(filled(column, MOST_ROWS, 7) for column in rows))
    count = np.int32(len(batches))
    batches = filled(batches, MOST_BATCHES, 5)
    made = MAKE_UPDATES(RowForm.of(of), state, rows, batches.copy(), count, np.int32(epochs), rates)
    return jax.block_until_ready(made)


def filled(column, rows, value):
    more = np.full((rows - len(column), *column.shape[1:]), value, column.dtype)
    return np.concatenate([column, more])


def doubled(weights):
    def network(layers):
        return [Layer(*(np.asarray(x, np.float64) for x in layer)) for layer in layers]

    def memory(one):
        return RecurrentUnit(*network(one[:3]), np.asarray(one.angles, np.float64)) if one else []

    return Weights(
        network(weights.actor),
        weights.log_std.astype(np.float64),
        network(weights.critic),
        memory(weights.memory),
        [],
        [],
    )


def forward_64(network, inputs, beside=None):
    for number, (weight, bias) in enumerate(network):
        if number == 1 and beside is not None:
            inputs = np.concatenate([inputs, beside], axis=1)
        inputs = inputs @ weight + bias
        if number < len(network) - 1:
            inputs = np.maximum(inputs, 0.0)
    return inputs


def memories_64(unit, rows):
    """What is remembered after each row, one after another."""
    half, found = rows.memories.shape[-1] // 2, []
    still = half - len(unit.angles)
    turn = np.exp(1j * np.concatenate([np.zeros(still), unit.angles]))
    for row, features in enumerate(rows.features.astype(np.float64)):
        if rows.begins[row]:
            state = rows.memories[row, :half] + 1j * rows.memories[row, half:]
        seen = np.maximum(features @ unit.encoder.weight + unit.encoder.bias, 0.0)
        gate = np.maximum(1 / (1 + np.exp(-(seen @ unit.gates.weight + unit.gates.bias))), 1e-5)
        new = np.tanh(seen @ unit.taken.weight + unit.taken.bias)
        share = np.where(np.arange(half) < still, gate, np.sqrt(gate * (2 - gate)))
        if not state.any():
            share[:still] = 1.0
        state = (1 - gate) * turn * state + share * (new[:half] + 1j * new[half:])
        found.append(np.concatenate([state.real, state.imag]))
    return np.array(found)


def heads_64(weights, rows):
    """The outputs of actor and critic."""
    inputs = rows.features.astype(np.float64)
    beside = memories_64(weights.memory, rows) if weights.memory else None
    return [forward_64(network, inputs, beside) for network in (weights.actor, weights.critic)]


def score_64(branches, weights, rows, outputs=None):
    """Scores by the `outputs` of the actor, which are computed unless they are given."""
    if outputs is None:
        outputs, _ = heads_64(weights, rows)
    continuous = len(weights.log_std)
    std = np.exp(weights.log_std)
    z = (rows.actions[:, :continuous] - outputs[:, :continuous]) / std
    log_probs = (-0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi)).sum(1)
    entropies = np.full(len(outputs), (0.5 + 0.5 * np.log(2 * np.pi) + np.log(std)).sum())
    first = 0
    for branch, choices in enumerate(branches):
        for row in range(len(outputs)):
            allowed = rows.allowed[row, first : first + choices]
            logits = outputs[row, continuous + first : continuous + first + choices][allowed]
            shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
            place = (
                np.flatnonzero(allowed).tolist().index(int(rows.actions[row, continuous + branch]))
            )
            log_probs[row] += np.log(shares[place])
            entropies[row] -= (shares * np.log(shares)).sum()
        first += choices
    return log_probs, entropies


def loss_64(branches, weights, rows, rates):
    outputs, values = heads_64(weights, rows)
    log_probs, entropies = score_64(branches, weights, rows, outputs)
    advantages = rows.advantages.astype(np.float64)
    ratio = np.exp(log_probs - rows.log_probs)
    clip = float(rates.clip_range)
    clipped = np.clip(ratio, 1 - clip, 1 + clip)
    chooses = rows.chooses
    policy = -np.minimum(advantages * ratio, advantages * clipped)[chooses].mean()
    value = ((rows.returns - values[:, 0]) ** 2).mean()
    entropy = -entropies[chooses].mean()
    coefficients = (1.0, float(rates.entropy_coefficient), float(rates.value_coefficient))
    return np.dot(coefficients, (policy, entropy, value)), policy, value, entropy


def gradient_64(loss, tree):
    """Central differences of a loss with respect to each number of a tree of arrays."""
    gradients = []
    for values in jax.tree.leaves(tree):
        gradient = np.zeros_like(values)
        for place in np.ndindex(values.shape):
            kept, step = values[place], 1e-6
            values[place] = kept + step
            above = loss()
            values[place] = kept - step
            gradient[place] = (above - loss()) / (2 * step)
            values[place] = kept
        gradients.append(gradient)
    return gradients


@pytest.mark.parametrize(("continuous", "branches"), GAMES)
def test_log_probabilities_and_entropies_are_those_of_numpy(continuous, branches):
    of = made_settings(continuous, branches)
    made = made_state(of)
    rows = made_rows(of, made)
    outputs = forward_64(made.weights.actor, rows.features).astype(np.float32)
    log_probs, entropies = SCORE(
        branches, made.weights.log_std, outputs, rows.actions, rows.allowed
    )
    expected = score_64(branches, doubled(made.weights), rows)

    np.testing.assert_allclose(log_probs, expected[0], atol=1e-4)
    np.testing.assert_allclose(entropies, expected[1], atol=1e-5)


@pytest.mark.parametrize("memory", [0, 4])
@pytest.mark.parametrize(("continuous", "branches"), GAMES)
def test_the_loss_and_its_gradient_are_those_of_numpy(continuous, branches, memory):
    of = made_settings(continuous, branches, memory=memory)
    made, rates = made_state(of), rates_of(of, 0)
    rows = made_rows(of, made)
    counts = np.ones(ROWS, bool)
    (loss, parts), gradients = GRADIENT(
        made.weights, RowForm.of(of), in_sequences(rows), counts, rates
    )
    weights = doubled(made.weights)
    numpy = lambda: loss_64(branches, weights, rows, rates)  # noqa: E731

    expected = numpy()
    assert [float(x) for x in (loss, parts.policy, parts.value, parts.entropy)] == pytest.approx(
        expected, rel=1e-4
    )
    for ours, theirs in zip(
        jax.tree.leaves(gradients), gradient_64(lambda: numpy()[0], weights), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=5e-5)


def test_what_counts_is_the_divergence_of_rows_with_a_choice():
    of = made_settings(0, (2, 3))
    made, rates = made_state(of), rates_of(of, 0)
    rows = made_rows(of, made)
    rows.allowed[:30] = False
    chosen = rows.actions[:30].astype(int) + np.array([0, 2])
    rows.allowed[np.arange(30)[:, None], chosen] = True  # one choice of each branch
    rows.log_probs[:30] = 0.0
    rows.allowed[30:] = True
    rows.allowed[30:34, 2:] = np.eye(3, dtype=bool)[rows.actions[30:34, 1].astype(int)]
    rows = rows._replace(chooses=has_choice(of, rows.allowed))
    counts = np.arange(ROWS) < 38
    taken = in_sequences(rows), in_order(counts)
    (_, parts), _ = GRADIENT(made.weights, RowForm.of(of), *taken, rates)
    change = score_64((2, 3), doubled(made.weights), rows)[0] - rows.log_probs
    divergences = (np.exp(change) - 1 - change)[counts]

    assert np.abs(divergences[:30]).max() < 1e-9
    assert float(parts.last_kl) == pytest.approx(divergences[30:].mean(), rel=1e-3)
    assert float(parts.approx_kl) == float(parts.last_kl)


def test_an_agent_without_an_allowed_choice_has_all_of_them():
    allowed = np.array([[0, 0, 1, 0, 0], [1, 0, 1, 0, 0], [1, 0, 1, 1, 0], [1, 1, 0, 0, 1]], bool)

    assert has_choice(made_settings(0, (2, 3)), allowed).tolist() == [True, False, True, True]
    assert has_choice(made_settings(1, (2, 3)), allowed).all()
    assert not has_choice(made_settings(0, (1,)), np.zeros((4, 1), bool)).any()


def test_rows_that_only_fill_a_minibatch_change_nothing():
    of = made_settings()
    made, rates = made_state(of), rates_of(of, 0)
    rows = made_rows(of, made)
    rows.features[25:], rows.advantages[25:], rows.returns[25:] = 9.0, 1e6, -1e6
    counts = np.arange(ROWS) < 25
    loss, parts = losses_of(
        made.weights, RowForm.of(of), in_sequences(rows), in_order(counts), rates
    )
    counted = RolloutRows(*(column[:25] for column in rows))
    expected = loss_64(of.branches, doubled(made.weights), counted, rates)

    found = [float(x) for x in (loss, parts.policy, parts.value, parts.entropy)]
    assert found == pytest.approx(expected, rel=1e-4)


def test_gradients_are_clipped_by_their_norm():
    of = made_settings(max_gradient_norm=1e-9)
    made = made_state(of)
    rows = in_sequences(made_rows(of, made))
    after, _ = UPDATE(RowForm.of(of), made, rows, np.ones(ROWS, bool), rates_of(of, 0))
    norm = np.sqrt(sum(np.square(leaf / 0.1).sum() for leaf in jax.tree.leaves(after.first)))

    assert norm == pytest.approx(1e-9, rel=1e-2)


def test_only_the_minibatches_counted_are_learned_from():
    of = made_settings()
    made = made_state(of)
    rows = made_rows(of, made)
    batches = draw_minibatches(np.random.default_rng(0), ROWS, 2, SIZE)
    together = made_updates(of, made, rows, batches)
    first = made_updates(of, made, rows, batches[:4])
    second = made_updates(of, first.state, rows, batches[4:])

    assert int(together.state.n_opts) == len(batches) == 6
    for ours, theirs in zip(
        jax.tree.leaves(together.state), jax.tree.leaves(second.state), strict=True
    ):
        assert np.array_equal(ours, theirs)


def test_what_is_not_finite_is_said():
    of = made_settings()
    made = made_state(of)
    rows = made_rows(of, made)
    batches = draw_minibatches(np.random.default_rng(0), ROWS, 1, SIZE)
    fine = made_updates(of, made, rows, batches)
    rows.returns[7] = np.inf
    broken = made_updates(of, made, rows, batches)

    assert bool(fine.is_finite)
    assert not bool(broken.is_finite)


@settings(deadline=None, max_examples=50)
@given(
    arrays(np.float32, (4, 5), elements=st.floats(-1e6, 1e6, width=32)),
    arrays(np.bool_, (4, 5)),
)
def test_a_masked_choice_has_no_probability_whatever_its_logit(logits, allowed):
    shares = np.exp(np.asarray(branch_log_probs(logits, allowed)))
    some = allowed.any(1)

    assert (shares[some][~allowed[some]] == 0.0).all()
    np.testing.assert_allclose(shares.sum(1), 1.0, rtol=1e-5)


def test_a_masked_choice_gets_no_gradient():
    logits = np.array([[0.5, 3.0, -1.0]], np.float32)
    allowed = np.array([[True, False, True]])

    def entropy(values):
        logs = branch_log_probs(values, allowed)
        return (jax.numpy.exp(logs) * logs).sum() + logs[0, 0]

    gradient = np.asarray(jax.grad(entropy)(logits))
    assert gradient[0, 1] == 0.0
    assert np.isfinite(gradient).all()
    assert (gradient[0, [0, 2]] != 0).all()


class Still(gymnasium.Env):
    """Spaces without a game."""

    def __init__(self, space):
        self.observation_space = spaces.Box(-np.inf, np.inf, (FEATURES,), np.float32)
        self.action_space = space


@pytest.mark.parametrize(("epochs", "count", "size"), [(1, 48, 16), (2, 40, 8)])
@pytest.mark.parametrize(("continuous", "branches"), [(2, ()), (0, (4,)), (0, (2, 3))])
def test_updates_are_those_of_stable_baselines3(
    continuous, branches, epochs, count, size, monkeypatch
):
    of = made_settings(continuous, branches, epochs=epochs, batch_size=size)
    made = made_state(of)
    rows = made_rows(of, made, count=count, masked=0.0)
    theirs = their_ppo(of, made.weights, rows, size, epochs)
    orders = [np.random.default_rng(epoch).permutation(count) for epoch in range(epochs)]
    remaining = iter(orders)
    monkeypatch.setattr(np.random, "permutation", lambda _: next(remaining))
    theirs.train()
    batches = np.concatenate([order.reshape(-1, size) for order in orders]).astype(np.int32)
    ours = made_updates(of, made, rows, batches[..., None])

    policy, weights = theirs.policy, ours.state.weights
    for networks, network in (
        ((policy.mlp_extractor.policy_net, policy.action_net), weights.actor),
        ((policy.mlp_extractor.value_net, policy.value_net), weights.critic),
    ):
        for module, layer in zip(linear(*networks), network, strict=True):
            np.testing.assert_allclose(layer.weight, module.weight.detach().numpy().T, atol=1e-4)
            np.testing.assert_allclose(layer.bias, module.bias.detach().numpy(), atol=1e-4)
    if continuous:
        np.testing.assert_allclose(weights.log_std, policy.log_std.detach().numpy(), atol=1e-4)
    logged = theirs.logger.name_to_value
    assert float(ours.losses.policy) == pytest.approx(
        logged["train/policy_gradient_loss"], abs=1e-4
    )
    assert float(ours.losses.value) == pytest.approx(logged["train/value_loss"], rel=1e-4)
    assert float(ours.losses.entropy) == pytest.approx(logged["train/entropy_loss"], rel=1e-4)
    assert float(ours.losses.clip_fraction) == pytest.approx(logged["train/clip_fraction"])


def their_ppo(of, weights, rows, size, epochs):
    """PPO of stable-baselines3 with these weights, its rollout filled with these rows."""
    space = spaces.Box(-1, 1, (of.continuous,), np.float32)
    if of.branches:
        space = spaces.MultiDiscrete(of.branches)
    count = len(rows.features)
    made = PPO(
        "MlpPolicy", DummyVecEnv([lambda: Still(space)]), n_steps=count, batch_size=size,
        normalize_advantage=False,
        n_epochs=epochs, learning_rate=of.learning_rate_init, ent_coef=0.01, device="cpu",
        policy_kwargs={"net_arch": [8, 8], "activation_fn": torch.nn.ReLU},
    )  # fmt: skip
    made.set_logger(Logger(None, []))
    policy = made.policy
    take(linear(policy.mlp_extractor.policy_net, policy.action_net), weights.actor)
    take(linear(policy.mlp_extractor.value_net, policy.value_net), weights.critic)
    if of.continuous:
        with torch.no_grad():
            policy.log_std.copy_(torch.from_numpy(weights.log_std))
    stored = made.rollout_buffer
    for name in ("advantages", "returns", "log_probs"):
        getattr(stored, name)[:, 0] = getattr(rows, name)
    stored.observations[:, 0], stored.actions[:, 0] = rows.features, rows.actions
    stored.full = True
    return made


def linear(*modules):
    found = [part for module in modules for part in module.modules()]
    return [part for part in found if isinstance(part, torch.nn.Linear)]


def take(modules, layers):
    with torch.no_grad():
        for module, (weight, bias) in zip(modules, layers, strict=True):
            module.weight.copy_(torch.from_numpy(weight.T.copy()))
            module.bias.copy_(torch.from_numpy(bias))


def test_the_first_networks_are_orthogonal_with_the_gains_of_stable_baselines3():
    of = made_settings(1, (2, 3), hidden=64)
    weights = first_state(of).weights
    hidden, head = weights.actor[1].weight, weights.actor[-1].weight

    np.testing.assert_allclose(hidden.T @ hidden, 2 * np.eye(64), atol=1e-5)
    np.testing.assert_allclose(head.T @ head, 1e-4 * np.eye(6), atol=1e-8)
    assert weights.critic[-1].weight.T @ weights.critic[-1].weight == pytest.approx(1.0, rel=1e-5)
    assert not any(layer.bias.any() for layer in (*weights.actor, *weights.critic))
    assert weights.log_std.tolist() == [0.0]


def test_the_learning_rate_falls_with_the_updates():
    of = made_settings(learning_rate_init=1e-2, learning_rate_end=1e-3, learning_rate_steps=100)

    rates = [float(rates_of(of, n_opts).learning_rate) for n_opts in (0, 50, 100, 900)]
    assert rates == pytest.approx([1e-2, 5.5e-3, 1e-3, 1e-3])


def test_a_state_is_made_of_arrays_that_no_other_part_shares():
    leaves = [id(leaf) for leaf in jax.tree.leaves(first_state(made_settings()))]

    assert len(set(leaves)) == len(leaves)
    assert isinstance(first_state(made_settings()), PpoState)
