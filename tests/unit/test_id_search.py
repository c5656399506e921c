"""Searches for agents' ids give what a dictionary of them gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkml.envs.core.id_search import earlier_of, in_order, positions_of, searched

IDS = st.lists(st.integers(0, 30), unique=True, max_size=12)
TOP = 1 << 63


def keys_of(values, high=False):
    return np.array([value + TOP * high for value in values], np.uint64)


@given(IDS, IDS, st.data(), st.booleans())
def test_positions_are_those_of_a_dictionary(held, keys, data, high):
    live = np.array([data.draw(st.booleans()) for _ in held], bool)
    known = {value: at for at, value in enumerate(held) if live[at]}
    expected = [known.get(key, -1) for key in keys]
    held, keys = keys_of(held, high), keys_of(keys, high)
    assert positions_of(keys, held, live).tolist() == expected
    assert searched(keys, held, live.nonzero()[0]).tolist() == expected
    found = in_order(keys, held, live.nonzero()[0])
    assert found is None or found.tolist() == expected


@given(IDS, st.data())
def test_agents_that_go_on_in_their_order_are_found_between_new_ones(held, data):
    """A submit with ended agents, and the new ones behind each: all have rows in their order."""
    live = np.array([data.draw(st.booleans()) for _ in held], bool)
    keys, upcoming = [], 31
    for at, value in enumerate(held):
        if live[at]:
            keys.append(value)
        if not live[at] or data.draw(st.booleans()):
            keys.append(upcoming)
            upcoming += 1
    found = in_order(keys_of(keys), keys_of(held), live.nonzero()[0])
    known = {value: at for at, value in enumerate(held) if live[at]}
    assert found is not None
    assert found.tolist() == [known.get(key, -1) for key in keys]


@pytest.mark.parametrize(
    "keys",
    [
        [2, 1, 3],  # another order
        [1, 2],  # one is missing
        [1, 2, 3, 3],  # one is there twice
        [1, 2, 3, 9, 9],  # a new one is
        [1, 2, 3, 9, 8],  # new ones do not ascend
        [0, 1, 2, 3],  # a new one is lower than others
    ],
)
def test_other_keys_are_not_in_order(keys):
    assert in_order(keys_of(keys), keys_of([1, 2, 3]), np.arange(3)) is None


@given(st.lists(st.integers(0, 5), max_size=10))
def test_an_equal_key_is_found_where_it_was_last(keys):
    seen, expected = {}, []
    for at, key in enumerate(keys):
        expected.append(seen.get(key, -1))
        seen[key] = at
    found = earlier_of(keys_of(keys))
    assert (found is None) == (len(seen) == len(keys))
    assert found is None or found.tolist() == expected
