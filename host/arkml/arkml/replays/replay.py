"""The replay of a trace: a recorded guest played again."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from arkml.base.closing import Closing, Unique
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr, short_repr
from arkml.errors import (
    ArkmlError,
    GuestError,
    ModuleError,
    TraceRefused,
    UsageError,
)
from arkml.guests.guest import Guest
from arkml.guests.trace_events import Called, Failed, Head, Returned
from arkml.guests.trace_files import read_trace
from arkml.guests.trace_player import (
    Player,
    ReplayedCall,
    ReplayedLoop,
    ReplayedSubmit,
    TraceStops,
    is_own,
    is_same_failure,
)
from arkml.guests.trace_recorder import RELOADED
from arkml.host import Host, Source, loader_of, read_source
from arkml.limits import Limits, whole_number
from arkml.replays.conditions import Condition
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.memory import BytesLike
from arkml.runtime.wasi.linking import WasiGrant

_UNENDED_SECONDS = 10.0  # for a call of which the trace has no end
_FAULT = re.compile(r"memory fault at wasm address (0x[0-9a-f]+)")
_AROUND = 64  # bytes on either side of a fault


@dataclass(frozen=True, slots=True)
class ReplayedFrame:
    """
    One frame of a replay: a call of an export, with its submits, its log and its output.

    Attributes:
        frame: Number of the frame, from 1; 0 for a failure before the first frame.
        function: Name of the export.
        arguments: Arguments of the call.
        result: Result of the call, None if it failed.
        submits: The submits in the frame.
        calls: Calls of functions of the game, the last 1,000.
        error: The error of the guest, None if it did not fail.
        stopped: A sentence about a call that was not played to its end, because the guest was
            stopped from outside or the trace ends there; or an empty text.
        lines: Lines of the guest's log since the previous frame, with their levels of `logging`. At
            most about 1,000 lines of a frame are kept.
        output: Bytes that the guest wrote to standard output and error since the previous frame.

    """

    __repr__ = short_repr

    frame: int
    function: str
    arguments: tuple[int | float, ...]
    result: Any
    submits: tuple[ReplayedSubmit, ...]
    calls: tuple[ReplayedCall, ...]
    error: GuestError | None
    stopped: str
    lines: tuple[tuple[int, str], ...]
    output: bytes


class Replay(Sealed, Unique, Closing):
    """
    Plays a trace: the recorded guest runs again, without its policy, hive and game.

    The guest's requests, its submitted rows and, at each copy in the trace, its memory are compared
    with the recorded ones. A replay goes forwards frame by frame, and backwards by starting again
    at the nearest copy.

    Args:
        trace: The path of a trace that `Host(trace=…)` wrote, or its bytes.
        module: The path or the bytes of the guest's module.
        log: True logs the lines of the guest's log again, by the logger of its name.

    Raises:
        TraceRefused: The file is not a trace, is damaged from its beginning, or is of another
            release or another module.
        ModuleError: The module cannot be loaded.
        UsageError: A file cannot be read, or an argument has a wrong type.

    Example:
        with arkml.Replay("orc.trace", "orc.wasm") as replay:
            for frame in replay:
                print(frame.frame, frame.submits)
            replay.to(replay.last - 1)
            print(replay.read_memory(1024, 16))

    """

    _is_read_only = True

    def __init__(
        self, trace: str | os.PathLike[str] | BytesLike, module: Source, *, log: bool = True
    ) -> None:
        self._is_logged = log
        self._contents = contents = read_trace(trace)
        head = contents.head
        data, label = read_source(module)
        digest = hashlib.sha256(data).hexdigest()
        if digest != head.module:
            raise TraceRefused(
                f"the trace is of {head.name}, whose module has the digest {head.module[:12]}…;"
                f" {label} has {digest[:12]}…"
            )
        self._output: list[bytes] = []
        self._shown_output = 0  # items of it that a frame has
        self._lines: list[tuple[int, str]] = []
        self._host = _host_of(head, self._output)
        try:
            try:
                self._module = self._host.compile(data, name=label)
            except ModuleError as error:
                raise TraceRefused(f"{error}, in this release of arkml") from error
            self._player = Player(head.imports)
            self._guest: Guest | None = None
            self._loop: ReplayedLoop
            self._segment = 0
            self._last: int | None = None
            self._is_stopped = False
            self._begin(0)
        except BaseException:
            self._host.close()
            raise

    def __iter__(self) -> Iterator[ReplayedFrame]:
        """Play frame after frame to the end of the trace."""
        while (frame := self.step()) is not None:
            yield frame

    @property
    def name(self) -> str:
        """Name of the guest that was recorded."""
        return self._contents.head.name

    @property
    def release(self) -> str:
        """The release of arkml that recorded the trace."""
        return self._contents.head.release

    @property
    def recorded_at(self) -> int:
        """The beginning of the recording, in nanoseconds since the Unix epoch."""
        return self._contents.head.began

    @property
    def module(self) -> CompiledModule:
        """The module of the guest."""
        return self._module

    @property
    def first(self) -> int:
        """The number of the first frame that can be played."""
        return self._contents.segments[0].frame + 1

    @property
    def last(self) -> int:
        """The number of the last frame whose beginning is in the trace."""
        if self._last is None:
            segment = self._contents.segments[-1]
            frames = (each.frame for each in segment.events() if isinstance(each, Called))
            self._last = max(frames, default=segment.frame)
        return self._last

    @property
    def frame(self) -> int:
        """The number of the frame that was played last; at the beginning, that before the first."""
        return self._player.frame

    @property
    def copies(self) -> tuple[int, ...]:
        """The frames after which the trace has a copy of the guest, where a replay can start."""
        return tuple(segment.frame for segment in self._contents.segments)

    @property
    def ending(self) -> str:
        """A sentence about a trace that ends before its guest was closed, or ""."""
        contents = self._contents
        if contents.damage:
            return f"the trace is damaged after frame {self.last:,}: {contents.damage}"
        if not contents.end:
            return (
                f"the trace has no end after frame {self.last:,}: its process ended before the"
                " guest was closed"
            )
        if contents.end == RELOADED:
            return (
                f"the trace ends with frame {self.last:,}, after which the guest was reloaded: what"
                " the rebuilt module did is in the next file beside this one, and replays with that"
            )
        return ""

    @property
    def failure(self) -> GuestError | None:
        """The error of the guest, once the frame in which it failed was played; else None."""
        guest = self._guest
        return None if guest is None else guest.failure

    @property
    def fault(self) -> int | None:
        """The memory address at which the guest trapped, or None."""
        found = None if self.failure is None else _FAULT.search(str(self.failure))
        return None if found is None else int(found[1], 16)

    @property
    def output(self) -> bytes:
        """Bytes that the guest has written to standard output and error since the last move."""
        return b"".join(self._output)

    def step(self) -> ReplayedFrame | None:
        """
        Play the next frame, and return it; None at the end of the trace.

        Raises:
            ReplayDiffers: The guest does something else than was recorded.
            TraceRefused: The trace has events that contradict each other.

        """
        while True:
            event = None if self._is_stopped else self._player.next()
            if event is None:
                if not self._enter_next():
                    return None
                continue
            if isinstance(event, Called):
                if (frame := self._play(event)) is not None:
                    return frame
            elif isinstance(event, Failed):  # between two calls, as a guest that is evicted
                self._is_stopped = True
            else:
                raise TraceRefused(
                    f"the trace has after frame {self.frame:,} an answer that nothing asked for"
                )

    def to(self, frame: int) -> ReplayedFrame | None:
        """
        Go forwards or backwards to a frame, and return it; None at the state before `first`.

        The replay starts again at the nearest copy before the frame, unless it is between that copy
        and the frame.

        Raises:
            UsageError: The trace does not have the frame.
            ReplayDiffers: The guest does something else than was recorded.

        """
        number = whole_number(frame)
        if number is None or not self.first - 1 <= number <= self.last:
            has = f"{self.first:,} to {self.last:,}" if self.last >= self.first else "none"
            raise UsageError(f"frame {cut_repr(frame)} is not in the trace: it has {has}")
        goal = max(number - 1, self.first - 1)
        nearest = max(k for k, copied in enumerate(self.copies) if copied <= goal)
        if number <= self.frame or nearest > self._segment:
            self._begin(nearest)
        played = None
        while self.frame < number:
            played = self.step()
            if played is None:
                break
        if self.frame != number:  # the disk of the recording was behind
            raise UsageError(f"frame {number:,} is in a gap of the trace: {self.frame:,} is not")
        return played

    def until(self, condition: str) -> ReplayedFrame | None:
        """
        Play to the next frame in which a condition holds, and return it; None if there is none.

        Args:
            condition: Such as `"reward < -1 and observation[2] > 0.5"`; it holds in a frame if it
                holds for one of its rows. See the guide on replays.

        Raises:
            UsageError: The condition cannot be read.
            ReplayDiffers: The guest does something else than was recorded.

        """
        wanted = Condition(condition)
        for frame in self:
            if wanted.holds(frame.frame, frame.submits):
                return frame
        return None

    def read_memory(self, pointer: int, size: int) -> bytes:
        """Return a copy of guest memory, as `Guest.read_memory` does, also after a failure."""
        assert self._guest is not None
        return self._guest.read_memory(pointer, size)

    def memory_at_fault(self) -> tuple[int, bytes] | None:
        """
        Return the address and the bytes of memory around the address at which the guest trapped.

        Returns None if the guest has not trapped at an address. For an address outside of the
        memory only bytes before it are returned, possibly none.
        """
        if (address := self.fault) is None:
            return None
        _, size = self._loop.instance.memory_place
        start = max(0, min(address, size) - _AROUND)
        return start, self.read_memory(start, min(size, address + _AROUND) - start)

    def close(self) -> None:
        """Free the guest. Safe to call twice."""
        self._host.close()

    def _begin(self, segment: int) -> None:
        """Go to the beginning of a segment."""
        start = self._contents.segments[segment].start
        self._is_stopped = False
        self._output.clear()
        self._shown_output = 0
        self._lines.clear()
        if start.memory is None or self._guest is None or self._guest.failure is not None:
            self._renew()
        self._segment = segment
        self._player.submits = []
        self._player.calls.clear()
        self._player.begin(start)
        self._player.play(self._contents.segments[segment].events())

    def _renew(self) -> None:
        """Make the guest anew."""
        if self._guest is not None:
            self._guest.close()
        loader = loader_of(self._host)
        loop = loader.load(self._module, self.name, loader.shared(), trace=self._player)
        assert isinstance(loop, ReplayedLoop)
        self._loop = loop
        self._guest = Guest(loop)
        log, lines, player = loop.instance.services.log, self._lines, self._player
        log.count_by(lambda: float(player.played))  # a replay is faster than what it replays
        log.on_line = lambda level, line: lines.append((level, line))
        log.is_logged = self._is_logged

    def _enter_next(self) -> bool:
        """Go on with the next segment, from the state that the guest has; False at the end."""
        following = self._segment + 1
        if following >= len(self._contents.segments):
            return False
        start = self._contents.segments[following].start
        if not start.follows or self._is_stopped:
            self._begin(following)
            return True
        self._player.compare(start)
        self._segment = following
        self._player.play(self._contents.segments[following].events())
        return True

    def _play(self, called: Called) -> ReplayedFrame | None:
        """Play a call; returns None for one that only prepares another."""
        player = self._player
        is_frame = called.frame != player.frame
        if is_frame:
            player.submits = []
            player.calls.clear()
            player.played += 1
        player.frame = called.frame
        ending = player.ending()
        result, error, stopped = None, None, ""
        try:
            result = self._loop.play(called, self._budget(ending))
        except TraceStops as stop:
            stopped = self._stop(stop.failure)
        except GuestError as raised:
            error = raised
            if isinstance(ending, Failed) and is_own(ending):
                if not is_same_failure(raised, ending):
                    raise player.differs(
                        f"the guest fails ({_line(str(raised))}), and {player.told(ending)} before"
                    ) from raised
            elif isinstance(ending, Failed):
                stopped = self._stop(ending)
            elif ending is None:
                stopped = self._stop(None)
            else:
                raise player.differs(
                    f"the guest fails ({_line(str(raised))}), and its call ended before"
                ) from raised
            self._is_stopped = True
        else:
            stopped = self._ended(result)
        if not is_frame and error is None and not stopped:
            return None
        lines, output = tuple(self._lines), b"".join(self._output[self._shown_output :])
        self._lines.clear()
        self._shown_output = len(self._output)
        return ReplayedFrame(
            called.frame, called.function, called.arguments, result, tuple(player.submits),
            tuple(player.calls), error, stopped, lines, output,
        )  # fmt: skip

    def _ended(self, result: Any) -> str:
        """Compare the end of a call that did not fail; return a sentence if it was stopped."""
        player = self._player
        event = player.upcoming()
        if event is None or isinstance(event, Called):
            return ""
        event = player.next()
        if isinstance(event, Failed):
            if not is_own(event):
                return self._stop(event)
            raise player.differs(f"its call ends, and {player.told(event)} before")
        if not isinstance(event, Returned):
            assert event is not None
            raise player.differs(f"its call ends, and {player.told(event)} before")
        if event.value is not None and repr(event.value) != repr(result):
            raise player.differs(f"its call returns {result!r}, and returned {event.value!r}")
        return ""

    def _stop(self, failed: Failed | None) -> str:
        """Note that the present call is not played to its end; return the sentence that says so."""
        self._is_stopped = True
        if failed is None:
            return f"the trace ends within frame {self.frame:,}"
        return f"the guest was stopped here: {failed.text}"

    def _budget(self, ending: object) -> float | None:
        """Return the seconds for a call, which the trace does not bound if it was cut off."""
        if ending is None or (isinstance(ending, Failed) and not is_own(ending)):
            return self._module.limits.run_seconds or _UNENDED_SECONDS
        return None


def _host_of(head: Head, output: list[bytes]) -> Host:
    """Return a host with the limits and grants of a trace. Raises TraceRefused."""
    known = {field.name for field in fields(Limits)}
    given: Any = {name: value for name, value in head.limits.items() if name in known}
    given.update(host_bytes=None, instances=2, compile_seconds=Limits().compile_seconds)
    try:
        wasi = None
        if head.wasi is not None:
            arguments, environment = head.wasi
            wasi = WasiGrant(arguments, environment, stdout=output.append, stderr=output.append)
        return Host(
            limits=Limits(**given),
            wasi=wasi,
            stub_missing=head.stub_missing,
            imports=dict.fromkeys(head.game, _unasked) or None,
        )
    except ArkmlError as error:
        raise TraceRefused(f"the trace says about its guest what cannot be: {error}") from error


def _unasked(*numbers: float) -> None:
    """Stand in for a function of the game, which a replay never calls."""


def _line(text: str) -> str:
    return text.partition("\n")[0]
