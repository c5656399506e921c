"""Random shifts of images: what they move, and what updates of PPO make of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arkml.errors import InvalidSettings
from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.settings import Settings
from arkml.learning.encoders import Views
from arkml.learning.image_shifts import shifted
from arkml.learning.ppo_state import RolloutRows, RowForm, first_state, rates_of
from arkml.learning.ppo_update import divergences, losses_of, make_updates

VIEW, BOARD, ME = (
    Part("view", (9, 12, 2), "image"),
    Part("board", (4, 4, 1), "grid"),
    Part("me", (3,)),
)
PARTS = (ME, VIEW, BOARD)
FEATURES = sum(part.width for part in PARTS)
COUNT, SHIFTS = 40, 3
LOSSES = jax.jit(losses_of, static_argnames="form")
UPDATES = jax.jit(make_updates, static_argnums=0)


def settings_of(**changes):
    return Settings(FEATURES, 2, (3,), parts=PARTS, hidden=8, batch_size=COUNT, **changes)


def images_of(*parts):
    width = sum(part.size for part in parts)
    return np.random.default_rng(0).integers(0, 256, (COUNT, width), np.uint8)


def moved_by(key, *parts):
    views, images = Views(tuple(parts)), jnp.asarray(images_of(*parts or (VIEW,)))
    views = views if parts else Views(PARTS)
    return np.asarray(shifted(views, SHIFTS, images, np.array([0, key], np.uint32)))


def rows_of(images):
    random, ones = np.random.default_rng(1), np.ones(COUNT, np.float32)
    actions = np.stack([random.standard_normal(COUNT), random.integers(0, 3, COUNT)], 1)
    return RolloutRows(
        random.random((COUNT, FEATURES - VIEW.size), np.float32),
        images,
        actions.astype(np.float32),
        np.ones((COUNT, 3), bool),
        ones > 0,
        -2.0 * ones,
        random.standard_normal(COUNT).astype(np.float32),
        ones,
        np.zeros((1, COUNT, 0), np.float32),
        np.zeros((1, COUNT), bool),
        np.arange(COUNT, dtype=np.int32)[:, None],
    )


def loss_at(images, shifts):
    of = settings_of(shifts=shifts)
    every = np.ones(COUNT, bool)
    weights = first_state(of).weights
    return LOSSES(weights, RowForm.of(of), rows_of(images), every, rates_of(of, 0))


def test_an_image_is_moved_by_whole_pixels_and_its_edges_are_repeated():
    images = images_of(VIEW).reshape(-1, *VIEW.shape)
    around = ((0, 0), (SHIFTS, SHIFTS), (SHIFTS, SHIFTS), (0, 0))
    padded = np.pad(images, around, mode="edge")
    ways = set()
    for number, image in enumerate(moved_by(0).reshape(-1, *VIEW.shape)):
        found = [
            (down, across)
            for down in range(2 * SHIFTS + 1)
            for across in range(2 * SHIFTS + 1)
            if np.array_equal(image, padded[number, down : down + 9, across : across + 12])
        ]
        ways.update(found)
        assert len(found) == 1

    assert len(ways) > 15
    assert {down for down, _ in ways} == {across for _, across in ways} == set(range(7))


def test_each_image_of_a_row_is_moved_by_itself():
    small = Part("map", (5, 5, 1), "image")
    alone, both = moved_by(0), moved_by(0, VIEW, small)
    images = images_of(VIEW, small)

    assert both.shape == images.shape
    assert not np.array_equal(both[:, -small.size :], images[:, -small.size :])
    assert alone.shape[1] == VIEW.size


def test_the_key_decides_the_moves():
    np.testing.assert_array_equal(moved_by(5), moved_by(5))
    assert not np.array_equal(moved_by(5), moved_by(6))


def test_policy_and_value_are_learned_at_the_images_that_were_seen():
    images = images_of(VIEW)
    plain_total, plain = loss_at(images, 0)
    total, losses = loss_at(images, SHIFTS)

    for name in ("policy", "value", "entropy", "approx_kl", "clip_fraction"):
        assert float(getattr(losses, name)) == pytest.approx(float(getattr(plain, name)), rel=1e-6)
    assert float(total) > float(plain_total) + 1e-6


def test_an_image_of_one_color_has_nothing_to_shift():
    images = np.full((COUNT, VIEW.size), 128, np.uint8)

    assert float(loss_at(images, SHIFTS)[0]) == pytest.approx(
        float(loss_at(images, 0)[0]), abs=1e-7
    )


def test_each_update_moves_images_by_its_number_and_the_seed():
    of = settings_of(shifts=SHIFTS)
    rows = rows_of(images_of(VIEW))
    rows = rows._replace(memories=rows.memories[0], begins=rows.begins[0])
    minibatches = np.tile(np.arange(COUNT, dtype=np.int32)[:, None], (1, 1, 1))

    def after(n_opts, seed):
        state = first_state(of)._replace(n_opts=np.int32(n_opts))
        rates = rates_of(of.changed({"seed": seed}), n_opts)
        made = UPDATES(RowForm.of(of), state, rows, minibatches, np.int32(1), np.int32(1), rates)
        return float(made.losses.total)

    assert after(3, 1) == after(3, 1)
    assert len({after(3, 1), after(4, 1), after(3, 2)}) == 3


@pytest.mark.parametrize("masked", [False, True])
def test_divergences_are_those_of_numpy(masked):
    random = np.random.default_rng(2)
    ours, others = random.standard_normal((2, 30, 2 + 5))
    log_std, allowed = np.array([-0.5, 0.3]), np.ones((30, 5), bool)
    if masked:
        allowed[:, 1] = allowed[:10, 4] = False
    expected = 0.5 * (((ours - others)[:, :2] / np.exp(log_std)) ** 2).sum(1)
    for span in (slice(2), slice(2, 5)):
        weights = [np.exp(each[:, 2:][:, span]) * allowed[:, span] for each in (ours, others)]
        shares, other_shares = (each / each.sum(1, keepdims=True) for each in weights)
        with np.errstate(divide="ignore", invalid="ignore"):
            expected += np.nansum(shares * np.log(shares / other_shares), axis=1)
    found = divergences((2, 3), *map(np.float32, (log_std, ours, others)), allowed)

    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("parts", [(), (ME, BOARD)])
def test_shifts_are_refused_where_there_is_no_image(parts):
    with pytest.raises(InvalidSettings, match="shifts is 2: only images are shifted"):
        Settings(19, 1, (2,), parts=parts, shifts=2)
