"""Routes of a hive: a method and a path each, with the struct it takes and the one it gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arkml.errors import HiveRefused
from arkml.hive.protocol.wire import Nothing, WireStruct
from arkml.server.bodies import read_object
from arkml.server.hive import Hive
from arkml.server.worker_tokens import WorkerGrant, grant_in

PREFIX = "/v1"
JSON, ONNX, TEXT = "application/json", "application/octet-stream", "text/plain"
WASM = "application/wasm"

Asked = TypeVar("Asked", bound=WireStruct)
Answer = Callable[[Hive, str, Asked], Awaitable[WireStruct | Response]]
"""Called with the hive, the parameter in the path ("" if there is none), and what was read."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[Asked]):
    """
    One route, as the application serves it and the OpenAPI document describes it.

    `takes` is read from the body of a POST, from the query of any other method. `answer` returns a
    struct, or a response of its own. `gives` is the type of the struct, or the media type of the
    response; `statuses` are those of an answer that is not a refusal. `worker` answers the rollout
    workers of a run, which are refused without it. A route without a parameter in its path gets the
    value of the header `key_header` in its place, if that is set.
    """

    method: str
    path: str
    takes: type[Asked]
    gives: type[WireStruct] | str
    answer: Answer[Asked]
    statuses: tuple[int, ...] = (200,)
    worker: Answer[Asked] | None = None
    key_header: str = ""

    def route(self, hive: Hive) -> Route:
        """Return the route of the application."""

        async def endpoint(request: Request) -> Response:
            key = request.headers.get(self.key_header, "")
            name, key = next(iter(request.path_params.items()), ("", key))
            respond, grant = self.answer, grant_in(request.scope)
            if grant is not None:
                respond = self._answer_of_worker()
                require_own(hive, grant, name, key)
            answer = await respond(hive, key, await self._asked(request))
            return answer if isinstance(answer, Response) else reply(answer)

        return Route(PREFIX + self.path, endpoint, methods=[self.method])

    def _answer_of_worker(self) -> Answer[Asked]:
        """Return the answer to rollout workers. Raises HiveRefused if there is none."""
        if self.worker is None:
            raise HiveRefused(f"a rollout worker may not ask for {self.method} {self.path}", 403)
        return self.worker

    async def _asked(self, request: Request) -> Asked:
        if self.takes is Nothing:
            return self.takes()
        if self.method == "POST":
            return self.takes.from_json(await read_object(request))
        return self.takes.from_query(request.query_params)


def require_own(hive: Hive, grant: WorkerGrant, name: str, key: str) -> None:
    """
    Raise HiveRefused unless a parameter of a path is of the run that a worker's token is good for.

    `name` is that of the parameter: run_id, sid or sha256.
    """
    match name:
        case "run_id":
            grant.require_run(key)
        case "sid":
            grant.require_run(hive.session(key)[0].document.id)
        case "sha256":
            grant.require_module(key)
        case _:
            raise HiveRefused(f"a rollout worker may not ask for {key!r}", 403)


def reply(struct: WireStruct, status: int = 200) -> Response:
    """Return a struct as a JSON response."""
    return Response(struct.as_bytes(), status, media_type=JSON)
