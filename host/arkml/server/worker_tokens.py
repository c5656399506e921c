"""Tokens of rollout workers, each good for one run alone."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

from arkml.errors import HiveRefused

SCOPE_KEY = "arkml.worker"
"""The key of the grant in the ASGI scope of a request with a worker's token."""


@dataclass(frozen=True, slots=True)
class WorkerGrant:
    """The run that the rollout workers with one token take part in, and the module they run."""

    run_id: str
    module: str

    def require_run(self, run_id: str) -> None:
        """Raise HiveRefused if the token is not good for that run."""
        if run_id != self.run_id:
            raise HiveRefused(f"this token is good for run {self.run_id} alone", 403)

    def require_module(self, sha256: str) -> None:
        """Raise HiveRefused if the workers of this token do not run that module."""
        if sha256 != self.module:
            raise HiveRefused(f"this token is good for module {self.module} alone", 403)


class WorkerTokens:
    """The tokens of the rollout workers that run now. Used by one event loop."""

    def __init__(self) -> None:
        # By digest: the time of a look-up says nothing about a token.
        self._grants: dict[bytes, WorkerGrant] = {}

    def issue(self, grant: WorkerGrant) -> str:
        """Return a new token."""
        token = secrets.token_urlsafe(32)
        self._grants[_digest(token.encode())] = grant
        return token

    def revoke(self, token: str) -> None:
        """Make a token invalid. Safe to call again."""
        self._grants.pop(_digest(token.encode()), None)

    def find(self, token: bytes) -> WorkerGrant | None:
        """Return the grant of a token, None for any other text."""
        return self._grants.get(_digest(token))


def grant_in(scope: Any) -> WorkerGrant | None:
    """Return the grant of the worker that makes a request, None for any other caller."""
    grant: WorkerGrant | None = scope.get(SCOPE_KEY)
    return grant


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
