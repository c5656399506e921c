"""The rights of a caller, and links that open the page of a hive."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from arkml.hive.protocol.wire import Count, WireStruct


class CallerInfo(WireStruct, frozen=True):
    """
    The caller of a request, as its hive sees it.

    Attributes:
        name: Name of the caller's token.
        role: Role of the token.
        owner: Id of the token, empty for the operator's. With the role `act`, the caller may stop
            the runs that this token has started.
        needs_token: False if the hive answers every program of its machine.

    """

    name: str
    role: Literal["act", "read", "admin"]
    owner: str = ""
    needs_token: bool = True


class OneTimeToken(WireStruct, frozen=True):
    """A token for one login by POST /login within `seconds`, with the rights of its maker."""

    token: Annotated[str, Meta(min_length=1)]
    seconds: Count
