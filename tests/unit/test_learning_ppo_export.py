"""Policies of PPO as ONNX models, beside the formula in numpy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml.abi.codes import SnapshotFormat
from arkml.batches import ROW, Batch
from arkml.learning.algorithm import Layer
from arkml.learning.normalizer import Scaling
from arkml.learning.policy_graph import ExportWrong, run, to_onnx
from arkml.learning.ppo import Heads, PpoWeights
from arkml.limits import Limits
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache
from arkml.policies.vetting import vet

NAMES = ["actions", "raw_actions", "values"]
NEAR = 1e-5  # of a cumulated probability, from which a choice may be either neighbor
STRANGE = [0.0, -0.0, 10.0, -10.0, 1e-30, 40.0, -40.0, math.inf, -math.inf, math.nan]


def weights(branches=(), continuous=0, *, scale=1.0, seed=0, features=3):
    random = np.random.default_rng(seed)
    outputs = continuous + sum(branches)

    def layer(rows, columns):
        weight = scale * random.standard_normal((columns, rows))
        return Layer(weight.astype("f4"), random.standard_normal(rows).astype("f4"))

    scaling = Scaling(
        random.standard_normal(features).astype("f4"), np.full(features, 0.5, "f4"), 10.0
    )
    log_std = random.uniform(-1, 0.5, continuous).astype("f4")
    return PpoWeights(
        scaling, (layer(4, features), layer(outputs, 4)), (layer(4, features), layer(1, 4)),
        log_std, tuple(branches),
    )  # fmt: skip


def forward(layers, x):
    for number, layer in enumerate(layers):
        x = x @ layer.weight.astype(np.float64) + layer.bias
        if number + 1 < len(layers):
            x = np.maximum(x, 0)
    return x


def heads(made):
    def answer(observations, memories=None, _=None):
        x = made.scaling.features(np.asarray(observations, np.float32)).astype(np.float64)
        outputs = forward(made.actor, x)
        continuous = len(made.log_std)
        values = made.scaling.reward * forward(made.critic, x)
        return Heads(outputs[:, :continuous], outputs[:, continuous:], values, memories)

    return answer


def answer(made, observations, epsilon, masks=None):
    inputs = {"observations": np.float32(observations), "epsilon": np.float32(epsilon)}
    if masks is not None:
        inputs["action_masks"] = np.float32(masks)
    return run(to_onnx(made), inputs, NAMES)


def possible(logits, allowed, epsilon):
    """The choices that an epsilon may stand for, given the rounding of float32."""
    near = NEAR * max(1.0, float(np.abs(logits).max()))
    allowed = allowed if allowed.any() else np.ones_like(allowed)
    shown = np.where(allowed, logits, -np.inf)
    if epsilon == 0:
        return set(np.flatnonzero(shown >= shown.max() - near).tolist())
    if math.isnan(epsilon):
        return set(np.flatnonzero(allowed).tolist())
    shares = np.exp(shown - shown.max())
    sums = np.cumsum(shares / shares.sum())
    level = 0.5 * math.erfc(-epsilon / math.sqrt(2))
    before = np.concatenate([[0.0], sums[:-1]])
    fits = (before - near <= level) & (level <= sums + near) & allowed
    return set(np.flatnonzero(fits).tolist())


epsilons = st.sampled_from(STRANGE) | st.floats(-6, 6, width=32)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 2))
def test_a_choice_is_the_one_of_its_quantile_and_never_a_masked_one(data, branches, continuous):
    rows = 4
    scale = data.draw(st.sampled_from([0.0, 0.3, 1.0, 30.0]))
    made = weights(branches, continuous, scale=scale, seed=data.draw(st.integers(0, 9)))
    observations = np.random.default_rng(1).standard_normal((rows, 3))
    count = rows * made.actions
    epsilon = np.float32(data.draw(st.lists(epsilons, min_size=count, max_size=count)))
    epsilon = epsilon.reshape(rows, made.actions)
    count = rows * sum(branches)
    masks = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    masks = masks.reshape(rows, sum(branches))
    actions, raw, _ = answer(made, observations, epsilon, masks)
    logits = heads(made)(observations).logits

    assert np.array_equal(actions[:, continuous:], raw[:, continuous:])
    for row in range(rows):
        start = 0
        for branch, size in enumerate(branches):
            place = slice(start, start + size)
            start += size
            chosen = raw[row, continuous + branch]
            number = float(epsilon[row, continuous + branch])
            assert chosen in possible(logits[row, place], masks[row, place], number)


@pytest.mark.parametrize("branches", [(64,), (65, 3), (300, 2), (4096,)])
def test_branches_of_many_choices_are_drawn_alike(branches):
    made = weights(branches, scale=0.3)
    rows = 64
    random = np.random.default_rng(7)
    observations = random.standard_normal((rows, 3))
    epsilon = random.standard_normal((rows, len(branches))).astype("f4")
    epsilon[:4] = [[10.0], [-10.0], [6.0], [0.0]]
    masks = random.random((rows, sum(branches))) < 0.5
    _, raw, _ = answer(made, observations, epsilon, masks)
    logits = heads(made)(observations).logits[:, : branches[0]]
    masks = masks[:, : branches[0]]

    for row in range(rows):
        assert raw[row, 0] in possible(logits[row], masks[row], float(epsilon[row, 0]))
    assert raw[0, 0] == np.flatnonzero(masks[0])[-1]
    assert raw[1, 0] == np.flatnonzero(masks[1])[0]


def test_gaussian_actions_come_raw_and_clipped():
    made = weights((3,), 2)
    observations = np.random.default_rng(2).standard_normal((6, 3))
    epsilon = np.random.default_rng(3).standard_normal((6, 3)).astype("f4") * 3
    actions, raw, values = answer(made, observations, epsilon, np.ones((6, 3)))
    expected = heads(made)(observations)
    drawn = expected.mean + np.exp(made.log_std) * epsilon[:, :2]

    assert np.allclose(raw[:, :2], drawn, atol=1e-5)
    assert np.allclose(actions[:, :2], np.clip(drawn, -1, 1), atol=1e-5)
    assert np.allclose(values, expected.values, atol=1e-4)
    assert (np.abs(raw[:, :2]) > 1).any()


def test_without_branches_no_masks_are_taken():
    made = weights((), 2)
    actions, raw, _ = answer(made, np.zeros((2, 3)), np.zeros((2, 2)))
    mean = heads(made)(np.zeros((2, 3))).mean

    assert np.allclose(raw, mean, atol=1e-5)
    assert np.allclose(actions, np.clip(mean, -1, 1), atol=1e-5)


def test_many_draws_have_the_probabilities_of_the_allowed_choices():
    made = weights((4,), scale=0.3)
    observations = np.zeros((20_000, 3))
    masks = np.tile([1, 0, 1, 1], (20_000, 1))
    epsilon = np.random.default_rng(4).standard_normal((20_000, 1))
    _, raw, _ = answer(made, observations, epsilon, masks)
    logits = heads(made)(observations[:1]).logits[0]
    shares = np.exp(logits) * [1, 0, 1, 1]
    counted = np.bincount(raw[:, 0].astype(int), minlength=4) / 20_000

    assert counted == pytest.approx(shares / shares.sum(), abs=0.02)
    assert counted[1] == 0


@pytest.mark.parametrize("number", STRANGE)
@pytest.mark.parametrize("feature", [np.nan, np.inf])
def test_logits_that_are_not_numbers_still_choose_what_is_allowed(number, feature):
    made = weights((3, 2), scale=1e30)
    masks = [[0, 1, 0, 0, 1], [0, 0, 1, 1, 0]]
    _, raw, _ = answer(made, [[feature, 0, 0]] * 2, [[number, number]] * 2, masks)

    assert raw.tolist() == [[1, 1], [2, 0]]


def test_a_branch_without_an_allowed_choice_has_all_of_them():
    made = weights((3, 2), scale=0.1)
    epsilon = np.random.default_rng(5).standard_normal((500, 2))
    masks = np.tile([0, 0, 0, 0, 1], (500, 1))
    _, raw, _ = answer(made, np.zeros((500, 3)), epsilon, masks)

    assert set(raw[:, 0].tolist()) == {0.0, 1.0, 2.0}
    assert set(raw[:, 1].tolist()) == {1.0}


@pytest.mark.parametrize(("branches", "continuous"), [((), 2), ((3, 2), 0), ((2, 5, 1), 2)])
def test_the_check_passes_what_answers_alike(branches, continuous):
    made = weights(branches, continuous)

    made.check(to_onnx(made), heads(made))  # raises ExportWrong otherwise


@pytest.mark.parametrize("part", ["mean", "logits", "values"])
def test_the_check_refuses_what_answers_otherwise(part):
    made = weights((3,), 1)

    def other(observations, memories, _):
        own = heads(made)(observations, memories)
        changed = getattr(own, part)[:, ::-1] + (np.arange(getattr(own, part).shape[1]) + 1)
        return own._replace(**{part: changed})

    with pytest.raises(ExportWrong):
        made.check(to_onnx(made), other)


@pytest.mark.parametrize(("branches", "continuous"), [((), 2), ((3, 2), 0), ((2, 5, 1), 2)])
def test_the_host_takes_the_model_and_gives_it_masks_of_ones(branches, continuous):
    made = weights(branches, continuous)
    model = to_onnx(made)
    vet(model, Limits())
    library = PolicyLibrary(ModelCache(), deterministic=True)
    policy = library.load(model, SnapshotFormat.ONNX, 3, made.actions)
    batch = Batch(
        np.zeros(5, ROW), np.random.default_rng(6).standard_normal((5, 3)).astype("f4"),
        np.zeros((5, made.actions), "f4"), np.zeros(5, "f4"), np.array(1, np.uint64),
    )  # fmt: skip
    policy.act(batch)
    masks = np.ones((5, sum(branches))) if branches else None
    actions, _, values = answer(made, batch.features, np.zeros((5, made.actions)), masks)

    assert np.array_equal(batch.actions, actions)
    assert np.array_equal(batch.values, values[:, 0])
