"""Tokens of rollout workers: what they are good for, and until when."""

import pytest

from arkml.errors import HiveRefused
from arkml.server.access.callers import WorkerGrant, WorkerTokens, digest_of

GRANT = WorkerGrant("run", "0" * 64)


@pytest.fixture
def tokens():
    return WorkerTokens()


def test_a_token_stands_for_its_grant_until_it_is_revoked(tokens):
    issued = tokens.issue(GRANT)
    before = tokens.find(digest_of(issued))
    tokens.revoke(issued)
    tokens.revoke(issued)

    assert before is GRANT
    assert tokens.find(digest_of(issued)) is None


def test_every_token_is_another_one(tokens):
    first, second = tokens.issue(GRANT), tokens.issue(GRANT)
    tokens.revoke(first)

    assert tokens.find(digest_of(first)) is None
    assert tokens.find(digest_of(second.encode())) is GRANT


def test_a_grant_is_good_for_its_run_and_its_module_alone():
    GRANT.require_run("run")
    GRANT.require_module("0" * 64)

    with pytest.raises(HiveRefused, match="good for run run alone"):
        GRANT.require_run("other")
    with pytest.raises(HiveRefused, match="alone"):
        GRANT.require_module("1" * 64)
