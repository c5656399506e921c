"""The document of a replay, made from a trace: what a page shows, within bounds."""

from __future__ import annotations

import logging
import math
import os
from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.arrays import rounded_bytes
from arkml.base.terminal import harmless
from arkml.batches import Floats
from arkml.errors import Frame, GuestError, InvalidSpec, ReplayDiffers, UsageError
from arkml.guests.trace_player import ReplayedSubmit
from arkml.hive.protocol.replay_messages import (
    MAX_SHOWN_FRAMES,
    ReplayDocument,
    ShownBehavior,
    ShownCall,
    ShownFailure,
    ShownFrame,
    ShownLine,
    ShownMark,
    ShownMemory,
    ShownNumber,
    ShownPart,
    ShownSubmit,
)
from arkml.host import Source
from arkml.replays.replay import Replay, ReplayedFrame
from arkml.runtime.memory import BytesLike
from arkml.sessions.declarations import (
    ANY,
    KEY,
    SECTION,
    BehaviorDeclared,
    Behaviors,
    SpecLike,
    behaviors_in,
    behaviors_of,
    bounded_fields,
    bounds_of,
    fitting,
    given_document,
    listed,
)

_MOST_NUMBERS = 500_000  # of all frames: some 6 MB of JSON
_MOST_OF_FRAME = 30_000  # numbers, as of an image of 84 x 84 x 4
_PIXELS = 7  # that count as one number: packed, a page of any of them is within its bytes
_MOST_ROWS = 64  # of a submit
_LEAST_ROWS = 8  # of a submit, before frames are left out in place of rows
_MOST_SUBMITS = 64  # of a frame
_MOST_BEHAVIORS = 16
_MOST_LINES = 2_000
_MOST_EPISODES = 300  # whose ends are marked
_MOST_AGENTS = 1 << 16  # whose returns are added up
_MOST_FORCED = 16  # frames that are shown though they are not every n-th
_LINE, _TEXT, _NAME = 500, 4_000, 200  # characters
_MOST_CALLS = 64  # of a backtrace
_STATES = {state.value: state.name.lower() for state in EpisodeState}
_ENDED = (EpisodeState.TERMINAL, EpisodeState.INTERRUPTED)
_Sums: TypeAlias = npt.NDArray[np.float64]


def document_of(
    trace: str | os.PathLike[str] | BytesLike,
    module: Source,
    *,
    spec: SpecLike = None,
    opens_at: int | None = None,
) -> ReplayDocument:
    """
    Replay a trace, and return what a page shows of it.

    Its size is bounded, however long the trace is: every n-th frame is shown, and of many rows the
    first; its `notes` say what was left out. Of a guest that does otherwise than it did, the frames
    up to there are shown. Lines of the guest's log are in the document, and are not logged.

    Args:
        trace: The path of a trace, or its bytes.
        module: The path or the bytes of the module of that guest.
        spec: The meaning of its rows, as in `GuestEnv`; None for that of the module.
        opens_at: The number of the frame that is shown first; None for the first frame, or the last
            one of a guest that fails or differs.

    Raises:
        TraceRefused: As `Replay` raises it.
        ModuleError: The module cannot be loaded.
        InvalidSpec: `spec` cannot be read.
        UsageError: A file cannot be read, or the trace does not have the frame `opens_at`.

    Example:
        document = document_of("orc.trace", "orc.wasm", opens_at=1_200)
        Path("orc.replay.gz").write_bytes(document.pack())

    """
    given = behaviors_of(given_document(spec), KEY)
    with closing(Replay(trace, module, log=False)) as replay:
        if opens_at is not None and not replay.first <= opens_at <= replay.last:
            raise UsageError(
                f"frame {opens_at} is not in the trace: it has {replay.first:,} to {replay.last:,}"
            )
        shown = _Collected(replay, given, opens_at)
        differs: ReplayDiffers | None = None
        try:
            for frame in replay:
                shown.add(frame)
        except ReplayDiffers as error:
            differs = error
        return shown.document(differs)


def shown_behaviors(
    section: bytes | None, widths: Iterable[tuple[int, int]]
) -> list[ShownBehavior]:
    """
    Return the meanings of rows by their numbers of features and actions.

    `section` is the section `arkml.spec` of a module, if it has one.
    """
    meanings = _Meanings({}, section)
    for num_features, num_actions in widths:
        meanings.of(num_features, num_actions, training=False)
    return meanings.behaviors


