"""The simple replay buffer: its ring, its batches, and sampling by priority."""

import numpy as np
import pytest

from arkml.async_trainer.core import (
    ArrayBatch,
    GenericTransitionBatch,
    IwScheduler,
    PerConfig,
    SimpleReplayBuffer,
    SimpleReplayBufferConfig,
)
from arkml.async_trainer.core.priorities import EPSILON, SumTree
from arkml.async_trainer.core.transition_batches import batch_of, samples_of
from arkml.errors import UsageError
from arkml.testing.async_trainer import TestAct, TestActBatch, TestObs, TestObsBatch

ORACLE = [0.5, 0.2, 0.8, 0.3, 1.1, 2.5, 3.9]


def item(*numbers):
    """An item of one sample for each number, which stands in all of its columns."""
    column = np.array(numbers, np.float32)
    flags = np.array(numbers, np.int8)
    rows = ArrayBatch(column[:, None])
    return GenericTransitionBatch(
        rows, ArrayBatch(column[:, None] * 2), ArrayBatch(column[:, None] + 1),
        column, flags % 2, flags % 3,
    )  # fmt: skip


def buffer_of(capacity, per=None, seed=42):
    return SimpleReplayBuffer.build(SimpleReplayBufferConfig(capacity, seed, per))


def rewards(buffer, size=500):
    return set(buffer.batch(min(size, buffer.capacity)).reward.tolist())


def test_a_ring_holds_the_newest_samples_also_of_items_that_wrap_around():
    buffer = buffer_of(4)
    lengths = []
    for numbers in ((1,), (2, 3, 4), (5, 6), (7, 8, 9)):
        buffer.push(item(*numbers))
        lengths.append(len(buffer))

    drawn = {number for _ in range(60) for number in rewards(buffer)}
    assert lengths == [1, 4, 4, 4]
    assert drawn == {6, 7, 8, 9}


def test_the_columns_of_a_batch_belong_together():
    buffer = buffer_of(40)
    for number in range(50):
        buffer.push(item(number, number + 1))
    batch = buffer.batch(30)

    numbers = batch.reward
    assert len(batch) == 30
    assert np.array_equal(batch.obs.array[:, 0], numbers)
    assert np.array_equal(batch.act.array[:, 0], 2 * numbers)
    assert np.array_equal(batch.next_obs.array[:, 0], numbers + 1)
    assert np.array_equal(batch.is_terminated, numbers % 2)
    assert np.array_equal(batch.is_truncated, numbers % 3)
    assert (batch.reward.dtype, batch.is_terminated.dtype) == (np.float32, np.int8)
    assert batch.weight is None
    assert batch.unpack()[6] is batch.ix_sample


def test_a_batch_is_a_copy():
    buffer = buffer_of(3)
    buffer.push(item(1))
    batch = buffer.batch(2)
    buffer.push(item(2, 2, 2))

    assert batch.obs.array[:, 0].tolist() == batch.reward.tolist() == [1, 1]


def test_the_seed_decides_on_what_is_drawn():
    def draw(seed):
        buffer = buffer_of(100, seed=seed)
        buffer.push(item(*range(100)))
        return buffer.batch(20).ix_sample.tolist()

    assert draw(1) == draw(1) != draw(2)


def test_items_of_the_seeds_test_types_are_held():
    buffer = SimpleReplayBuffer[TestObsBatch, TestActBatch].build(SimpleReplayBufferConfig(8))
    zero = np.zeros(1, np.int8)
    for number in range(11):
        obs, act = batch_of(TestObs(number)), batch_of(TestAct(1))
        reward = np.array([number], np.float32)
        buffer.push(GenericTransitionBatch(obs, act, obs, reward, zero, zero))
    batch = buffer.batch(8)

    assert isinstance(batch.obs, TestObsBatch)
    assert np.array_equal(batch.obs.values, batch.reward)
    assert set(batch.act.values) == {1}


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (9, "a batch of 9 samples was asked for, a buffer of the capacity 8 has batches of 1 to 8"),
        (0, "a batch of 0 samples"),
        (3, "the buffer has no samples yet, and a batch of 3 was asked for"),
    ],
)
def test_a_batch_that_cannot_be_drawn_is_refused(size, message):
    with pytest.raises(UsageError, match=message):
        buffer_of(8).batch(size)


def test_an_item_larger_than_the_buffer_is_refused_and_changes_nothing():
    buffer = buffer_of(2)
    with pytest.raises(UsageError, match="an item has 3 samples, more than the capacity 2"):
        buffer.push(item(1, 2, 3))

    assert len(buffer) == 0


def test_rows_of_another_shape_are_refused():
    buffer = buffer_of(4)
    buffer.push(item(1))
    wide = item(2)
    wide.obs = ArrayBatch(np.zeros((1, 2), np.float32))

    with pytest.raises(UsageError, match=r"rows have the shape \(2,\), and those before \(1,\)"):
        buffer.push(wide)


def test_data_that_no_buffer_holds_is_refused_with_what_it_lacks():
    with pytest.raises(UsageError, match=r"a list is neither an array .* method into_batch\(\)"):
        batch_of([1.0])


