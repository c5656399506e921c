"""The application of a hive: its routes, and the answers to errors."""

from __future__ import annotations

import sqlite3
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from arkml.errors import ArkmlError
from arkml.hive.protocol.runs import HealthReply
from arkml.hive.protocol.wire import Nothing
from arkml.server.auth import OPEN_PATH, TokenAuth
from arkml.server.body_limits import BodyLimits
from arkml.server.errors import refusal, sentence
from arkml.server.hive import Hive
from arkml.server.learning_routes import LEARNING_OPERATIONS
from arkml.server.login import login_routes
from arkml.server.module_routes import MODULE_OPERATIONS, MODULE_PATH, ModuleUploads
from arkml.server.page.routes import PAGE_OPERATIONS, packed, page_routes
from arkml.server.routes import PREFIX, Operation
from arkml.server.run_routes import RUN_OPERATIONS
from arkml.server.session_routes import SESSION_OPERATIONS
from arkml.server.uploads import Uploads

ROWS_PATH = "/sessions/{sid}/rows"


async def _health(_: Hive, __: str, ___: Nothing) -> HealthReply:
    """Say that this is a hive. Needs no token."""
    return HealthReply()


OPERATIONS: tuple[Operation[Any], ...] = (
    Operation("GET", OPEN_PATH.removeprefix(PREFIX), Nothing, HealthReply, _health),
    *SESSION_OPERATIONS,
    *LEARNING_OPERATIONS,
    *RUN_OPERATIONS,
    *MODULE_OPERATIONS,
    *PAGE_OPERATIONS,
)
"""All routes with structs: not those of rows and modules, of streams and of the page's files."""


def routes_of(hive: Hive) -> list[Route]:
    """Return all routes of a hive."""
    rows = Route(PREFIX + ROWS_PATH, endpoint=Uploads(hive), methods=["POST"])
    modules = Route(PREFIX + MODULE_PATH, endpoint=ModuleUploads(hive), methods=["PUT"])
    operations = (packed(operation.route(hive)) for operation in OPERATIONS)
    return [rows, modules, *operations, *login_routes(hive), *page_routes(hive)]


def make_app(hive: Hive) -> ASGIApp:
    """Return the ASGI application that serves a hive."""
    kinds = (ArkmlError, OSError, sqlite3.Error, Exception)
    app = Starlette(
        routes=routes_of(hive),
        exception_handlers={HTTPException: _unknown, **dict.fromkeys(kinds, _refused)},
    )
    options = hive.options
    sessions, tokens = hive.page_sessions, hive.worker_tokens
    limited = BodyLimits(app, options.limits)
    return TokenAuth(limited, options.token, options.host, options.allow_hosts, tokens, sessions)


async def _refused(_: Request, error: Exception) -> Response:
    return refusal(error)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return sentence(f"{request.method} {request.url.path}: {error.detail}", error.status_code)
