"""Access rules of a web port: hosts, origins, tokens, and endpoints in parameters."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from arkml.base.host_names import HostRule
from arkml.trials.core.error import TrialError
from arkml.trials.core.parameters import CLIENT, TrialEndpoint
from arkml.trials.server.web.frames import CallRefused, CallStatus
from arkml.trials.server.web.web_options import WebOptions
from arkml.trials.wire.actor_pb2 import ActorInitialOutput
from arkml.trials.wire.common_pb2 import TrialParams

_PAGE_SCHEMES: Final = {"http": "http", "ws": "http", "https": "https", "wss": "https"}


@dataclass(frozen=True, slots=True)
class Grant:
    """
    The rights of a client of the web port.

    Args:
        trial_id: The one trial that they apply to; empty for all trials of the server.
        slots: Names of the actors that the client may act as. If empty, it may only watch.
        is_all: Whether the client may do everything.

    """

    trial_id: str = ""
    slots: frozenset[str] = frozenset()
    is_all: bool = False

    def require_all(self, method: str) -> None:
        """Raise CallRefused unless the client may do everything."""
        if not self.is_all:
            where = f"for trial {self.trial_id} alone" if self.trial_id else "to play or watch"
            raise CallRefused(
                f"this token is good {where}, and not for {method}", CallStatus.PERMISSION_DENIED
            )

    def watched(self, trial_ids: Sequence[str]) -> list[str]:
        """
        Return the ids of the trials to watch: the requested ones, or the one of the client's token.

        An empty list stands for all trials. Raises CallRefused for a token to act, and for trials
        that the token does not cover.
        """
        if self.slots:
            raise CallRefused(
                f"this token is good to act in {self._trials}, and not to watch",
                CallStatus.PERMISSION_DENIED,
            )
        if not self.trial_id:
            return list(trial_ids)
        self._require_trial([*trial_ids, self.trial_id])
        return [self.trial_id]

    def require_slot(self, trial_id: str, slot: ActorInitialOutput) -> None:
        """
        Raise CallRefused unless the client may act as this actor of a trial.

        `slot` has the name or the class of the actor.
        """
        if self.is_all:
            return
        self._require_trial([trial_id])
        if slot.actor_name in self.slots:
            return
        names = f"as {', '.join(sorted(self.slots))}, by name" if self.slots else "to watch"
        raise CallRefused(f"this token is good {names} alone", CallStatus.PERMISSION_DENIED)

    def require_look(self, trial_id: str) -> None:
        """Raise CallRefused unless the client may see the ticks of a trial."""
        self._require_trial([trial_id])

    def covers(self, trial_id: str) -> bool:
        """Return whether the client has rights in a trial."""
        return self.trial_id in ("", trial_id)

    @property
    def _trials(self) -> str:
        return f"trial {self.trial_id}" if self.trial_id else "trials"

    def _require_trial(self, trial_ids: Sequence[str]) -> None:
        for trial_id in trial_ids:
            if not self.covers(trial_id):
                raise CallRefused(
                    f"this token is good for trial {self.trial_id} alone",
                    CallStatus.PERMISSION_DENIED,
                )


ALL: Final = Grant(is_all=True)


class Access:
    """
    The access rules of a web port, and its valid tokens. Belongs to one event loop.

    `token` grants everything; it is empty if the port needs no token.
    """

    def __init__(self, options: WebOptions) -> None:
        self.hosts = HostRule(options.host, options.allow_hosts)
        self.token = options.token
        if options.needs_token and not self.token:
            self.token = secrets.token_urlsafe(32)
        self._origins = frozenset(options.allow_origins)
        self._endpoints = options.endpoints
        self._most = options.limits.tokens
        # By digest, so that the time of a look-up reveals nothing about a token.
        self._grants: dict[bytes, Grant] = {}

    def issue(self, grant: Grant) -> str:
        """
        Return a new token with the rights of `grant`. Raises TrialError if too many are valid.
        """
        if len(self._grants) >= self._most:
            raise TrialError(f"there are {self._most} tokens already, the most that may be valid")
        token = secrets.token_urlsafe(32)
        self._grants[_digest(token)] = grant
        return token

    def end_trial(self, trial_id: str) -> None:
        """Invalidate all tokens of a trial."""
        grants = self._grants.items()
        self._grants = {key: grant for key, grant in grants if grant.trial_id != trial_id}

    def grant(self, token: str | None) -> Grant | None:
        """Return the rights that a token gives, None if it is missing or wrong."""
        if token is None:
            return None if self.token else ALL
        if self.token and hmac.compare_digest(_digest(token), _digest(self.token)):
            return ALL
        return self._grants.get(_digest(token))

    def is_elsewhere(self, origin: str) -> bool:
        """Return whether an origin is one of the foreign ones that the operator has allowed."""
        return origin in self._origins

    def admits_origin(self, scheme: str, hosts: Sequence[str], origins: Sequence[str]) -> bool:
        """
        Return whether a request is admitted by the values of its Origin header.

        A request without the header does not come from a web page, and is admitted. Otherwise the
        page must be the port's own, or of an allowed origin.

        Args:
            scheme: Scheme of the request, such as "https" or "wss".
            hosts: Values of the header Host.
            origins: Values of the header Origin.

        """
        if not origins:
            return True
        own = [f"{_PAGE_SCHEMES[scheme]}://{host.lower()}" for host in hosts]
        return len(origins) == 1 and (origins[0] in self._origins or [origins[0]] == own)

    def check_params(self, params: TrialParams) -> None:
        """
        Check the endpoints in trial parameters that a client of the web port has sent.

        Raises CallRefused for an endpoint that the operator has not allowed, because the server
        would connect to an address that a web page chooses. Raises TrialError for an invalid one.
        """
        texts = [params.environment.endpoint, params.datalog.endpoint]
        texts += [actor.endpoint for actor in params.actors]
        for text in filter(None, texts):
            endpoint = TrialEndpoint.parse(text)
            if endpoint.scheme != CLIENT and endpoint not in self._endpoints:
                raise CallRefused(
                    f"endpoint {text!r} is not one that calls from the web may name: those of the"
                    " parameter file are, and those of --allow-endpoint",
                    CallStatus.PERMISSION_DENIED,
                )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
