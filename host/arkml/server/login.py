"""Login of browsers: a token is traded for the id of a session, in a cookie."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arkml.server.auth import cookie_name
from arkml.server.bodies import read_object
from arkml.server.errors import sentence
from arkml.server.hive import Hive
from arkml.server.one_time import same_secret


def login_routes(hive: Hive) -> list[Route]:
    """Return the routes /login and /logout."""

    async def login(request: Request) -> Response:
        token = (await read_object(request)).get("token")
        expected = hive.options.token
        is_good = isinstance(token, str) and (
            (bool(expected) and same_secret(token, expected)) or hive.one_time.take(token)
        )
        if not is_good:
            return sentence("this token is not good here: it is wrong, or was used before", 401)
        answer = Response(status_code=204)
        answer.set_cookie(
            cookie_name(request.scope), hive.page_sessions.open(), httponly=True, samesite="strict"
        )
        return answer

    async def logout(request: Request) -> Response:
        name = cookie_name(request.scope)
        hive.page_sessions.close(request.cookies.get(name, ""))
        answer = Response(status_code=204)
        answer.delete_cookie(name, httponly=True, samesite="strict")
        return answer

    return [
        Route("/login", login, methods=["POST"]),
        Route("/logout", logout, methods=["POST"]),
    ]
