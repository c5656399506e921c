"""The environment of one trial that a guest plays, in the event loop of its server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError

from arkml.base.loggers import SafeLogger
from arkml.errors import ArkmlError
from arkml.guest_trials.guest_workers import GuestWorker
from arkml.guest_trials.trial_guest import TickResult, TrialGuest
from arkml.trials.core.hosting import Acted, HostedTick, HostedTrial
from arkml.trials.wire.common_pb2 import CommunicationState, Message
from arkml.trials.wire.environment_pb2 import (
    EnvInitialInput,
    EnvInitialOutput,
    EnvRunTrialInput,
    EnvRunTrialOutput,
)
from arkml.trials.wire.guest_pb2 import SideChannel

log = SafeLogger(__name__)

MOST_MESSAGES: Final = 1_000
"""Messages for a guest in one tick; more are dropped."""

MOST_BYTES: Final = 16 << 20
"""Bytes of those messages; what is more is dropped."""

_NORMAL = CommunicationState.NORMAL
_LAST, _LAST_ACK = CommunicationState.LAST, CommunicationState.LAST_ACK
_END = CommunicationState.END


class GuestEnvironment:
    """
    The environment of one trial, whose guest is stepped by the thread of `worker`.

    `make` returns the guest for the configuration of a trial and the names of its actors. `on_end`
    is called once, when the trial no longer has a guest. The object belongs to the trial's event
    loop; no method waits for the guest.
    """

    def __init__(
        self,
        trial: HostedTrial,
        worker: GuestWorker,
        make: Callable[[EnvInitialInput], TrialGuest],
        on_end: Callable[[], object],
    ) -> None:
        self._trial = trial
        self._worker = worker
        self._make = make
        self._on_end = on_end
        self._guest: TrialGuest | None = None
        self._is_over = False
        self._is_ending = False  # the trial has sent LAST: the next observations are the last
        self._has_noted = False
        self._messages = self._bytes = 0  # since the last tick

    def receive(self, message: EnvRunTrialInput) -> None:
        """Handle a message of the trial; see HostedEnvironment."""
        kind = message.WhichOneof("data")
        if self._is_over:
            return
        if message.state == _END:
            self._end()
        elif message.state == _LAST:
            self._is_ending = True
        elif message.state == _NORMAL and kind == "init_input":
            self._begin(message.init_input)
        elif message.state == _NORMAL and kind == "message":
            self._tell(message.message)

    def act(self, tick: int, acted: Sequence[Acted], most_ahead: int) -> None:
        """
        Step the guest with the actions of a tick; see HostedEnvironment.

        Args:
            tick: The number of the tick.
            acted: The action of each actor.
            most_ahead: The number of further steps that stand-ins may play ahead.

        """
        del tick
        guest = self._guest
        if guest is not None and not self._is_over:
            self._messages = self._bytes = 0
            most = 0 if self._is_ending else most_ahead
            step = partial(guest.step, acted)
            self._worker.step(guest, step, self._deliver, most, is_awaited=not most)

    def lose(self, reason: str) -> None:
        """Free the guest; see HostedEnvironment."""
        del reason
        self._end()

    def _begin(self, start: EnvInitialInput) -> None:
        try:
            guest = self._guest = self._make(start)
        except ArkmlError as error:
            self._fail(str(error))
            return
        self._trial.receive(EnvRunTrialOutput(state=_NORMAL, init_output=EnvInitialOutput()))
        self._worker.step(guest, partial(guest.begin, self._worker.resources), self._deliver)

    def _tell(self, message: Message) -> None:
        """Pass a message on to the guest; messages of other types are not for it."""
        guest, channel = self._guest, SideChannel()
        if guest is None:
            return
        try:
            is_channel = message.payload.Unpack(channel)
        except DecodeError:
            is_channel = False
        if not is_channel:
            return
        self._messages += 1
        if self._messages > MOST_MESSAGES:
            self._note("more than %d messages for it came in one tick", MOST_MESSAGES)
        elif self._bytes + len(channel.content) > MOST_BYTES:
            self._note("more than %d bytes of them came in one tick", MOST_BYTES)
        elif not guest.tell(message.sender_name, channel.content):
            self._note("it takes no messages: it exports no arkml_side_channel, or is one call")
        else:
            self._bytes += len(channel.content)

    def _note(self, text: str, *values: object) -> None:
        """Log why messages for the guest are dropped, once."""
        if not self._has_noted:
            self._has_noted = True
            text = f"trial %s: messages for the guest are dropped: {text}"
            log.warning(text, self._trial.trial_id, *values)

    def _deliver(self, results: Sequence[TickResult]) -> None:
        """Send the results of a step, and of earlier steps that were played ahead."""
        trial, last = self._trial, results[-1]
        for result in results:
            if self._is_over:
                return
            if result.observations is None:
                self._fail(result.error)
                return
            tick = HostedTick(result.rewards, result.observations, result.stand_ins, result.ended)
            if result is not last:
                trial.pass_over(tick)
        for answer in last.answers:
            trial.receive(answer)
        is_last = last.is_last or self._is_ending
        if is_last and not self._is_ending:
            trial.receive(EnvRunTrialOutput(state=_LAST))  # the observations are the last
        trial.observe(tick)
        if is_last and not self._is_over:
            trial.receive(EnvRunTrialOutput(state=_LAST_ACK))
            self._end()

    def _fail(self, reason: str) -> None:
        self._trial.receive(EnvRunTrialOutput(state=_END, details=reason))
        self._trial.lose("the environment ended its stream")
        self._end()

    def _end(self) -> None:
        """Free the guest, once."""
        if not self._is_over:
            self._is_over = True
            if self._guest is not None:
                self._worker.end(self._guest)
            self._on_end()
