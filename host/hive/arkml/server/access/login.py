"""Login and logout of browsers: a token is traded for a session, whose id is in a cookie."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request, cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveRefused, ProtocolError
from arkml.hive.protocol.documents import parse_object
from arkml.hive.protocol.rights import CallerInfo
from arkml.server.access.browser_sessions import BrowserSessions
from arkml.server.access.callers import Caller, digest_of
from arkml.server.access.credentials import OPEN, Credentials
from arkml.server.access.login_pace import LoginPace
from arkml.server.access.one_time_tokens import OneTimeTokens
from arkml.server.access.origins import OriginRules, RequestOrigin, has_own_header
from arkml.server.error_answers import refusal, sentence

_log = SafeLogger(__name__)

LOGIN_PATH, LOGOUT_PATH = "/login", "/logout"

_FORM = b"application/x-www-form-urlencoded"
_SAME_ORIGIN = b"same-origin"
_MOST_BYTES = 4_096
_MOST_FIELDS = 16


class BrowserLogin:
    """
    The routes by which browsers begin and end sessions.

    `POST /login` takes `token`, one of the hive or a one-time token, as a form or as JSON with the
    header X-Arkml: 1. It answers a form with a redirection to the page, and JSON with `CallerInfo`.
    `POST /logout` ends the session of the cookie.

    Args:
        credentials: The tokens that the hive accepts.
        sessions: The sessions of browsers.
        one_time: The tokens that are valid for one login.
        rules: The rules for hosts and pages.

    """

    def __init__(
        self,
        credentials: Credentials,
        sessions: BrowserSessions,
        one_time: OneTimeTokens,
        rules: OriginRules,
    ) -> None:
        self._credentials = credentials
        self._sessions = sessions
        self._one_time = one_time
        self._rules = rules
        self._pace = LoginPace()

    def routes(self) -> list[Route]:
        """Return the routes `POST /login` and `POST /logout`."""
        return [
            Route(LOGIN_PATH, self._login, methods=["POST"]),
            Route(LOGOUT_PATH, self._logout, methods=["POST"]),
        ]

    async def _login(self, request: Request) -> Response:
        origin = self._rules.read(request.scope)
        if origin.headers.get(b"sec-fetch-site", _SAME_ORIGIN) != _SAME_ORIGIN:
            return sentence("a login comes from the page of the hive", 403)
        try:
            token, is_form = await _read_token(request, origin)
        except (HiveRefused, ProtocolError) as error:
            return refusal(error)
        if not self._credentials.are_needed:
            return _welcome(origin, OPEN, is_form=is_form, needs_token=False)
        wait = self._pace.wait(origin.client)
        if wait:
            seconds = math.ceil(wait)
            refused = sentence(f"too many logins have failed: try again in {seconds} s", 429)
            refused.headers["retry-after"] = str(seconds)
            return refused
        source, caller = self._find(digest_of(token.encode(errors="replace")))
        if caller is None:
            self._pace.fail(origin.client)
            _log.warning("a login from %.64s failed", origin.client)
            return sentence(self._credentials.problem(source), 401)
        self._pace.succeed(origin.client)
        answer = _welcome(origin, caller, is_form=is_form)
        answer.headers["set-cookie"] = _cookie(request.scope, origin, self._sessions.begin(source))
        return answer

    async def _logout(self, request: Request) -> Response:
        origin = self._rules.read(request.scope)
        session_id = session_id_in(request.scope, origin)
        if session_id:
            self._sessions.end(session_id)
        return Response(status_code=204, headers={"set-cookie": _cookie(request.scope, origin, "")})

    def _find(self, digest: bytes) -> tuple[bytes, Caller | None]:
        """Return the digest of the token whose rights a session gets, and its caller."""
        source = self._one_time.take(digest) or digest
        caller = self._credentials.find(source)
        if caller is not None and caller.role is None:  # a rollout worker
            return source, None
        return source, caller


def session_id_in(scope: Scope, origin: RequestOrigin) -> str:
    """Return the id of a session in the cookies of a request, empty without one."""
    if b"cookie" not in origin.headers:
        return ""
    cookies = [value.decode("latin-1") for key, value in scope["headers"] if key == b"cookie"]
    return cookie_parser("; ".join(cookies)).get(_cookie_name(scope), "")


def info_of(caller: Caller, *, needs_token: bool) -> CallerInfo:
    """Return the role, the name and the owner of a caller as a message for clients."""
    assert caller.role is not None
    return CallerInfo(caller.name, caller.role.value, caller.owner, needs_token)


def _welcome(
    origin: RequestOrigin, caller: Caller, *, is_form: bool, needs_token: bool = True
) -> Response:
    if is_form:
        return RedirectResponse(f"{origin.prefix}/", 303)
    return JSONResponse(info_of(caller, needs_token=needs_token).as_json())


def _cookie(scope: Scope, origin: RequestOrigin, value: str) -> str:
    """
    Return the header that sets the cookie of a session, or without a value removes it.

    Scripts cannot read it. It stays until the browser is closed: only the hive knows when the
    session was last used.
    """
    attributes = f"Path={origin.prefix or '/'}; HttpOnly; SameSite=Strict"
    age = "" if value else "; Max-Age=0"
    secure = "; Secure" if origin.is_secure else ""
    return f"{_cookie_name(scope)}={value}; {attributes}{age}{secure}"


def _cookie_name(scope: Scope) -> str:
    """Return the name of the cookie. It has the port, since cookies are not kept apart by port."""
    return f"arkml_session_{(scope.get('server') or ('', 0))[1]}"


async def _read_token(request: Request, origin: RequestOrigin) -> tuple[str, bool]:
    """
    Return the token in the body of a login, and whether that is a form.

    Raises HiveRefused and ProtocolError.
    """
    kind = origin.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    is_form = kind == _FORM
    if not is_form and not has_own_header(origin):
        raise HiveRefused(
            "a login is a form, or JSON with the header X-Arkml: 1", 415 if kind else 400
        )
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > _MOST_BYTES:
            raise HiveRefused(f"a login of more than {_MOST_BYTES} bytes", 413)
    if is_form:
        fields: dict[str, Any] = _fields_in(data.decode("latin-1"))
    else:
        fields = parse_object(bytes(data or b"{}"))
    token = fields.get("token")
    if not isinstance(token, str) or not token:
        raise HiveRefused("a login takes the token of the hive, as token", 422)
    return token.strip(), is_form


def _fields_in(form: str) -> dict[str, str]:
    """Return the fields of a form. Raises HiveRefused for one with too many."""
    try:
        return dict(parse_qsl(form, max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise HiveRefused(f"a login has {_MOST_FIELDS} fields at most: {error}", 422) from None
