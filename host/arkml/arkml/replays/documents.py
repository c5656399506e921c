"""Documents of replays, made from traces: the data that a web page shows, bounded in size."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import closing

from arkml.base.terminal import harmless
from arkml.errors import Frame, GuestError, ReplayDiffers, UsageError
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
)
from arkml.host import Source
from arkml.replays.replay import Replay, ReplayedFrame
from arkml.replays.shown_rows import MOST_ROWS, STATES, EpisodeReturns, RowMeanings, Sums
from arkml.runtime.memory import BytesLike
from arkml.sessions.declarations import (
    KEY,
    Behaviors,
    SpecLike,
    behaviors_of,
    given_document,
)

_MOST_NUMBERS = 500_000  # of all frames: some 6 MB of JSON
_MOST_OF_FRAME = 30_000  # numbers, as of an image of 84 x 84 x 4
_LEAST_ROWS = 8  # of a submit, before frames are left out in place of rows
_MOST_SUBMITS = 64  # of a frame
_MOST_LINES = 2_000
_MOST_EPISODES = 300  # whose ends are marked
_MOST_FORCED = 16  # frames that are shown though they are not every n-th
_LINE, _TEXT, _NAME = 500, 4_000, 200  # characters
_MOST_CALLS = 64  # of a backtrace


def document_of(
    trace: str | os.PathLike[str] | BytesLike,
    module: Source,
    *,
    spec: SpecLike = None,
    opens_at: int | None = None,
) -> ReplayDocument:
    """
    Replay a trace, and return the data that a web page shows of it.

    The size of the document is bounded, however long the trace is: every n-th frame is shown, and
    only the first of many rows; `notes` say what was left out. If the replay differs from the
    recording, the frames before the difference are shown. Lines of the guest's log are in the
    document, and are not logged.

    Args:
        trace: The path of a trace, or its bytes.
        module: The path or the bytes of the guest's module.
        spec: The meaning of rows, as in `GuestEnv`; None takes the module's declaration.
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
    Return the meaning of rows for each of these pairs (features, actions), to be shown in a page.

    `section` is the section `arkml.spec` of a module, if it has one.
    """
    meanings = RowMeanings({}, section)
    for num_features, num_actions in widths:
        meanings.of(num_features, num_actions, training=False)
    return meanings.behaviors


class _Collected:
    """The frames of one replay, thinned while they are added."""

    def __init__(self, replay: Replay, given: Behaviors, opens_at: int | None) -> None:
        self._replay = replay
        self._opens_at = opens_at
        self._meanings = RowMeanings(given, replay.module.info.spec)
        self._returns = EpisodeReturns()
        self._every = 1
        self._frames: list[tuple[ShownFrame, int]] = []  # with their numbers of numbers
        self._size = 0
        self._forced: set[int] = set()
        self._latest: ReplayedFrame | None = None  # which has not been added
        self._latest_returns: list[Sums] = []
        self._lines: list[ShownLine] = []
        self._left_lines = 0
        self._marks: list[ShownMark] = []
        self._ended = 0
        self._left_submits = 0
        self._rows = MOST_ROWS

    def add(self, frame: ReplayedFrame) -> None:
        """Add the next frame."""
        self._hear(frame)
        returns = self._returns.add(frame.submits)
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

    def _show(self, frame: ReplayedFrame, returns: list[Sums]) -> None:
        submits, size = [], 0
        for submit, totals in zip(frame.submits[:_MOST_SUBMITS], returns, strict=False):
            session, room = self._returns.session_of(submit.handle), _MOST_OF_FRAME - size
            shown, more = self._meanings.submit(submit, session, totals, rows=self._rows, room=room)
            size += more
            if shown is None:
                self._left_submits += 1
            else:
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
        text = f"the episode of agent {agent} ended ({STATES[state]}) with a return of {total:.6g}"
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
