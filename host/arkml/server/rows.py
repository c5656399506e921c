"""Which rows of a body are taken."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.errors import ProtocolError
from arkml.hive.protocol.rows import HEADER_SIZE, Header, RowColumns, decode, encode, parse_header

_REASONS_TOLD = 64


class Taken(NamedTuple):
    """
    What of a body is kept.

    `body` is the body itself if no row of it was refused. `reasons` are the row and why it was
    refused, of the first ones.
    """

    body: bytes
    header: Header
    refused: int
    reasons: list[tuple[int, str]]


def take(header: Header, body: bytes, names: int) -> Taken:
    """
    Check a whole body; `names` is how many metrics its run has.

    Raises ProtocolError if it is damaged or speaks of metrics that nobody has named.
    """
    columns = decode(header, memoryview(body)[HEADER_SIZE:])
    if len(columns.meta) and int(columns.meta["name"].max()) >= names:
        raise ProtocolError(f"metric {int(columns.meta['name'].max())} has no name")
    found = {
        "not finite": _not_finite(columns),
        "no such state": columns.state > max(EpisodeState),
        "out of order": _out_of_order(columns),
    }
    refused = np.logical_or.reduce(list(found.values()))
    if not refused.any():
        return Taken(body, header, 0, [])
    kept = encode(
        columns.take(~refused),
        seq=header.seq,
        kind=header.kind,
        dropped=header.dropped,
        sent_ns=header.sent_ns,
    )
    numbers = np.flatnonzero(refused)
    reasons = [
        (int(row), next(why for why, rows in found.items() if rows[row]))
        for row in numbers[:_REASONS_TOLD]
    ]
    return Taken(kept, parse_header(kept), len(numbers), reasons)


def _not_finite(columns: RowColumns) -> npt.NDArray[np.bool_]:
    numbers = (columns.features, columns.action, columns.reward)
    # One sum is read in a third of the time of a look at each number, and nearly always enough.
    with np.errstate(all="ignore"):
        if all(np.isfinite(array.sum()) for array in numbers):
            return np.zeros(len(columns), bool)
    wrong = ~np.isfinite(columns.reward)
    for array in (columns.features, columns.action):
        wrong |= ~np.isfinite(array).all(axis=1)
    return wrong


def _out_of_order(columns: RowColumns) -> npt.NDArray[np.bool_]:
    """Rows whose step is not above that of the same agent's row before."""
    order = np.argsort(columns.agent, kind="stable")
    agent, step, state = columns.agent[order], columns.step[order], columns.state[order]
    wrong = np.zeros(len(columns), bool)
    back = (agent[1:] == agent[:-1]) & (step[1:] <= step[:-1])
    wrong[order[1:]] = back & (state[1:] != EpisodeState.INITIAL)
    return wrong
