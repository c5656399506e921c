"""The application of a web port: its routes, and the expiry of its tokens."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from arkml.base.loggers import SafeLogger
from arkml.trials.core.error import TrialError
from arkml.trials.grpc_streams import SharedRoom
from arkml.trials.server.web.access import Access
from arkml.trials.server.web.actor_calls import ActorCalls, ActorOpening
from arkml.trials.server.web.calls import ServiceCalls, WebMethod, running
from arkml.trials.server.web.gate import Gate
from arkml.trials.server.web.lifecycle_calls import LifecycleMethods
from arkml.trials.server.web.page_files import PageFiles, to_folder
from arkml.trials.server.web.player_calls import PlayerMethods
from arkml.trials.server.web.rates import ReadingPaces
from arkml.trials.server.web.web_options import WebOptions
from arkml.trials.service import TrialService, TrialServices
from arkml.trials.streams import Receiver, Sender
from arkml.trials.wire.actor_pb2 import ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import TrialState
from arkml.trials.wire.lifecycle_pb2 import TrialListRequest

log = SafeLogger(__name__)

LIFECYCLE = "/cogmentAPI.TrialLifecycleSP"
ACTORS = "/cogmentAPI.ClientActorSP"
PLAYERS = "/arkmlTrials.PlayersSP"
PAGE = "/play"


def make_web_app(services: TrialServices, options: WebOptions, access: Access) -> ASGIApp:
    """
    Return the ASGI application that makes a server's services available to browsers.

    Args:
        services: The services.
        options: The address of the web port, and its limits.
        access: The rules of the web port, and its tokens.

    """

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with running(_end_tokens(services.trials, access)):
            yield

    return Gate(Starlette(routes=_routes(services, options, access), lifespan=lifespan), access)


def _routes(services: TrialServices, options: WebOptions, access: Access) -> list[BaseRoute]:
    trials, limits = services.trials, options.limits
    paces, room = ReadingPaces(limits), SharedRoom()
    players = PlayerMethods(services.players)

    async def join(
        opening: ActorOpening, sender: Sender[ActorRunTrialInput]
    ) -> Receiver[ActorRunTrialOutput]:
        return await trials.join(opening.trial_id, opening.slot, sender)

    def service(path: str, methods: Mapping[str, WebMethod]) -> Route:
        calls = ServiceCalls(methods, limits, paces)
        return Route(f"{path}/{{method}}", calls, methods=["POST"])

    lifecycle = LifecycleMethods(trials, limits, access).by_name
    routes: list[BaseRoute] = [
        WebSocketRoute(f"{ACTORS}/RunTrial", ActorCalls(join, limits, paces, room)),
        WebSocketRoute(f"{PLAYERS}/TakeOver", ActorCalls(players.take_over, limits, paces, room)),
        service(LIFECYCLE, lifecycle),
        service(ACTORS, lifecycle),
        service(PLAYERS, players.by_name),
    ]
    if options.page is not None:
        page = PageFiles(options.page, options.page_shared, paces)
        routes += [Route(PAGE, to_folder), Route(f"{PAGE}/{{path:path}}", page, methods=["GET"])]
    return [*routes, WebSocketRoute("/{path:path}", _unknown)]


async def _unknown(socket: WebSocket) -> None:
    await socket.send_denial_response(PlainTextResponse("there is no such websocket\n", 404))


async def _end_tokens(trials: TrialService, access: Access) -> None:
    """Invalidate the tokens of each trial as it ends."""
    entries: Any = trials.watch(TrialListRequest(filter=[TrialState.ENDED]))
    try:
        async with contextlib.aclosing(entries):
            async for entry in entries:
                access.end_trial(entry.trial_id)
    except TrialError as error:
        log.warning("the ends of trials are no longer seen: tokens stay valid: %s", error)
