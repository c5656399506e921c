"""The rights of a caller, and links that open the page of a hive."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from arkml.hive.protocol.wire import Count, WireStruct


class CallerInfo(WireStruct, frozen=True):
    """
    The caller of a request, as its hive sees it.

    Attributes:
        name: Name of its token.
        role: Role of its token.
        owner: Id of its token, empty for the operator's. The role `act` may stop a run of this
            owner.
        needs_token: False if the hive answers every program of its machine.

    """

    name: str
    role: Literal["act", "read", "admin"]
    owner: str = ""
    needs_token: bool = True


class OneTimeToken(WireStruct, frozen=True):
    """A token that POST /login takes once, within `seconds`, with the rights of its maker."""

    token: Annotated[str, Meta(min_length=1)]
    seconds: Count
