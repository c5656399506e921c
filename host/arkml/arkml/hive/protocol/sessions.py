"""Messages of sessions: a host joins a run, sends rows and metric names, and leaves."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from arkml.hive.protocol.runs import Role, Status
from arkml.hive.protocol.wire import Count, PolicyVersion, WireStruct

ON_POLICY = frozenset({"ppo"})
"""The learners that learn from rows of their own policy only."""

MetricId = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]


class JoinRequest(WireStruct, frozen=True):
    """
    A session to be had in a run.

    `join_key` is the host's own; the same key gives the same session. `features` and `actions` are
    the widths of its rows, which must be the run's.
    """

    join_key: Annotated[str, Meta(min_length=8, max_length=128)]
    features: int
    actions: int
    role: Role = Role.ACT


class SessionState(WireStruct, frozen=True, kw_only=True):
    """
    The state of a session, in every answer to it.

    `acked` is the number of the last body of rows in the log. `policy_version` is the run's newest.
    `credit` is the number of rows that the learner's rate limiter admits now; with `hold` none are,
    whatever the credit. `place` is the position of the run, from 1, in the order of those that wait
    for a learner, 0 if it does not wait.
    """

    acked: Count
    policy_version: PolicyVersion
    credit: Count
    hold: bool = False
    place: Count = 0


class Joined(SessionState, frozen=True, kw_only=True):
    """
    A session of a run; `index` is its number there, `rejoin` if its key had joined before.

    `learner` is the name of the run's learning algorithm. With `is_on_policy` it learns from rows
    of its own policy only: it takes neither demonstrations nor augmented rows.
    """

    sid: str
    index: Count
    learner: str
    is_on_policy: bool
    rejoin: bool = False


class RowsReply(SessionState, frozen=True, kw_only=True):
    """
    The answer to a body of rows that is in the log.

    `accepted` rows are new, 0 for a `duplicate`. `refused` are the first of the `refused_n` refused
    rows, each with the reason.
    """

    accepted: Count
    refused: list[tuple[int, str]]
    refused_n: Count
    duplicate: bool


class OutOfTurn(WireStruct, frozen=True):
    """The refusal of a body of rows whose turn it is not; `expected` is the number that is next."""

    error: str
    expected: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]


class LeaveRequest(WireStruct, frozen=True):
    """The end of a session; with `stop` the run stops for all others too."""

    stop: bool = False


class LeaveReply(WireStruct, frozen=True):
    """The state of the run that a session has left."""

    status: Status


class NamesRequest(WireStruct, frozen=True):
    """Names of metrics that a run is to number."""

    names: list[str]


class NamesReply(WireStruct, frozen=True):
    """The numbers of metric names, and the reason for each name that is refused."""

    ids: dict[str, MetricId]
    refused: dict[str, str] = field(default_factory=dict)
