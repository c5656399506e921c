"""Errors of the asynchronous trainer."""

from __future__ import annotations

from arkml.errors import ArkmlError


class BorderAsyncTrainerError(ArkmlError):
    """An error of the asynchronous trainer."""


class SendMsgForPush(BorderAsyncTrainerError):
    """A message that was not sent because the channel to the trainer is full."""
