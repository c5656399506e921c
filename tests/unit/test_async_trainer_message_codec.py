"""Messages of actors survive their way between processes, stacked or not."""

import numpy as np
import pytest

from arkml.async_trainer.core.transition_batches import ArrayBatch, GenericTransitionBatch
from arkml.async_trainer.messages import PushedItemMessage
from arkml.async_trainer.runners.message_codec import decode_message, encode_message


def transition(obs, act, next_obs, **more):
    flags = np.zeros(len(act), np.int8)
    reward = np.arange(len(act), dtype=np.float32)
    return GenericTransitionBatch(obs, ArrayBatch(act), next_obs, reward, flags, flags + 1, **more)


def transitions(count, n=1, width=3, dtype=np.float32):
    rows = [
        ArrayBatch(np.random.default_rng(i).random((n, width)).astype(dtype))
        for i in range(count + 1)
    ]
    acts = np.arange(count * n).reshape(count, n, 1)
    return [transition(rows[i], acts[i], rows[i + 1]) for i in range(count)]


def traveled(items):
    message = PushedItemMessage(3, items, incarnation=2, sequence=7)
    return decode_message(encode_message(message))


def assert_same(items, others):
    for one, other in zip(items, others, strict=True):
        for mine, theirs in zip(one.unpack(), other.unpack(), strict=True):
            if mine is None:
                assert theirs is None
                continue
            mine, theirs = getattr(mine, "array", mine), getattr(theirs, "array", theirs)
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_transitions_of_arrays_arrive_as_they_were(n, dtype):
    items = transitions(20, n, dtype=dtype)
    message = traveled(items)

    assert (message.id, message.incarnation, message.sequence) == (3, 2, 7)
    assert_same(items, message.pushed_items)


def test_an_observation_of_two_transitions_is_sent_once():
    items = transitions(100, width=1_000)

    assert len(encode_message(PushedItemMessage(0, items))) < 1.1 * 101 * 1_000 * 4


def test_arrays_that_arrive_can_be_written():
    (item,) = traveled(transitions(1)).pushed_items
    item.obs.array[:] = 5

    assert item.obs.array.tolist() == [[5, 5, 5]]


class OtherBatch(ArrayBatch):
    __slots__ = ()


def single(obs, kind=ArrayBatch, **more):
    return [transition(kind(obs), np.zeros((1, 1)), kind(obs), **more)]


ODD = [
    pytest.param(transitions(2) + transitions(2, width=4), id="widths"),
    pytest.param(transitions(2) + transitions(2, dtype=np.float64), id="types"),
    pytest.param(transitions(2) + transitions(2, n=2), id="counts"),
    pytest.param(single(np.zeros((1, 1)), weight=np.ones(1, np.float32)), id="weight"),
    pytest.param(single(np.array([[None]])), id="objects"),
    pytest.param(single(np.zeros((1, 1)), OtherBatch), id="classes"),
]


@pytest.mark.parametrize("items", ODD)
def test_transitions_that_cannot_be_stacked_arrive_as_they_were(items):
    others = traveled(items).pushed_items

    assert_same(items, others)
    assert [type(one.obs) for one in items] == [type(one.obs) for one in others]


@pytest.mark.parametrize("items", [[(1, "a"), None], [{"x": 1.5}]])
def test_other_items_arrive_as_they_were(items):
    assert traveled(items).pushed_items == items
