"""Requests whose caller loses the right to make them while they are made."""

from __future__ import annotations

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from arkml.errors import HiveRefused
from arkml.server.access import admission, credentials
from arkml.server.access.admission import HiveAdmission
from arkml.server.access.browser_sessions import BrowserSessions
from arkml.server.access.callers import AccessRole, WorkerTokens
from arkml.server.access.credentials import Credentials
from arkml.server.access.origins import OriginRules
from arkml.server.access.token_file import TokenFile
from arkml.server.error_answers import refusal
from arkml.server.serve_options import ServeOptions


@pytest.fixture
def hive(tmp_path, monkeypatch):
    """Return a hive of two routes, each of which waits in the middle, and what it has done."""
    monkeypatch.setattr(credentials, "_LOOK_EVERY", 0.0)
    return _Hive(TokenFile(tmp_path))


class _Hive:
    def __init__(self, file):
        self.file = file
        self.token = file.add("alice", AccessRole.ACT, None)[1]
        self.done: list[bytes] = []
        self.meanwhile = lambda: None
        options = ServeOptions(file.path.parent)
        known = Credentials(options, WorkerTokens())
        routes = [
            Route("/", self._keep, methods=["POST"]),
            Route("/", self._wait, methods=["GET"]),
        ]
        app = Starlette(routes=routes, exception_handlers={HiveRefused: self._refuse})
        sessions = BrowserSessions(known)
        self.app = HiveAdmission(app, OriginRules(options), known, sessions, options.limits)

    async def _refuse(self, _, error):
        return refusal(error)

    async def _keep(self, request):
        body = b"".join([part async for part in request.stream()])
        self.done.append(body)
        self.meanwhile()
        return Response(b"kept", 201)

    async def _wait(self, _):
        self.meanwhile()
        return Response(b"a policy")

    def ask(self, method, *parts, host=(b"127.0.0.1:2",), query=b"", **headers):
        """Send a request in parts, each a function that returns bytes; return the answer."""
        sent: list[dict] = []
        scope = {
            "type": "http", "method": method, "path": "/", "query_string": query, "scheme": "http",
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "root_path": "",
            "http_version": "1.1",
            "headers": [
                *((b"host", name) for name in host),
                (b"authorization", f"Bearer {self.token}".encode()),
                *((name.replace("_", "-").encode(), value) for name, value in headers.items()),
            ],
        }  # fmt: skip
        left = list(parts) or [lambda: b""]

        async def receive():
            part = left.pop(0)()
            return {"type": "http.request", "body": part, "more_body": bool(left)}

        async def send(message):
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        start, *bodies = sent
        return start["status"], b"".join(body.get("body", b"") for body in bodies)

    def revoke(self):
        self.file.revoke("alice")


def test_refused_tokens_are_logged_now_and_then_and_never_a_token(hive, monkeypatch, caplog):
    good, hive.token = hive.token, "a wrong one"
    answers = [hive.ask("GET") for _ in range(3)]
    monkeypatch.setattr(admission, "_LOG_EVERY", 0.0)
    monkeypatch.setattr(hive.app, "_logs_from", 0.0)
    answers.append(hive.ask("GET"))
    hive.token = good
    hive.ask("GET")

    said = [record.getMessage() for record in caplog.records]
    reason = "the newest, from 127.0.0.1: the token of the hive is missing or wrong"
    assert said == [f"requests refused since the last such line: {n}; {reason}" for n in (1, 3)]
    assert {status for status, _ in answers} == {401}
    assert "a wrong one" not in caplog.text


def test_a_body_is_refused_whose_token_is_revoked_before_its_end(hive):
    def last():
        hive.revoke()
        return b"last"

    status, answer = hive.ask("POST", lambda: b"first", last)

    assert (status, hive.done) == (401, [])
    assert b"was revoked" in answer


def test_what_was_waited_for_is_not_given_once_the_token_is_revoked(hive):
    hive.meanwhile = hive.revoke
    status, answer = hive.ask("GET")

    assert status == 401
    assert b"policy" not in answer
    assert b"was revoked" in answer


def test_the_answer_to_a_change_says_what_was_done(hive):
    hive.meanwhile = hive.revoke

    assert hive.ask("POST", lambda: b"first", lambda: b"last") == (201, b"kept")
    assert hive.done == [b"firstlast"]


def test_a_token_that_is_good_all_the_time_is_answered(hive):
    assert hive.ask("GET") == (200, b"a policy")
    assert hive.ask("POST", lambda: b"whole") == (201, b"kept")


@pytest.mark.parametrize(
    "request_of",
    [
        {"host": (b"evil.example:2",)},  # a page whose name was made to resolve to the hive
        {"host": ()},
        {"host": (b"127.0.0.1:2", b"evil.example")},
        {"origin": b"http://evil.example"},
        {"origin": b"null"},
        {"host": (b"evil.example:2",), "origin": b"http://evil.example:2"},
        {"query": b"a=\xff"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_token_alone_does_not_admit_a_page(hive, method, request_of):
    status, answer = hive.ask(method, **request_of)

    assert status == (400 if "query" in request_of else 403)
    assert b"policy" not in answer
    assert hive.done == []


@pytest.mark.parametrize(
    "headers",
    [
        {"cookie": b"arkml_session_2=nothing"},
        {"sec_fetch_site": b"cross-site"},
        {"x_forwarded_for": b"192.0.2.1"},
        {"origin": b"http://127.0.0.1:2"},
    ],
)
def test_a_token_admits_whatever_else_its_sender_says(hive, headers):
    assert hive.ask("GET", **headers) == (200, b"a policy")
