"""Metadata that a program sends with its calls to a server of trials."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TypeAlias

from arkml.base.sealed import Sealed
from arkml.trials.core.error import TrialError

_Value: TypeAlias = str | bytes


class GrpcMetadata(Sealed):
    """Key-value pairs that a controller sends with its calls, such as a login."""

    def __init__(self) -> None:
        self._pairs: list[tuple[str, _Value]] = []

    def __repr__(self) -> str:
        return f"GrpcMetadata({', '.join(key for key, _ in self._pairs)})"

    def copy(self) -> GrpcMetadata:
        """Return a copy with the same pairs."""
        made = GrpcMetadata()
        made._pairs = list(self._pairs)
        return made

    def add(self, key: str, value: str | bytes) -> None:
        """
        Add a pair, whose key is changed to lower case.

        Raises TrialError for a key that gRPC reserves, for bytes under a key without the suffix
        "-bin", and for text under a key with it.
        """
        key = key.lower()
        if key.startswith("grpc-"):
            raise TrialError(f"'grpc-' metadata prefix is reserved by grpc itself: {key!r}")
        if key.endswith("-bin") and not isinstance(value, bytes):
            raise TrialError(f"Key ending with '-bin' should have a bytes value: {key!r}")
        if isinstance(value, bytes) and not key.endswith("-bin"):
            raise TrialError(f"Binary metadata should have a key ending with '-bin': {key!r}")
        self._pairs.append((key, value))

    def add_http_basic_auth(self, username: str, password: str) -> None:
        """Add a user name and password as an `authorization` pair of HTTP's basic scheme."""
        encoded = base64.b64encode(f"{username}:{password}".encode()).decode()
        self._pairs.append(("authorization", f"basic {encoded}"))

    def to_grpc_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """Return the pairs in the form that grpcio takes."""
        return tuple(self._pairs)
