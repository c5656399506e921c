"""
Checks of the rows in a body, which accept or refuse each row.

The host checks rows before it sends them; the server checks them again, since a host is a network
peer. A refused row leaves a gap (decision 7).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.errors import ProtocolError
from arkml.hive.protocol.rows import HEADER_SIZE, Header, RowColumns, decode, encode, parse_header

_MAX_REASONS = 64


class CheckedRows(NamedTuple):
    """
    The accepted rows of a body, with a header of their own.

    Attributes:
        body: The rows; the original body if no row was refused.
        header: The header of `body`.
        refused: The number of refused rows.
        reasons: The first refused rows: the index of each, and the reason.
        kinds: The number of refused rows by reason, for example "not finite".
        version: The policy version of the last row, 0 without rows.

    """

    body: bytes
    header: Header
    refused: int
    reasons: list[tuple[int, str]]
    kinds: dict[str, int]
    version: int = 0


def check_rows(header: Header, body: bytes, names: int) -> CheckedRows:
    """
    Check each row of a body.

    Args:
        header: The header of the body.
        body: The rows.
        names: The number of metrics that the run has named.

    Raises:
        ProtocolError: The body is damaged, or holds a metric without a name.

    """
    columns = decode(header, memoryview(body)[HEADER_SIZE:])
    if header.metas and int(columns.meta["name"].max()) >= names:
        raise ProtocolError(f"metric {int(columns.meta['name'].max())} has no name")
    version = int(columns.version[-1]) if header.rows else 0
    faults = {
        "not finite": _not_finite(columns),
        "no such state": columns.state > max(EpisodeState),
        "out of order": _out_of_order(columns),
    }
    refused = np.logical_or.reduce(list(faults.values()))
    if not refused.any():
        return CheckedRows(body, header, 0, [], {}, version)
    kept = encode(
        columns.take(~refused),
        seq=header.seq,
        kind=header.kind,
        dropped=header.dropped,
        sent_ns=header.sent_ns,
        non_finite=header.non_finite + int(faults["not finite"].sum()),
        outside=header.outside,
    )
    numbers = np.flatnonzero(refused)
    reasons = [
        (int(row), next(reason for reason, rows in faults.items() if rows[row]))
        for row in numbers[:_MAX_REASONS]
    ]
    kinds, counted = dict[str, int](), np.zeros(len(columns), bool)
    for reason, rows in faults.items():
        kinds[reason] = int((rows & ~counted).sum())
        counted |= rows
    return CheckedRows(kept, parse_header(kept), len(numbers), reasons, kinds, version)


def _not_finite(columns: RowColumns) -> npt.NDArray[np.bool_]:
    """Return a mask of rows with a number that is not finite: bool, [n]."""
    # A sum takes a third of the time of a test of each number, and nearly always suffices.
    with np.errstate(all="ignore"):
        total = columns.features.sum() + columns.action.sum() + columns.reward.sum()
    if np.isfinite(total):
        return np.zeros_like(columns.reward, bool)
    wrong = ~np.isfinite(columns.reward)
    for array in (columns.features, columns.action):
        wrong |= ~np.isfinite(array).all(axis=1)
    return wrong


def _out_of_order(columns: RowColumns) -> npt.NDArray[np.bool_]:
    """Return a mask of rows whose step is not above the step of the agent's last row: bool, [n]."""
    order = np.argsort(columns.agent, kind="stable")
    agent, step, state = columns.agent[order], columns.step[order], columns.state[order]
    wrong = np.zeros_like(agent, bool)
    back = (agent[1:] == agent[:-1]) & (step[1:] <= step[:-1])
    wrong[order[1:]] = back & (state[1:] != EpisodeState.INITIAL)
    return wrong
