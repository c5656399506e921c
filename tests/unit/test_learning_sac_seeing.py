"""Soft actor-critic of rows with parts: what moves its encoders, and what is exported."""

import jax
import numpy as np
import pytest

from arkml.hive.protocol.parts import Part, fields_of
from arkml.hive.protocol.row_split import RowSplit
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.encoder_graph import sample_rows
from arkml.learning.encoders import Views, encoded
from arkml.learning.jax_maps import JAX
from arkml.learning.networks import mapped
from arkml.learning.normalizer import Normalizer
from arkml.learning.policy_graph import ExportWrong, run
from arkml.learning.replay_buffer import BatchBlock
from arkml.learning.sac import Sac
from arkml.learning.sac_state import first_state, rates_of
from arkml.learning.sac_update import Noise, critic_loss_of, make_updates, returns, sample, update
from arkml.learning.tensors import flatten

ME, TILES = Part("me", (2,)), Part("tiles", (4, 3), "entities")
VIEW = Part("view", (9, 9, 1), "image")
ROWS = {
    "entities": (ME, TILES),
    "grid": (Part("cells", (4, 3), "grid", 3), ME),
    "image": (VIEW,),
}
BATCH = 12
UPDATE = jax.jit(update, static_argnames="views")
UPDATES = jax.jit(make_updates, static_argnames=("views", "shifts"))


def settings_of(parts, **changes):
    width = sum(part.width for part in parts)
    given = {"hidden": 8, "batch_size": BATCH, "memory_min_size": 10, "memory_max_size": 1_000}
    return Settings(width, 2, parts=tuple(parts), algorithm="sac", **given | changes)


def rows_of(of, count=BATCH, seed=0):
    spread = 40 * np.random.default_rng(seed).standard_normal((count, of.features))
    return sample_rows(Views.of(of), spread.astype(np.float32))


def test_a_batch_has_the_bytes_of_images_before_and_after():
    of = settings_of((VIEW,))
    made = sac_of(of)
    _, images, _ = split_of(of, rows_of(of, 200))
    made.buffer.gather(made._slots(1), 1, made._block)
    batch = made._block
    before, after = batch.images[0], batch.following_images[0]

    assert (before.dtype, batch.features.shape[-1]) == (np.uint8, 0)
    places = [int(np.flatnonzero((images == row).all(1))[0]) for row in before]
    np.testing.assert_array_equal(after, images[np.array(places) + 1])


def split_of(of, rows):
    return RowSplit(of.features, of.parts).split(rows)


def batch_of(of, seed=0):
    random = np.random.default_rng(seed)
    normal = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731
    discounts = np.full(BATCH, 0.9, np.float32)
    features, images, _ = split_of(of, rows_of(of, seed=seed))
    following, later, _ = split_of(of, rows_of(of, seed=seed + 1))
    actions, rewards = np.tanh(normal(BATCH, 2)), normal(BATCH)
    rows = BatchBlock(features, actions, following, rewards, discounts, images, later)
    return rows, Noise(normal(BATCH, 2), normal(BATCH, 2))


def state_of(of):
    """A state whose targets and biases are not those of the beginning."""
    random = np.random.default_rng(3)

    def moved(leaf):
        return np.asarray(leaf + random.uniform(-0.1, 0.1, leaf.shape), np.float32)

    made, names = first_state(of), ("actor", "critics", "targets", "encoders", "target_encoders")
    return made._replace(**{name: mapped(moved, getattr(made, name)) for name in names})


def scaling_of(of):
    """The scaling before the first row: what kinds tell."""
    return Normalizer(of.features, of.parts, active=False).current


def rates(of):
    return rates_of(of, scaling_of(of))


def updated(of, state, noise=None):
    rows, given = batch_of(of)
    return UPDATE(state, rows, noise or given, rates(of), views=Views.of(of))


def sac_of(of, count=200):
    normalizer = Normalizer(of.features, of.parts, active=True)
    made, random = Sac(of, normalizer), np.random.default_rng(0)
    rows = RowColumns.empty(count, of.features, 2, images=of.images)
    rows.step[:] = np.arange(count)
    rows.state[:1] = 3
    rows.features[:], rows.images[:], _ = split_of(of, rows_of(of, count))
    rows.reward[:] = random.standard_normal(count)
    rows.action[:] = random.uniform(-1, 1, (count, 2))
    added = made.buffer.add(0, RowKind.TRAINING, rows)
    normalizer.observe(rows.features, added.returns)
    normalizer.adopt()
    return made


