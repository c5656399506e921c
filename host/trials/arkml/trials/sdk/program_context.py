"""The context of a program: its registered implementations and its connections to servers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self

from arkml.base.sealed import Sealed
from arkml.trials.core.error import TrialError
from arkml.trials.sdk.actor_session import ActorSession
from arkml.trials.sdk.addresses import Endpoint, LocalServer, ServedEndpoint, ServerPlace
from arkml.trials.sdk.call_metadata import GrpcMetadata
from arkml.trials.sdk.controller import Controller
from arkml.trials.sdk.implementations import (
    ActorImplementation,
    DatalogImplementation,
    EnvironmentImplementation,
    PreTrialHook,
    RegisteredImplementations,
    play,
)
from arkml.trials.sdk.joining import Inbox
from arkml.trials.sdk.message_specs import CogSettings
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
    The entry point of a program: registers implementations, controls and joins trials.

    A context belongs to one event loop. Leaving it as an asynchronous context manager, or `close`,
    ends its services and connections.

    Args:
        user_id: Name of the user who starts trials or takes over actors.
        cog_settings: Message types of a project, a module that `arkml trials generate` writes. None
            is enough for controllers.
        asyncio_loop: The running event loop, or the loop that will run. Optional.
        prometheus_registry: None; accepted for programs of Cogment's SDK.
        directory_endpoint: None; accepted for programs of Cogment's SDK.
        directory_auth_token: None; accepted for programs of Cogment's SDK.
        metadata: Pairs, such as a login, that controllers send with their calls over gRPC.

    Raises:
        TrialError: Another loop is running, or an argument is given that has to be None.

    Example:
        async with Server() as server, Context("ann", settings) as context:
            context.register_environment(riddle)
            context.register_actor(halve, "halve")
            await context.serve_all_registered(server)
            controller = context.get_controller(server)
            trial_id = await controller.start_trial(trial_params=params)

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
        """Port on which this context serves, 0 if it does not serve."""
        return self._served.port if self._served is not None else 0

    def has_specs(self) -> bool:
        """Return whether `cog_settings`, the message types of a project, are known."""
        return self._has_specs

    def register_actor(
        self,
        impl: ActorImplementation,
        impl_name: str,
        actor_classes: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """
        Register a coroutine function that plays actors.

        Args:
            impl: Coroutine function that takes an ActorSession.
            impl_name: Name by which trial parameters choose it.
            actor_classes: Names of the classes that it can play; all if empty.
            properties: Ignored; accepted for programs that use Cogment's directory.

        Raises:
            TrialError: The name is taken, a property is reserved, or the context already serves.

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

        Args:
            impl: Coroutine function that takes an EnvironmentSession.
            impl_name: Name by which trial parameters choose it.
            properties: Ignored; accepted for programs that use Cogment's directory.

        Raises:
            TrialError: The name is taken, a property is reserved, or the context already serves.

        """
        _check_properties(properties, "Environment")
        self._implementations.add_environment(impl, impl_name)

    def register_pre_trial_hook(
        self, impl: PreTrialHook, properties: Mapping[str, str] | None = None
    ) -> None:
        """
        Register a coroutine function that fills in the parameters of trials.

        `impl` takes a PrehookSession. `properties` are ignored; they exist for Cogment's directory.
        Raises TrialError if there is a hook, a property is reserved, or the context already serves.
        """
        _check_properties(properties, "Hook")
        self._implementations.set_hook(impl)

    def register_datalog(
        self, impl: DatalogImplementation, properties: Mapping[str, str] | None = None
    ) -> None:
        """
        Register a coroutine function that receives the samples of trials.

        `impl` takes a DatalogSession. It gets the trials whose parameters name this context as
        their datalog. `properties` are ignored; they exist for Cogment's directory. Raises
        TrialError if there is a datalog, a property is reserved, or the context already serves.
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
        Serve the registered implementations.

        Args:
            served_endpoint: Port to serve on, until the context is closed or this call is
                cancelled; by default a free port. For a server in this process, the implementations
                become its `local://` endpoints, and the call returns at once.
            prometheus_port: None; accepted for programs of Cogment's SDK.
            directory_registration_host: None; accepted for programs of Cogment's SDK.

        Raises:
            TrialError: Nothing is registered, the context already serves, the port is in use, or an
                argument is given that has to be None.

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
        Return a controller of a server's trials.

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
        Join a trial as an actor, and play until the trial ends.

        Args:
            trial_id: Id of the trial.
            endpoint: The server.
            impl_name: Implementation that plays; by default the one that the trial's parameters
                name. Without `actor_name` and `actor_class`, its first class is the class of the
                actor.
            actor_name: Name of the actor.
            actor_class: Class of the actor, if any free actor of a class will do.

        Raises:
            TrialError: The server does not admit the actor. Errors of the implementation are
                raised, too.

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
        Play an actor of a running trial in place of its stand-in.

        The stand-in acts again once `impl` returns or calls `hand_back` of its session. Other
        participants see the user id of this context as the name of the person.

        Args:
            trial_id: Id of the trial, which is hosted.
            endpoint: The server.
            actor_name: Name of the actor.
            impl: Coroutine function that takes an ActorSession.

        Raises:
            ActorTaken: The actor has another player.
            TrialError: The server refuses for another reason. Errors of `impl` are raised, too.

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
        """Stop serving, cancel all sessions, and close all connections."""
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
    """Raise TrialError if a loop other than `given` is running."""
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
    """Raise TrialError, with its reason, for the first argument that is not None."""
    for name, (value, reason) in arguments.items():
        if value not in (None, False, 0, ""):
            raise TrialError(f"{name}={value!r}: {reason}")


def _check_properties(properties: Mapping[str, str] | None, what: str) -> None:
    """Raise TrialError for a property name that directories reserve."""
    for name in properties or ():
        if name in _RESERVED:
            raise TrialError(f"{what} property [{name}] is reserved for internal use")
