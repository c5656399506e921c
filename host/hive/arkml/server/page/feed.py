"""The changes of a hive as server-sent events: collected once a second, encoded once for all."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from arkml.hive.protocol.page_messages import UsageEntry
from arkml.hive.protocol.runs import RunInfo
from arkml.server.hive import Hive
from arkml.server.labels import Labels
from arkml.server.resources import of_runs
from arkml.server.run import Run

INTERVAL = 1.0
"""Seconds between two looks at the runs."""

COMMENT_EVERY = 15.0
"""Seconds after which a stream without events has a comment, so that proxies keep it."""

_IDLE = 60.0  # seconds after the last stream for which events are still collected
_MOST_EVENTS, _MOST_BYTES = 4_000, 8 << 20
_CHUNK_BYTES = 64 << 10  # a stream gets so much at once, or one larger event
_MOST_CHUNKS = 64  # kept for other streams that read them
_USAGE_EVERY = 2
_ENDED_EVERY = 10
"""Looks from one that includes resources, or runs that have ended, to the next such look."""

_SHOWN = ("rollout/ep_rew_mean", "rollout/ep_len_mean", "eval/mean_reward", "eval/success_rate")
"""The metrics of runs in a table; the others are events of their own."""


class Event(NamedTuple):
    """
    An event of a hive, as browsers receive it.

    Attributes:
        number: Its number, which increases from event to event.
        run: The id of the run whose streams get it, None for every stream.
        kind: Its kind, such as "metrics".
        data: Its bytes, as a server-sent event.
        owner: The id of the token that started that run.
        part: For an event to every stream: takes the id of a token, and returns the values that a
            stream of this token may see. None if they are the same for all.

    """

    number: int
    run: str | None
    kind: str
    data: bytes
    owner: str = ""
    part: Callable[[str], object] | None = None


class _Seen(NamedTuple):
    """The part of a run that was sent: its entry, and the numbers of its reports and events."""

    info: RunInfo
    reports: int
    events: int
    labels: Labels
    owner: str


class Feed:
    """
    The last events of a hive, which streams are read from.

    Event numbers keep increasing when the hive is restarted. A minute after the last stream has
    ended, the hive stops collecting events.
    """

    def __init__(self, hive: Hive) -> None:
        self._hive = hive
        self._events: deque[Event] = deque()
        self._size = 0
        self._next = time.time_ns() // 1_000_000  # more than an earlier hive has counted to
        self._seen: dict[str, _Seen] = {}
        self._changed = asyncio.Event()
        self._chunks: dict[tuple[int, frozenset[str], str | None], tuple[bytes, int]] = {}
        self._streams = 0
        self._unused_since = 0.0
        self._looks = 0
        self._has_ended = False
        self._task: asyncio.Task[None] | None = None

    async def stream(
        self, runs: frozenset[str], last: int | None, owner: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """
        Yield events from now on, or after number `last`, until the hive ends.

        If events after `last` are not kept any more, the first one is `reset`.

        Args:
            runs: The ids of the runs whose metrics and histories are included.
            last: The number of the last event that the client has received, None for none.
            owner: The id of a token, to include only the runs that it started; None for all runs.

        """
        self._streams += 1
        try:
            if self._task is None and not self._has_ended:
                self._begin()
                self._task = asyncio.create_task(self._collect())
            known = last is not None and self._first - 1 <= last < self._next
            place = last if known and last is not None else self._next - 1
            kind = "open" if known or last is None else "reset"
            yield _encoded(place, kind, {})
            while True:
                has_ended, found = self._has_ended, self._chunk(place, runs, owner)
                if found is None:
                    place = self._next - 1
                    yield _encoded(place, "reset", {})
                else:
                    chunk, place = found
                    if chunk:
                        yield chunk
                if self._next - 1 != place:
                    continue
                if has_ended:
                    return
                if not await self._wait():
                    yield b": nothing new\n\n"
        finally:
            self._streams -= 1
            self._unused_since = time.monotonic()

    @property
    def _first(self) -> int:
        """The number of the oldest event that is kept, or of the next event if none is."""
        return self._events[0].number if self._events else self._next

    def _chunk(
        self, place: int, runs: frozenset[str], owner: str | None
    ) -> tuple[bytes, int] | None:
        """
        Return the next events after a number for these runs, and the number of the last of them.

        Returns None if some of them are gone.
        """
        if place < self._first - 1:
            return None
        found = self._chunks.get((place, runs, owner))
        if found is None:
            found = self._joined(place, runs, owner)
            if len(self._chunks) < _MOST_CHUNKS:
                self._chunks[place, runs, owner] = found
        return found

    def _joined(self, place: int, runs: frozenset[str], owner: str | None) -> tuple[bytes, int]:
        chosen: list[bytes] = []
        size = 0
        for event in islice(self._events, place + 1 - self._first, None):
            if event.run is None or (event.run in runs and owner in (None, event.owner)):
                data = event.data if owner is None else _data_for(event, owner)
                if chosen and size + len(data) > _CHUNK_BYTES:
                    break
                chosen.append(data)
                size += len(data)
            place = event.number
        return b"".join(chosen), place

    async def _wait(self) -> bool:
        """Wait until a look finds changes of the runs; False if none does in time."""
        try:
            async with asyncio.timeout(COMMENT_EVERY):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _begin(self) -> None:
        """Start from the present state of all runs, without events about it."""
        self._events.clear()
        self._chunks.clear()
        self._size = 0
        self._next += 1  # so that streams of before load anew
        self._seen = {run.document.id: _state(run) for run in self._hive.present_runs}

    async def _collect(self) -> None:
        ending = asyncio.ensure_future(self._hive.runs_closed.wait())
        try:
            while not ending.done():
                await asyncio.wait([ending], timeout=INTERVAL)
                if not self._streams and time.monotonic() - self._unused_since > _IDLE:
                    return
                await self._look(is_last=ending.done())
            self._add(None, "ended", {})
            self._has_ended = True
            self._notify()
        finally:
            ending.cancel()
            self._task = None

    async def _look(self, *, is_last: bool) -> None:
        """Add an event for each change since the last look."""
        before = self._next
        is_full = is_last or self._looks % _ENDED_EVERY == 0
        if self._looks % _USAGE_EVERY == 0 and not is_last:
            hive = self._hive
            learners = {
                run.document.id: run.lifecycle.supervisor.place.pid for run in hive.present_runs
            }
            usage = await hive.resources.measure(learners, hive.disk.used)
            self._add(None, "usage", usage, part=partial(_usage_of, usage, hive.owners))
        self._looks += 1
        changed: list[tuple[str, RunInfo]] = []
        present = {run.document.id: run for run in self._hive.present_runs}
        for name, run in present.items():
            seen = self._seen.get(name)
            if seen is not None and run.document.is_over and not is_full and _is_quiet(run, seen):
                continue
            now = _state(run)
            if seen is None or now.info != seen.info:
                changed.append((now.owner, now.info))
            self._add_news(run, seen)
            self._seen[name] = now
        removed = [(one.owner, name) for name, one in self._seen.items() if name not in present]
        for owner, name in removed:
            event = {"run": name, "at": time.time_ns(), "kind": "removed", "text": "removed"}
            self._add(name, "happened", event, owner)
            del self._seen[name]
        if changed or removed:
            part = partial(_runs_of, changed, removed)
            self._add(None, "runs", part(None), part=part)
        if self._next != before:
            self._notify()

    def _add_news(self, run: Run, seen: _Seen | None) -> None:
        """Add the reports and the events of a run that are new."""
        name, owner = run.document.id, run.document.owner
        reports = run.metrics.total - (seen.reports if seen else 0)
        recent = list(run.metrics.recent)[-reports:] if reports else []
        points = [
            (metric, step, value, at) for at, report in recent for metric, step, value in report
        ]
        if points:
            self._add(name, "metrics", {"run": name, "points": points}, owner)
        history = run.lifecycle.history
        for entry in history.newest(history.total - (seen.events if seen else 0)):
            event = {"run": name, "at": entry.at, "kind": entry.kind, "text": entry.text}
            self._add(name, "happened", event, owner)

    def _add(
        self,
        run: str | None,
        kind: str,
        values: object,
        owner: str = "",
        part: Callable[[str], object] | None = None,
    ) -> None:
        event = Event(self._next, run, kind, _encoded(self._next, kind, values), owner, part)
        self._events.append(event)
        self._size += len(event.data)
        self._next += 1
        while len(self._events) > _MOST_EVENTS or self._size > _MOST_BYTES:
            self._size -= len(self._events.popleft().data)

    def _notify(self) -> None:
        self._chunks.clear()
        self._changed.set()
        self._changed = asyncio.Event()


def _state(run: Run) -> _Seen:
    info = run.info()
    shown = {name: info.latest[name] for name in _SHOWN if name in info.latest}
    numbers = run.metrics.total, run.lifecycle.history.total
    return _Seen(replace(info, latest=shown), *numbers, run.labels.now, run.document.owner)


def _is_quiet(run: Run, seen: _Seen) -> bool:
    return (
        (run.metrics.total, run.lifecycle.history.total) == (seen.reports, seen.events)
        and run.document.status is seen.info.status
        and run.labels.now is seen.labels
    )


def _runs_of(
    changed: list[tuple[str, RunInfo]], removed: list[tuple[str, str]], owner: str | None
) -> dict[str, object]:
    """Return the values of the event `runs`, about the runs of one owner unless that is None."""
    return {
        "runs": [info for of, info in changed if owner in (None, of)],
        "removed": [name for of, name in removed if owner in (None, of)],
    }


def _usage_of(usage: UsageEntry, owners: Mapping[str, str], owner: str) -> UsageEntry:
    """Return a measurement as the token `owner` may see it."""
    return of_runs(usage, {run for run, of in owners.items() if of == owner})


def _data_for(event: Event, owner: str) -> bytes:
    """Return the bytes of an event for a stream of the token `owner`."""
    if event.part is None:
        return event.data
    return _encoded(event.number, event.kind, event.part(owner))


def _encoded(number: int, kind: str, values: Any) -> bytes:
    """Return an event as bytes; JSON has no line feeds, which would end its line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, kind.encode(), msgspec.json.encode(values))


def parts(text: str) -> Iterator[str]:
    """Yield the ids in a query parameter, which are separated by commas."""
    return (part for part in text.split(",") if part)
