"""Routes of the modules that workers and players run: upload one, ask for it, and fetch it."""

from __future__ import annotations

from typing import Any

from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope

from arkml.errors import HiveRefused
from arkml.hive.protocol.runs import ModuleQuery
from arkml.hive.protocol.wire import Nothing
from arkml.server.access.callers import CALLER, AccessRole, Caller
from arkml.server.bodies import BodyRoute, declared_size, reply
from arkml.server.hive import Hive
from arkml.server.routes import WASM, HiveCall, Operation

MODULE_PATH = "/modules/{sha256}"


class ModuleUploads(BodyRoute):
    """The route `PUT /v1/modules/{sha256}`, by which clients upload a guest's module."""

    def __init__(self, hive: Hive) -> None:
        super().__init__(self._take)
        self._hive = hive

    async def _take(self, scope: Scope, receive: Receive) -> Response:
        caller: Caller = scope[CALLER]
        caller.require(AccessRole.ACT, "PUT", MODULE_PATH)
        store, sha256 = self._hive.modules, scope["path_params"]["sha256"]
        kept = await store.receive(sha256, declared_size(scope), receive)
        return reply(kept, 201 if kept.created else 200)


async def _has(call: HiveCall, query: ModuleQuery) -> Response:
    """
    Say that a module was uploaded.

    404 if it was not, 503 if this hive takes none, or none for rollout workers where it is for
    these: a module is not sent to a hive that has no use for it.
    """
    if query.for_workers and not call.hive.options.workers.total:
        raise HiveRefused("this hive starts no remote workers", 503)
    call.hive.modules.path(call.key)
    return Response()


async def _fetch(call: HiveCall, _: Nothing) -> Response:
    """Return an uploaded module."""
    return FileResponse(call.hive.modules.path(call.key), media_type=WASM)


MODULE_OPERATIONS: tuple[Operation[Any], ...] = (
    # Before GET, which Starlette answers HEAD by, too.
    Operation("HEAD", MODULE_PATH, ModuleQuery, WASM, _has, worker=_has, enough=AccessRole.ACT),
    Operation("GET", MODULE_PATH, Nothing, WASM, _fetch, worker=_fetch, enough=AccessRole.ACT),
)
