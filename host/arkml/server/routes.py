"""Routes of a hive: a method and a path each, with the struct it takes and the one it gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arkml.hive.protocol.wire import Nothing, WireStruct
from arkml.server.bodies import read_object
from arkml.server.hive import Hive

PREFIX = "/v1"
JSON, ONNX, TEXT = "application/json", "application/octet-stream", "text/plain"

Asked = TypeVar("Asked", bound=WireStruct)


@dataclass(frozen=True, slots=True)
class Operation(Generic[Asked]):
    """
    One route, as the application serves it and the OpenAPI document describes it.

    `takes` is read from the body of a POST, from the query of any other method. `answer` is called
    with the hive, the parameter in the path ("" if there is none), and what was read. It returns a
    struct, or a response of its own. `gives` is the type of the struct, or the media type of the
    response; `statuses` are those of an answer that is not a refusal.
    """

    method: str
    path: str
    takes: type[Asked]
    gives: type[WireStruct] | str
    answer: Callable[[Hive, str, Asked], Awaitable[WireStruct | Response]]
    statuses: tuple[int, ...] = (200,)

    def route(self, hive: Hive) -> Route:
        """Return the route of the application."""

        async def endpoint(request: Request) -> Response:
            key = next(iter(request.path_params.values()), "")
            answer = await self.answer(hive, key, await self._asked(request))
            return answer if isinstance(answer, Response) else reply(answer)

        return Route(PREFIX + self.path, endpoint, methods=[self.method])

    async def _asked(self, request: Request) -> Asked:
        if self.takes is Nothing:
            return self.takes()
        if self.method == "POST":
            return self.takes.from_json(await read_object(request))
        return self.takes.from_query(request.query_params)


def reply(struct: WireStruct, status: int = 200) -> Response:
    """Return a struct as a JSON response."""
    return Response(struct.as_bytes(), status, media_type=JSON)
