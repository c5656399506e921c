"""Messages of sessions: a host joins a run, sends rows and metric names, and leaves."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.run_origin import MAX_HOST
from arkml.hive.protocol.runs import Role, Status
from arkml.hive.protocol.wire import Count, PolicyVersion, WireStruct

ON_POLICY = frozenset({"ppo"})
"""The learners that learn only from rows of their own policy."""

MetricId = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]


class JoinRequest(WireStruct, frozen=True):
    """
    A request for a session of a run.

    Attributes:
        join_key: The host's own key; the same key gives the same session.
        features: Number of features of its rows, as the run has it.
        actions: Number of actions of its rows, as the run has it.
        role: Use of its rows.
        host: Name of the host's machine, for people, or empty.

    """

    join_key: Annotated[str, Meta(min_length=8, max_length=128)]
    features: int
    actions: int
    role: Role = Role.ACT
    host: Annotated[str, Meta(max_length=MAX_HOST)] = ""


class SessionState(WireStruct, frozen=True, kw_only=True):
    """
    The state of a session, in every answer to it.

    Attributes:
        acked: Number of the last body of rows in the log.
        policy_version: The newest version of the run's policy.
        credit: Number of rows that the learner's rate limiter admits now.
        hold: True admits no rows, whatever the credit.
        place: Position of the run, from 1, among the runs that wait for a learner, or 0.

    """

    acked: Count
    policy_version: PolicyVersion
    credit: Count
    hold: bool = False
    place: Count = 0


class Joined(SessionState, frozen=True, kw_only=True):
    """
    A session of a run.

    Attributes:
        sid: Id of the session.
        index: Number of the session in its run.
        learner: Name of the run's learning algorithm.
        is_on_policy: True if it learns only from rows of its own policy, and takes neither
            demonstrations nor augmented rows.
        is_pink: True if its agents explore by pink noise.
        rejoin: True if the key had joined before.
        parts: The parts of a row, if the run has images: their values come as bytes.

    """

    sid: str
    index: Count
    learner: str
    is_on_policy: bool
    is_pink: bool
    rejoin: bool = False
    parts: tuple[Part, ...] = ()


class RowsReply(SessionState, frozen=True, kw_only=True):
    """
    The answer to a body of rows that is in the log.

    Attributes:
        accepted: Number of new rows, 0 for a duplicate.
        refused: The first refused rows, each with the reason.
        refused_n: Number of refused rows.
        duplicate: True if the body was in the log before.

    """

    accepted: Count
    refused: list[tuple[int, str]]
    refused_n: Count
    duplicate: bool


class OutOfTurn(WireStruct, frozen=True):
    """
    The refusal of a body of rows with a wrong number; `expected` is the number of the next one.
    """

    error: str
    expected: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]


class LeaveRequest(WireStruct, frozen=True):
    """The end of a session; `stop` also ends the run for all other sessions."""

    stop: bool = False


class LeaveReply(WireStruct, frozen=True):
    """The state of the run that a session has left."""

    status: Status


class NamesRequest(WireStruct, frozen=True):
    """Names of metrics that a run should number."""

    names: list[str]


class NamesReply(WireStruct, frozen=True):
    """The number by which rows refer to each metric, and the reason for each refused name."""

    ids: dict[str, MetricId]
    refused: dict[str, str] = field(default_factory=dict)
