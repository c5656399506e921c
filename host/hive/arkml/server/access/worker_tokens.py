"""Tokens of rollout workers, each good for one run alone."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from arkml.errors import HiveRefused


@dataclass(frozen=True, slots=True)
class WorkerGrant:
    """
    The run that the rollout workers with one token take part in, and the module they run.

    `owner` is the id of the token that started the run, with which theirs ends; empty for none.
    """

    run_id: str
    module: str
    owner: str = ""

    def require_run(self, run_id: str) -> None:
        """Raise HiveRefused unless the token is for that run."""
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
        self._grants[digest_of(token)] = grant
        return token

    def revoke(self, token: str) -> None:
        """Make a token invalid. Safe to call more than once."""
        self._grants.pop(digest_of(token), None)

    def find(self, digest: bytes) -> WorkerGrant | None:
        """Return the grant of the token with that digest, None without one."""
        return self._grants.get(digest)


def digest_of(token: str | bytes) -> bytes:
    """Return the SHA-256 of a token, by which it is kept and found."""
    return hashlib.sha256(token if isinstance(token, bytes) else token.encode()).digest()
