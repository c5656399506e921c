"""A plain decoder of pushes and submits, written from the ABI's text: what the shim must do."""

from dataclasses import dataclass, field

import numpy as np

from arkml.abi.codes import EpisodeState, ErrorCode

SUCCESS, WRONG, MISSING, LATER = (
    ErrorCode.SUCCESS,
    ErrorCode.INVALID_ARGUMENTS,
    ErrorCode.NOT_FOUND,
    ErrorCode.UNAVAILABLE,
)
ENDED = (EpisodeState.TERMINAL, EpisodeState.INTERRUPTED)
PAGE = 65_536
BAD_TURN = 13  # of so many submits one is refused by the policy


@dataclass(slots=True)
class Row:
    """One pushed observation; numbers as their bits."""

    agent: int
    state: int
    reward: int
    length: int
    features: bytes
    given: bytes
    metadata: tuple[bytes, ...]


@dataclass(slots=True)
class Session:
    """What a handle names."""

    tag: int
    training: bool
    num_features: int
    num_actions: int
    patience: int = 0
    rows: list[Row] = field(default_factory=list)
    turns: int = 0
    submitted: list[list[Row]] = field(default_factory=list)
    handed_over: list[list[Row]] = field(default_factory=list)

    def clear(self):
        rows, self.rows = self.rows, []
        return rows


def reply(turn, count, width):
    """What the policy of the test answers: actions and values, not all of them finite."""
    rows = np.arange(count, dtype=np.int64)[:, None]
    columns = np.arange(width, dtype=np.int64)[None, :]
    places = rows * 31 + columns * 7 + turn
    actions = (places % 97 / 8).astype(np.float32)
    actions[places % 101 == 1] = np.nan
    actions[places % 103 == 2] = np.inf
    values = (rows[:, 0] * 3 + turn).astype(np.float32)
    values[(rows[:, 0] + turn) % 53 == 7] = -np.inf
    return actions, values


def is_refused(turn):
    """Whether the policy of the test refuses its submit number `turn`."""
    return turn % BAD_TURN == BAD_TURN - 1


class Decoder:
    """The memory of one guest, as it must be, and its sessions by the cell of their handle."""

    def __init__(self, memory, *, rows):
        self.memory = bytearray(memory)
        self.sessions = {}
        self.all = []
        self._rows = rows

    def start(self, cell, session):
        self.sessions[cell] = session
        self.all.append(session)
        return SUCCESS

    def stop(self, cell, *, training):
        if self._find(cell, training) is None:
            return MISSING
        del self.sessions[cell]
        return SUCCESS

    def grow(self, pages):
        before = len(self.memory) // PAGE
        self.memory += bytes(pages * PAGE)
        return before

    def push(self, cell, row, features, given, metadata, *, training):
        """
        Decode a push. `features`, `given` and `metadata` are (pointer, items[, bytes an item]).

        `row` has the numbers that came along; the rest is read from memory.
        """
        session = self._find(cell, training)
        if session is None:
            return MISSING
        size = metadata[2]
        slices = ((*features, 4), (*given, 4), metadata)
        if (
            row.state > max(EpisodeState)
            or features[1] != session.num_features
            or given[1] not in (0, session.num_actions)
            or any(self._is_outside(*lent) for lent in slices)
            or len(session.rows) >= self._rows
        ):
            return WRONG
        row.features, row.given, items = (self._read(*lent) for lent in slices)
        row.metadata = tuple(items[at : at + size] for at in range(0, len(items), size or 1))
        session.rows.append(row)
        return SUCCESS

    def submit(self, cell, actions, values, *, training):
        """Decode a submit; `actions` and `values` are (pointer, items)."""
        session = self._find(cell, training)
        if session is None:
            return MISSING
        rows = session.clear()
        count = len(rows)
        if (
            actions[1] != count * session.num_actions
            or values[1] != count
            or self._is_outside(*actions, 4)
            or self._is_outside(*values, 4)
        ):
            return WRONG
        if not rows:
            return SUCCESS
        session.submitted.append(rows)
        turn, session.turns = session.turns, session.turns + 1
        if is_refused(turn):
            return LATER
        for pointer, column in zip(
            (actions[0], values[0]), self._answers(session, rows, turn), strict=True
        ):
            self.memory[pointer : pointer + column.nbytes] = column.tobytes()
        return SUCCESS

    def hand_over(self, cell):
        session = self._find(cell, training=True)
        if session is None:
            return MISSING
        session.handed_over.append(session.clear())
        return SUCCESS

    def _answers(self, session, rows, turn):
        actions, values = reply(turn, len(rows), session.num_actions)
        ended = [row.state in ENDED for row in rows]
        actions[ended] = 0
        values[ended] = 0
        actions[~np.isfinite(actions)] = 0
        values[~np.isfinite(values)] = 0
        return actions, values

    def _find(self, cell, training):
        session = self.sessions.get(cell)
        return session if session is not None and session.training == training else None

    def _is_outside(self, pointer, items, size):
        return items != 0 and pointer + items * size > len(self.memory)

    def _read(self, pointer, items, size):
        return bytes(self.memory[pointer : pointer + items * size]) if items else b""
