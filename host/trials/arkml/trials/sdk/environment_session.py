"""The session of an environment."""

from __future__ import annotations

import time
from collections.abc import Sequence

from google.protobuf.message import DecodeError, Message

from arkml.base.loggers import SafeLogger
from arkml.trials.core.error import TrialError
from arkml.trials.core.mail import AUTO, Receivers
from arkml.trials.sdk.event_session import LAST, NORMAL, Session
from arkml.trials.sdk.message_specs import CogSettings, parsed_config
from arkml.trials.sdk.session_events import ActorStatus, RecvAction, RecvEvent
from arkml.trials.sdk.trial_info import ActorInfo
from arkml.trials.streams import Sender
from arkml.trials.wire.common_pb2 import ActorParams
from arkml.trials.wire.environment_pb2 import (
    ActionSet,
    EnvInitialInput,
    EnvInitialOutput,
    EnvRunTrialInput,
    EnvRunTrialOutput,
)

_log = SafeLogger(__name__)

_ALL = ("*", "*.*")


class EnvironmentSession(Session[EnvRunTrialInput, EnvRunTrialOutput]):
    """
    The part of the environment in one trial, given to its implementation.

    Observations are pairs of a target and a message. A target is `"*"` for all actors, `"class.*"`
    for all actors of a class, or `"class.name"` or `"name"` for one. Each actor needs exactly one.

    Args:
        trial_id: Id of the trial.
        init: First message of the trial, with its actors and the configuration.
        settings: Message types of the project.
        sender: Stream to the trial.
        impl_name: Name of the implementation.

    Example:
        async def echo(session):
            session.start([("*", Observation(text="hello"))])
            async for event in session.all_events():
                if event.actions:
                    text = event.actions[0].action.text
                    session.produce_observations([("*", Observation(text=text))])

    """

    def __init__(
        self,
        trial_id: str,
        init: EnvInitialInput,
        settings: CogSettings,
        sender: Sender[EnvRunTrialOutput],
        *,
        impl_name: str,
    ) -> None:
        where = f"Trial [{trial_id}] - Environment [{init.name}]"
        config = None
        if init.HasField("config"):
            kind = settings.environment.config_type
            config = parsed_config(init.config.content, kind, where)
        classes = settings.actor_classes
        for actor in init.actors_in_trial:
            if actor.actor_class not in classes:
                raise TrialError(
                    f"class [{actor.actor_class}] of actor [{actor.name}] cannot be found."
                )
        super().__init__(
            EnvRunTrialOutput,
            sender,
            trial_id=trial_id,
            name=init.name,
            impl_name=impl_name,
            config=config,
        )
        self._tick = init.tick_id
        self._is_last_sent = False
        actors = init.actors_in_trial
        self._actors = [ActorInfo(actor.name, actor.actor_class) for actor in actors]
        self._spaces = [classes[actor.actor_class].action_space for actor in actors]
        self._targets = Receivers(
            [ActorParams(name=actor.name, actor_class=actor.actor_class) for actor in actors]
        )

    def get_active_actors(self) -> list[ActorInfo]:
        """Return the actors of the trial, in the order of their actions."""
        return list(self._actors)

    def send_message(
        self,
        payload: Message,
        to: Sequence[str],
        to_environment: bool | None = None,  # noqa: ARG002  published, and without effect there too
    ) -> None:
        """
        Send a protobuf message to actors.

        Args:
            payload: A message of any type.
            to: Names of actors, `"*"` for all of them, or `"class.*"` for all of a class.
            to_environment: Ignored, as this is the environment.

        Raises:
            TrialError: `to` is not a list, or `payload` is not a message.

        """
        super().send_message(payload, to)

    def start(
        self,
        observations: Sequence[tuple[str, Message]] | None = None,
        auto_done_sending: bool = True,
    ) -> None:
        """
        Begin to take part, before any other method is called.

        Args:
            observations: The first observations; without them call `produce_observations` next.
            auto_done_sending: Whether to acknowledge the end of the trial right after the final
                observations; otherwise call `sending_done`.

        Raises:
            TrialError: The observations do not fit the actors, the session was started before, or
                the trial has ended.

        """
        self._check_start()
        packed = None if observations is None else self._pack(observations)
        self._begin(is_automatic=auto_done_sending)
        init = EnvInitialOutput()
        self._sender.send(EnvRunTrialOutput(state=NORMAL, init_output=init))
        if packed is not None:
            self._sender.send(packed)

    def produce_observations(self, observations: Sequence[tuple[str, Message]]) -> None:
        """
        Send the observations of the next tick, or the final ones of a trial that is ending.

        Raises TrialError if they do not fit the actors.
        """
        packed = self._pack(observations)
        if self._can_observe():
            self._send_observations(packed)

    def end(self, final_observations: Sequence[tuple[str, Message]]) -> None:
        """
        End the trial with its final observations.

        Raises TrialError if they do not fit the actors.
        """
        packed = self._pack(final_observations)
        if self._can_observe():
            if not self._is_ending:
                self._become_ending()
                self._sender.send(EnvRunTrialOutput(state=LAST))
            self._send_observations(packed)

    def _can_observe(self) -> bool:
        if self._is_last_sent and not self._is_done:
            self._warn("Cannot send observations after the final ones")
            return False
        return self._can_send()

    def _send_observations(self, packed: EnvRunTrialOutput) -> None:
        self._is_last_sent = self._is_ending
        self._sender.send(packed)
        if self._is_last_sent and self._is_automatic and not self._is_over:
            self._acknowledge()

    def _pack(self, observations: Sequence[tuple[str, Message]]) -> EnvRunTrialOutput:
        """Return a message with an observation for each actor; shared objects are sent once."""
        message = EnvRunTrialOutput(state=NORMAL)
        packed = message.observation_set  # filled in place, which takes half the time
        packed.tick_id = AUTO
        packed.timestamp = time.time_ns()
        contents = packed.observations
        numbers: dict[int, int] = {}
        given = [-1] * len(self._actors)
        for target, observation in observations:
            indices = self._find(target, len(observations))
            number = numbers.get(id(observation))
            if number is None:
                numbers[id(observation)] = number = len(contents)
                contents.append(observation.SerializeToString())
            for index in indices:
                if given[index] >= 0:
                    name = self._name_in(target, index)
                    raise TrialError(f"Duplicate actor [{name}] in observations list")
                given[index] = number
        if -1 in given:
            name = self._actors[given.index(-1)].actor_name
            raise TrialError(f"Actor [{name}] is missing an observation")
        packed.actors_map.extend(given)
        return message

    def _find(self, target: str, listed: int) -> tuple[int, ...]:
        if not isinstance(target, str):
            raise TrialError(f"Target actor name [{target}] must be a string")
        if target in _ALL and listed > 1:
            raise TrialError("Duplicate actors in observations list when using a wildcard")
        indices = self._targets.find(target)
        if not indices and self._actors:
            raise TrialError(f"Unknown actor [{target}] in observations list")
        return indices

    def _name_in(self, target: str, index: int) -> str:
        actor = self._actors[index]
        is_plain = target == actor.actor_name
        return actor.actor_name if is_plain else f"{actor.actor_class_name}.{actor.actor_name}"

    def _take(self, message: EnvRunTrialInput) -> None:
        kind = message.WhichOneof("data")
        if kind == "action_set":
            received = self._actions(message.action_set)
            self._tick = message.action_set.tick_id
            self._put(RecvEvent(self._event_type, actions=received))
        elif kind == "message":
            self._take_message(message.message)
        else:
            raise TrialError(f"environments do not receive {kind or 'messages without data'}")

    def _actions(self, acted: ActionSet) -> list[RecvAction]:
        contents, tick, timestamp = acted.actions, acted.tick_id, acted.timestamp
        if len(contents) != len(self._spaces):
            raise TrialError(
                f"Received {len(contents)} actions but have {len(self._spaces)} actors"
            )
        unavailable = frozenset(acted.unavailable_actors)
        received = []
        for index, (space, content) in enumerate(zip(self._spaces, contents, strict=True)):
            action = None
            if index not in unavailable:
                try:
                    action = space.FromString(content)
                except DecodeError:  # one bad actor does not end the trial of the others
                    name = self._actors[index].actor_name
                    _log.warning("%r: the action of actor [%s] cannot be read", self, name)
            status = ActorStatus.UNAVAILABLE if action is None else ActorStatus.ACTIVE
            moment = 0 if action is None else timestamp
            received.append(RecvAction(index, tick, status, moment, action))
        return received
