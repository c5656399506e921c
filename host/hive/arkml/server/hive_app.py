"""The application of a hive: its routes, and the answers to errors."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from arkml.errors import ArkmlError, ProtocolError
from arkml.hive.protocol.runs import PROTOCOL, HealthReply, require_protocol
from arkml.hive.protocol.wire import Nothing
from arkml.server.access.admission import HiveAdmission
from arkml.server.access.browser_sessions import BrowserSessions
from arkml.server.access.login import LOGIN_PATH, BrowserLogin
from arkml.server.access.origins import OriginRules
from arkml.server.access_routes import ACCESS_OPERATIONS
from arkml.server.bodies import Uploads
from arkml.server.error_answers import refusal, sentence
from arkml.server.hive import Hive
from arkml.server.learning_routes import LEARNING_OPERATIONS
from arkml.server.module_routes import MODULE_OPERATIONS, MODULE_PATH, ModuleUploads
from arkml.server.monitoring.body_traces import traced
from arkml.server.monitoring.health import HEALTH_PATH, READY_PATH, health_routes
from arkml.server.monitoring.prometheus import metrics_route
from arkml.server.page.page_routes import PAGE_OPERATIONS, page_routes
from arkml.server.page.site_files import SiteFiles
from arkml.server.request_context import RequestCounts
from arkml.server.routes import PREFIX, HiveCall, Operation
from arkml.server.run_routes import RUN_OPERATIONS
from arkml.server.session_routes import SESSION_OPERATIONS
from arkml.server.watch_routes import WATCH_OPERATIONS

ROWS_PATH = "/sessions/{sid}/rows"

_VERSION = re.compile(r"/v([0-9]{1,6})/")
_UPGRADE_REQUIRED = 426


async def _health(_: HiveCall, __: Nothing) -> HealthReply:
    """Say that this is a hive. Needs no token."""
    return HealthReply("arkml-hive")


OPERATIONS: tuple[Operation[Any], ...] = (
    Operation("GET", "/health", Nothing, HealthReply, _health, is_open=True),
    *SESSION_OPERATIONS,
    *LEARNING_OPERATIONS,
    *RUN_OPERATIONS,
    *MODULE_OPERATIONS,
    *WATCH_OPERATIONS,
    *ACCESS_OPERATIONS,
    *PAGE_OPERATIONS,
)
"""All routes with structs: not those of rows and modules, of browsers, streams and files."""

OPEN_PATHS = frozenset(
    {
        LOGIN_PATH,
        HEALTH_PATH,
        READY_PATH,
        *(PREFIX + operation.path for operation in OPERATIONS if operation.is_open),
    }
)
"""The paths that take no token, besides the files of the page."""


def routes_of(hive: Hive) -> list[Route]:
    """Return the routes of the hive protocol, and the routes for operators."""
    rows = Route(PREFIX + ROWS_PATH, endpoint=Uploads(hive), methods=["POST"])
    modules = Route(PREFIX + MODULE_PATH, endpoint=ModuleUploads(hive), methods=["PUT"])
    operations = (operation.route(hive) for operation in OPERATIONS)
    return [rows, modules, *operations, *health_routes(hive), metrics_route(hive)]


def make_app(hive: Hive) -> ASGIApp:
    """
    Return the ASGI application that serves a hive.

    Raises UsageError for options of access that cannot be read.
    """
    kinds = (ArkmlError, OSError, sqlite3.Error, ClientDisconnect, Exception)
    credentials = hive.credentials
    sessions = BrowserSessions(credentials)
    rules = OriginRules(hive.options)
    login = BrowserLogin(credentials, sessions, hive.one_time, rules)
    site = SiteFiles()
    app = Starlette(
        routes=[*routes_of(hive), *login.routes(), *page_routes(hive, site)],
        exception_handlers={HTTPException: _unknown, **dict.fromkeys(kinds, _refused)},
    )
    admitted = HiveAdmission(
        traced(app),
        rules,
        credentials,
        sessions,
        hive.options.limits,
        open_paths=OPEN_PATHS,
        page_paths=site.paths,
    )
    return RequestCounts(admitted)


async def _refused(_: Request, error: Exception) -> Response:
    return refusal(error)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    version = _VERSION.match(request.url.path)
    if version is not None:
        try:
            require_protocol(int(version[1]), PROTOCOL)
        except ProtocolError as other:
            return sentence(str(other), _UPGRADE_REQUIRED)
    return sentence(f"{request.method} {request.url.path}: {error.detail}", error.status_code)
