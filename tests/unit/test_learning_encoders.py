"""Encoders of entities, grids and images: in numpy, in JAX, as ONNX, and what they see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from arkml.hive.protocol.parts import Part, PlaceChoices, fields_of
from arkml.hive.protocol.settings import Settings
from arkml.learning.encoder_graph import sample_rows
from arkml.learning.encoders import Views, columns_of, count_numbers, encoded, encoded_width
from arkml.learning.feature_moments import FeatureMoments
from arkml.learning.jax_maps import JAX
from arkml.learning.maps import NUMPY
from arkml.learning.networks import mapped
from arkml.learning.normalizer import Normalizer
from arkml.learning.policy_graph import run
from arkml.learning.ppo import Ppo
from arkml.learning.ppo_state import RowForm, first_state
from arkml.learning.ppo_update import heads
from arkml.learning.residual_encoder import block_filters

ME, TILES = Part("me", (4,)), Part("tiles", (6, 3), "entities")
ROWS = {
    "entities": (ME, TILES),
    "two kinds of entities, nothing else": (TILES, Part("foes", (2, 5), "entities")),
    "grid": (Part("board", (5, 4, 3), "grid"), ME),
    "categories": (Part("cells", (7, 7), "grid", 12),),
    "a grid of one cell": (Part("cell", (1, 1, 2), "grid"),),
    "rows to choose": (Part("board", (3, 4, 2), "grid", choices=PlaceChoices("rows")),),
    "columns to choose": (ME, Part("it", (5, 2), "grid", 4, PlaceChoices("columns", first=1))),
    "cells to choose": (Part("board", (1, 3, 2), "grid", choices=PlaceChoices("cells")), ME),
    "image": (Part("view", (20, 24, 3), "image"),),
    "all": (Part("view", (16, 16, 1), "image"), ME, TILES, Part("cells", (3, 2), "grid", 2)),
}


def settings_of(parts, **changes):
    width = sum(part.width for part in parts)
    return Settings(width, 3, (3,), parts=tuple(parts), hidden=16, **changes)


def rows_of(of, count=50, seed=0):
    """Rows whose numbers fit the kinds of their parts."""
    spread = 40 * np.random.default_rng(seed).standard_normal((count, of.features))
    return sample_rows(Views.of(of), spread.astype(np.float32))


def numbers_in(of, count, seed=0):
    """What of such rows is no image."""
    return columns_of(Views.of(of), rows_of(of, count, seed))[0]


def ppo_of(of):
    """PPO with random biases, and the statistics of some rows."""
    normalizer = Normalizer(of.features, of.parts, active=True)
    normalizer.observe(numbers_in(of, 600), np.zeros(600))
    normalizer.adopt()
    made, random = Ppo(of, normalizer), np.random.default_rng(1)

    def moved(leaf):
        return leaf + random.uniform(-0.2, 0.2, leaf.shape).astype(np.float32)

    weights = made._state.weights
    made._weights = weights._replace(
        encoders=mapped(moved, weights.encoders), choosers=mapped(moved, weights.choosers)
    )
    return made


@pytest.mark.parametrize("size", ["small", "large", "impala"])
@pytest.mark.parametrize("parts", ROWS.values(), ids=ROWS)
def test_numpy_and_jax_see_the_same(parts, size):
    of = settings_of(parts, encoder=size)
    weights, form = first_state(of).weights, RowForm.of(of)
    numbers, images = columns_of(form.views, rows_of(of))
    features = np.clip(numbers / 50, -1, 1)
    ours = encoded(NUMPY, form.views, weights.encoders, features, images)
    bytes_ = jnp.asarray(images.astype(np.uint8))
    see = jax.jit(lambda *given: encoded(JAX, form.views, *given))  # one program
    theirs = see(weights.encoders, features, bytes_)

    assert ours.shape == (len(features), encoded_width(of))
    np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-4, atol=1e-5)
    count = sum(leaf.size for leaf in jax.tree.leaves(weights.encoders))
    assert count == count_numbers(of)


@pytest.mark.parametrize("size", ["small", "impala"])
@pytest.mark.parametrize("memory", [0, 4])
@pytest.mark.parametrize("parts", ROWS.values(), ids=ROWS)
def test_an_export_has_an_input_for_each_part_and_answers_as_the_learner(parts, memory, size):
    of = settings_of(parts, memory=memory, encoder=size)
    made = ppo_of(of)
    model = made.policy().model  # it compares the answers itself
    rows = rows_of(of, 7, seed=5)
    inputs = {f.name: rows[:, f.columns].reshape(7, *f.shape) for f in fields_of(parts)}
    inputs |= {"epsilon": np.zeros((7, 3), np.float32), "action_masks": np.ones((7, 3), np.float32)}
    if memory:
        inputs["h_in"] = np.zeros((7, 4), np.float32)
    (values,) = run(model, inputs, ["values"])
    expected = made.weights().heads(rows, np.zeros((7, memory), np.float32)).values

    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)


_sides = st.integers(1, 9)
_entities = st.builds(lambda *shape: Part("it", shape, "entities"), _sides, _sides)
_grids = st.builds(lambda *shape: Part("it", shape, "grid"), _sides, _sides, st.integers(1, 3))
_cells = st.builds(
    lambda height, width, count: Part("it", (height, width), "grid", count),
    _sides, _sides, st.integers(2, 20),
)  # fmt: skip
_images = st.builds(
    lambda *shape: Part("it", shape, "image"), st.integers(1, 40), st.integers(1, 40), _sides
)


@hypothesis_settings(max_examples=40, deadline=None)
@given(
    part=st.one_of(_entities, _grids, _cells, _images),
    beside=st.integers(0, 3),
    size=st.sampled_from(["small", "large", "impala"]),
    hidden=st.integers(1, 20),
)
def test_a_part_of_any_shape_is_exported(part, beside, size, hidden):
    parts = (part, *([Part("beside", (beside,))] if beside else []))
    width = sum(each.width for each in parts)
    of = Settings(width, 2, parts=parts, hidden=hidden, encoder=size)

    assert ppo_of(of).policy().model


def seen_of(rows):
    of = settings_of((ME, TILES))
    return encoded(NUMPY, Views.of(of), first_state(of).weights.encoders, rows, rows[:, :0])


def test_the_order_of_entities_means_nothing():
    rows = np.random.default_rng(0).standard_normal((3, 23)).astype(np.float32)
    rows[:, 4] = 4 / 6
    order = [2, 0, 3, 1, 5, 4]
    other = rows.copy()
    other[:, 5:] = rows[:, 5:].reshape(3, 6, 3)[:, order].reshape(3, 18)

    np.testing.assert_allclose(seen_of(rows), seen_of(other), atol=1e-5)


def test_entities_that_are_not_there_are_not_seen():
    rows = np.random.default_rng(0).standard_normal((3, 23)).astype(np.float32)
    rows[:, 4] = 2 / 6
    other, third = rows.copy(), rows.copy()
    other[:, 5 + 2 * 3 :] = 9.0
    third[:, 5 + 1 * 3] += 1.0

    np.testing.assert_array_equal(seen_of(rows), seen_of(other))
    assert np.abs(seen_of(rows) - seen_of(third)).max() > 1e-3


def test_no_entities_at_all_are_zeros():
    rows = np.random.default_rng(0).standard_normal((3, 23)).astype(np.float32)
    rows[:, 4] = 0.0

    np.testing.assert_array_equal(seen_of(rows)[:, 5:], 0.0)


@pytest.mark.parametrize("size", ["small", "impala"])
@pytest.mark.parametrize("parts", ROWS.values(), ids=ROWS)
def test_gradients_are_differences(parts, size):
    """Along a random direction of the weights of the encoders, in 64 bits."""
    of = settings_of(parts, encoder=size)
    state, form = first_state(of), RowForm.of(of)
    with jax.enable_x64():
        numbers, images = columns_of(form.views, rows_of(of, 5))
        features = jnp.asarray(np.clip(numbers / 50, -1, 1), jnp.float64)
        way = np.random.default_rng(2)
        # Off the kinks of a ReLU: biases are zeros at first.
        weights = mapped(
            lambda leaf: jnp.asarray(leaf + (leaf.ndim == 1) * 0.1 * way.random(leaf.shape)),
            state.weights,
        )
        direction = mapped(lambda leaf: jnp.asarray(way.standard_normal(leaf.shape)), weights)

        def loss(length):
            moved = jax.tree.map(lambda one, other: one + length * other, weights, direction)
            outputs, values = heads(form, moved, features, images, lambda _: ())
            return jnp.sin(outputs).sum() + jnp.sin(values).sum()

        loss = jax.jit(jax.value_and_grad(loss))  # one program, not one for each operation
        step = 1e-6
        (above, _), (below, _), (_, found) = loss(step), loss(-step), loss(0.0)
        expected = (above - below) / (2 * step)

    assert float(found) == pytest.approx(float(expected), rel=2e-3, abs=1e-5)


@pytest.mark.parametrize(
    ("sides", "filters"),
    [
        ((64, 64), [16, 32, 32]),
        ((84, 84), [16, 32, 32]),
        ((10, 10), [16, 32]),
        ((3, 40), [16]),
        ((1, 1), [16]),
    ],
)
def test_residual_blocks_are_as_many_as_have_cells_to_halve(sides, filters):
    assert block_filters(*sides) == filters


def test_statistics_of_entities_are_those_of_all_that_are_there():
    rows = np.full((2, 23), 100.0, np.float32)
    rows[:, 4] = [2, 1]
    there = np.arange(9, dtype=np.float32).reshape(3, 3) + 0.5
    rows[0, 5:11], rows[1, 5:8] = there[:2].reshape(-1), there[2]
    moments = FeatureMoments(23, (ME, TILES))
    moments.add(rows)

    np.testing.assert_allclose(moments.mean[5:], np.tile(there.mean(0), 6))
    np.testing.assert_allclose(moments.deviation[5:], np.tile(there.std(0), 6))
    assert moments.largest[4] == 6.0
    assert moments.is_known.sum() == 1
    assert not moments.is_whole[5:].any()
    assert moments.is_whole[:4].all()


def test_statistics_of_a_grid_are_those_of_its_channels():
    board = Part("board", (2, 2, 2), "grid")
    rows = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    moments = FeatureMoments(8, (board,))
    moments.add(rows)
    cells = rows.reshape(-1, 2)

    np.testing.assert_allclose(moments.mean, np.tile(cells.mean(0), 4), rtol=1e-5)
    np.testing.assert_allclose(moments.deviation, np.tile(cells.std(0), 4), rtol=1e-5)


@pytest.mark.parametrize("parts", ROWS.values(), ids=ROWS)
def test_a_normalizer_goes_on_from_what_it_saved(parts):
    of = settings_of(parts)
    made = Normalizer(of.features, parts, active=True)
    made.observe(numbers_in(of, 400), np.arange(400.0))
    again = Normalizer(of.features, parts, active=True)
    again.restore(made.as_json())
    for one in (made, again):
        one.observe(numbers_in(of, 400, seed=9), np.arange(400.0))
        one.adopt()

    np.testing.assert_array_equal(made.current.mean, again.current.mean)
    np.testing.assert_array_equal(made.current.inverse, again.current.inverse)


def test_categories_are_scaled_by_their_bounds_from_the_first_row_on():
    parts = (Part("view", (2, 2, 1), "image"), Part("cells", (2, 1), "grid", 4), TILES)
    current = Normalizer(25, parts, active=False).current

    np.testing.assert_allclose(current.inverse[:2], 1 / 3)
    np.testing.assert_allclose(current.inverse[2], 1 / 6)
    np.testing.assert_array_equal(current.inverse[3:], 1.0)
    assert len(current.mean) == 25 - 4, "values of images are no features"
    np.testing.assert_array_equal(current.mean, 0.0)
