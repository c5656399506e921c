"""Rows in the form that web pages show: their meanings, their numbers as JSON, and returns."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EPISODE_ENDS, EpisodeState
from arkml.arrays import rounded_bytes
from arkml.batches import Floats
from arkml.errors import InvalidSpec
from arkml.guests.trace_player import ReplayedSubmit
from arkml.hive.protocol.replay_messages import (
    ShownBehavior,
    ShownNumber,
    ShownPart,
    ShownSubmit,
)
from arkml.sessions.declarations import (
    ANY,
    KEY,
    SECTION,
    BehaviorDeclared,
    Behaviors,
    behaviors_in,
    bounded_fields,
    bounds_of,
    fitting,
    listed,
)

MOST_ROWS = 64
"""Rows of a submit that are shown."""

STATES = {state.value: state.name.lower() for state in EpisodeState}
"""The name of each state of an episode, by its value."""

_MOST_BEHAVIORS = 16
_MOST_AGENTS = 1 << 16  # whose returns are added up
_PIXELS = 7  # that count as one number: packed, a page of any of them is within its bytes
Sums: TypeAlias = npt.NDArray[np.float64]


class EpisodeReturns:
    """Running sums of the rewards of agents' episodes, by session and agent."""

    def __init__(self) -> None:
        self._sessions: dict[int, int] = {}
        self._newest: dict[int, tuple[npt.NDArray[np.uint64], Sums]] = {}  # by session
        self._others: dict[tuple[int, int], float] = {}  # agents that are not in the newest submit
        self.ended: list[tuple[int, int, int, float]] = []
        """First rows of the last frame with which episodes ended: row, agent, state and return."""

    def session_of(self, handle: int) -> int:
        """Return a number for a session, from 0 in the order of first submits."""
        return self._sessions.setdefault(handle, len(self._sessions))

    def add(self, submits: Sequence[ReplayedSubmit]) -> list[Sums]:
        """Add the rewards of a frame; return the sums of the episodes of each submit's rows."""
        self.ended.clear()
        with np.errstate(all="ignore"):
            return [self._add(submit) for submit in submits]

    def _add(self, submit: ReplayedSubmit) -> Sums:
        session, rows = self.session_of(submit.handle), submit.rows
        agents, states = rows["id"].astype(np.uint64), rows["state"]
        before = self._before(session, agents)
        totals = np.where(states == EpisodeState.INITIAL, 0.0, before + rows["reward"])
        has_ended = np.isin(states, EPISODE_ENDS)
        for row in np.flatnonzero(has_ended[:MOST_ROWS]).tolist():
            self.ended.append((row, int(agents[row]), int(states[row]), float(totals[row])))
        self._newest[session] = agents, np.where(has_ended, 0.0, totals)
        return totals

    def _before(self, session: int, agents: npt.NDArray[np.uint64]) -> Sums:
        """Return the sums of agents so far; most are in the rows that they were in."""
        others = self._others
        known, sums = self._newest.get(session, (agents[:0], np.zeros(0)))
        if len(known) == len(agents):
            before = sums
            gone = come = np.flatnonzero(known != agents)
        else:
            before = np.zeros(len(agents))
            gone, come = np.arange(len(known)), np.arange(len(agents))
        for agent, total in zip(known[gone].tolist(), sums[gone].tolist(), strict=True):
            if total:
                others[session, agent] = total
        for row, agent in zip(come.tolist(), agents[come].tolist(), strict=True):
            before[row] = others.pop((session, agent), 0.0)
        while len(others) > _MOST_AGENTS:
            del others[next(iter(others))]  # the one that has submitted nothing for longest
        return before


class _Columns(NamedTuple):
    """
    The features of a row, as they are packed.

    Attributes:
        numbers: The indices of features that become numbers, int64, [n].
        images: The indices of the features of each image.
        weight: The size of a row that is shown, in numbers.

    """

    numbers: npt.NDArray[np.int64]
    images: list[slice]
    weight: int


