"""The errors of trials."""

from __future__ import annotations

from arkml.errors import ArkmlError


class TrialError(ArkmlError):
    """A request that a trial, its parameters or one of its sessions cannot carry out."""


class ActorTaken(TrialError):
    """An actor that cannot be taken over because it already has a player."""


CogmentError = TrialError
"""The name that Cogment's SDK has for TrialError."""
