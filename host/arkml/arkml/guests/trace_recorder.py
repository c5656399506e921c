"""Recorders of traces: they collect all inputs of a guest, and a thread writes these to a file."""

from __future__ import annotations

import operator
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arkml.base.loggers import SafeLogger
from arkml.base.output_files import path_of
from arkml.base.release import RELEASE
from arkml.base.short_reprs import cut_repr, short_repr
from arkml.base.texts import encodable
from arkml.errors import GuestError, GuestExit, GuestTrap, UsageError
from arkml.guests.call_loop import CallLoop
from arkml.guests.guest import helpers
from arkml.guests.instance import Instance
from arkml.guests.trace_events import (
    Asked,
    Called,
    Cleared,
    Closed,
    End,
    Event,
    Failed,
    GrowthLimited,
    Head,
    Imported,
    Opened,
    Returned,
    SavedQueue,
    Settled,
    Start,
    Submitted,
    Ungrown,
    Wrote,
)
from arkml.guests.trace_files import BlockKind, TraceFile, TraceWriter
from arkml.limits import (
    MIB,
    RUN_SECONDS,
    Budget,
    Limits,
    real_number,
    require_whole,
    whole_number,
)
from arkml.runtime import bindings
from arkml.runtime.columns.region import Region
from arkml.runtime.columns.slabs import Shape
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.exported_function import ExportedFunction, Number
from arkml.runtime.fiber import Fiber, FiberParts
from arkml.runtime.linker import import_calls
from arkml.runtime.memory import GuestMemory, WatchedMemory
from arkml.runtime.shim import control_block as at
from arkml.runtime.shim.control_block import Reason
from arkml.runtime.waits import Wait
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.session import Session

log = SafeLogger(__name__)

RELOADED = "reloaded"
"""The end of a trace of a guest that goes on with another module, in the next file."""

_clock = time.perf_counter
_COPY_SECONDS = 5.0  # between two copies of a memory
_FLUSH_SECONDS = 1.0  # between two blocks: what a process that dies loses
_MOST_EVENTS = 2_000  # in a block
_MOST_BYTES = 1 * MIB  # of writes in a block
_EVENT_BYTES = 100  # of an event, about
_SHARE = 100  # copies of a memory take at most this part of the time
_USUAL_MEMORY = 16 * MIB  # a larger one is copied less often, in proportion
_ALL_MEMORY = 1 << 32
_MOST_GUESTS = 64  # of a fleet, without a choice


@dataclass(frozen=True, slots=True)
class Trace:
    """
    Options for recording the guests of a host; see `Host`.

    The first guest is recorded in the file `path`, further guests in files beside it, such as
    `orc-2.trace` for `orc.trace`. Each guest of a fleet has a file of its own, `orc.7.trace` for
    the guest at index 7. A guest that replaces it, for example after the reset of an environment,
    is recorded in `orc.7-2.trace`.

    Attributes:
        path: The file, which is replaced.
        guests: Indices of the guests of a fleet to record, such as `[0, 7]`; None records all, of
            64 at most.
        limit_bytes: Size of a file, above which the oldest segments are dropped.
        snapshot_seconds: Time from one copy of a guest's memory to the next, 0 for a copy before
            each call. A replay begins at a copy; memories over 16 MiB are copied less often.
        files: Most files of a host, not counting files of live guests; the oldest ones are deleted.

    Example:
        trace = arkml.Trace("orc.trace", limit_bytes=1 << 20)
        with arkml.Host(trace=trace) as host:
            host.load("orc.wasm").update()

    """

    __repr__ = short_repr

    path: str | os.PathLike[str]
    guests: Sequence[int] | None = None
    limit_bytes: int = 16 * MIB
    snapshot_seconds: float = _COPY_SECONDS
    files: int = 64

    def __post_init__(self) -> None:
        path_of(self.path, "trace")
        object.__setattr__(self, "limit_bytes", require_whole("limit_bytes", self.limit_bytes))
        object.__setattr__(self, "files", require_whole("files", self.files))
        seconds = real_number(self.snapshot_seconds)
        if seconds is None or seconds < 0:
            raise UsageError(
                f"snapshot_seconds is {cut_repr(self.snapshot_seconds)}: it takes a number of"
                " seconds from 0"
            )
        if self.guests is not None:
            chosen = [whole_number(guest) for guest in self.guests]
            if any(guest is None or guest < 0 for guest in chosen):
                raise UsageError(
                    f"guests is {cut_repr(self.guests)}: it takes indices in a fleet, as [0, 7]"
                )
            object.__setattr__(self, "guests", tuple(chosen))


