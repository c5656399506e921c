"""The memory of a process stays within what `Limits.guest_bytes` promises for any guest."""

import json

import pytest
from tests.integration.guest_text import python
from tests.integration.hostile_holders import GUEST_BYTES, HOLDERS

from arkml.limits import MIB

SLACK = 12 * MIB
"""Beside what counts: handles, threads that ask a hive, and what the heap does not give back."""

NOT_HELD = {"logs", "addresses", "refused_requests"}

FULL = set(HOLDERS) - NOT_HELD - {"columns"}
"""The holders that end because of the limit; queues grow by doubling."""


@pytest.mark.sweeps
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_process_does_not_grow_by_more_than_a_guest_may_have(holder):
    """While something grows it is there twice."""
    run = python(f"from tests.integration.hostile_holders import main\nmain({holder!r})")
    assert run.stdout, run.stderr
    grown = json.loads(run.stdout)

    assert grown["total_bytes"] <= GUEST_BYTES
    assert grown["resident"] <= GUEST_BYTES + SLACK, grown
    assert grown["peak"] <= 2 * GUEST_BYTES + SLACK, grown
    assert holder not in FULL or grown["total_bytes"] > 0.75 * GUEST_BYTES
