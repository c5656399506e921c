"""A web port: an address at which browsers reach the trials of a server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable, Iterator

import uvicorn

from arkml.base.host_names import authority_of, listening_authority
from arkml.trials.core.error import TrialError
from arkml.trials.server.web.access import Access, Grant
from arkml.trials.server.web.app import make_web_app
from arkml.trials.server.web.connections import WebConfig
from arkml.trials.server.web.options import WebOptions
from arkml.trials.service import TrialServices
from arkml.trials.wire.common_pb2 import TrialState
from arkml.trials.wire.lifecycle_pb2 import TrialInfoRequest


class _WebServer(uvicorn.Server):
    """A server that installs no signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class WebPort:
    """
    An open web port. Belongs to the event loop that opens it.

    `access` has its rules and tokens; `access.token`, if there is one, opens everything.
    """

    def __init__(self, services: TrialServices, options: WebOptions) -> None:
        self.access = Access(options)
        self.port = options.port
        self._trials = services.trials
        self._options = options
        self._config = WebConfig(make_web_app(services, options, self.access), options)
        self._server = _WebServer(self._config)
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Listen. Raises TrialError if the address, or the certificate, cannot be used."""
        try:
            self._config.load()
        except OSError as error:
            raise TrialError(
                f"the certificate {self._options.tls_cert} with its key cannot be used: {error}"
            ) from error
        listening = _listen(self._options.host, self._options.port)
        self.port = listening.getsockname()[1]
        self._serving = asyncio.create_task(self._serve(listening))
        while not self._server.started and not self._serving.done():
            await asyncio.sleep(0.005)
        if self._serving.done():
            self._serving.result()

    async def close(self) -> None:
        """End all calls and close the port. Safe to call again."""
        serving, self._serving = self._serving, None
        if serving is not None:
            self._server.should_exit = True
            await serving

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._config.open_connections)

    def endpoint(self, token: str = "") -> str:
        """Return the endpoint that clients of this machine use, with a token if one is given."""
        scheme = "http" if self._options.tls_cert is None else "https"
        authority = listening_authority(self._options.host, self.port)
        return f"{scheme}://{authority}" + (f"/j/{token}" if token else "")

    async def token_to_act(self, trial_id: str, slots: Iterable[str]) -> str:
        """
        Return a token that is good to act in a trial as one of the actors named in `slots`.

        That is to join as the actor, to take it over, and to look at the trial.

        Raises TrialError if there is no such trial, if it has ended, or has no such actors.
        """
        names = frozenset(slots)
        actors = await self._actors_of(trial_id)
        unknown = sorted(names - actors) if actors else []
        if unknown or not names:
            raise TrialError(f"trial {trial_id} has no actor {unknown[0] if unknown else ''!r}")
        return self.access.issue(Grant(trial_id, names))

    async def token_to_watch(self, trial_id: str) -> str:
        """
        Return a token that is good to watch a trial, and to look at it tick by tick.

        Raises TrialError if there is no such trial, or if it has ended.
        """
        await self._actors_of(trial_id)
        return self.access.issue(Grant(trial_id))

    def link_to_play(self, slots: Iterable[str]) -> str:
        """
        Return an endpoint that is good to act in all trials of this server, and to look at them.

        Its clients act as one of the actors named in `slots`. It outlives trials. Raises TrialError
        without slots, and if there are as many tokens as there may be.
        """
        names = frozenset(slots)
        if not names:
            raise TrialError("an endpoint to play needs the names of actors")
        return self.endpoint(self.access.issue(Grant(slots=names)))

    def link_to_watch(self) -> str:
        """
        Return an endpoint that is good to watch all trials of this server, which it outlives.

        Raises TrialError if there are as many tokens as there may be.
        """
        return self.endpoint(self.access.issue(Grant()))

    async def _actors_of(self, trial_id: str) -> frozenset[str]:
        """Return the names of the actors of a trial, none before it has its parameters."""
        reply = await self._trials.info([trial_id], TrialInfoRequest(get_actor_list=True))
        live = [info for info in reply.trial if info.state != TrialState.ENDED]
        if not live:
            raise TrialError(f"there is no trial {trial_id!r}, or it has ended")
        return frozenset(actor.name for actor in live[0].actors_in_trial)

    async def _serve(self, listening: socket.socket) -> None:
        try:
            with contextlib.closing(listening):
                await self._server.serve(sockets=[listening])
        finally:
            self._config.open_connections.abort_all()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise TrialError(
            f"nothing can listen at {authority_of(host, port)} ({error.strerror}): take another"
        ) from error
    return listening
