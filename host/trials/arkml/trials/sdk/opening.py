"""A stream that a trial opens; its first message starts a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic

from google.protobuf.message import DecodeError

from arkml.base.loggers import SafeLogger
from arkml.trials.core.error import TrialError
from arkml.trials.sdk.event_session import END, HEARTBEAT, LAST, LAST_ACK, NORMAL, In, Out
from arkml.trials.streams import Receiver, Sender

_log = SafeLogger(__name__)

INTRODUCTION_SECONDS: Final = 30.0
"""Seconds within which a trial must send init_input on a stream that it opened."""


class Opening(Generic[In, Out]):
    """
    The receiving end of a stream that a trial opens.

    Args:
        trial_id: Id of the trial.
        sender: Stream to the trial.
        output: Type of the messages to the trial.
        begin: Called with the first message, init_input; returns the session, which receives all
            later messages. If it raises TrialError, the stream ends with END and the reason.

    """

    def __init__(
        self,
        trial_id: str,
        sender: Sender[Out],
        output: type[Out],
        begin: Callable[[Any], Receiver[In]],
    ) -> None:
        self._trial_id = trial_id
        self._sender: Sender[Out] = sender
        self._output: type[Out] = output
        self._begin: Callable[[Any], Receiver[In]] = begin
        self._session: Receiver[In] | None = None
        self._is_over = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(INTRODUCTION_SECONDS, self._expire)

    def receive(self, message: In) -> None:
        """Handle a message of the trial."""
        if self._session is not None:
            self._session.receive(message)
        elif not self._is_over:
            self._await_init(message)

    def lose(self, reason: str) -> None:
        """Handle the end of the stream."""
        if self._session is not None:
            self._session.lose(reason)
        elif not self._is_over:
            _log.info("Trial [%s] - Ended before start [%s]", self._trial_id, reason)
            self._close()

    def _await_init(self, message: In) -> None:
        state = message.state
        if state == NORMAL and message.WhichOneof("data") == "init_input":
            self._start(message)
        elif state == HEARTBEAT:
            self._sender.send(self._output(state=HEARTBEAT))
        elif state == LAST:
            self._sender.send(self._output(state=LAST_ACK))
        elif state == END:
            self.lose(message.details)
        else:
            kind = message.WhichOneof("data") or "no data"
            self._refuse(f"received state {state} with {kind} before init_input")

    def _start(self, message: In) -> None:
        try:
            self._session = self._begin(message.init_input)
        except (TrialError, DecodeError) as error:
            self._refuse(str(error))
        else:
            self._timer.cancel()

    def _expire(self) -> None:
        self._refuse(f"no init_input came within {INTRODUCTION_SECONDS:g} s")

    def _refuse(self, reason: str) -> None:
        _log.error("Trial [%s] - refused: %s", self._trial_id, reason)
        self._sender.send(self._output(state=END, details=reason))
        self._close()

    def _close(self) -> None:
        self._is_over = True
        self._timer.cancel()
        self._sender.close()
