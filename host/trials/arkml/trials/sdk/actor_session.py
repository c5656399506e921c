"""The session of an actor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NoReturn

from google.protobuf.message import Message

from arkml.trials.core.error import TrialError
from arkml.trials.sdk.events import RecvEvent, RecvObservation, RecvReward
from arkml.trials.sdk.session import NORMAL, Session, listed
from arkml.trials.sdk.specs import ActorClass, parsed_config
from arkml.trials.streams import Sender
from arkml.trials.wire.actor_pb2 import (
    ActorInitialInput,
    ActorInitialOutput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
)


class ActorSession(Session[ActorRunTrialInput, ActorRunTrialOutput]):
    """
    The part of one actor in one trial.

    `actor_class` is the name of its class, and `env_name` that of the environment, for messages to
    it. With `has_joined` the trial knows already that the actor takes part.
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
        """Name of the actor's class, by the older of its two published names."""
        return self.actor_class

    def get_active_actors(self) -> NoReturn:
        """Raise TrialError: actors do not know the others."""
        raise TrialError(
            "actors do not know the other actors of their trial: a controller has get_actors, and"
            " the environment get_active_actors"
        )

    def send_message(
        self, payload: Message, to: Sequence[str], to_environment: bool | None = None
    ) -> None:
        """
        Send a message of any type.

        `to` has the names of actors, `"*"` for all of them, or `"class.*"` for those of a class;
        these leave out the environment, whose name is `env_name`, which `to_environment` adds.
        Raises TrialError if `to` is not a list, or `payload` not a message.
        """
        super().send_message(payload, [*listed(to), self.env_name] if to_environment else to)

    def start(self, auto_done_sending: bool = True) -> None:
        """
        Begin to take part. This comes before every other method.

        With `auto_done_sending` the session acknowledges the end of the trial as soon as the last
        observation is there; otherwise `sending_done` has to be called. Raises TrialError if it was
        called before, or the trial is over.
        """
        self._begin(is_automatic=auto_done_sending)
        if not self._has_joined:
            init = ActorInitialOutput()
            self._sender.send(ActorRunTrialOutput(state=NORMAL, init_output=init))
        elif self._is_last_received and auto_done_sending:
            self._acknowledge()

    def do_action(self, action: Message | None) -> None:
        """Send the action of the present tick; None is the default action of the class."""
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
        End the session of a person, who took the actor over: its stand-in acts again.

        What was sent still arrives. An actor that joined by itself is lost to its trial.
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
