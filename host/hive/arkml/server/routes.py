"""The routes of a hive: each has a method, a path, the type of its request and of its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arkml.base.loggers import SafeLogger
from arkml.base.terminal import harmless
from arkml.errors import HiveRefused
from arkml.hive.protocol.wire import Nothing, WireStruct
from arkml.server.access.callers import CALLER, SAFE_METHODS, AccessRole, Caller, WorkerGrant
from arkml.server.bodies import read_object, reply
from arkml.server.hive import Hive
from arkml.server.packing import packed
from arkml.server.run import Run

_log = SafeLogger(__name__)

PREFIX = "/v1"
ONNX, TEXT = "application/octet-stream", "text/plain"
WASM, GZIP = "application/wasm", "application/gzip"
WITH_BODY = frozenset({"POST", "PATCH"})
"""The methods whose requests are read from a body, the others from a query."""

Asked = TypeVar("Asked", bound=WireStruct)


@dataclass(frozen=True, slots=True)
class HiveCall:
    """
    A request that a route answers.

    Attributes:
        hive: The hive.
        key: The parameter in the path, such as the id of a run; or the value of a header, if the
            route takes its parameter from there. Empty for a route without a parameter.
        caller: The author of the request.
        takes_part: True for a route that every host needs which takes part in a run.

    """

    hive: Hive
    key: str
    caller: Caller
    takes_part: bool = False

    @property
    def run(self) -> Run:
        """
        The run whose id is the path's parameter. Raises HiveRefused if the caller may not see it.
        """
        run = self.hive.run(self.key)
        owner = run.document.owner
        self.caller.require_seen(self.key, owner, takes_part=self.takes_part)
        return run

    def own_run(self, action: str) -> Run:
        """
        Return the run of the path if the caller may end or change it, and log that it does.

        `action` is a verb for the log, such as "stop". Raises HiveRefused.
        """
        run = self.hive.run(self.key)
        require_own_run(self.caller, run, action)
        name = self.caller.name or "a program without a token"
        named = harmless(run.document.request.name)
        _log.info("%s asks to %s run %s (%s)", name, action, run.document.id, named)
        return run


Answer = Callable[[HiveCall, Asked], Awaitable[WireStruct | Response]]
"""Called with the request, and what was read from its body or its query."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[Asked]):
    """
    One route, as the application serves it and the OpenAPI document describes it.

    Attributes:
        takes: The type of the request, read from the body of a POST or PATCH, or from the query of
            another method.
        answer: The handler; returns a struct, or a response of its own.
        gives: The type of the returned struct, or the media type of the response.
        statuses: The HTTP statuses of answers that are not refusals.
        worker: Answers the rollout workers of a run, which are refused without it.
        key_header: A header whose value stands for the parameter of a path that has none.
        is_long: Pack answers for clients that accept gzip.
        enough: The role that a caller needs; `admin` is always enough. By default `read` for a GET,
            and `act` for a method that changes something. A GET for which `act` is enough is open
            to `read` as well (decision 22).
        is_open: Answer every request, with or without a token.
        takes_part: Answer programs of the role `act` about the runs of other tokens, too: a host
            that takes part in one needs the route. Without it, `act` is answered about its own.

    """

    method: str
    path: str
    takes: type[Asked]
    gives: type[WireStruct] | str
    answer: Answer[Asked]
    statuses: tuple[int, ...] = (200,)
    worker: Answer[Asked] | None = None
    enough: AccessRole | None = None
    is_open: bool = False
    key_header: str = ""
    is_long: bool = False
    takes_part: bool = False

    @property
    def role(self) -> AccessRole:
        """The role that a caller needs."""
        if self.enough is not None:
            return self.enough
        return AccessRole.READ if self.method in SAFE_METHODS else AccessRole.ACT

    def route(self, hive: Hive) -> Route:
        """Return the Starlette route that answers requests to `hive`."""

        async def endpoint(request: Request) -> Response:
            given = request.headers.get(self.key_header, "")
            name, key = next(iter(request.path_params.items()), ("", given))
            respond = self.answer
            caller: Caller = request.scope[CALLER]
            if caller.grant is not None and self.worker is not None:
                respond = self.worker
                require_granted(hive, caller.grant, name, key)
            elif not self.is_open:
                caller.require(self.role, self.method, self.path)
            call = HiveCall(hive, key, caller, takes_part=self.takes_part)
            answer = await respond(call, await self._asked(request))
            response = answer if isinstance(answer, Response) else reply(answer)
            return await packed(response, request) if self.is_long else response

        return Route(PREFIX + self.path, endpoint, methods=[self.method])

    async def _asked(self, request: Request) -> Asked:
        if self.takes is Nothing:
            return self.takes()
        if self.method in WITH_BODY:
            return self.takes.from_json(await read_object(request))
        return self.takes.from_query(request.query_params)


def require_own_run(caller: Caller, run: Run, action: str) -> None:
    """
    Raise HiveRefused unless the caller may end or change a run.

    The role `act` allows this for runs that the caller's token started, `admin` for all runs.

    Args:
        caller: The author of the request.
        run: The run.
        action: What the caller wants to do, as a verb for the message, such as "stop".

    """
    caller.require_own(run.document.id, run.document.owner, action)


def require_granted(hive: Hive, grant: WorkerGrant, name: str, key: str) -> None:
    """
    Raise HiveRefused unless a rollout worker's token covers the parameter of a path.

    Args:
        hive: The hive, which knows the runs.
        grant: The rights of the worker: one run and its module.
        name: The name of the parameter: run_id, sid or sha256.
        key: The value of the parameter.

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
