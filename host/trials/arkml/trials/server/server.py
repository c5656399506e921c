"""A server of trials, in this process or at ports."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import grpc

from arkml.base.host_names import authority_of
from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed
from arkml.trials.core.error import TrialError
from arkml.trials.core.hosting import Hosting
from arkml.trials.grpc_aio import new_server
from arkml.trials.server.grpc_callers import GrpcCallers
from arkml.trials.server.grpc_services import (
    ClientActorService,
    LifecycleService,
    PlayersServicer,
)
from arkml.trials.server.local_callers import Implementations, LocalCallers
from arkml.trials.server.options import TrialsOptions, grpc_options
from arkml.trials.server.orchestrator import Orchestrator, TrialLog
from arkml.trials.server.players import TrialPlayers
from arkml.trials.service import PlayersService, TrialService
from arkml.trials.wire import actor_pb2_grpc, lifecycle_pb2_grpc, players_pb2_grpc

log = SafeLogger(__name__)

_add_lifecycle: Any = lifecycle_pb2_grpc.add_TrialLifecycleSPServicer_to_server
_add_actors: Any = actor_pb2_grpc.add_ClientActorSPServicer_to_server
_add_players: Any = players_pb2_grpc.add_PlayersSPServicer_to_server

ENDING_SECONDS = 5.0
"""Seconds that trials have to end softly when their server does."""

_HANDSHAKE_MS = 10_000
_IDLE_MS = 600_000
"""Times after which a connection ends that is not HTTP/2 yet, or has no call: gRPC's are longer."""


class Server(Sealed):
    """
    Serves trials. Belongs to the event loop in which it is made; use it with `async with`.

    It can be given in the place of an endpoint: controllers and actors of the same process then
    use it without sockets. `listen` opens ports for others. With `hosting` it hosts environments.
    """

    def __init__(
        self,
        options: TrialsOptions | None = None,
        *,
        trial_log: TrialLog | None = None,
        hosting: Hosting | None = None,
    ) -> None:
        options = options or TrialsOptions()
        self._callers = LocalCallers(GrpcCallers(options.limits))
        self._orchestrator = Orchestrator(options, self._callers, trial_log, hosting)
        self._players = TrialPlayers(self._orchestrator, hosting)
        self._ports: list[grpc.aio.Server] = []

    @property
    def trials(self) -> TrialService:
        """The service that controllers and actors use."""
        return self._orchestrator

    @property
    def players(self) -> PlayersService:
        """The service of people who play in hosted trials, and of those who watch."""
        return self._players

    @property
    def orchestrator(self) -> Orchestrator:
        """All trials of this server."""
        return self._orchestrator

    def register(self, implementations: Implementations) -> None:
        """Have local:// endpoints mean `implementations`. Raises TrialError if others are there."""
        if self._callers.implementations not in (None, implementations):
            raise TrialError("other implementations are registered with this server already")
        self._callers.implementations = implementations

    async def listen(
        self, host: str, lifecycle_port: int, actor_port: int | None = None
    ) -> tuple[int, int]:
        """
        Open the ports of controllers and of actors that join, 0 for free ones; return them.

        They may be the same port, and are if `actor_port` is None; people may use both. Raises
        TrialError if one is in use. There is no login: what can reach the ports can use the server.
        """
        actor_port = lifecycle_port if actor_port is None else actor_port
        is_shared = actor_port == lifecycle_port
        first = self._new_port()
        _add_lifecycle(LifecycleService(self._orchestrator), first)
        second = first if is_shared else self._new_port()
        _add_actors(ClientActorService(self._orchestrator), second)
        ports = [first] if is_shared else [first, second]
        for port in ports:
            _add_players(PlayersServicer(self._players, self._orchestrator.options.limits), port)
        try:
            lifecycle = _bind(first, host, lifecycle_port)
            actor = lifecycle if is_shared else _bind(second, host, actor_port)
        except TrialError:
            await first.start()  # one that was not started keeps its port
            await first.stop(None)
            raise
        for port in ports:
            await port.start()
            self._ports.append(port)
        return lifecycle, actor

    async def close(self, seconds: float = ENDING_SECONDS) -> None:
        """End all trials, softly for at most `seconds`, and then all streams. Safe to repeat."""
        await self._orchestrator.close(seconds)
        await self._callers.close()
        ports, self._ports = self._ports, []
        for port in ports:
            await port.stop(1.0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _new_port(self) -> grpc.aio.Server:
        limits = grpc_options(self._orchestrator.options.limits)
        options = [
            *limits,
            ("grpc.so_reuseport", 0),  # a port in use is an error, not a second server
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
            ("grpc.max_connection_idle_ms", _IDLE_MS),
        ]
        return new_server(options)


def _bind(server: grpc.aio.Server, host: str, port: int) -> int:
    authority = authority_of(host, port)
    try:
        bound = server.add_insecure_port(authority)
    except RuntimeError as error:
        raise TrialError(f"{authority} cannot be listened at: is it in use?") from error
    if not bound:
        raise TrialError(f"{authority} cannot be listened at: is it in use?")
    return int(bound)
