"""A web port: an address at which browsers reach a server's trials."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable

from arkml.base.host_names import authority_of, listening_authority
from arkml.base.http_server import LimitedServer, listen_at
from arkml.trials.core.error import TrialError
from arkml.trials.server.web.access import Access, Grant
from arkml.trials.server.web.app import make_web_app
from arkml.trials.server.web.connections import WebConfig
from arkml.trials.server.web.web_options import WebOptions
from arkml.trials.service import TrialServices
from arkml.trials.wire.common_pb2 import TrialState
from arkml.trials.wire.lifecycle_pb2 import TrialInfoRequest


class WebPort:
    """
    A web port of a server of trials. Belongs to the event loop that opens it.

    `access` holds its rules and tokens; `access.token`, if not empty, grants everything.
    """

    def __init__(self, services: TrialServices, options: WebOptions) -> None:
        self.access = Access(options)
        self.port = options.port
        self._trials = services.trials
        self._options = options
        self._config = WebConfig(make_web_app(services, options, self.access), options)
        self._server = LimitedServer(self._config)
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start to listen. Raises TrialError if the address or the certificate cannot be used."""
        try:
            self._config.load()
        except OSError as error:
            raise TrialError(
                f"the certificate {self._options.tls_cert} with its key cannot be used: {error}"
            ) from error
        listening = _listen(self._options.host, self._options.port)
        self.port = listening.getsockname()[1]
        serving = await self._server.begin(listening)
        self._serving = asyncio.create_task(self._serve(listening, serving))
        if serving.done():
            serving.result()

    async def close(self) -> None:
        """End all calls and close the port. Idempotent."""
        serving, self._serving = self._serving, None
        if serving is not None:
            self._server.should_exit = True
            await serving

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._config.open_connections)

    def endpoint(self, token: str = "") -> str:
        """Return the URL of the port for clients of this machine, with a token if one is given."""
        scheme = "http" if self._options.tls_cert is None else "https"
        authority = listening_authority(self._options.host, self.port)
        return f"{scheme}://{authority}" + (f"/j/{token}" if token else "")

    async def token_to_act(self, trial_id: str, slots: Iterable[str]) -> str:
        """
        Return a token to act in a trial as one of the actors named in `slots`.

        It permits to join as the actor, to take it over, and to look at the trial.

        Raises TrialError if the trial does not exist, has ended, or has no such actors.
        """
        names = frozenset(slots)
        actors = await self._actors_of(trial_id)
        unknown = sorted(names - actors) if actors else []
        if unknown or not names:
            raise TrialError(f"trial {trial_id} has no actor {unknown[0] if unknown else ''!r}")
        return self.access.issue(Grant(trial_id, names))

    async def token_to_watch(self, trial_id: str) -> str:
        """
        Return a token to watch a trial's states, and to look at its ticks.

        Raises TrialError if the trial does not exist, or has ended.
        """
        await self._actors_of(trial_id)
        return self.access.issue(Grant(trial_id))

    def link_to_play(self, slots: Iterable[str]) -> str:
        """
        Return the URL of the port with a token to act in all trials of this server.

        Clients act as one of the actors named in `slots`, and may look at the trials. The token
        outlives trials. Raises TrialError if `slots` is empty, or too many tokens are valid.
        """
        names = frozenset(slots)
        if not names:
            raise TrialError("an endpoint to play needs the names of actors")
        return self.endpoint(self.access.issue(Grant(slots=names)))

    def link_to_watch(self) -> str:
        """
        Return the URL of the port with a token to watch all trials of this server.

        The token outlives trials. Raises TrialError if too many tokens are valid.
        """
        return self.endpoint(self.access.issue(Grant()))

    async def _actors_of(self, trial_id: str) -> frozenset[str]:
        """Return the names of a trial's actors; none before it has parameters."""
        reply = await self._trials.info([trial_id], TrialInfoRequest(get_actor_list=True))
        live = [info for info in reply.trial if info.state != TrialState.ENDED]
        if not live:
            raise TrialError(f"there is no trial {trial_id!r}, or it has ended")
        return frozenset(actor.name for actor in live[0].actors_in_trial)

    async def _serve(self, listening: socket.socket, serving: asyncio.Task[None]) -> None:
        try:
            with contextlib.closing(listening):
                await serving
        finally:
            self._config.open_connections.abort_all()


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen_at(host, port)
    except OSError as error:
        raise TrialError(
            f"nothing can listen at {authority_of(host, port)} ({error.strerror}): take another"
        ) from error
