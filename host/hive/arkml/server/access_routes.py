"""Routes about access: the rights of the caller, and tokens for links that open the page."""

from __future__ import annotations

from typing import Any

from arkml.errors import HiveRefused
from arkml.hive.protocol.rights import CallerInfo, OneTimeToken
from arkml.hive.protocol.wire import Nothing
from arkml.server.access.callers import AccessRole
from arkml.server.access.login import info_of
from arkml.server.access.one_time_tokens import LIFE_SECONDS
from arkml.server.routes import HiveCall, Operation


async def _caller(call: HiveCall, _: Nothing) -> CallerInfo:
    """Return the name and the role of the caller's token."""
    return info_of(call.caller, needs_token=call.hive.credentials.are_needed)


async def _one_time_token(call: HiveCall, _: Nothing) -> OneTimeToken:
    """
    Make a token that POST /login takes once, with the rights of the caller's token.

    It ends with that token. 409 if the hive needs none.
    """
    if not call.caller.source:
        raise HiveRefused("this hive needs no token: its page opens without a login", 409)
    return OneTimeToken(call.hive.one_time.issue(call.caller.source), LIFE_SECONDS)


ACCESS_OPERATIONS: tuple[Operation[Any], ...] = (
    Operation("GET", "/whoami", Nothing, CallerInfo, _caller, enough=AccessRole.ACT),
    Operation(
        "POST", "/one_time_tokens", Nothing, OneTimeToken, _one_time_token, enough=AccessRole.ADMIN
    ),
)
