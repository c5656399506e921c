"""Admission of requests: their origins, callers and bodies, and the headers of all answers."""

from __future__ import annotations

import asyncio
import time

from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveRefused
from arkml.server.access.browser_sessions import BrowserSessions
from arkml.server.access.callers import CALLER, SAFE_METHODS, STRANGER, Caller, digest_of
from arkml.server.access.credentials import Credentials
from arkml.server.access.login import session_id_in
from arkml.server.access.origins import FORWARDED, OriginRules, RequestOrigin, browser_problem
from arkml.server.access.security_headers import DATA, PAGE, Headers
from arkml.server.error_answers import sentence
from arkml.server.serve_options import ServerLimits

_log = SafeLogger(__name__)

_LOG_EVERY = 60.0
"""Seconds between two lines of the log about refused tokens."""

_BEARER = b"Bearer "
_NOT_OF_PROGRAMS = frozenset({b"origin", b"cookie", b"sec-fetch-site", *FORWARDED})

_FREE = 64 << 10
"""Bytes of each body that do not count, so that small requests are never refused for large ones."""

_UNAUTHORIZED, _TIMED_OUT = 401, 408
_ENDED = "the token of the hive was revoked, or has expired, while the request was made"


class HiveAdmission:
    """
    ASGI middleware that passes on requests with their callers in their scopes (`CALLER`).

    A request is refused if it names a host that is not the hive's, or comes from a foreign page. It
    also needs a valid token or browser session, unless its path is one of `open_paths`, or belongs
    to the page and is one of `page_paths`. Whether the role of a caller is enough is up to the
    route (decision 22).

    Where `app` receives the body, HiveRefused is raised if that arrives too slowly (408), or if too
    many bytes of bodies are held at one time (503).
    """

    def __init__(
        self,
        app: ASGIApp,
        rules: OriginRules,
        credentials: Credentials,
        sessions: BrowserSessions,
        limits: ServerLimits,
        *,
        open_paths: frozenset[str] = frozenset(),
        page_paths: frozenset[str] = frozenset(),
    ) -> None:
        self.limits = limits
        self._app = app
        self._rules = rules
        self._credentials = credentials
        self._sessions = sessions
        self._open_paths = open_paths
        self._page_paths = page_paths
        self._held = 0
        self._unlogged, self._logs_from = 0, 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, prefix = scope["path"], self._rules.prefix
        if prefix and path.startswith(f"{prefix}/"):  # which some proxies leave there
            scope["path"] = path = path[len(prefix) :]
        is_page = path in self._page_paths
        is_open = path in self._open_paths or (is_page and scope["method"] in SAFE_METHODS)
        exchange = _Exchange(self, scope, receive, send, PAGE if is_page else DATA)
        program = None if is_open else self._program(scope)
        admitted = program or self._admit(scope, is_open=is_open)
        if isinstance(admitted, Response):
            await admitted(scope, receive, exchange.send)
            return
        scope[CALLER] = exchange.caller = admitted
        try:
            await self._app(scope, exchange.receive, exchange.send)
        finally:
            self._held -= exchange.counted

    def count(self, size: int) -> None:
        """
        Count `size` bytes of bodies that the hive holds from now on.

        Raises HiveRefused (503) if all bodies together exceed the limit.
        """
        most = self.limits.body_bytes
        if most and self._held + size > most:
            raise HiveRefused(
                f"this hive receives {self._held} bytes of other requests, and holds {most} at"
                " most: send this request again",
                503,
            )
        self._held += size

    def _program(self, scope: Scope) -> Caller | None:
        """
        Return the caller of a request that a program makes by a valid token.

        None for any other request, which `_admit` checks: for one of a program, what it looks at is
        absent. A page gives a token by a script alone. Across origins, a browser asks for leave
        before, by a request without the token, which is refused, and adds Origin. Of the same
        origin are the pages of the hive, and pages of a name that was made to resolve to it (DNS
        rebinding): they could try out tokens, which is not slowed, at a hive that their author
        does not reach. So hosts are checked for every request.
        """
        authorization, hosts = b"", []
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value
            elif name == b"host":
                hosts.append(value)
            elif name in _NOT_OF_PROGRAMS:
                return None
        is_plain = scope["query_string"].isascii() and scope["path"] != self._rules.prefix
        if not authorization.startswith(_BEARER) or not is_plain:
            return None
        if len(hosts) != 1 or not self._rules.hosts.accepts(hosts[0]):
            return None
        return self._credentials.find(digest_of(authorization.removeprefix(_BEARER)))

    def _admit(self, scope: Scope, *, is_open: bool) -> Caller | Response:
        """Return the caller of a request, a stranger if it `is_open`, or the refusal."""
        if not scope["query_string"].isascii():
            return sentence(
                "the query of a request is ASCII: other letters are written as %XX", 400
            )
        request = self._rules.read(scope)
        problem = self._rules.host_problem(request) or self._rules.origin_problem(request)
        if problem:
            return sentence(problem, 403)
        if scope["path"] == self._rules.prefix != "":
            return RedirectResponse(f"{scope['path']}/", 308)
        if is_open:
            return STRANGER
        caller, problem = self._caller(scope, request)
        if problem:
            return sentence(problem, 403)
        return self._unauthorized(request) if caller is None else caller

    def _unauthorized(self, request: RequestOrigin) -> Response:
        """Return the refusal of a request without a valid token, and log it if it has one."""
        authorization = request.headers.get(b"authorization", b"")
        problem = self._credentials.problem(digest_of(authorization.removeprefix(_BEARER)))
        if authorization:
            self._unlogged += 1
            if time.monotonic() >= self._logs_from:
                _log.warning(
                    "requests refused since the last such line: %d; the newest, from %.64s: %s",
                    self._unlogged, request.client, problem,
                )  # fmt: skip
                self._unlogged, self._logs_from = 0, time.monotonic() + _LOG_EVERY
        answer = sentence(problem, _UNAUTHORIZED)
        answer.headers["www-authenticate"] = "Bearer"
        return answer

    def _caller(self, scope: Scope, request: RequestOrigin) -> tuple[Caller | None, str]:
        """Return the caller of a request, or None, and why a page may not make it."""
        authorization = request.headers.get(b"authorization", b"")
        if authorization:
            is_token = authorization.startswith(_BEARER)
            token = authorization.removeprefix(_BEARER)
            caller = self._credentials.find(digest_of(token)) if is_token else None
            if caller is not None or self._credentials.are_needed:
                return caller, ""
        if not self._credentials.are_needed:
            if request.is_forwarded:
                return None, (
                    "a hive without tokens does not answer requests that a proxy passes on: arkml"
                    " hive token new makes one"
                )
            return self._credentials.everyone, browser_problem(request, by_cookie=False)
        session_id = session_id_in(scope, request)
        caller = self._sessions.find(session_id) if session_id else None
        return caller, browser_problem(request, by_cookie=True) if caller else ""


