"""The rights of a caller, and links by which a page of a hive is opened."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from arkml.hive.protocol.wire import Count, WireStruct


class CallerInfo(WireStruct, frozen=True):
    """
    The caller of a request, as its hive sees it.

    `role` is that of its token, whose `name` and id, `owner`, it has; the id is empty for the
    operator's token. A run whose `owner` is the same may be stopped by the role `act`. Without
    `needs_token` the hive answers every program of its machine.
    """

    name: str
    role: Literal["act", "read", "admin"]
    owner: str = ""
    needs_token: bool = True


class OneTimeToken(WireStruct, frozen=True):
    """A token that POST /login takes once, within `seconds`, with the rights of its maker."""

    token: Annotated[str, Meta(min_length=1)]
    seconds: Count