def trace_of(given: Trace | str | os.PathLike[str] | None) -> Trace | None:
    """Return the options that an embedder passed, a path as a `Trace`. Raises UsageError."""
    if given is None or isinstance(given, Trace):
        return given
    if isinstance(given, str | os.PathLike):
        return Trace(given)
    raise UsageError(f"trace is {cut_repr(given)}: it takes the path of a file, or arkml.Trace")


class Recorders:
    """
    The recorders of one host's guests, with the thread that writes their files.

    Args:
        trace: Options of the recording.
        wasi: The guests' access through WASI. Raises UsageError for directories.
        stub_missing: Whether unknown imports are stubs.

    """

    def __init__(self, trace: Trace, wasi: WasiGrant | None, *, stub_missing: bool) -> None:
        if wasi is not None and wasi.directories:
            raise UsageError(
                f"a trace cannot have the files of {cut_repr(wasi.directories[0].guest)}: record"
                " the guest without directories, or give it what it reads by calls"
            )
        self._trace = trace
        self._wasi = wasi
        self._stub_missing = stub_missing
        self._writer = TraceWriter()
        self._numbers: dict[Path, int] = {}
        self._files: list[TraceFile] = []
        self._lock = threading.Lock()
        self._has_dropped = False

    def require_choice(self, instances: int) -> None:
        """
        Raise UsageError if a fleet is large and `Trace.guests` does not choose among its guests.
        """
        if self._trace.guests is None and instances > _MOST_GUESTS:
            raise UsageError(
                f"a fleet of {instances:,} guests would be recorded in as many files: choose some,"
                " as in arkml.Trace('orc.trace', guests=[0, 7])"
            )

    def recorder(
        self, module: CompiledModule, name: str, index: int | None
    ) -> GuestRecorder | None:
        """
        Return the recorder of a new guest, or None if the guest is not to be recorded.

        `index` is the index of the guest in its fleet, None for a single guest. Raises UsageError
        if the file cannot be written.
        """
        trace = self._trace
        if index is not None and trace.guests is not None and index not in trace.guests:
            return None

        def next_file(module: CompiledModule) -> TraceFile:
            return self._next_file(module, name, index)

        return GuestRecorder(next_file(module), module, trace.snapshot_seconds, next_file)

    def _next_file(self, module: CompiledModule, name: str, index: int | None) -> TraceFile:
        """Return the next file of a guest, or of the guests at its index. Raises UsageError."""
        path = Path(self._trace.path)
        if index is not None:
            path = path.with_name(f"{path.stem}.{index}{path.suffix}")
        with self._lock:
            number = self._numbers[path] = self._numbers.get(path, 0) + 1
        if number > 1:
            path = path.with_name(f"{path.stem}-{number}{path.suffix}")
        head = _head(module, name, self._wasi, stub_missing=self._stub_missing)
        file = self._writer.open(path, self._trace.limit_bytes, head)
        with self._lock:
            self._files.append(file)
            self._drop_oldest()
        return file

    def close(self) -> None:
        """Wait until all files are written."""
        self._writer.drain()
        with self._lock:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Remove the oldest files of guests that are gone, down to the number that is kept."""
        over = [file for file in self._files if file.is_over]
        for file in over[: max(0, len(self._files) - self._trace.files)]:
            self._files.remove(file)
            with suppress(OSError):  # one that the embedder has moved, for example
                file.path.unlink()
            if not self._has_dropped:
                self._has_dropped = True
                log.warning(
                    "the oldest traces beside %s are removed: no more than %d are kept, as"
                    " arkml.Trace(files=...) has it",
                    self._trace.path, self._trace.files,
                )  # fmt: skip


class PartRecorders:
    """
    Records chosen periods of the life of a host's newest guest, each in a file of its own.

    `limit_bytes` is the size of a file, above which its oldest segments are dropped, and `wasi` the
    guests' access through WASI. A recording ends with its guest at the latest.
    """

    def __init__(self, limit_bytes: int, wasi: WasiGrant | None) -> None:
        self._limit, self._wasi = limit_bytes, wasi
        self._writer = TraceWriter()
        self._newest: tuple[GuestRecorder, CompiledModule, str] | None = None
        self._recording: GuestRecorder | None = None

    def require_choice(self, instances: int) -> None:
        """Do nothing: one guest at a time is recorded."""

    def recorder(self, module: CompiledModule, name: str, index: int | None) -> GuestRecorder:
        """Return the recorder of a new guest, which records nothing yet."""
        del index
        recorder = GuestRecorder(None, module, _COPY_SECONDS)
        self._newest = recorder, module, name
        return recorder

    def begin(self, path: Path) -> None:
        """
        Record the newest guest from its next call on, in a file. Raises UsageError.

        Instances of its module must be copyable.
        """
        assert self._newest is not None
        self._recording, module, name = self._newest
        head = _head(module, name, self._wasi, stub_missing=False)
        self._recording.switch(self._writer.open(path, self._limit, head))

    def end(self) -> None:
        """End the present recording, and wait until it is written."""
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.switch(None)
            self._writer.drain()

    def close(self) -> None:
        """Wait until all files are written."""
        self._writer.drain()


def _head(module: CompiledModule, name: str, wasi: WasiGrant | None, *, stub_missing: bool) -> Head:
    return Head(
        release=RELEASE,
        module=module.digest,
        name=encodable(name),
        began=time.time_ns(),
        limits=asdict(module.limits),
        imports=[call.name for call in import_calls()],
        game=[(each.module, each.name) for each in module.linkage.game],
        stub_missing=stub_missing,
        wasi=None if wasi is None else (list(wasi.arguments), dict(wasi.environment)),
    )


class GuestRecorder:
    """
    Records the inputs of one guest; while it has no file, it records nothing.

    `next_file` makes the file for another module with which the guest continues.
    """

    def __init__(
        self,
        file: TraceFile | None,
        module: CompiledModule,
        seconds: float,
        next_file: Callable[[CompiledModule], TraceFile] | None = None,
    ) -> None:
        self._file = file
        self._next_file = next_file
        self._end = "closed"
        self._know(module)
        self._seconds = seconds
        self._events: list[Event] = []
        self._bytes = 0  # of writes in them
        self._frame = 0
        self._opened: dict[int, Opened] = {}
        self._growth: int | None = None
        self._follows = True
        self._has_gap = self._has_failed = self._is_over = False
        self._flush_at = 0.0
        self._copy_at = _clock() + seconds
        if file is not None:
            file.put(BlockKind.START, Start(0, None, b"", None, [], follows=False))

    @property
    def path(self) -> Path | None:
        """The file that is being written, or None."""
        return None if self._file is None else self._file.path

    def memory(self, limits: Limits) -> GuestMemory:
        """Return a memory that reports the host's writes to this recorder."""
        return WatchedMemory(limits, self._wrote)

    def fiber(self, *parts: *FiberParts) -> Fiber:
        """Return a fiber that reports its answers to this recorder."""
        return TracedFiber(self, *parts)

    def loop(self, instance: Instance) -> CallLoop:
        """Return a call loop that reports calls and answers to this recorder."""
        return TracedLoop(instance, self)

    def opened(self, index: int, handle: int, shape: Shape) -> None:
        """Record that the queue of a session was opened. Any thread may call it."""
        event = Opened(index, handle, shape.training, shape.num_features, shape.num_actions)
        self._opened[index] = event
        self.add(event)

    def closed(self, index: int) -> None:
        """Record that the queue of a session was closed."""
        if self._opened.pop(index, None) is not None:
            self.add(Closed(index))

    def limited(self, size: int) -> int:
        """Record the size to which the memory may grow, and return it."""
        growth = min(max(0, size), _ALL_MEMORY)
        if growth != self._growth:
            self._growth = growth
            self.add(GrowthLimited(growth))
        return size

    def restored(self) -> None:
        """Note that the guest was restored, so that the next call begins a new segment."""
        self._follows = False
        self._flush_at = 0.0

    def became(self, module: CompiledModule) -> None:
        """
        End the file, and continue in the next file with a copy of the guest. Raises UsageError.
        """
        if self._next_file is not None and self._file is not None and not self._is_over:
            file = self._next_file(module)
            self._end = RELOADED
            self.switch(file)
            self._end, self._has_failed = "closed", False
        self._know(module)

    def replaced(self) -> None:
        """Note that the trace ends because another module has replaced the guest's."""
        self._end = RELOADED

    def _know(self, module: CompiledModule) -> None:
        self._kinds = module.state.kinds
        self._helpers = helpers(module)
        self._start = module.info.startup.deferred

    def ended(self) -> None:
        """Write the end of the trace. Safe in a finalizer."""
        if not self._is_over:
            self.switch(None)
            self._is_over = True

    def switch(self, file: TraceFile | None) -> None:
        """End the file, and record to another one from the next call on; None stops recording."""
        if self._is_over:
            return
        self._flush()
        if self._file is not None:
            self._file.put(BlockKind.END, End("failed" if self._has_failed else self._end))
        self._file, self._frame = file, 0
        self._has_gap = True  # up to the copy before that call
        self._flush_at = 0.0

    def called(
        self, loop: CallLoop, function: str, arguments: Sequence[Number], data: bytes
    ) -> None:
        """Record the beginning of a call, before its first instruction."""
        if (now := _clock()) >= self._flush_at:
            self._turn(loop.instance, now)
        if function not in self._helpers and (function != self._start or loop.is_command):
            self._frame += 1
        given = tuple(map(_plain, arguments)) if arguments else ()
        self._events.append(Called(function, given, data, self._frame, loop.is_command))

    def returned(self, value: Any) -> None:
        """Record the end of a call."""
        self._events.append(Returned(value))

    def submitted(self, region: Region, index: int, code: int) -> None:
        """Record the answer to a submit, before the guest is resumed."""
        batch = region.batch()
        actions = values = b""
        if not code:
            actions, values = batch.actions.tobytes(), batch.values.tobytes()
            if not values.strip(b"\0"):
                values = b""
        self._bytes += len(actions) + len(values)
        self.add(Submitted(index, code, len(batch), region.checksums(), actions, values))
        if (now := _clock()) >= self._flush_at:  # in a call that goes on for long, as a cmdlet's
            self._flush_at = now + min(_FLUSH_SECONDS, self._seconds)
            self._flush()

    def failed(self, error: GuestError | None) -> None:
        """Record the error by which a guest failed, and write it at once."""
        if error is None:
            return
        self._has_failed = True
        code = ""
        if isinstance(error, GuestTrap):
            code = error.code
        elif isinstance(error, GuestExit):
            code = str(error.status)
        self._events.append(Failed(type(error).__name__, encodable(str(error)), code))
        self._flush()

    def add(self, event: Event) -> None:
        """Record an event within a call."""
        events = self._events
        events.append(event)
        if len(events) >= _MOST_EVENTS:
            self._flush()

    def _wrote(self, pointer: int, data: bytes) -> None:
        self._bytes += len(data)
        self.add(Wrote(pointer, data))
        if self._bytes > _MOST_BYTES:
            self._flush()

    def _turn(self, instance: Instance, now: float) -> None:
        """Begin a segment with a copy of the guest if it is time, else hand over the events."""
        self._flush_at = now + min(_FLUSH_SECONDS, self._seconds)
        file = self._file
        is_due = now >= self._copy_at or not self._follows or self._has_gap
        if file is None or not is_due or file.is_behind:
            self._flush()
            return
        wasm = instance.copied()
        if wasm is None:
            self._copy_at = now + self._seconds if self._has_gap else float("inf")
            self._flush()
            return
        queues = [_saved(instance.regions[index], each) for index, each in self._opened.items()]
        follows = self._follows and not self._has_gap
        state = Start(
            self._frame,
            wasm.memory.packed(),
            bindings.packed_globals(wasm.globals, self._kinds),
            self._growth,
            queues,
            follows,
            wasm.tables,
        )
        self._flush()
        file.put(BlockKind.START, state, wasm.memory.nbytes)
        self._follows, self._has_gap = True, False
        share = wasm.memory.nbytes / _USUAL_MEMORY
        took = _clock() - now
        if self._seconds:
            self._copy_at = now + max(self._seconds * max(1.0, share), _SHARE * took)

    def _flush(self) -> None:
        """Hand the events over to the thread that writes; leave them out where that is behind."""
        events, self._events = self._events, []
        size, self._bytes = self._bytes + _EVENT_BYTES * len(events), 0
        if self._file is None:
            return
        if self._file.is_behind:
            self._has_gap = True
        if events and not self._has_gap:
            self._file.put(BlockKind.EVENTS, events, size)


