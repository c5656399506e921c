"""The routes of a hive."""

from __future__ import annotations

import sqlite3

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from arkml.errors import ArkmlError
from arkml.hive.protocol.runs import PROTOCOL
from arkml.server.auth import OPEN_PATH, TokenAuth
from arkml.server.errors import refusal, sentence
from arkml.server.hive import Hive
from arkml.server.learning_routes import learning_routes
from arkml.server.run_routes import run_routes
from arkml.server.session_routes import session_routes
from arkml.server.uploads import Uploads


def make_app(hive: Hive) -> ASGIApp:
    """The application that serves a hive."""
    app = FastAPI(title="arkml hive", openapi_url=None, docs_url=None, redoc_url=None)
    app.router.routes.append(
        Route("/v1/sessions/{sid}/rows", endpoint=Uploads(hive), methods=["POST"])
    )
    for router in (session_routes(hive), learning_routes(hive), run_routes(hive)):
        app.include_router(router, prefix="/v1")

    @app.get(OPEN_PATH)
    async def health() -> dict[str, object]:
        return {"service": "arkml-hive", "protocol": PROTOCOL}

    for kind in (ArkmlError, OSError, sqlite3.Error, Exception):
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(RequestValidationError, _invalid)
    options = hive.options
    return TokenAuth(app, options.token, options.host, options.allow_hosts)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    return refusal(error)


async def _unknown(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return sentence(f"{request.method} {request.url.path}: {error.detail}", error.status_code)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    return sentence(f"{where}: {first['msg']}", 422)
