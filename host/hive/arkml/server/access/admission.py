"""Admission of requests: their hosts and origins, their callers, and the headers of all answers."""

from __future__ import annotations

from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arkml.errors import HiveRefused
from arkml.server.access.browser_sessions import BrowserSessions
from arkml.server.access.callers import SAFE_METHODS, STRANGER, Caller, caller_in, set_caller
from arkml.server.access.credentials import OPEN, Credentials
from arkml.server.access.login import session_id_in, set_origin
from arkml.server.access.origins import OriginRules, RequestOrigin, browser_problem
from arkml.server.access.security_headers import DATA, PAGE, with_headers
from arkml.server.access.worker_tokens import digest_of
from arkml.server.errors import sentence

_BEARER = b"Bearer "
_UNAUTHORIZED = 401
_ENDED = "the token of the hive was revoked, or has expired, while the request was made"


class HiveAdmission:
    """
    ASGI middleware that passes on requests with their callers in their scopes (`caller_in`).

    A request is refused if it names a host that is not the hive's, or comes from a foreign page. It
    also needs a valid token or browser session, unless its path is one of `open_paths`, or belongs
    to the page and is one of `page_paths`. Whether the role of a caller is enough is up to the
    route (decision 22).
    """

    def __init__(
        self,
        app: ASGIApp,
        rules: OriginRules,
        credentials: Credentials,
        sessions: BrowserSessions,
        open_paths: frozenset[str],
        page_paths: frozenset[str],
    ) -> None:
        self._app = app
        self._rules = rules
        self._credentials = credentials
        self._sessions = sessions
        self._open_paths = open_paths
        self._page_paths = page_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = path = self._path(scope["path"])
        sending = with_headers(send, PAGE if path in self._page_paths else DATA)
        answer = self._refusal(scope)
        if answer is not None:
            await answer(scope, receive, sending)
            return
        admitted = _Admitted(caller_in(scope), scope, receive, sending)
        await self._app(scope, admitted.receive, admitted.send)

    def _path(self, path: str) -> str:
        """Return a path without the prefix of the public URL, which some proxies leave there."""
        prefix = self._rules.prefix
        is_below = prefix and path.startswith(f"{prefix}/")
        return path[len(prefix) :] if is_below else path

    def _refusal(self, scope: Scope) -> Response | None:
        """Note the caller of a request in its scope, or return the answer that refuses it."""
        if not scope["query_string"].isascii():
            return sentence(
                "the query of a request is ASCII: other letters are written as %XX", 400
            )
        request = self._rules.read(scope)
        problem = self._rules.host_problem(request) or self._rules.origin_problem(request)
        if problem:
            return sentence(problem, 403)
        set_origin(scope, request)
        method, path = scope["method"], scope["path"]
        if path == self._rules.prefix != "":
            return RedirectResponse(f"{path}/", 308)
        if path in self._open_paths or (path in self._page_paths and method in SAFE_METHODS):
            set_caller(scope, STRANGER)
            return None
        caller, problem = self._caller(scope, request)
        if problem:
            return sentence(problem, 403)
        if caller is None:
            return _unauthorized()
        set_caller(scope, caller)
        return None

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
            return OPEN, browser_problem(request, by_cookie=False)
        session_id = session_id_in(scope, request)
        caller = self._sessions.find(session_id) if session_id else None
        return caller, browser_problem(request, by_cookie=True) if caller else ""


class _Admitted:
    """
    An admitted request, whose rights end when those of its caller end.

    Messages that it sends afterwards are refused, and so is the answer that it waits for, unless
    the request has changed something: then the answer reports the change.
    """

    def __init__(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        self._caller = caller
        self._scope = scope
        self._receive = receive
        self._send = send
        self._is_refused = False

    async def receive(self) -> Message:
        """Return the next part of the request. Raises HiveRefused once the caller has no rights."""
        message = await self._receive()
        if message["type"] == "http.request" and not self._caller.is_valid():
            raise HiveRefused(_ENDED, _UNAUTHORIZED)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, or the refusal in place of all of it."""
        is_start = message["type"] == "http.response.start"
        if is_start and self._scope["method"] in SAFE_METHODS and not self._caller.is_valid():
            self._is_refused = True
            await sentence(_ENDED, _UNAUTHORIZED)(self._scope, self._receive, self._send)
        if not self._is_refused:
            await self._send(message)


def _unauthorized() -> JSONResponse:
    answer = sentence("the token of the hive is missing or wrong", _UNAUTHORIZED)
    answer.headers["www-authenticate"] = "Bearer"
    return answer
