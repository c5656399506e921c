"""The session of an actor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NoReturn

from google.protobuf.message import Message

from arkml.trials.core.error import TrialError
from arkml.trials.sdk.event_session import NORMAL, Session, listed
from arkml.trials.sdk.message_specs import ActorClass, parsed_config
from arkml.trials.sdk.session_events import RecvEvent, RecvObservation, RecvReward
from arkml.trials.streams import Sender
from arkml.trials.wire.actor_pb2 import (
    ActorInitialInput,
    ActorInitialOutput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
)


class ActorSession(Session[ActorRunTrialInput, ActorRunTrialOutput]):
    """
    The part of one actor in one trial, given to the actor's implementation.

    Args:
        trial_id: Id of the trial.
        init: First message of the trial, with the actor's name and configuration.
        spec: Class of the actor.
        sender: Stream to the trial.
        impl_name: Name of the implementation.
        has_joined: Whether the trial already knows that the actor takes part.

    Attributes:
        actor_class: Name of the actor's class.
        env_name: Name of the environment, as a receiver of messages.

    Example:
        async def pilot(session):
            session.start()
            async for event in session.all_events():
                if event.observation and event.type == EventType.ACTIVE:
                    session.do_action(Action(thrust=1.0))

    """

    def __init__(
        self,
        trial_id: str,
        init: ActorInitialInput,
        spec: ActorClass,
        sender: Sender[ActorRunTrialOutput],
        *,
        impl_name: str,
        has_joined: bool,
    ) -> None:
        where = f"Trial [{trial_id}] - Actor [{init.actor_name}]"
        config = None
        if init.HasField("config"):
            config = parsed_config(init.config.content, spec.config_type, where)
        super().__init__(
            ActorRunTrialOutput,
            sender,
            trial_id=trial_id,
            name=init.actor_name,
            impl_name=impl_name,
            config=config,
        )
        self.actor_class: str = spec.name
        self.env_name: str = init.env_name
        self._space = spec.observation_space
        self._has_joined = has_joined
        self._is_last_received = False

    @property
    def class_name(self) -> str:
        """Name of the actor's class, under an older name than `actor_class`."""
        return self.actor_class

    def get_active_actors(self) -> NoReturn:
        """Raise TrialError: an actor does not know the other actors."""
        raise TrialError(
            "actors do not know the other actors of their trial: a controller has get_actors, and"
            " the environment get_active_actors"
        )

    def send_message(
        self, payload: Message, to: Sequence[str], to_environment: bool | None = None
    ) -> None:
        """
        Send a protobuf message to actors or the environment.

        Args:
            payload: A message of any type.
            to: Names of actors, `"*"` for all of them, or `"class.*"` for all of a class. None of
                these includes the environment, whose name is `env_name`.
            to_environment: Whether to send it to the environment, too.

        Raises:
            TrialError: `to` is not a list, or `payload` is not a message.

        """
        super().send_message(payload, [*listed(to), self.env_name] if to_environment else to)

    def start(self, auto_done_sending: bool = True) -> None:
        """
        Begin to take part, before any other method is called.

        With `auto_done_sending` the session acknowledges the end of the trial as soon as the final
        observation has arrived; otherwise call `sending_done`. Raises TrialError if the session was
        started before, or the trial has ended.
        """
        self._begin(is_automatic=auto_done_sending)
        if not self._has_joined:
            init = ActorInitialOutput()
            self._sender.send(ActorRunTrialOutput(state=NORMAL, init_output=init))
        elif self._is_last_received and auto_done_sending:
            self._acknowledge()

    def do_action(self, action: Message | None) -> None:
        """Send the action of the present tick; None sends an empty message as the action."""
        if self._can_send():
            message = ActorRunTrialOutput(state=NORMAL)
            sent = message.action  # filled in place, which takes half the time
            sent.tick_id = self._delivered_tick
            sent.timestamp = time.time_ns()
            if action is not None:
                sent.content = action.SerializeToString()
            self._sender.send(message)

    def hand_back(self) -> None:
        """
        End the session of a person who took over the actor: its stand-in acts again.

        Messages sent before still arrive. For an actor that joined by itself, this means leaving.
        """
        self._hang_up()

    def _take(self, message: ActorRunTrialInput) -> None:
        kind = message.WhichOneof("data")
        if kind == "observation":
            observed = message.observation
            observation = self._space.FromString(observed.content)
            self._tick = tick = observed.tick_id
            received = RecvObservation(tick, observed.timestamp, observation)
            self._put(RecvEvent(self._event_type, observation=received))
            if self._is_ending:
                self._is_last_received = True
                if self._is_started and self._is_automatic and not self._is_done:
                    self._acknowledge()
        elif kind == "reward":
            self._put(RecvEvent(self._event_type, rewards=[RecvReward.of(message.reward)]))
        elif kind == "message":
            self._take_message(message.message)
        else:
            raise TrialError(f"actors do not receive {kind or 'messages without data'}")
