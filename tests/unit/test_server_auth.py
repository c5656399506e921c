"""Tokens of rollout workers, and the middleware that knows them."""

import asyncio

import pytest

from arkml.errors import HiveRefused
from arkml.server.auth import TokenAuth
from arkml.server.worker_tokens import WorkerGrant, WorkerTokens, grant_in

GRANT = WorkerGrant("run", "0" * 64)


@pytest.fixture
def tokens():
    return WorkerTokens()


def answer_to(tokens, authorization, token="secret"):
    """The status of a request with a header, and the grant that the application sees."""
    seen = []

    async def app(scope, _, send):
        seen.append(grant_in(scope))
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        statuses.append(message.get("status"))

    statuses = []
    headers = [(b"host", b"localhost"), (b"authorization", authorization.encode())]
    scope = {"type": "http", "path": "/v1/runs", "headers": headers}
    asyncio.run(TokenAuth(app, token, "127.0.0.1", (), tokens)(scope, None, send))
    return statuses[0], seen


@pytest.mark.parametrize("token", ["secret", ""])
def test_a_request_with_a_workers_token_carries_its_grant(tokens, token):
    issued = tokens.issue(GRANT)

    assert answer_to(tokens, f"Bearer {issued}", token) == (200, [GRANT])


def test_the_token_of_the_hive_has_no_grant(tokens):
    tokens.issue(GRANT)

    assert answer_to(tokens, "Bearer secret") == (200, [None])


def test_a_revoked_token_is_refused(tokens):
    issued = tokens.issue(GRANT)
    tokens.revoke(issued)

    assert answer_to(tokens, f"Bearer {issued}") == (401, [])


def test_every_token_is_another_one(tokens):
    first, second = tokens.issue(GRANT), tokens.issue(GRANT)
    tokens.revoke(first)

    assert tokens.find(first.encode()) is None
    assert tokens.find(second.encode()) is GRANT


def test_a_grant_is_good_for_its_run_and_its_module_alone():
    GRANT.require_run("run")
    GRANT.require_module("0" * 64)

    with pytest.raises(HiveRefused, match="good for run run alone"):
        GRANT.require_run("other")
    with pytest.raises(HiveRefused, match="alone"):
        GRANT.require_module("1" * 64)