class _Exchange:
    """
    A request and its answer; `counted` bytes of the body are counted as held.

    The rights of an admitted request end when those of its `caller` end. Messages that it sends
    afterwards are refused, and so is the answer that it waits for, unless the request has changed
    something: then the answer reports the change.
    """

    def __init__(
        self, owner: HiveAdmission, scope: Scope, receive: Receive, send: Send, headers: Headers
    ) -> None:
        self.caller = STRANGER
        self.counted = 0
        self._owner = owner
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers = headers
        self._began = 0.0
        self._size = 0
        self._is_whole = False
        self._is_refused = False

    async def receive(self) -> Message:
        """
        Return the next part of the request.

        Raises HiveRefused once the caller has no rights, and for a body that is late or too large.
        """
        try:
            async with asyncio.timeout_at(None if self._is_whole else self._until()):
                message = await self._receive()
        except TimeoutError:
            limits, waited = self._owner.limits, asyncio.get_running_loop().time() - self._began
            raise HiveRefused(
                f"{self._size} bytes of the body arrived within {waited:.0f} s: it may pause for"
                f" less than {limits.body_seconds:g} s, and arrives at {limits.body_rate} bytes a"
                " second",
                _TIMED_OUT,
            ) from None
        if message["type"] == "http.request":
            if not self.caller.is_valid():
                raise HiveRefused(_ENDED, _UNAUTHORIZED)
            self._size += len(message.get("body", b""))
            uncounted = self._size - _FREE - self.counted
            if uncounted > 0:
                self._owner.count(uncounted)
                self.counted += uncounted
        self._is_whole = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, or the refusal in place of all of it."""
        is_start = message["type"] == "http.response.start"
        if is_start and self._scope["method"] in SAFE_METHODS and not self.caller.is_valid():
            self._is_refused = True
            refusal = sentence(_ENDED, _UNAUTHORIZED)
            refusal.raw_headers += self._headers.items()
            await refusal(self._scope, self._receive, self._send)
        if self._is_refused:
            return
        if is_start:
            headers = []
            for name, value in message.get("headers", ()):
                if name.lower() not in self._headers:
                    headers.append((name, value))
            headers += self._headers.items()
            if message["status"] == _TIMED_OUT:
                headers.append((b"connection", b"close"))  # the rest of a body is not awaited
            message = {**message, "headers": headers}
        await self._send(message)

    def _until(self) -> float | None:
        """Return the time of the loop at which the next part of a body is late, None for never."""
        limits = self._owner.limits
        if not limits.body_seconds:
            return None
        now = asyncio.get_running_loop().time()
        self._began = self._began or now
        until = now + limits.body_seconds
        if limits.body_rate:
            until = min(until, self._began + limits.body_seconds + self._size / limits.body_rate)
        return until