class RowMeanings:
    """
    The meanings of rows by numbers of features and actions, declared by the caller or the module.
    """

    def __init__(self, given: Behaviors, section: bytes | None) -> None:
        self.behaviors: list[ShownBehavior] = []
        self.notes: list[str] = []
        self._known: dict[tuple[bool, int, int], int] = {}
        self._columns: list[_Columns] = []
        self._sources = [(KEY, given)]
        try:
            self._sources.append((SECTION, behaviors_in(section)))
        except InvalidSpec as error:
            self.notes.append(f"observations have no names: {error}")

    def of(self, num_features: int, num_actions: int, *, training: bool) -> int | None:
        """Return the index of the meaning of rows, or None if there are too many meanings."""
        key = training, num_features, num_actions
        if key not in self._known and len(self._known) < _MOST_BEHAVIORS:
            self._known[key] = len(self.behaviors)
            behavior = self._behavior(num_features, num_actions)
            self.behaviors.append(behavior)
            self._columns.append(_columns_of(behavior.observations, num_actions))
        return self._known.get(key)

    def columns(self, behavior: int) -> _Columns:
        """Return how rows with this meaning are packed."""
        return self._columns[behavior]

    def submit(
        self, submit: ReplayedSubmit, session: int, totals: Sums, *, rows: int, room: int
    ) -> tuple[ShownSubmit | None, int]:
        """
        Return a submit in the form that is shown, and how many numbers it contains.

        Args:
            submit: The submit.
            session: The number of the session.
            totals: The sum of the rewards of each row's episode, float64, [n].
            rows: The most rows to show.
            room: The most numbers that the result may contain.

        Returns:
            The submit, or None if there are too many meanings of rows.

        """
        behavior = self.of(
            submit.observations.shape[1], submit.actions.shape[1], training=submit.training
        )
        if behavior is None:
            return None, 0
        columns = self.columns(behavior)
        count = min(len(submit.rows), rows, max(0, room) // columns.weight)
        first, seen = submit.rows[:count], submit.observations[:count]
        shown = ShownSubmit(
            behavior=behavior,
            session=session,
            training=submit.training,
            code=submit.code,
            rows=len(submit.rows),
            agents=[str(agent) for agent in first["id"].tolist()],
            states=[STATES.get(state, "running") for state in first["state"].tolist()],  # type: ignore[misc]  # names of EpisodeState
            rewards=_numbers(first["reward"]),
            returns=[_number(float(f"{total:.9g}")) for total in totals[:count].tolist()],
            observations=_rows(seen[:, columns.numbers]),
            actions=_rows(submit.actions[:count]),
            values=_numbers(submit.values[:count]) if submit.values.any() else [],
            images=_images(seen, columns.images),
        )
        return shown, count * columns.weight

    def _behavior(self, num_features: int, num_actions: int) -> ShownBehavior:
        unfit = []
        for where, source in self._sources:
            fit = fitting(source, num_features, num_actions)
            declared = list(fit.values())
            if not declared:
                unfit += [f"{where} declares {listed(source)}"] if source else []
                continue
            if any(one != declared[0] for one in declared):
                self.notes.append(
                    f"rows of {num_features} features and {num_actions} actions have no names:"
                    f" {where} declares {listed(fit)} with these widths, and a trace has no names"
                    " of behaviors; --spec may declare one"
                )
                continue
            try:
                declared[0].require_fit(where, num_features, num_actions)
                name = next(iter(fit)) if len(fit) == 1 else ""
                return _declared(name, declared[0], num_features, num_actions, where)
            except InvalidSpec as error:
                self.notes.append(f"observations have no names: {error}")
        if unfit:
            self.notes.append(
                f"rows of {num_features} features and {num_actions} actions have no names:"
                f" {unfit[0]} with other widths"
            )
        part = ShownPart("obs_0", [num_features], [None], [None])
        return ShownBehavior("", [part], [None] * num_actions, [None] * num_actions, [], [])


def _declared(
    name: str, declared: BehaviorDeclared, num_features: int, num_actions: int, where: str
) -> ShownBehavior:
    """Return the meaning of rows by a declaration that fits them. Raises InvalidSpec."""
    parts = [
        ShownPart(
            field.name, list(field.shape), _shared(_finite(low)), _shared(_finite(high)),
            field.kind, field.part.categories,
        )
        for field, _, low, high in bounded_fields(declared.observations)
    ]  # fmt: skip
    if not parts:
        parts = [ShownPart("obs_0", [num_features], [None], [None])]
    actions = declared.actions
    count = actions.continuous_of(num_actions)
    low, high = map(_finite, bounds_of(actions.low, actions.high, count, where))
    return ShownBehavior(
        "" if name == ANY else name, parts, low, high, list(actions.discrete),
        list(declared.positions or ()), declared.game(where, num_features),
        list(actions.action_names), list(actions.choice_names),
    )  # fmt: skip


def _columns_of(parts: Sequence[ShownPart], num_actions: int) -> _Columns:
    """Return how rows with these parts are packed."""
    ends = np.cumsum([math.prod(part.shape) for part in parts]).tolist()
    images = [
        slice(end - math.prod(part.shape), end)
        for part, end in zip(parts, ends, strict=True)
        if part.kind == "image"
    ]
    is_number = np.ones(ends[-1], np.bool_)
    for image in images:
        is_number[image] = False
    numbers = np.flatnonzero(is_number)
    pixels = len(is_number) - len(numbers)
    return _Columns(numbers, images, len(numbers) + num_actions + 4 + -(-pixels // _PIXELS))


def _finite(bounds: Sequence[float]) -> list[float | None]:
    """Return bounds, None for infinite ones."""
    return [bound if math.isfinite(bound) else None for bound in bounds]


def _shared(bounds: list[float | None]) -> list[float | None]:
    """Return the bounds of features as one number where all are equal, as in an image."""
    return bounds[:1] if len({*bounds}) == 1 else bounds


def _numbers(values: Floats) -> list[ShownNumber]:
    """Return float32 as the shortest numbers that are equal to them, for JSON."""
    numbers = values.astype(np.float32).astype("U32").astype(np.float64)
    if np.isfinite(numbers).all():
        return numbers.tolist()  # type: ignore[no-any-return]  # it has one dimension
    return [_number(number) for number in numbers.tolist()]


def _rows(values: Floats) -> list[list[ShownNumber]]:
    """Return rows of numbers, [n, m], as `_numbers` does."""
    width, numbers = values.shape[1], _numbers(values.ravel())
    return [numbers[at * width : (at + 1) * width] for at in range(len(values))]


def _images(observations: Floats, images: Sequence[slice]) -> list[list[str]]:
    """Return the bytes of each image of rows, [n, num_features], as base64; empty without any."""
    if not images:
        return []
    pixels = rounded_bytes(observations)
    return [[b64encode(row[one]).decode() for one in images] for row in pixels]


def _number(value: float) -> ShownNumber:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