@pytest.mark.parametrize("parts", ROWS.values(), ids=ROWS)
def test_the_loss_of_the_critics_moves_the_encoders(parts):
    of = settings_of(parts)
    state, views = state_of(of), Views.of(of)
    rows, noise = batch_of(of)
    noise = noise._replace(following=0.1 * noise.following)  # log(1 - x * x) is rough near 1
    features, following = map(scaling_of(of).features, (rows.features, rows.following))
    see = jax.jit(lambda *given: encoded(JAX, views, *given))  # one program
    seen, target = (
        see(each, following, rows.following_images)
        for each in (state.encoders, state.target_encoders)
    )
    actions, log_prob = sample(state.actor, seen, noise.following)
    future = returns(state.targets, target, actions).min(0) - log_prob  # a temperature of 1

    def loss(encoders):
        taken = encoded(JAX, views, encoders, features, rows.images)
        wanted = rows.rewards + rows.discounts * future
        return critic_loss_of(state.critics, taken, rows.actions, wanted)[0]

    after, losses, _ = updated(of, state, noise)
    value, gradients = jax.jit(jax.value_and_grad(loss))(state.encoders)  # one program
    gradients = jax.tree.leaves(gradients)

    assert float(losses.critics) == pytest.approx(float(value), rel=1e-5)
    assert max(np.abs(one).max() for one in gradients) > 1e-3
    for moment, gradient in zip(
        jax.tree.leaves(after.encoder_moments.first), gradients, strict=True
    ):
        np.testing.assert_allclose(moment, 0.1 * gradient, rtol=1e-4, atol=1e-7)


def test_the_loss_of_the_actor_does_not_move_the_encoders():
    of = settings_of(ROWS["entities"])
    state, (_, noise) = state_of(of), batch_of(of)
    one, _, _ = updated(of, state)
    other, _, _ = updated(of, state, noise._replace(here=-noise.here))
    leaves = lambda tree: [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]  # noqa: E731

    for ours, theirs in zip(leaves(one.encoders), leaves(other.encoders), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not np.array_equal(leaves(one.actor)[0], leaves(other.actor)[0])


def test_the_encoders_of_the_targets_follow():
    of = settings_of(ROWS["entities"], tau=0.25)
    state = state_of(of)
    after, _, _ = updated(of, state)

    for old, new, target in zip(
        *map(jax.tree.leaves, (state.target_encoders, after.encoders, after.target_encoders)),
        strict=True,
    ):
        np.testing.assert_allclose(target, old + 0.25 * (new - old), rtol=1e-5, atol=1e-7)


def test_each_batch_is_shifted_in_its_own_way():
    of = settings_of((VIEW,), shifts=2)
    rows, _ = batch_of(of)
    block = BatchBlock(*(column[None] for column in rows))

    def loss(shifts, key):
        made = UPDATES(
            state_of(of), block, 1, np.uint32([0, key]), rates(of), views=Views.of(of),
            shifts=shifts,
        )  # fmt: skip
        return float(made.losses.critics)

    assert loss(2, 1) == loss(2, 1)
    assert loss(2, 1) != loss(0, 1)


@pytest.mark.parametrize("parts", ROWS.values(), ids=ROWS)
def test_an_export_has_an_input_for_each_part_and_answers_as_the_learner(parts):
    of = settings_of(parts)
    made = sac_of(of)
    made.train(3)
    model = made.policy().model  # it compares the answers itself
    rows = rows_of(of, 7, seed=5)
    inputs = {f.name: rows[:, f.columns].reshape(7, *f.shape) for f in fields_of(parts)}
    inputs["epsilon"] = np.zeros((7, 2), np.float32)
    actions, values = run(model, inputs, ["actions", "values"])
    expected = made.weights().act(rows, inputs["epsilon"])

    np.testing.assert_allclose(actions, expected.actions, atol=1e-4)
    np.testing.assert_allclose(values, expected.values, rtol=1e-4, atol=1e-4)


def with_large_sums(made):
    """The same learner, whose attention adds large numbers that its next layer takes away."""
    (encoder,), large = made._state.encoders, np.float32(3e6)
    gives, taken = encoder.gives, encoder.taken
    gives = gives._replace(bias=gives.bias + large)
    taken = taken._replace(bias=taken.bias - large * taken.weight.sum(0))
    made._state = made._state._replace(encoders=[encoder._replace(gives=gives, taken=taken)])
    return made


def test_an_export_may_be_as_far_off_as_numbers_of_32_bits():
    made = with_large_sums(sac_of(settings_of(ROWS["entities"])))

    assert made.policy().model


def test_an_export_of_other_weights_is_wrong():
    one, other = (sac_of(settings_of(ROWS["entities"], seed=seed)) for seed in (1, 2))

    with pytest.raises(ExportWrong):
        one.weights().check(other.policy().model)


def test_a_learner_goes_on_from_its_state():
    of = settings_of(ROWS["entities"])
    made, again = sac_of(of), sac_of(of)
    made.train(2)
    again.restore(made.state())
    made.train(2)
    again.train(2)
    theirs = again.state().tensors

    assert any(name.startswith("encoders/0/") for name in theirs)
    for name, tensor in made.state().tensors.items():
        np.testing.assert_array_equal(tensor, theirs[name])


def test_plain_rows_have_the_tensors_of_earlier_checkpoints():
    names = {name.split("/")[0] for name in flatten(first_state(Settings(3, 2)))}

    assert names == {
        "actor", "critics", "targets", "log_alpha", "n_opts",
        "actor_moments", "critic_moments", "alpha_moments",
    }  # fmt: skip
