import numpy as np
import pytest

from arkml.errors import Unavailable
from arkml.policies.memory import PolicyMemory


class Kept:
    """Something that keeps bytes of guests."""

    def __init__(self, **guests):
        self.guests = guests

    def held(self, guest):
        return self.guests.get(f"g{guest}", 0)


def test_arrays_of_one_batch_do_not_overlap():
    first, second, third = PolicyMemory().arrays([(3, 5), (7,), (2, 0)])
    first[...], second[...] = 1, 2

    assert first.tolist() == [[1] * 5] * 3
    assert second.tolist() == [2] * 7
    assert third.shape == (2, 0)


def test_batches_share_their_memory():
    memory = PolicyMemory()
    (large,) = memory.arrays([(100, 10)])
    (small,) = memory.arrays([(10, 10)])

    assert np.shares_memory(large, small)


def test_arrays_that_grow_leave_those_from_before_alone():
    memory = PolicyMemory()
    (before,) = memory.arrays([(4,)])
    before[...] = 5
    memory.arrays([(400,)])[0][...] = 6

    assert before.tolist() == [5] * 4


def test_constants_are_shared_and_have_any_shape():
    memory = PolicyMemory()
    ones, zeros = memory.constant(1.0, (4, 3)), memory.constant(0.0, (2,))

    assert ones.tolist() == [[1] * 3] * 4
    assert zeros.tolist() == [0, 0]
    assert np.shares_memory(ones, memory.constant(1.0, (2, 2)))
    assert memory.constant(1.0, (50,)).tolist() == [1] * 50


def test_a_batch_over_the_limit_is_refused_with_its_size():
    memory = PolicyMemory(batch_bytes=1_000)
    memory.require_batch(10, 1_000)

    with pytest.raises(Unavailable, match="10 rows take 1001 bytes, 1000 are allowed"):
        memory.require_batch(10, 1_001)


def test_a_guest_has_one_share_in_all_tables_and_not_that_of_another():
    memory = PolicyMemory(agent_bytes=1_000)
    tables = [Kept(g1=600), Kept(g1=300, g2=50)]
    memory.require_agents(tables[0], 1, 0)
    memory.require_agents(tables[1], 1, 100)

    with pytest.raises(Unavailable, match="guest 1 take 1001 bytes"):
        memory.require_agents(tables[1], 1, 101)
    memory.require_agents(tables[1], 2, 950)


def test_tables_that_are_gone_do_not_count():
    memory = PolicyMemory(agent_bytes=1_000)
    memory.require_agents(Kept(g1=900), 1, 0)

    memory.require_agents(Kept(), 1, 1_000)
