"""The address at which a context finds the server of trials, and that of its own services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from arkml.trials.core.endpoints import GRPC, TrialEndpoint
from arkml.trials.core.error import TrialError
from arkml.trials.sdk.implementations import RegisteredImplementations
from arkml.trials.service import TrialServices


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a server of trials, `grpc://HOST:PORT`."""

    url: str

    @property
    def authority(self) -> str:
        """`HOST:PORT`. Raises TrialError for another address."""
        address = TrialEndpoint.parse(self.url)
        if address.scheme != GRPC:
            raise TrialError(f"endpoint {self.url!r} is not that of a server: grpc://HOST:PORT")
        return address.authority


@dataclass(frozen=True, slots=True)
class ServedEndpoint:
    """
    The port on which a context serves what it has registered, 0 for a free one.

    There is no login, so `host` is the loopback interface unless it is given; `"[::]"` is all of
    them.
    """

    port: int = 0
    host: str = "127.0.0.1"


class LocalServer(TrialServices, Protocol):
    """A server of trials in this process, in the place of an endpoint."""

    def register(self, implementations: RegisteredImplementations) -> None:
        """Let trials use implementations by `local://`. Raises TrialError if it cannot."""


ServerPlace: TypeAlias = Endpoint | str | LocalServer
"""The place of a server: an Endpoint, its text, or the server itself."""
