"""The errors of trials."""

from __future__ import annotations

from arkml.errors import ArkmlError


class TrialError(ArkmlError):
    """Something that cannot be done with a trial, its parameters, or one of its sessions."""


class ActorTaken(TrialError):
    """An actor that cannot be taken over, since it has a player already."""


CogmentError = TrialError
"""The name that Cogment's SDK has for TrialError."""