class TracedFiber(Fiber):
    """A fiber that reports to a recorder the answers that its guest gets."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: GuestRecorder, *parts: *FiberParts) -> None:
        super().__init__(*parts)
        self._recorder = recorder

    def call_game(self) -> None:
        """Answer a call of the game as `Fiber` does, and record the results."""
        super().call_game()
        self.game_answered()

    def game_answered(self) -> None:
        """Record the results of a function of the game."""
        index = self._words[self.block + (at.REASON >> 2)] - Reason.FIRST_GAME
        _, count = self._sandbox.program.game[index].counts
        start = self._sandbox.control + at.ARGUMENTS
        self._recorder.add(Asked(index, bytes(self._bytes[start : start + 8 * count])))

    def settle(self, wait: Wait) -> None:
        """End a wait as `Fiber` does, and record the resulting value."""
        super().settle(wait)
        if wait.answer is not None:
            self._recorder.add(Settled(self._words[self.block + (at.VALUE >> 2)]))

    def _import(self, index: int) -> None:
        regions = list(self._sandbox.records.regions.items())
        waiting = [each for each in regions if each[1].count()]
        super()._import(index)
        words, recorder = self._words, self._recorder
        for record, region in waiting:
            if not region.count() and self._sandbox.records.regions.get(record) is region:
                recorder.add(Cleared(record))
        number = 0
        if import_calls()[index].is_float:
            number = self._numbers[(self._sandbox.control + at.ARGUMENTS) >> 3]
        answer, refusal = words[self.block + (at.ANSWER >> 2)], self._handlers.refusal
        told = refusal if answer != 1 else ""
        recorder.add(Imported(index, answer, words[self.block + (at.VALUE >> 2)], number, told))

    def _grow(self) -> None:
        super()._grow()
        words, control = self._words, self._sandbox.control
        if code := words[self.block + (at.ANSWER >> 2)] - 1:
            rows, size = (
                words[(control + at.WANTED_ROWS) >> 2],
                words[(control + at.WANTED_BYTES) >> 2],
            )
            self._recorder.add(Ungrown(rows, size, code))


class TracedLoop(CallLoop):
    """
    A call loop that reports to a recorder the calls of its guest and the answers to its submits.
    """

    def __init__(self, instance: Instance, recorder: GuestRecorder) -> None:
        super().__init__(instance)
        self._recorder = recorder

    def _single_calls(self) -> None:
        """Leave each step to Python, where it is recorded."""

    def begin(
        self,
        function: str,
        arguments: tuple[Number, ...] = (),
        budget: Budget = RUN_SECONDS,
        data: bytes = b"",
    ) -> ExportedFunction:
        """Start a call as `CallLoop` does, and record it."""
        entry = super().begin(function, arguments, budget, data)
        self.began(function, arguments, data)
        return entry

    def begin_frame(self, function: str) -> ExportedFunction:
        """
        Start a frame as a call of its own, because frames in the shim's loop cannot be recorded.
        """
        return self.begin(function)

    def run_to_submit(
        self,
        entry: ExportedFunction,
        is_driven: Callable[[Session], bool],
        *,
        ahead: int = 0,
        is_suspended: bool = False,
        gives_way: bool = False,
    ) -> Session | None:
        """
        Run a call as `CallLoop` does, after recording the environment's answer to the last submit.
        """
        is_resumed = self.fiber.is_parked and not self.fiber.is_between_turns and not is_suspended
        if is_resumed and not self.instance.is_closed:
            self.answered()
        return super().run_to_submit(
            entry, is_driven, ahead=ahead, is_suspended=is_suspended, gives_way=gives_way
        )

    def began(self, function: str, arguments: Sequence[Number], data: bytes = b"") -> None:
        """Record the beginning of a call that a fleet started."""
        self._recorder.called(self, function, arguments, data)

    def answer(self) -> Wait | None:
        """Answer a submit as `CallLoop` does, and record the answer."""
        waiting = super().answer()
        self.answered()
        return waiting

    def answered(self) -> None:
        """Record the answer to the submit that suspended the guest."""
        index = self._words[self.block + (at.RECORD >> 2)]
        code = self.fiber.answered_code()
        self._recorder.submitted(self._regions[index], index, code)

    def end(self, entry: ExportedFunction) -> Any:
        """Return the result of a call as `CallLoop` does, and record it."""
        result = super().end(entry)
        self._recorder.returned(result)
        return result

    def returned(self) -> None:
        """Record the end of a call that a fleet started."""
        self._recorder.returned(None)

    def give_up(self, error: GuestError) -> None:
        """Fail the guest as `CallLoop` does, and record the error."""
        super().give_up(error)
        self._recorder.failed(self.instance.failure)


def _plain(number: Number) -> int | float:
    """Return an argument, such as a number of numpy, as one of Python."""
    if type(number) in (int, float):
        return number
    try:
        return operator.index(number)  # type: ignore[arg-type]  # a TypeError is meant
    except TypeError:
        return float(number)


def _saved(region: Region, opened: Opened) -> SavedQueue:
    rows = region.save()
    return SavedQueue(opened, (), (), b"") if rows is None else SavedQueue(opened, *rows)
