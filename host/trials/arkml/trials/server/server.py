"""A server of trials, for this process or on ports."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import grpc

from arkml.base.host_names import authority_of
from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed
from arkml.trials.core.error import TrialError
from arkml.trials.core.hosting import Hosting
from arkml.trials.grpc_aio import new_server
from arkml.trials.grpc_methods import serve
from arkml.trials.grpc_streams import SharedRoom
from arkml.trials.server.grpc_callers import GrpcCallers
from arkml.trials.server.grpc_services import (
    ClientActorService,
    LifecycleService,
    PlayersServicer,
)
from arkml.trials.server.local_callers import Implementations, LocalCallers
from arkml.trials.server.orchestrator import Orchestrator, TrialLog
from arkml.trials.server.players import TrialPlayers
from arkml.trials.server.server_options import TrialsOptions, grpc_options
from arkml.trials.service import PlayersService, TrialService
from arkml.trials.wire import actor_pb2, lifecycle_pb2, players_pb2

log = SafeLogger(__name__)

ENDING_SECONDS = 5.0
"""Seconds that trials have to end softly when their server closes."""


class Server(Sealed):
    """
    Serves trials. Belongs to the event loop that creates it; use it with `async with`.

    A server can be given in place of an endpoint: controllers and actors of the same process then
    use it without sockets. `listen` opens ports for other processes.

    Args:
        options: Options of the server.
        trial_log: Log that receives the entries of all trials.
        hosting: Environments that run in this process and stand in for actors.

    Example:
        async with Server() as server:
            lifecycle_port, actor_port = await server.listen("127.0.0.1", 0)

    """

    def __init__(
        self,
        options: TrialsOptions | None = None,
        *,
        trial_log: TrialLog | None = None,
        hosting: Hosting | None = None,
    ) -> None:
        options = options or TrialsOptions()
        self._room = SharedRoom()
        self._callers = LocalCallers(GrpcCallers(options.limits, self._room))
        self._orchestrator = Orchestrator(options, self._callers, trial_log, hosting)
        self._players = TrialPlayers(self._orchestrator, hosting)
        self._ports: list[grpc.aio.Server] = []

    @property
    def trials(self) -> TrialService:
        """Service for controllers and actors."""
        return self._orchestrator

    @property
    def players(self) -> PlayersService:
        """Service for people who play in hosted trials, and for spectators."""
        return self._players

    @property
    def orchestrator(self) -> Orchestrator:
        """All trials of this server."""
        return self._orchestrator

    def register(self, implementations: Implementations) -> None:
        """
        Make implementations in this process available to trials at the endpoint `local://`.

        Raises TrialError if other implementations are registered.
        """
        if self._callers.implementations not in (None, implementations):
            raise TrialError("other implementations are registered with this server already")
        self._callers.implementations = implementations

    async def listen(
        self, host: str, lifecycle_port: int, actor_port: int | None = None
    ) -> tuple[int, int]:
        """
        Open the gRPC ports for controllers and for actors that join. There is no login.

        Args:
            host: Address to listen at, such as "127.0.0.1".
            lifecycle_port: Port for controllers, 0 for a free one.
            actor_port: Port for actors that join, 0 for a free one; by default the port for
                controllers. People may use both ports.

        Returns:
            The two port numbers, which may be equal.

        Raises:
            TrialError: A port is in use.

        """
        actor_port = lifecycle_port if actor_port is None else actor_port
        is_shared = actor_port == lifecycle_port
        first = self._new_port()
        lifecycle_service = LifecycleService(self._orchestrator)
        serve(first, lifecycle_pb2.DESCRIPTOR, "TrialLifecycleSP", lifecycle_service)
        second = first if is_shared else self._new_port()
        actors = ClientActorService(self._orchestrator, self._room)
        serve(second, actor_pb2.DESCRIPTOR, "ClientActorSP", actors)
        ports = [first] if is_shared else [first, second]
        limits = self._orchestrator.options.limits
        players = PlayersServicer(self._players, limits, self._room)
        for port in ports:
            serve(port, players_pb2.DESCRIPTOR, "PlayersSP", players)
        try:
            lifecycle = _bind(first, host, lifecycle_port)
            actor = lifecycle if is_shared else _bind(second, host, actor_port)
        except TrialError:
            await first.start()  # gRPC frees the port only of a server that was started
            await first.stop(None)
            raise
        for port in ports:
            await port.start()
            self._ports.append(port)
        return lifecycle, actor

    async def close(self, seconds: float = ENDING_SECONDS) -> None:
        """End all trials, softly within `seconds`, and then all streams. Idempotent."""
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
        return new_server(grpc_options(self._orchestrator.options.limits))


def _bind(server: grpc.aio.Server, host: str, port: int) -> int:
    authority = authority_of(host, port)
    try:
        bound = server.add_insecure_port(authority)
    except RuntimeError as error:
        raise TrialError(f"{authority} cannot be listened at: is it in use?") from error
    if not bound:
        raise TrialError(f"{authority} cannot be listened at: is it in use?")
    return int(bound)
