"""The context: what a program registers, and from where it controls trials and joins them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self

from arkml.base.sealed import Sealed
from arkml.trials.core.error import TrialError
from arkml.trials.sdk.actor_session import ActorSession
from arkml.trials.sdk.addresses import Endpoint, LocalServer, ServedEndpoint, ServerPlace
from arkml.trials.sdk.controller import Controller
from arkml.trials.sdk.grpc_metadata import GrpcMetadata
from arkml.trials.sdk.implementations import (
    ActorImplementation,
    DatalogImplementation,
    EnvironmentImplementation,
    PreTrialHook,
    RegisteredImplementations,
    play,
)
from arkml.trials.sdk.joining import Inbox
from arkml.trials.sdk.specs import CogSettings
from arkml.trials.service import PlayersService, TrialService
from arkml.trials.streams import Passing
from arkml.trials.wire.actor_pb2 import ActorInitialOutput

if TYPE_CHECKING:
    from arkml.trials.sdk.grpc_service import GrpcTrials
    from arkml.trials.sdk.serving import ServedImplementations

_NO_DIRECTORY: Final = "there is no directory here: name endpoints by grpc://HOST:PORT"
_NO_PROMETHEUS: Final = (
    "programs have no metrics here: `arkml trials serve --prometheus-port` has those of the server"
)

_RESERVED: Final = ("__actor_class", "__implementation")


class Context(Sealed):
    """
    The beginning of everything that a program does with trials.

    `cog_settings` are the message types of a project, a module that `arkml trials generate` writes;
    None is enough for controllers. A context belongs to one event loop; `close`, or leaving it as
    an asynchronous context manager, ends what it serves and its connections. Controllers send
    `metadata` with their calls over gRPC.

    The other arguments are those of Cogment's SDK. `asyncio_loop` is the loop that runs, or will.
    Raises TrialError for another loop, and for a registry or a directory, which are not used here.
    """

    def __init__(
        self,
        user_id: str,
        cog_settings: CogSettings | None = None,
        asyncio_loop: asyncio.AbstractEventLoop | None = None,
        prometheus_registry: object = None,
        directory_endpoint: Endpoint | None = None,
        directory_auth_token: str | None = None,
        metadata: GrpcMetadata | None = None,
    ) -> None:
        _check_loop(asyncio_loop)
        _refuse_given(
            prometheus_registry=(prometheus_registry, _NO_PROMETHEUS),
            directory_endpoint=(directory_endpoint, _NO_DIRECTORY),
            directory_auth_token=(directory_auth_token, _NO_DIRECTORY),
        )
        self.asyncio_loop = asyncio_loop
        self._metadata = GrpcMetadata() if metadata is None else metadata.copy()
        self._user_id = user_id
        self._has_specs = cog_settings is not None
        self._implementations = RegisteredImplementations(cog_settings)
        self._services: dict[str, GrpcTrials] = {}
        self._served: ServedImplementations | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Context(user_id={self._user_id!r}, served_port={self.served_port})"

    @property
    def served_port(self) -> int:
        """Port on which this context serves, 0 if it does not."""
        return self._served.port if self._served is not None else 0

    def has_specs(self) -> bool:
        """Return whether there are settings of a project."""
        return self._has_specs

    def register_actor(
        self,
        impl: ActorImplementation,
        impl_name: str,
        actor_classes: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """
        Register a coroutine function that plays actors, of any class if none is named.

        `properties` are for a directory, and change nothing without one. Raises TrialError if the
        name is taken, a property is reserved, or the context serves already.
        """
        _check_properties(properties, "Actor")
        self._implementations.add_actor(impl, impl_name, actor_classes)

    def register_environment(
        self,
        impl: EnvironmentImplementation,
        impl_name: str = "default",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """
        Register a coroutine function that is the environment of trials.

        `properties` are for a directory, and change nothing without one. Raises TrialError if the
        name is taken, a property is reserved, or the context serves already.
        """
        _check_properties(properties, "Environment")
        self._implementations.add_environment(impl, impl_name)

    def register_pre_trial_hook(
        self, impl: PreTrialHook, properties: Mapping[str, str] | None = None
    ) -> None:
        """
        Register a coroutine function that completes the parameters of trials.

        `properties` are for a directory, and change nothing without one. Raises TrialError if there
        is a hook, a property is reserved, or the context serves already.
        """
        _check_properties(properties, "Hook")
        self._implementations.set_hook(impl)

    def register_datalog(
        self, impl: DatalogImplementation, properties: Mapping[str, str] | None = None
    ) -> None:
        """
        Register a coroutine function that takes the samples of trials whose parameters name it.

        `properties` are for a directory, and change nothing without one. Raises TrialError if there
        is a datalog, a property is reserved, or the context serves already.
        """
        _check_properties(properties, "Datalog")
        self._implementations.set_datalog(impl)

    async def serve_all_registered(
        self,
        served_endpoint: ServedEndpoint | LocalServer | None = None,
        prometheus_port: int | None = None,
        directory_registration_host: str | None = None,
    ) -> None:
        """
        Serve what was registered, on a free port if no endpoint is given.

        On a port this runs until it is cancelled or the context is closed. A server in this process
        is given the implementations at once, for the endpoint `local://`, and this returns. Raises
        TrialError if there is nothing to serve, it is served already, the port cannot be had, or a
        port for Prometheus or a host for a directory is given, of which there are none here.
        """
        _refuse_given(
            prometheus_port=(prometheus_port, _NO_PROMETHEUS),
            directory_registration_host=(directory_registration_host, _NO_DIRECTORY),
        )
        endpoint = ServedEndpoint() if served_endpoint is None else served_endpoint
        if self._implementations.has_datalog and not isinstance(endpoint, ServedEndpoint):
            raise TrialError(
                "a datalog is called at grpc://HOST:PORT: serve it at a ServedEndpoint"
            )
        self._implementations.freeze()
        if not isinstance(endpoint, ServedEndpoint):
            endpoint.register(self._implementations)
            return
        from arkml.trials.sdk.serving import ServedImplementations

        served = ServedImplementations(self._implementations, endpoint)
        self._served = served
        try:
            await served.run()
        finally:
            self._served = None

    def get_controller(self, endpoint: ServerPlace = Endpoint()) -> Controller:  # noqa: B008
        """
        Return a controller of the trials of a server.

        Raises TrialError for an endpoint other than `grpc://HOST:PORT`.
        """
        return Controller(self._trials_at(endpoint), self._players_at(endpoint), self._user_id)

    async def join_trial(
        self,
        trial_id: str,
        endpoint: ServerPlace = Endpoint(),  # noqa: B008
        impl_name: str | None = None,
        actor_name: str | None = None,
        actor_class: str | None = None,
    ) -> None:
        """
        Join a trial as the actor of a name, or as any of a class, and play it to its end.

        `impl_name` is the implementation that plays, by default that of the trial's parameters;
        without name and class it also determines the class. Raises TrialError if the server does
        not let the actor in, and what the implementation raises.
        """
        slot = self._slot(impl_name, actor_name, actor_class)
        inbox = Inbox()
        receiver = await self._trials_at(endpoint).join(trial_id, slot, inbox)
        sender = Passing(receiver, "the actor left")
        try:
            init = await inbox.introduction(trial_id)
            session, run = self._implementations.actor_session(
                trial_id, init, sender, impl_name or "", has_joined=True
            )
            inbox.hand_over(session)
            await play(session, run)
        finally:
            sender.close()

    async def take_over(
        self, trial_id: str, endpoint: ServerPlace, actor_name: str, impl: ActorImplementation
    ) -> None:
        """
        Play for an actor of a trial that runs, in the place of its stand-in, by `impl`.

        Once `impl` returns, or calls `hand_back` of its session, the stand-in acts again. The user
        id of this context is the person's name, which others see. Raises ActorTaken if the actor
        has another player, TrialError if the server refuses for another reason, and what `impl`
        raises.
        """
        inbox = Inbox()
        slot = ActorInitialOutput(actor_name=actor_name)
        players = self._players_at(endpoint)
        receiver = await players.take_over(trial_id, slot, self._user_id, inbox)
        sender = Passing(receiver, "the person left")

        async def play_and_hand_back(session: ActorSession) -> None:
            await impl(session)
            session.hand_back()

        try:
            init = await inbox.introduction(trial_id)
            session = self._implementations.session_of_person(trial_id, init, sender)
            inbox.hand_over(session)
            await play(session, play_and_hand_back)
        finally:
            sender.close()

    async def close(self) -> None:
        """End what is served, cancel its sessions, and end all connections."""
        if self._served is not None:
            await self._served.stop()
        await self._implementations.close()
        services, self._services = self._services, {}
        for service in services.values():
            await service.close()

    def _slot(
        self, impl_name: str | None, actor_name: str | None, actor_class: str | None
    ) -> ActorInitialOutput:
        if actor_name is not None and actor_class is not None:
            raise TrialError("Only actor_name or actor_class must be specified, not both.")
        if actor_name is not None:
            return ActorInitialOutput(actor_name=actor_name)
        if actor_class is None and impl_name is not None:
            actor_class = self._implementations.first_of(impl_name)
        if actor_class is None:
            raise TrialError("Actor name or actor class must be specified to join a trial")
        return ActorInitialOutput(actor_class=actor_class)

    def _trials_at(self, place: ServerPlace) -> TrialService:
        return self._remote(place) if isinstance(place, Endpoint | str) else place.trials

    def _players_at(self, place: ServerPlace) -> PlayersService:
        return self._remote(place) if isinstance(place, Endpoint | str) else place.players

    def _remote(self, place: Endpoint | str) -> GrpcTrials:
        endpoint = Endpoint(place) if isinstance(place, str) else place
        authority = endpoint.authority
        if authority not in self._services:
            from arkml.trials.sdk.grpc_service import GrpcTrials

            self._services[authority] = GrpcTrials(authority, self._metadata.to_grpc_metadata())
        return self._services[authority]


def _check_loop(given: asyncio.AbstractEventLoop | None) -> None:
    """Raise TrialError unless a loop is the one that runs, or none runs yet."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if given not in (None, running):
        raise TrialError(
            "asyncio_loop: a context belongs to the event loop in which it is made, and another"
            " one was given"
        )


def _refuse_given(**arguments: tuple[object, str]) -> None:
    """Raise TrialError, with its reason, for the first argument that asks for something."""
    for name, (value, reason) in arguments.items():
        if value not in (None, False, 0, ""):
            raise TrialError(f"{name}={value!r}: {reason}")


def _check_properties(properties: Mapping[str, str] | None, what: str) -> None:
    """Raise TrialError for a property with a name that directories reserve."""
    for name in properties or ():
        if name in _RESERVED:
            raise TrialError(f"{what} property [{name}] is reserved for internal use")
