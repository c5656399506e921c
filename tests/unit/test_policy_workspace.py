from functools import partial

import numpy as np
import pytest

from arkml.errors import GuestMemoryFull, Unavailable
from arkml.policies.workspace import PolicyWorkspace


class Kept:
    """Something that keeps bytes of guests."""

    def __init__(self, **guests):
        self.guests = guests

    def held(self, guest):
        return self.guests.get(f"g{guest}", 0)


class Bound:
    """Something that uses arrays of a workspace."""

    is_released = False

    def release(self):
        self.is_released = True


def charging(*guests, most=1 << 30):
    """A workspace whose guests may have `most` bytes each."""
    workspace = PolicyWorkspace()

    def require(guest, size):
        if workspace.work_bytes(guest) + size > most:
            raise GuestMemoryFull(f"guest {guest}")

    for guest in guests:
        workspace.require_bytes[guest] = partial(require, guest)
    return workspace


def test_guests_pay_for_their_rows_of_what_arrays_grow_by():
    workspace = charging(1, 2)
    workspace.arrays([(4, 16)], {1: 3, 2: 1})
    first = [workspace.work_bytes(guest) for guest in (1, 2, 3)]
    workspace.arrays([(4, 16)], {2: 4})
    workspace.constant(1.0, (16,), {2: 4})

    assert first == [192, 64, 0]
    assert [workspace.work_bytes(guest) for guest in (1, 2)] == [192, 128]


def test_arrays_that_nobody_pays_for_cost_no_guest_anything():
    workspace = charging(1)
    workspace.arrays([(4, 16)])
    workspace.arrays([(8, 16)], {7: 8})  # a guest that is gone

    assert [workspace.work_bytes(guest) for guest in (1, 7)] == [0, 0]


def test_arrays_that_a_guest_may_not_have_are_not_made():
    workspace = charging(1, 2, most=1_000)
    bound = Bound()
    workspace.add_user(bound)
    with pytest.raises(GuestMemoryFull):
        workspace.arrays([(4, 160)], {1: 1, 2: 3})

    assert [workspace.work_bytes(guest) for guest in (1, 2)] == [0, 0]
    assert not bound.is_released


def test_users_let_go_of_arrays_that_are_replaced():
    workspace = PolicyWorkspace()
    first, second = Bound(), Bound()
    workspace.arrays([(4,)])
    workspace.add_user(first)
    workspace.arrays([(4,)])
    before = first.is_released
    workspace.arrays([(400,)])
    workspace.add_user(second)

    assert (before, first.is_released, second.is_released) == (False, True, False)


def test_a_guest_that_leaves_no_longer_pays():
    workspace = charging(1)
    workspace.arrays([(4, 16)], {1: 4})
    workspace.leave(1)

    assert workspace.work_bytes(1) == 0


def test_arrays_of_a_guest_that_has_left_are_not_kept_and_the_others_pay_for_theirs():
    workspace, user = charging(1, 2), Bound()
    workspace.constant(1.0, (64, 16), {1: 60, 2: 4})
    workspace.arrays([(64, 16)], {1: 60, 2: 4})
    workspace.add_user(user)
    workspace.leave(1)
    still_used = user.is_released
    (small,) = workspace.arrays([(4, 16)], {2: 4})
    ones = workspace.constant(1.0, (4, 16), {2: 4})

    assert (still_used, user.is_released) == (False, True)
    assert small.base.nbytes == ones.base.nbytes == 4 * 4 * 16
    assert workspace.work_bytes(2) == 2 * 4 * 4 * 16


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
