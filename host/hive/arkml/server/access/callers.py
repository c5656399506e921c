"""The callers of a hive: the rights of each token's role, and the rights of rollout workers."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from arkml.errors import HiveRefused

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""The methods of requests that change nothing."""

CALLER = "arkml.caller"
"""The key of a request's ASGI scope under which its `Caller` is, once it is admitted."""

_LOOK_EVERY = 1.0


class AccessRole(StrEnum):
    """The role of a token: the kinds of requests that its owner may make."""

    ACT = "act"
    """Train: start runs, join them, send rows, follow policies, and stop the runs it started."""

    READ = "read"
    """See everything and change nothing."""

    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class WorkerGrant:
    """
    The run that the rollout workers with one token take part in, and the module they run.

    `module` is the SHA-256 of the module in hex. `owner` is the id of the token that started the
    run: when that token ends, the workers' token ends, too. It is empty if no token started the
    run.
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
        """Return a new token with the rights of `grant`."""
        token = secrets.token_urlsafe(32)
        self._grants[digest_of(token)] = grant
        return token

    def revoke(self, token: str) -> None:
        """Make a token invalid. Safe to call more than once."""
        self._grants.pop(digest_of(token), None)

    def find(self, digest: bytes) -> WorkerGrant | None:
        """Return the grant of the token with this SHA-256, None for an unknown token."""
        return self._grants.get(digest)


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Caller:
    """
    The author of a request.

    Attributes:
        role: The role of the token; None for a stranger, who may use open routes only, and for a
            rollout worker, which has a `grant` instead.
        grant: The rights of a rollout worker on its run.
        name: The name of the token, for logs.
        owner: The id of the token, which is stored in each run that it starts. Empty for the
            operator's token and for a hive that needs no token.
        source: The digest of the token: revoking the token ends everything with this source. Empty
            for a hive that needs no token.
        is_page: True for the page of the hive, in a browser with a session; False for a program.
        is_valid: Returns False once the token is revoked or expired, or the session of the browser
            has ended. It is cheap: a stream of events calls it every second.

    """

    role: AccessRole | None
    name: str = ""
    owner: str = ""
    grant: WorkerGrant | None = None
    source: bytes = b""
    is_page: bool = False
    is_valid: Callable[[], bool] = _always

    def require(self, enough: AccessRole, method: str, path: str) -> None:
        """
        Raise HiveRefused unless the caller's role allows a route.

        The role `admin` is enough for every route. The role `read` is also enough for a method that
        changes nothing, such as GET, unless the route needs `admin` (decision 22).

        Args:
            enough: The role that the route needs.
            method: The HTTP method, such as "POST".
            path: The path of the request, for the message.

        """
        role = self.role
        is_read = role is AccessRole.READ and method in SAFE_METHODS
        if role in (enough, AccessRole.ADMIN) or (is_read and enough is not AccessRole.ADMIN):
            return
        if self.grant is not None:
            raise HiveRefused(f"a rollout worker may not ask for {method} {path}", 403)
        if role is None:
            raise HiveRefused("the token of the hive is missing or wrong", 401)
        raise HiveRefused(
            f"token {self.name!r} has the role {role}, and {method} {path} takes {enough}", 403
        )

    def owns(self, owner: str) -> bool:
        """Return whether the caller may end a run that the token `owner` started."""
        is_own = bool(owner) and owner == self.owner
        return self.role is AccessRole.ADMIN or (self.role is AccessRole.ACT and is_own)

    @property
    def sees_all(self) -> bool:
        """True for a caller that may see the runs of all tokens."""
        return self.role in (AccessRole.READ, AccessRole.ADMIN)

    def sees(self, owner: str) -> bool:
        """Return whether the caller may see all of a run that the token `owner` started."""
        return self.sees_all or self.owns(owner)

    def lists(self, owner: str) -> bool:
        """
        Return whether a run that the token `owner` started is in the caller's list of runs.

        Programs of the role `act` list the runs of others, to find the one that they join.
        """
        return self.sees(owner) or (self.role is AccessRole.ACT and not self.is_page)

    def require_seen(self, run_id: str, owner: str, *, takes_part: bool) -> None:
        """
        Raise HiveRefused unless the caller may see a run that the token `owner` started.

        A program of the role `act` may join any run. So it may use the routes that a host needs for
        that, for which `takes_part` is true, on the runs of other tokens, too.

        Args:
            run_id: The id of the run, for the message.
            owner: The id of the token that started the run.
            takes_part: True for a route that every host of a run needs.

        """
        if self.sees(owner) or (takes_part and self.lists(owner)) or self.grant is not None:
            return
        raise HiveRefused(
            f"token {self.name!r} has the role {self.role}, and sees the runs alone that it"
            f" started: run {run_id} was started by another one",
            403,
        )

    def require_own(self, run_id: str, owner: str, action: str) -> None:
        """
        Raise HiveRefused unless the caller may end a run, or change it in another way.

        Args:
            run_id: The id of the run, for the message.
            owner: The id of the token that started the run.
            action: What the caller wants to do, as a verb for the message, such as "stop".

        """
        if self.owns(owner):
            return
        raise HiveRefused(
            f"token {self.name!r} has the role {self.role}, and may {action} the runs alone that it"
            f" started: run {run_id} was started by another one",
            403,
        )


STRANGER = Caller(None)
"""The caller of an open route, for which no token is looked at."""


async def until_invalid(caller: Caller) -> None:
    """
    Wait until the caller's token or session is no longer valid, looking once a second.

    A stream of events ends then.
    """
    while caller.is_valid():
        await asyncio.sleep(_LOOK_EVERY)


def digest_of(token: str | bytes) -> bytes:
    """Return the SHA-256 of a token, by which it is kept and found."""
    return hashlib.sha256(token if isinstance(token, bytes) else token.encode()).digest()
