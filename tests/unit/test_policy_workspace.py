import numpy as np
import pytest

from arkml.errors import Unavailable
from arkml.policies.workspace import PolicyWorkspace


class Kept:
    """Something that keeps bytes of guests."""

    def __init__(self, **guests):
        self.guests = guests

    def held(self, guest):
        return self.guests.get(f"g{guest}", 0)


def test_arrays_of_one_batch_do_not_overlap():
    first, second, third = PolicyWorkspace().arrays([(3, 5), (7,), (2, 0)])
    first[...], second[...] = 1, 2

    assert first.tolist() == [[1] * 5] * 3
    assert second.tolist() == [2] * 7
    assert third.shape == (2, 0)


def test_batches_share_their_memory():
    workspace = PolicyWorkspace()
    (large,) = workspace.arrays([(100, 10)])
    (small,) = workspace.arrays([(10, 10)])

    assert np.shares_memory(large, small)


def test_arrays_that_grow_leave_those_from_before_alone():
    workspace = PolicyWorkspace()
    (before,) = workspace.arrays([(4,)])
    before[...] = 5
    workspace.arrays([(400,)])[0][...] = 6

    assert before.tolist() == [5] * 4


def test_constants_are_shared_and_have_any_shape():
    workspace = PolicyWorkspace()
    ones, zeros = workspace.constant(1.0, (4, 3)), workspace.constant(0.0, (2,))

    assert ones.tolist() == [[1] * 3] * 4
    assert zeros.tolist() == [0, 0]
    assert np.shares_memory(ones, workspace.constant(1.0, (2, 2)))
    assert workspace.constant(1.0, (50,)).tolist() == [1] * 50


def test_a_batch_over_the_limit_is_refused_with_its_size():
    workspace = PolicyWorkspace(batch_bytes=1_000)
    workspace.require_batch(10, 1_000)

    with pytest.raises(Unavailable, match="10 rows take 1001 bytes, 1000 are allowed"):
        workspace.require_batch(10, 1_001)


def test_a_guest_has_one_share_in_all_tables_and_not_that_of_another():
    workspace = PolicyWorkspace(agent_bytes=1_000)
    tables = [Kept(g1=600), Kept(g1=300, g2=50)]
    workspace.require_agents(tables[0], 1, 0)
    workspace.require_agents(tables[1], 1, 100)

    with pytest.raises(Unavailable, match="guest 1 take 1001 bytes"):
        workspace.require_agents(tables[1], 1, 101)
    workspace.require_agents(tables[1], 2, 950)


def test_tables_that_are_gone_do_not_count():
    workspace = PolicyWorkspace(agent_bytes=1_000)
    held = Kept(g1=900)
    workspace.require_agents(held, 1, 0)

    with pytest.raises(Unavailable, match="guest 1 take 1900 bytes"):
        workspace.require_agents(Kept(), 1, 1_000)
    del held
    workspace.require_agents(Kept(), 1, 1_000)  # does not raise