def test_an_item_that_is_not_a_batch_is_one_sample():
    assert samples_of((1, 2, 3)) == 1
    assert samples_of(item(1, 2)) == 2


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_sum_tree_finds_the_slots_of_the_seeds_oracle(is_whole):
    tree = SumTree(8, 1.0)
    if is_whole:
        tree.update(np.arange(7), np.array(ORACLE))
    else:
        for slot, priority in enumerate(ORACLE):
            tree.update(np.array([slot]), np.array([priority]))

    found = tree.get([0.0, 0.4, 0.5, 0.6, 1.2, 1.6, 2.0, 2.8])
    assert found.tolist() == [0, 0, 0, 1, 2, 3, 4, 4]
    assert tree.total == pytest.approx(sum(ORACLE) + 7 * EPSILON)
    assert tree.smallest == pytest.approx(0.2)
    assert tree.largest == pytest.approx(3.9)


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 8, 9, 100, 1_000])
def test_the_sum_tree_agrees_with_running_sums_of_any_capacity(capacity):
    random = np.random.default_rng(capacity)
    tree, values = SumTree(capacity, 0.6), np.zeros(capacity)
    for _ in range(20):
        slots = random.integers(0, capacity, random.integers(1, 2 * capacity + 1))
        # Only the last of several values of one slot counts.
        slots = np.unique(slots)
        priorities = random.random(len(slots)) * 10
        tree.update(slots, priorities)
        values[slots] = (priorities + EPSILON) ** 0.6
    sums = random.random(500) * values.sum()

    assert np.array_equal(tree.get(sums), np.searchsorted(np.cumsum(values), sums))
    assert tree.total == pytest.approx(values.sum())
    assert tree.largest == values.max()
    assert tree.smallest == values[values > 0].min()


def test_a_running_sum_beyond_the_total_ends_in_the_last_slot_in_use():
    tree = SumTree(8, 1.0)
    tree.update(np.arange(3), np.ones(3))

    assert tree.get(100.0).tolist() == 2


def test_beta_grows_to_its_final_value_and_stays_there():
    scheduler = IwScheduler(PerConfig(beta_0=0.4, beta_final=1.0, n_opts_final=4))
    betas = []
    for _ in range(6):
        betas.append(scheduler.beta)
        scheduler.add_n_opts()

    assert betas == pytest.approx([0.4, 0.55, 0.7, 0.85, 1.0, 1.0])


@pytest.mark.parametrize(("normalize", "largest"), [("All", 1.0), ("Batch", 1.0)])
def test_samples_are_drawn_by_their_td_errors_and_weighted_against_it(normalize, largest):
    per = PerConfig(alpha=1.0, beta_0=0.5, beta_final=0.5, normalize=normalize)
    buffer = buffer_of(4, per)
    buffer.push(item(0, 1, 2))
    buffer.update_priority(np.array([0, 1, 2]), np.array([1.0, -4.0, 5.0], np.float32))
    batches = [buffer.batch(4) for _ in range(5_000)]

    drawn = np.concatenate([batch.ix_sample for batch in batches])
    shares = np.bincount(drawn, minlength=3) / len(drawn)
    assert shares == pytest.approx([0.1, 0.4, 0.5], abs=0.02)
    # N * P is 0.3, 1.2 and 1.5: weights are its square root, inverted, the largest of them 1.
    by_slot = {0: 1.0, 1: (0.3 / 1.2) ** 0.5, 2: (0.3 / 1.5) ** 0.5}
    for batch in batches[:200]:
        expected = np.array([by_slot[slot] for slot in batch.ix_sample])
        if normalize == "Batch":
            expected /= expected.max()
        assert batch.weight == pytest.approx(expected, rel=1e-5)
        assert batch.weight.dtype == np.float32
        assert batch.weight.max() <= largest + 1e-6


def test_new_samples_have_the_largest_priority():
    buffer = buffer_of(8, PerConfig(alpha=1.0))
    buffer.push(item(0, 1))
    buffer.update_priority(np.array([0, 1]), np.array([1.0, 3.0]))
    buffer.push(item(2))
    drawn = np.concatenate([buffer.batch(8).ix_sample for _ in range(2_000)])

    assert np.bincount(drawn) / len(drawn) == pytest.approx([1 / 7, 3 / 7, 3 / 7], abs=0.02)


def test_samples_without_a_td_error_are_drawn_beside_those_that_have_one():
    buffer = buffer_of(100, PerConfig())
    buffer.push(item(0, 1, 2, 3))
    buffer.update_priority(np.array([0]), np.array([1.0]))

    assert rewards(buffer) == {0, 1, 2, 3}


def test_overwritten_slots_of_a_ring_get_the_priority_of_new_samples():
    buffer = buffer_of(4, PerConfig(alpha=1.0))
    buffer.push(item(0, 1, 2, 3))
    buffer.update_priority(np.arange(4), np.array([1e-9, 1e-9, 1.0, 1.0]))
    buffer.push(item(4, 5, 6, 7))
    buffer.push(item(8))
    drawn = np.concatenate([buffer.batch(4).ix_sample for _ in range(2_000)])

    assert np.bincount(drawn, minlength=4) / len(drawn) == pytest.approx([0.25] * 4, abs=0.02)


def test_a_buffer_without_priorities_ignores_them():
    buffer = buffer_of(4)
    buffer.push(item(0))

    buffer.update_priority(None, None)


@pytest.mark.parametrize(
    ("ixs", "td_errs", "message"),
    [
        (None, [1.0], "needs ixs and td_errs, not None"),
        ([0], None, "needs ixs and td_errs, not None"),
        ([0], [np.nan], "TD errors must be finite"),
        ([0, 1], [1.0], "TD errors must be finite, one for each of"),
        ([2], [1.0], "ixs has 2 to 2, of 2 samples"),
        ([-1], [1.0], "ixs has -1 to -1, of 2 samples"),
    ],
)
def test_priorities_that_cannot_be_are_refused(ixs, td_errs, message):
    buffer = buffer_of(4, PerConfig())
    buffer.push(item(0, 1))

    with pytest.raises(UsageError, match=message):
        buffer.update_priority(
            None if ixs is None else np.array(ixs), None if td_errs is None else np.array(td_errs)
        )
