"""Registered implementations of a program, and their sessions in trials."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from arkml.base.loggers import SafeLogger
from arkml.trials.core.error import TrialError
from arkml.trials.sdk.actor_session import ActorSession
from arkml.trials.sdk.datalog_session import DatalogSession
from arkml.trials.sdk.environment_session import EnvironmentSession
from arkml.trials.sdk.message_specs import ActorClass, CogSettings
from arkml.trials.sdk.opening import Opening
from arkml.trials.sdk.trial_parameters import PrehookSession, TrialParameters
from arkml.trials.streams import Receiver, Sender
from arkml.trials.wire.actor_pb2 import (
    ActorInitialInput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
)
from arkml.trials.wire.common_pb2 import TrialParams
from arkml.trials.wire.environment_pb2 import (
    EnvInitialInput,
    EnvRunTrialInput,
    EnvRunTrialOutput,
)
from arkml.trials.wire.hooks_pb2 import PreTrialParams

_log = SafeLogger(__name__)

ActorImplementation: TypeAlias = Callable[[ActorSession], Awaitable[None]]
EnvironmentImplementation: TypeAlias = Callable[[EnvironmentSession], Awaitable[None]]
PreTrialHook: TypeAlias = Callable[[PrehookSession], Awaitable[None]]
DatalogImplementation: TypeAlias = Callable[[DatalogSession], Awaitable[None]]

Played: TypeAlias = ActorSession | EnvironmentSession

ENDING_SECONDS = 1.0
"""Seconds for which implementations may still run after their trial when the context closes."""


@dataclass(frozen=True, slots=True)
class _Actor:
    run: ActorImplementation
    classes: tuple[str, ...]

    def fits(self, actor_class: str) -> bool:
        return not self.classes or actor_class in self.classes


class RegisteredImplementations:
    """
    The functions that a context has registered, and the tasks that run them.

    Belongs to one event loop. After `freeze`, nothing more can be registered.
    """

    def __init__(self, settings: CogSettings | None) -> None:
        self._settings = settings
        self._actors: dict[str, _Actor] = {}
        self._environments: dict[str, EnvironmentImplementation] = {}
        self._hook: PreTrialHook | None = None
        self._datalog: DatalogImplementation | None = None
        self._is_frozen = False
        self._is_closed = False
        self._playing: dict[tuple[str, str], tuple[Played, asyncio.Task[None]]] = {}

    @property
    def actors(self) -> tuple[str, ...]:
        """Names of the actor implementations."""
        return tuple(self._actors)

    @property
    def environments(self) -> tuple[str, ...]:
        """Names of the environment implementations."""
        return tuple(self._environments)

    @property
    def has_hook(self) -> bool:
        """True if a pre-trial hook is registered."""
        return self._hook is not None

    @property
    def has_datalog(self) -> bool:
        """True if an implementation of a datalog is registered."""
        return self._datalog is not None

    @property
    def session_count(self) -> int:
        """Number of running sessions."""
        return len(self._playing)

    # Registration

    def add_actor(self, run: ActorImplementation, name: str, classes: Sequence[str]) -> None:
        """
        Register an implementation of actors.

        Args:
            run: Coroutine function that takes an ActorSession.
            name: Name of the implementation.
            classes: Names of the actor classes that it can play; all if empty.

        Raises:
            TrialError: The name is taken, `classes` is a string, or `freeze` was called.

        """
        self._check_open("an actor")
        if name in self._actors:
            raise TrialError(f"The actor implementation name must be unique: [{name}]")
        if isinstance(classes, str):
            raise TrialError(f"actor_classes are a list of names, such as [{classes!r}]")
        self._actors[name] = _Actor(run, tuple(classes))

    def add_environment(self, run: EnvironmentImplementation, name: str) -> None:
        """
        Register an implementation of environments under a name.

        Raises TrialError if the name is taken, or after `freeze`.
        """
        self._check_open("an environment")
        if name in self._environments:
            raise TrialError(f"The environment implementation name must be unique: [{name}]")
        self._environments[name] = run

    def set_hook(self, hook: PreTrialHook) -> None:
        """Register the pre-trial hook. Raises TrialError if there is one, or after `freeze`."""
        self._check_open("a pre-trial hook")
        if self._hook is not None:
            raise TrialError("Only one pre-trial hook service can be registered")
        self._hook = hook

    def set_datalog(self, datalog: DatalogImplementation) -> None:
        """Register the datalog. Raises TrialError if there is one, or after `freeze`."""
        self._check_open("a datalog")
        if self._datalog is not None:
            raise TrialError("Only one datalog service can be registered")
        self._datalog = datalog

    def freeze(self) -> None:
        """Refuse registrations from now on."""
        if not (self._actors or self._environments or self._hook or self._datalog):
            raise TrialError("Nothing registered to serve!")
        if self._is_frozen:
            raise TrialError("Cannot serve the same components twice")
        self._is_frozen = True

    def _check_open(self, what: str) -> None:
        if self._is_frozen:
            raise TrialError(f"Cannot register {what} after the server is started")

    # Streams

    def open_actor(
        self, implementation: str, trial_id: str, sender: Sender[ActorRunTrialOutput]
    ) -> Receiver[ActorRunTrialInput]:
        """
        Open a stream on which an actor takes part in a trial, and return its receiving end.

        The first message of the trial, init_input, starts the actor. An actor that cannot be
        started, or fails, ends the stream with END and the reason.

        Args:
            implementation: Name of the implementation; if it is empty, init_input names it.
            trial_id: Id of the trial.
            sender: Stream to the trial.

        """

        def begin(init: ActorInitialInput) -> ActorSession:
            key = self._free_key(trial_id, init.actor_name, "Service actor")
            session, actor = self.actor_session(trial_id, init, sender, implementation)
            self._start(key, session, actor)
            return session

        return Opening(trial_id, sender, ActorRunTrialOutput, begin)

    def open_environment(
        self, implementation: str, trial_id: str, sender: Sender[EnvRunTrialOutput]
    ) -> Receiver[EnvRunTrialInput]:
        """
        Open a stream on which an environment takes part in a trial, and return its receiving end.

        The first message of the trial, init_input, starts the environment. An environment that
        cannot be started, or fails, ends the stream with END and the reason.

        Args:
            implementation: Name of the implementation; if it is empty, init_input names it.
            trial_id: Id of the trial.
            sender: Stream to the trial.

        """

        def begin(init: EnvInitialInput) -> EnvironmentSession:
            key = self._free_key(trial_id, init.name, "Environment")
            name, run = self._environment(trial_id, init, implementation)
            settings = self._known_settings()
            session = EnvironmentSession(trial_id, init, settings, sender, impl_name=name)
            self._start(key, session, run)
            return session

        return Opening(trial_id, sender, EnvRunTrialOutput, begin)

    async def pre_trial(
        self, params: PreTrialParams, trial_id: str, user_id: str
    ) -> PreTrialParams:
        """
        Run the pre-trial hook, and return the parameters as the hook has changed them.

        Args:
            params: The parameters before.
            trial_id: Id of the trial.
            user_id: Id of the user who starts it.

        Raises:
            TrialError: The hook fails.

        """
        if self._hook is None:
            raise TrialError("No implementation registered")
        given = PreTrialParams()
        given.CopyFrom(params)
        parameters = TrialParameters.of(self._settings, given.params)
        session = PrehookSession(trial_id, user_id, parameters)
        try:
            await self._hook(session)
            session.validate()
            return PreTrialParams(params=session.trial_parameters.raw_params)
        except Exception as error:
            _log.exception("Trial [%s] - the pre-trial hook failed", trial_id)
            raise TrialError(f"the pre-trial hook failed: {_described(error)}") from error

    async def log_trial(
        self,
        trial_id: str,
        user_id: str,
        params: TrialParams,
        feed: Callable[[DatalogSession], Awaitable[None]],
    ) -> None:
        """
        Run the registered datalog for a trial.

        Args:
            trial_id: Id of the trial.
            user_id: Id of the user who started it.
            params: Parameters of the trial.
            feed: Puts the samples of the trial into the session of the datalog.

        """
        assert self._datalog is not None
        parameters = TrialParameters.of(self._settings, params)
        session = DatalogSession(trial_id, user_id, parameters)
        feeding = asyncio.ensure_future(feed(session))
        try:
            await self._datalog(session)
        except Exception:
            _log.exception("Trial [%s] - the datalog failed", trial_id)
            raise
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    def actor_session(
        self,
        trial_id: str,
        init: ActorInitialInput,
        sender: Sender[ActorRunTrialOutput],
        implementation: str,
        *,
        has_joined: bool = False,
    ) -> tuple[ActorSession, ActorImplementation]:
        """
        Return a session of an actor, and the implementation that plays in it.

        Args:
            trial_id: Id of the trial.
            init: First message of the trial, with the actor's name, class and configuration.
            sender: Stream to the trial.
            implementation: Name of the implementation; if it is empty, `init` names it.
            has_joined: Whether the trial already knows that the actor takes part.

        Raises:
            TrialError: No implementation fits.

        """
        name, actor = self._actor(trial_id, init, implementation or init.impl_name)
        spec = self._actor_class(trial_id, init)
        session = ActorSession(trial_id, init, spec, sender, impl_name=name, has_joined=has_joined)
        return session, actor.run

    def session_of_person(
        self, trial_id: str, init: ActorInitialInput, sender: Sender[ActorRunTrialOutput]
    ) -> ActorSession:
        """
        Return the session of an actor that a person took over.

        Args:
            trial_id: Id of the trial.
            init: First message of the trial, with the actor's name, class and configuration.
            sender: Stream to the trial.

        Raises:
            TrialError: The settings of the project do not have the actor's class.

        """
        spec = self._actor_class(trial_id, init)
        name = init.impl_name
        return ActorSession(trial_id, init, spec, sender, impl_name=name, has_joined=True)

    async def close(self) -> None:
        """
        Cancel all running sessions, and wait for them; trials cannot start new ones.

        Sessions whose trial is ending have ENDING_SECONDS to finish by themselves.
        """
        self._is_closed = True
        playing = list(self._playing.values())
        ending = [task for session, task in playing if session.is_ending()]
        for session, task in playing:
            if not session.is_ending():
                task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=ENDING_SECONDS)
        for task in ending:
            task.cancel()
        await asyncio.gather(*(task for _, task in playing), return_exceptions=True)

    def first_of(self, implementation: str) -> str:
        """
        Return the first actor class that an implementation can play.

        Raises TrialError if the implementation is unknown or has no classes.
        """
        actor = self._actors.get(implementation)
        if actor is None:
            known = ", ".join(self._actors) or "none"
            raise TrialError(f"there is no actor implementation {implementation!r}; known: {known}")
        if not actor.classes:
            raise TrialError(
                "Unable to determine possible actor to join trial: "
                f"impl_name [{implementation}] does not have any registered actor class"
            )
        return actor.classes[0]

    def _actor(self, trial_id: str, init: ActorInitialInput, name: str) -> tuple[str, _Actor]:
        about = f"Trial [{trial_id}] - actor [{init.actor_name}] class [{init.actor_class}]"
        if not init.actor_name:
            raise TrialError(f"Trial [{trial_id}] - Empty actor name")
        if not init.actor_class:
            raise TrialError(
                f"Trial [{trial_id}] - Empty actor class for actor [{init.actor_name}]"
            )
        named = self._actors.get(name)
        if named is not None:
            if named.fits(init.actor_class):
                return name, named
            raise TrialError(f"{about} is not compatible with actor implementation [{name}]")
        fitting = [item for item in self._actors.items() if item[1].fits(init.actor_class)]
        exact = [item for item in fitting if item[1].classes]
        if not fitting:
            raise TrialError(f"{about} is not compatible with with any registered actor")
        chosen = (exact or fitting)[0]
        if name:  # Cogment plays it, too; a misspelled name must not go unseen
            _log.warning(
                "Trial [%s] - impl [%s] is not registered: impl [%s] arbitrarily chosen for"
                " actor [%s]", trial_id, name, chosen[0], init.actor_name,
            )  # fmt: skip
        return chosen

    def _environment(
        self, trial_id: str, init: EnvInitialInput, implementation: str
    ) -> tuple[str, EnvironmentImplementation]:
        if not init.name:
            raise TrialError(f"Trial [{trial_id}] - Empty environment name")
        if not self._environments:
            raise TrialError("No implementation registered")
        name = implementation or init.impl_name or next(iter(self._environments))
        if name not in self._environments:
            raise TrialError(
                f"Trial [{trial_id}] - Unknown impl [{name}] for environment [{init.name}]"
            )
        return name, self._environments[name]

    def _actor_class(self, trial_id: str, init: ActorInitialInput) -> ActorClass:
        spec = self._known_settings().actor_classes.get(init.actor_class)
        if spec is None:
            raise TrialError(
                f"Trial [{trial_id}] - "
                f"Unknown class [{init.actor_class}] for service actor [{init.actor_name}]"
            )
        return spec

    def _known_settings(self) -> CogSettings:
        if self._settings is None:
            raise TrialError("the context has no cog_settings, which sessions need")
        return self._settings

    def _free_key(self, trial_id: str, name: str, kind: str) -> tuple[str, str]:
        if self._is_closed:
            raise TrialError(f"Trial [{trial_id}] - {kind} [{name}] cannot start: context closed")
        key = (trial_id, name)
        if key in self._playing:
            raise TrialError(f"Trial [{trial_id}] - {kind} [{name}] already exists")
        return key

    def _start(
        self, key: tuple[str, str], session: Played, run: Callable[[Any], Awaitable[None]]
    ) -> None:
        task = asyncio.create_task(play(session, run), name=f"{key[1]} of trial {key[0]}")
        self._playing[key] = session, task
        task.add_done_callback(lambda _: self._forget(key, task))

    def _forget(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        del self._playing[key]
        if not task.cancelled():
            task.exception()  # it was logged


async def play(session: Any, run: Callable[[Any], Awaitable[None]]) -> None:
    """
    Run an implementation with its session unless the trial has ended, then end the stream.

    An exception of the implementation is logged, reported to the trial and raised again.
    """
    if session.is_trial_over():
        session.leave("")
        return
    reason = "the implementation was cancelled"
    try:
        await run(session)
        reason = "the implementation returned before the end of the trial"
    except Exception as error:
        reason = f"the implementation failed: {_described(error)}"
        _log.exception("An exception occurred in the implementation of %r", session)
        raise
    finally:
        session.leave(reason)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