class _Collected:
    """The frames of one replay, thinned while they are added."""

    def __init__(self, replay: Replay, given: Behaviors, opens_at: int | None) -> None:
        self._replay = replay
        self._opens_at = opens_at
        self._meanings = _Meanings(given, replay.module.info.spec)
        self._returns = _Returns()
        self._every = 1
        self._frames: list[tuple[ShownFrame, int]] = []  # with their numbers of numbers
        self._size = 0
        self._forced: set[int] = set()
        self._latest: ReplayedFrame | None = None  # which has not been added
        self._latest_returns: list[_Sums] = []
        self._lines: list[ShownLine] = []
        self._left_lines = 0
        self._marks: list[ShownMark] = []
        self._ended = 0
        self._left_submits = 0
        self._rows = _MOST_ROWS

    def add(self, frame: ReplayedFrame) -> None:
        """Add the next frame."""
        self._hear(frame)
        returns = self._returns.add(frame)
        for row, agent, state, total in self._returns.ended:
            if row < self._rows:  # others are not shown
                self._mark_episode(frame.frame, agent, state, total)
        if frame.stopped:
            self._mark(frame.frame, "stopped", frame.stopped)
        if frame.error is not None:
            self._mark(frame.frame, "failed", _line(frame.error))
        if frame.frame == self._opens_at:
            self._mark(frame.frame, "chosen", f"frame {frame.frame:,}, where the page opens")
        if self._is_forced(frame) or not (frame.frame - self._replay.first) % self._every:
            self._latest = None
            self._show(frame, returns)
        else:
            self._latest, self._latest_returns = frame, returns

    def document(self, differs: ReplayDiffers | None) -> ReplayDocument:
        """Return the document, after the last frame."""
        replay = self._replay
        if self._latest is not None:
            self._show(self._latest, self._latest_returns)
        frames = [frame for frame, _ in self._frames]
        if differs is not None:
            told = _cut(str(differs), _TEXT)
            self._mark(differs.frame, "differs", told)
            if not frames or frames[-1].frame < differs.frame:  # it was not played to its end
                frames.append(ShownFrame(differs.frame, "", [], told))
        numbers = [frame.frame for frame in frames]
        opens_at = self._opens_at
        if opens_at is None and numbers:
            is_broken = differs is not None or replay.failure is not None
            opens_at = numbers[-1 if is_broken else 0]
        return ReplayDocument(
            guest=_cut(replay.name, _NAME),
            release=_cut(replay.release, _NAME),
            recorded_at=replay.recorded_at,
            first=replay.first,
            last=replay.last,
            every=self._every,
            behaviors=self._meanings.behaviors,
            frames=frames,
            lines=self._lines,
            marks=self._marks,
            opens_at=opens_at or 0,
            notes=self._notes(),
            failure=_failure(replay),
        )

    def _is_forced(self, frame: ReplayedFrame) -> bool:
        """Return whether a frame is shown in any case."""
        is_wanted = frame.error is not None or frame.stopped or frame.frame == self._opens_at
        if not is_wanted or (len(self._forced) >= _MOST_FORCED and frame.frame != self._opens_at):
            return False
        self._forced.add(frame.frame)
        return True

    def _show(self, frame: ReplayedFrame, returns: list[_Sums]) -> None:
        submits, size = [], 0
        for submit, totals in zip(frame.submits[:_MOST_SUBMITS], returns, strict=False):
            shown, more = self._submit(submit, totals, _MOST_OF_FRAME - size)
            size += more
            if shown is not None:
                submits.append(shown)
        self._left_submits += max(0, len(frame.submits) - _MOST_SUBMITS)
        shown_frame = ShownFrame(frame.frame, _call(frame), submits, _cut(frame.stopped, _TEXT))
        self._frames.append((shown_frame, size))
        self._size += size
        while self._size > _MOST_NUMBERS or len(self._frames) >= MAX_SHOWN_FRAMES:
            self._thin()

    def _thin(self) -> None:
        """Leave out half of the rows of large submits or, if there are few, half of the frames."""
        if self._rows > _LEAST_ROWS and self._size > _MOST_NUMBERS:
            self._rows //= 2
            self._frames = [self._shorter(frame) for frame, _ in self._frames]
        else:
            self._every *= 2
            first = self._replay.first
            self._frames = [
                (frame, size)
                for frame, size in self._frames
                if frame.frame in self._forced or not (frame.frame - first) % self._every
            ]
        self._size = sum(size for _, size in self._frames)

    def _shorter(self, frame: ShownFrame) -> tuple[ShownFrame, int]:
        submits = [submit.first(self._rows) for submit in frame.submits]
        size = sum(len(one.agents) * self._meanings.columns(one.behavior).weight for one in submits)
        return ShownFrame(frame.frame, frame.call, submits, frame.stopped), size

    def _submit(
        self, submit: ReplayedSubmit, totals: _Sums, room: int
    ) -> tuple[ShownSubmit | None, int]:
        """Return a submit, and the number of its numbers; None if nothing of it can be shown."""
        behavior = self._meanings.of(
            submit.observations.shape[1], submit.actions.shape[1], training=submit.training
        )
        if behavior is None:
            self._left_submits += 1
            return None, 0
        columns = self._meanings.columns(behavior)
        count = min(len(submit.rows), self._rows, max(0, room) // columns.weight)
        rows, seen = submit.rows[:count], submit.observations[:count]
        shown = ShownSubmit(
            behavior=behavior,
            session=self._returns.session_of(submit.handle),
            training=submit.training,
            code=submit.code,
            rows=len(submit.rows),
            agents=[str(agent) for agent in rows["id"].tolist()],
            states=[_STATES.get(state, "running") for state in rows["state"].tolist()],  # type: ignore[misc]  # names of EpisodeState
            rewards=_numbers(rows["reward"]),
            returns=[_number(float(f"{total:.9g}")) for total in totals[:count].tolist()],
            observations=_rows(seen[:, columns.numbers]),
            actions=_rows(submit.actions[:count]),
            values=_numbers(submit.values[:count]) if submit.values.any() else [],
            images=_images(seen, columns.images),
        )
        return shown, count * columns.weight

    def _hear(self, frame: ReplayedFrame) -> None:
        """Add the lines of a frame; of many, the last ones stay."""
        lines = [(_level(level), text) for level, text in frame.lines]
        output = harmless(frame.output.decode("utf-8", "replace"))
        lines += [("output", text) for text in output.splitlines()]
        self._lines += [
            ShownLine(frame.frame, level, _cut(text, _LINE))  # type: ignore[arg-type]  # names of levels
            for level, text in lines[-_MOST_LINES:]
        ]
        self._left_lines += max(0, len(lines) - _MOST_LINES)
        if (more := len(self._lines) - _MOST_LINES) > 0:
            self._left_lines += more
            del self._lines[:more]

    def _mark(self, frame: int, kind: str, text: str) -> None:
        if len(self._marks) < 2 * _MOST_EPISODES or kind in ("chosen", "differs"):
            self._marks.append(ShownMark(frame, kind, _cut(text, _TEXT)))  # type: ignore[arg-type]  # kinds of marks

    def _mark_episode(self, frame: int, agent: int, state: int, total: float) -> None:
        self._ended += 1
        if self._ended > _MOST_EPISODES:
            return
        text = f"the episode of agent {agent} ended ({_STATES[state]}) with a return of {total:.6g}"
        self._mark(frame, "episode", text)

    def _notes(self) -> list[str]:
        replay, notes = self._replay, list(self._meanings.notes)
        if replay.ending:
            notes.append(replay.ending)
        if self._every > 1:
            notes.append(
                f"one of every {self._every:,} frames is shown, of {replay.first:,} to"
                f" {replay.last:,}; returns and lines are those of all frames"
            )
        submits = [submit for frame, _ in self._frames for submit in frame.submits]
        if any(len(submit.agents) < submit.rows for submit in submits):
            most = max(len(submit.agents) for submit in submits)
            notes.append(f"the first {most} rows of submits are shown, and fewer of wide ones")
        counts = (
            (self._left_submits, "submits"),
            (self._left_lines, f"lines of the log before the last {_MOST_LINES:,}"),
            (
                max(0, self._ended - _MOST_EPISODES),
                f"ends of episodes after the first {_MOST_EPISODES}",
            ),
        )
        notes += [f"{count:,} {what} are left out" for count, what in counts if count > 0]
        return [_cut(note, _TEXT) for note in notes]


class _Returns:
    """Sums of the rewards of agents' episodes, by session and agent."""

    def __init__(self) -> None:
        self._sessions: dict[int, int] = {}
        self._newest: dict[int, tuple[npt.NDArray[np.uint64], _Sums]] = {}  # by session
        self._others: dict[tuple[int, int], float] = {}  # agents that are not in the newest submit
        self.ended: list[tuple[int, int, int, float]] = []
        """First rows of the last frame with which episodes ended: row, agent, state and return."""

    def session_of(self, handle: int) -> int:
        """Return the number of a session, from 0 in the order of first submits."""
        return self._sessions.setdefault(handle, len(self._sessions))

    def add(self, frame: ReplayedFrame) -> list[_Sums]:
        """Add the rewards of a frame; return the sum of each row of each submit."""
        self.ended.clear()
        with np.errstate(all="ignore"):
            return [self._add(submit) for submit in frame.submits]

    def _add(self, submit: ReplayedSubmit) -> _Sums:
        session, rows = self.session_of(submit.handle), submit.rows
        agents, states = rows["id"].astype(np.uint64), rows["state"]
        before = self._before(session, agents)
        totals = np.where(states == EpisodeState.INITIAL, 0.0, before + rows["reward"])
        has_ended = np.isin(states, _ENDED)
        for row in np.flatnonzero(has_ended[:_MOST_ROWS]).tolist():
            self.ended.append((row, int(agents[row]), int(states[row]), float(totals[row])))
        self._newest[session] = agents, np.where(has_ended, 0.0, totals)
        return totals

    def _before(self, session: int, agents: npt.NDArray[np.uint64]) -> _Sums:
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
        numbers: The indices of those that become numbers, int64, [n].
        images: Those of each image.
        weight: The size of a row that is shown, in numbers.

    """

    numbers: npt.NDArray[np.int64]
    images: list[slice]
    weight: int


class _Meanings:
    """The meanings of rows by their widths, from the caller's declaration or the module's."""

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
        """Return the index of the meaning of rows, None if there are too many meanings."""
        key = training, num_features, num_actions
        if key not in self._known and len(self._known) < _MOST_BEHAVIORS:
            self._known[key] = len(self.behaviors)
            behavior = self._behavior(num_features, num_actions)
            self.behaviors.append(behavior)
            self._columns.append(_columns(behavior.observations, num_actions))
        return self._known.get(key)

    def columns(self, behavior: int) -> _Columns:
        """Return how a row is packed, by the index of its meaning."""
        return self._columns[behavior]

    def _behavior(self, num_features: int, num_actions: int) -> ShownBehavior:
        for where, source in self._sources:
            fit = fitting(source, num_features, num_actions)
            declared = list(fit.values())
            if not declared:
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
        list(declared.positions or ()),
    )  # fmt: skip


def _columns(parts: Sequence[ShownPart], num_actions: int) -> _Columns:
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
    """Return the bounds of features as one where all are alike, as those of an image are."""
    return bounds[:1] if len({*bounds}) == 1 else bounds


def _failure(replay: Replay) -> ShownFailure | None:
    error = replay.failure
    if error is None:
        return None
    frames: Sequence[Frame] = getattr(error, "frames", ())
    text, panic = _line(error), getattr(error, "panic", None)
    if panic and panic not in text:
        text += f"; panic: {panic}"
    memory, fault = replay.memory_at_fault(), replay.fault
    return ShownFailure(
        type(error).__name__,
        _cut(text, _TEXT),
        [
            ShownCall(
                _cut(one.function, _NAME), _cut(one.module, _NAME), one.offset,
                [_cut(place, _NAME) for place in one.places[:_MOST_CALLS]],
            )
            for one in frames[:_MOST_CALLS]
        ],
        None if memory is None or fault is None
        else ShownMemory(memory[0], fault, memory[1].hex()),
    )  # fmt: skip


def _call(frame: ReplayedFrame) -> str:
    """Return a call as a text, such as "step(3) = 1"."""
    arguments = ", ".join(map(repr, frame.arguments[:16]))
    result = "" if frame.result is None else f" = {frame.result!r}"
    return _cut(f"{frame.function}({arguments}){result}", _LINE)


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


def _level(level: int) -> str:
    """Return the name of a level of `logging`."""
    if level >= logging.ERROR:
        return "error"
    if level >= logging.WARNING:
        return "warning"
    if level >= logging.INFO:
        return "info"
    return "debug" if level >= logging.DEBUG else "trace"


def _line(error: GuestError) -> str:
    return str(error).partition("\n")[0]


def _cut(text: str, most: int) -> str:
    """Return a text without control characters, with an ellipsis if it is cut."""
    text = harmless(text[: 2 * most])
    return text if len(text) <= most else f"{text[:most]}…"
