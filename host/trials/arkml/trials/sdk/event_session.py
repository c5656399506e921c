"""The common part of actor and environment sessions: sending, and the loop of events."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed
from arkml.trials.core.error import TrialError
from arkml.trials.core.mail import AUTO
from arkml.trials.sdk.session_events import EventType, RecvEvent, RecvMessage, pack
from arkml.trials.streams import Sender
from arkml.trials.wire import common_pb2 as common
from arkml.trials.wire.actor_pb2 import ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import CommunicationState, Reward, RewardSource
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput, EnvRunTrialOutput

_log = SafeLogger(__name__)

In = TypeVar("In", ActorRunTrialInput, EnvRunTrialInput)
Out = TypeVar("Out", ActorRunTrialOutput, EnvRunTrialOutput)

NORMAL, HEARTBEAT, LAST, LAST_ACK, END = (
    CommunicationState.NORMAL,
    CommunicationState.HEARTBEAT,
    CommunicationState.LAST,
    CommunicationState.LAST_ACK,
    CommunicationState.END,
)


MOST_UNREAD = 100_000
"""Maximum number of unread events; a session with more ends."""

MOST_UNREAD_BYTES = 256 << 20
"""Maximum size of the unread events in bytes; the first few are not counted."""

_FEW = 16  # events whose bytes are not counted


class Session(Sealed, ABC, Generic[In, Out]):
    """
    The part of one actor, or of the environment, in one trial.

    Contexts create sessions and pass them to implementations. A session belongs to one event loop.

    Args:
        output: Type of the messages to the trial.
        sender: Stream to the trial.
        trial_id: Id of the trial.
        name: Name of the actor or the environment.
        impl_name: Name of the implementation.
        config: Configuration from the trial's parameters, or None.

    """

    def __init__(
        self,
        output: type[Out],
        sender: Sender[Out],
        *,
        trial_id: str,
        name: str,
        impl_name: str,
        config: Message | None,
    ) -> None:
        self.name = name
        self.impl_name = impl_name
        self.config = config
        self._trial_id = trial_id
        self._output: type[Out] = output
        self._sender: Sender[Out] = sender
        self._events: deque[RecvEvent] = deque()
        self._unread_bytes = 0
        self._waiter: asyncio.Future[None] | None = None  # the loop of events waits for it
        self._tick = -1
        self._delivered_tick = -1
        self._is_started = False
        self._is_automatic = True
        self._is_ending = False  # LAST was received, or sent
        self._is_done = False  # LAST_ACK was sent
        self._is_over = False  # END was received, or the stream is lost
        self._event_type = EventType.ACTIVE

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, trial_id={self._trial_id!r})"

    def get_trial_id(self) -> str:
        """Return the id of the trial."""
        return self._trial_id

    def get_tick_id(self) -> int:
        """Return the present tick, -1 before the first one."""
        return self._tick

    def is_trial_over(self) -> bool:
        """Return whether the trial has ended for this session, or the connection is lost."""
        return self._is_over

    def is_ending(self) -> bool:
        """Return whether the trial is ending or has ended: there is no further tick."""
        return self._is_ending or self._is_over

    def sending_done(self) -> None:
        """
        Acknowledge the end of the trial: nothing more is sent.

        Raises TrialError unless the session was started with `auto_done_sending=False` and the
        trial is ending.
        """
        if self._is_automatic:
            raise TrialError("Cannot manually end sending as it is set to automatic")
        if not self._is_ending:
            raise TrialError("Cannot stop sending before trial is ready to end")
        if self._is_over:
            self._warn("end sending ignored because the trial has already ended.")
        elif not self._is_done:
            self._acknowledge()

    async def all_events(self) -> AsyncGenerator[RecvEvent, bool | None]:
        """
        Iterate over the events of the session.

        Ends after the FINAL event, when the trial is cut off or the connection is lost (both
        without a FINAL event), or when it is sent False; it can then be called again. Raises
        TrialError if another loop is waiting for events.
        """
        if not self._is_started:
            _log.warning("Cannot retrieve events until [%s] is started.", self.name)
            return
        events = self._events
        while events or not self._is_over:
            if not events:
                self._unread_bytes = 0
                waiter = self._new_waiter()
                try:
                    await waiter
                finally:
                    if self._waiter is waiter:
                        self._waiter = None
                continue
            event = events.popleft()
            if event.observation is not None:
                self._delivered_tick = event.observation.tick_id
            is_continued = yield event
            if is_continued is not None and not is_continued:
                return

    def event_loop(self) -> AsyncGenerator[RecvEvent, bool | None]:
        """Return `all_events()`, under its older name."""
        return self.all_events()

    def add_reward(
        self,
        value: float,
        confidence: float,
        to: Sequence[str],
        tick_id: int = AUTO,
        user_data: Message | None = None,
    ) -> None:
        """
        Give a reward to actors.

        Args:
            value: Value of the reward.
            confidence: Weight of the value in the mean of all rewards of the tick.
            to: Names of actors, `"*"` for all actors, or `"class.*"` for all of a class.
            tick_id: Tick that the reward is for, -1 for the present one.
            user_data: A message to send along with the reward.

        Raises:
            TrialError: `to` is not a list.

        Example:
            session.add_reward(1.0, confidence=1.0, to=["pilot.*"])

        """
        receivers = listed(to)
        if not self._can_send():
            return
        for receiver in receivers:
            source = RewardSource(value=value, confidence=confidence)
            if user_data is not None:
                pack(user_data, source.user_data)
            reward = Reward(tick_id=tick_id, receiver_name=receiver, value=value, sources=(source,))
            self._sender.send(self._output(state=NORMAL, reward=reward))

    def send_message(self, payload: Message, to: Sequence[str]) -> None:
        """
        Send a protobuf message of any type to other participants.

        `to` is a list with names of actors or of the environment, `"*"` for all actors, or
        `"class.*"` for all actors of a class. Raises TrialError if `to` is not a list, or `payload`
        is not a message.
        """
        if not isinstance(payload, Message):
            raise TrialError(f"the payload of a message is a protobuf message, not {payload!r}")
        receivers = listed(to)
        if not self._can_send():
            return
        for receiver in receivers:
            message = common.Message(tick_id=AUTO, receiver_name=receiver)
            pack(payload, message.payload)
            self._sender.send(self._output(state=NORMAL, message=message))

    # Messages from the trial

    def receive(self, message: In) -> None:
        """Handle a message of the trial."""
        state = message.state
        if self._is_over:
            _log.debug("%r received %s after the end", self, state)
        elif state == NORMAL and len(self._events) >= _FEW and not self._has_room(message):
            self.leave(f"it left {len(self._events)} events unread")
        elif state == NORMAL:
            try:
                self._take(message)
            except (DecodeError, TrialError) as error:
                self.leave(f"it received what it cannot read: {error}")
        elif state == HEARTBEAT:
            self._sender.send(self._output(state=HEARTBEAT))
        elif state == LAST:
            self._become_ending()
        elif state == END:
            self._take_end(message.details)
        else:
            _log.error("%r received the unexpected state %s", self, state)

    def lose(self, reason: str) -> None:
        """Handle the loss of the connection, which ends the loop of events."""
        if not self._is_over:
            if not self._is_done:
                self._warn(f"the connection was lost: {reason}")
            self._end()

    def leave(self, reason: str) -> None:
        """
        End the stream once the implementation has returned or failed.

        If the trial still runs, it is told `reason`.
        """
        if not (self._is_over or self._is_done):
            self._warn(f"it leaves: {reason}")
            self._sender.send(self._output(state=END, details=reason))
        self._hang_up()

    def _hang_up(self) -> None:
        """End the stream after the messages that were sent, without a further one."""
        if not self._is_over:
            self._end()
        self._sender.close()

    def _has_room(self, message: In) -> bool:
        """Count the bytes of one more message; return False if too much is unread."""
        self._unread_bytes += message.ByteSize()
        return len(self._events) < MOST_UNREAD and self._unread_bytes <= MOST_UNREAD_BYTES

    @abstractmethod
    def _take(self, message: In) -> None:
        """Handle a message with data. Raises DecodeError or TrialError for an invalid one."""

    def _take_message(self, message: common.Message) -> None:
        self._put(RecvEvent(self._event_type, messages=[RecvMessage.of(message)]))

    def _take_end(self, details: str) -> None:
        if self._is_ending:
            self._put(RecvEvent(EventType.FINAL))
        else:
            self._warn(f"the trial was cut off: {details}")
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._wake()

    def _become_ending(self) -> None:
        self._is_ending = True
        self._event_type = EventType.ENDING

    def _put(self, event: RecvEvent) -> None:
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _new_waiter(self) -> asyncio.Future[None]:
        """Return a future of the next event, or of the end."""
        if self._waiter is not None:
            raise TrialError(f"the events of [{self.name}] are waited for already")
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        return waiter

    # Messages to the trial

    def _begin(self, *, is_automatic: bool) -> None:
        self._check_start()
        self._is_automatic = is_automatic
        self._is_started = True

    def _check_start(self) -> None:
        if self._is_started:
            raise TrialError(f"Cannot start [{self.name}] more than once.")
        if self._is_over:
            raise TrialError(f"Cannot start [{self.name}] because the trial has ended.")

    def _can_send(self) -> bool:
        """Return whether the trial accepts messages now; log a warning otherwise."""
        if not self._is_started:
            self._warn("Cannot send until session is started.")
        elif self._is_done:
            self._warn("Cannot send after acknowledging ending")
        elif not self._is_over:
            return True
        return False

    def _acknowledge(self) -> None:
        self._is_done = True
        self._sender.send(self._output(state=LAST_ACK))

    def _warn(self, text: str) -> None:
        _log.warning("Trial [%s] - Session for [%s]: %s", self._trial_id, self.name, text)


def listed(to: Sequence[str]) -> Sequence[str]:
    """Return a list of receivers unchanged. Raises TrialError for a single string."""
    if isinstance(to, str):
        raise TrialError(f"receivers are a list of names, such as [{to!r}], not the text {to!r}")
    return to
