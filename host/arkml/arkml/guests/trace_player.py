"""
The player of a trace: it gives a guest the inputs that were recorded.

It replaces the policy, the hive, the game, the clocks and the random numbers. Each request of the
guest is compared with the next event of the trace; the first difference raises ReplayDiffers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, assert_never

import numpy as np
import numpy.typing as npt

from arkml.base.short_reprs import short_repr
from arkml.errors import (
    AbiError,
    ArkmlError,
    EntryPointMissing,
    GuestError,
    ReplayDiffers,
    TraceRefused,
    UsageError,
)
from arkml.guests.call_loop import CallLoop
from arkml.guests.instance import Instance
from arkml.guests.trace_events import (
    Asked,
    Called,
    Cleared,
    Closed,
    Event,
    Failed,
    GrowthLimited,
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
from arkml.limits import Limits
from arkml.runtime import bindings
from arkml.runtime.columns.region import SavedRows, require_rows
from arkml.runtime.columns.slabs import Shape
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.fiber import Fiber, FiberParts
from arkml.runtime.linker import import_calls
from arkml.runtime.memory import GuestMemory
from arkml.runtime.sandbox import WasmState
from arkml.runtime.saved_memory import PackedMemory, SavedMemory
from arkml.runtime.shim import control_block as at
from arkml.runtime.shim.control_block import Reason
from arkml.runtime.tables import require_tables
from arkml.runtime.waits import Wait

_EFFECTS = (Wrote, Opened, Closed, Cleared, GrowthLimited)
_HEARD = (
    "ark-core-v2.core__register_panic",
    "arkml-wasi.fd_write",
    "env.abort",
    "env.process.exit",
)
_SAID = ("env.trace", "env.console.")
_ALL_MEMORY = 1 << 32
_MOST_CALLS = 1_000
_E = TypeVar("_E", bound=Event)


class TraceStops(Exception):
    """
    Raised when the trace has no more events for the call in progress.

    `failure` is the error by which the guest was stopped from outside, None where the trace ends.
    """

    def __init__(self, failure: Failed | None) -> None:
        super().__init__()
        self.failure = failure


@dataclass(frozen=True, slots=True)
class ReplayedSubmit:
    """
    A submit in a replay, and its answer.

    Attributes:
        handle: The handle of the session.
        training: True for a session of a training.
        rows: Records, [n], as in `Batch.rows`: the fields `id`, `state` and `reward`, among others.
        observations: float32, [n, num_features].
        actions: float32, [n, num_actions], the policy's; empty if the submit was refused, or has no
            answer.
        values: float32, [n], the policy's values; empty in the same cases.
        code: The code that the guest got, 0 for success; None if the trace ends before the answer,
            for example because an environment was closed.

    """

    __repr__ = short_repr

    handle: int
    training: bool
    rows: npt.NDArray[Any]
    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[np.float32]
    values: npt.NDArray[np.float32]
    code: int | None


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """
    A call of a function of the game in a replay, and its answer.

    Attributes:
        function: The import, such as "env.raycast".
        arguments: The arguments that the guest passed.
        results: The results; None if the function raised.

    """

    __repr__ = short_repr

    function: str
    arguments: tuple[int | float, ...]
    results: tuple[int | float, ...] | None


class Player:
    """
    Feeds the recorded events of a trace to one instance, segment by segment.

    `names` are the names of imports, by their index in the trace.
    """

    def __init__(self, names: Sequence[str]) -> None:
        known = {call.name: index for index, call in enumerate(import_calls())}
        self._indices = [known.get(name, -1) for name in names]
        self._names = names
        self._events: Sequence[Event] = ()
        self._at = 0
        self._opened: dict[int, Opened] = {}
        self._growth = _ALL_MEMORY
        self._instance: Instance | None = None
        self.frame = 0
        """The number of the frame that was played last, or that is being played."""
        self.played = 0
        """Number of frames that were played, some of them several times."""
        self.submits: list[ReplayedSubmit] = []
        """The submits of the present frame."""
        self.calls: deque[ReplayedCall] = deque(maxlen=_MOST_CALLS)
        """The last calls of functions of the game in the present frame."""

    def memory(self, limits: Limits) -> GuestMemory:
        """Return a plain memory, whose writes are not recorded."""
        return GuestMemory(0, limits)

    def fiber(self, *parts: *FiberParts) -> Fiber:
        """Return a fiber that answers from the trace."""
        return ReplayedFiber(self, *parts)

    def loop(self, instance: Instance) -> ReplayedLoop:
        """Return a loop that answers submits from the trace."""
        self._instance = instance
        instance.hear_all()
        return ReplayedLoop(instance, self)

    def opened(self, index: int, handle: int, shape: Shape) -> None:
        """Do nothing: the player itself opens the queues."""

    def closed(self, index: int) -> None:
        """Forget the queue of a session."""
        self._opened.pop(index, None)

    def limited(self, size: int) -> int:
        """Return the number of bytes to which the memory could grow when the trace was recorded."""
        del size  # of the present host
        return self._growth

    def restored(self) -> None:
        """Do nothing: the player itself restores states."""

    @property
    def path(self) -> None:
        """None, because a replay writes no file."""

    def became(self, module: CompiledModule) -> None:
        """Raise UsageError, because a trace is of one module."""
        raise UsageError(f"{module.name} cannot take over in a replay: a trace is of one module")

    def replaced(self) -> None:
        """Do nothing: the guest of a replay is not reloaded."""

    def ended(self) -> None:
        """Forget the instance, which was freed."""
        self._instance = None

    @property
    def instance(self) -> Instance:
        """The instance that replays the trace."""
        assert self._instance is not None
        return self._instance

    def play(self, events: Sequence[Event]) -> None:
        """Set the events to play next."""
        self._events, self._at = events, 0

    def begin(self, start: Start) -> None:
        """Load the state at the beginning of a segment into the instance. Raises TraceRefused."""
        self.frame = start.frame
        self._opened.clear()
        self._growth = _ALL_MEMORY if start.growth is None else start.growth
        if start.memory is None:
            return
        instance, memory = self.instance, _memory_of(start.memory)
        if len(memory) > instance.most_memory:
            raise TraceRefused(
                f"the trace has a state of {len(memory):,} bytes, more than the"
                f" {instance.most_memory:,} of the module"
            )
        try:
            kinds = instance.module.state.kinds
            values = bindings.unpacked_globals(start.globals, kinds)
            for region in list(instance.regions.values()):
                region.close()
            require_tables(start.tables, instance.module.state, instance.module.table_share)
            instance.go_back(WasmState(memory, values, start.tables))
            instance.let_grow()
            for queue in start.queues:
                self._fill(queue)
        except (ValueError, ArkmlError) as error:
            raise TraceRefused(f"the trace has a state that cannot be: {error}") from error

    def compare(self, start: Start) -> None:
        """Raise ReplayDiffers unless the instance is in the state in which a segment begins."""
        wasm = self.instance.copied()
        if start.memory is None or wasm is None:
            return
        now, before = wasm.memory, _memory_of(start.memory)
        if len(now) != len(before):
            raise self.differs(
                f"the memory has {len(now):,} bytes after it, and had {len(before):,}"
            )
        if bytes(now) != bytes(before):
            ours, theirs = (np.frombuffer(bytes(each), np.uint8) for each in (now, before))
            address = int(np.flatnonzero(ours != theirs)[0])
            raise self.differs(
                f"the byte at {address:#x} is {ours[address]:#04x} after it, and was"
                f" {theirs[address]:#04x}"
            )
        packed = bindings.packed_globals(wasm.globals, self.instance.module.state.kinds)
        if packed != start.globals:
            raise self.differs("a global of the guest has another value after it")
        if wasm.tables != start.tables:
            raise self.differs("a table of the guest has other functions after it")

    def differs(self, what: str) -> ReplayDiffers:
        """Return the error for a difference in the present frame."""
        return ReplayDiffers(f"frame {self.frame:,} differs: {what}", frame=self.frame)

    def upcoming(self) -> Event | None:
        """
        Return the next event that the guest caused, None at the end; skips effects of the host.
        """
        for event in self._events[self._at :]:
            if not isinstance(event, _EFFECTS):
                return event
        return None

    def ending(self) -> Event | None:
        """Return the event that ends the call that has just begun, or None."""
        for event in self._events[self._at :]:
            if isinstance(event, Called | Returned | Failed):
                return event
        return None

    def next(self) -> Event | None:
        """
        Apply the host's effects between calls, and return the event after them; None at the end.
        """
        with self.instance.memory() as memory:
            self._apply(memory)
        return self._next()

    def take(self, kind: type[_E], what: str) -> _E:
        """
        Apply the host's effects, then return the recorded answer to the guest's present request.

        Raises ReplayDiffers if the next event is not of `kind`, and TraceStops if there is none.
        """
        self._apply(self.instance.suspended_memory())
        event = self._next()
        if isinstance(event, kind):
            return event
        if event is None:
            raise TraceStops(None)
        if isinstance(event, Failed) and not is_own(event):
            raise TraceStops(event)
        raise self.differs(f"the guest {what}, and {self.told(event)} before")

    def told(self, event: Event) -> str:
        """Return a text for messages that says what a guest did, given the event that followed."""
        match event:
            case Submitted():
                return f"it submitted {event.rows:,} rows"
            case Imported():
                return f"it called {self.name_of(event.index)}"
            case Asked():
                return f"it called function {event.index} of the game"
            case Failed():
                return f"it failed ({event.text.splitlines()[0] if event.text else event.kind})"
            case Returned() | Called():
                return "its call ended"
            case _:
                return "it waited for something else"

    def name_of(self, index: int) -> str:
        """Return the name of an import for messages, by its index in the trace."""
        return self._names[index] if index < len(self._names) else f"import {index}"

    def is_import(self, event: Event | None, index: int) -> bool:
        """Return whether an event answers the import with this index in the present release."""
        if not isinstance(event, Imported) or event.index >= len(self._indices):
            return False
        return self._indices[event.index] == index

    def submitted(self, loop: CallLoop, index: int) -> Submitted:
        """
        Compare the rows of a submit with the trace, and write the recorded answer into the columns.

        Returns the event.
        """
        region = loop.submitted_region()
        batch = region.batch()
        opened, rows, observations = self._opened[index], batch.rows.copy(), batch.features.copy()
        try:
            event = self.take(Submitted, f"submits {len(rows):,} rows")
        except TraceStops:  # as at the last step of an environment, whose queue is closed by now
            actions, values = np.zeros((0, opened.num_actions), np.float32), np.zeros(0, np.float32)
            self.submits.append(
                ReplayedSubmit(
                    opened.handle, opened.training, rows, observations, actions, values, None
                )
            )
            raise
        if event.index != index:
            raise self.differs(
                f"the guest submits session {index}, and submitted session {event.index}"
            )
        if event.rows != len(batch):
            raise self.differs(
                f"the guest submits {len(batch):,} rows, and submitted {event.rows:,}"
            )
        names = ("ids, states or rewards", "observations", "given actions or metadata")
        for name, ours, theirs in zip(names, region.checksums(), event.sums, strict=True):
            if ours != theirs:
                raise self.differs(
                    f"the {name} of a submit of {len(batch):,} rows are not the same"
                )
        if not event.code:
            try:
                batch.actions[:] = np.frombuffer(event.actions, np.float32).reshape(
                    batch.actions.shape
                )
                batch.values[:] = np.frombuffer(event.values, np.float32) if event.values else 0
            except ValueError as error:
                raise TraceRefused(
                    f"an answer of frame {self.frame:,} is damaged: {error}"
                ) from error
        answered = slice(0 if event.code else None)
        self.submits.append(
            ReplayedSubmit(
                opened.handle, opened.training, rows, observations,
                batch.actions[answered].copy(), batch.values[answered].copy(), event.code,
            )
        )  # fmt: skip
        return event

    def _next(self) -> Event | None:
        if self._at >= len(self._events):
            return None
        event = self._events[self._at]
        self._at += 1
        return event

    def _apply(self, memory: GuestMemory) -> None:
        """Apply the effects that come next. Raises TraceRefused."""
        while self._at < len(self._events):
            event = self._events[self._at]
            if not isinstance(event, _EFFECTS):
                return
            self._at += 1
            try:
                self._effect(event, memory)
            except (AbiError, ValueError, KeyError) as error:
                raise TraceRefused(
                    f"the trace has in frame {self.frame:,} what cannot be: {error}"
                ) from error

    def _effect(
        self, event: Wrote | Opened | Closed | Cleared | GrowthLimited, memory: GuestMemory
    ) -> None:
        instance = self.instance
        match event:
            case Wrote():
                memory.write(event.pointer, event.data)
            case Opened():
                self._open(event)
            case Closed():
                instance.regions[event.index].close()
            case Cleared():
                instance.regions[event.index].clear()
            case GrowthLimited():
                self._growth = event.size
                instance.let_grow()
            case _:
                assert_never(event)

    def _open(self, event: Opened) -> None:
        if event.handle & 0xFFFF_FFFF != event.index + 1 or event.index in self._opened:
            raise ValueError(f"a session with the handle {event.handle:#x}")
        self._opened[event.index] = event
        self.instance.open_queue(
            event.handle,
            training=event.training,
            num_features=event.num_features,
            num_actions=event.num_actions,
            key=event.index,
        )

    def _fill(self, queue: SavedQueue) -> None:
        self._open(queue.opened)
        if queue.words:
            rows = SavedRows(tuple(queue.words), tuple(queue.columns), queue.metadata)
            require_rows(rows)
            self.instance.regions[queue.opened.index].load(rows)


class ReplayedFiber(Fiber):
    """A fiber that answers the imports of its guest from a trace."""

    __slots__ = ("_player",)

    def __init__(self, player: Player, *parts: *FiberParts) -> None:
        super().__init__(*parts)
        self._player = player

    def call_game(self) -> None:
        """Return the recorded results of a function of the game to the guest."""
        words, sandbox = self._words, self._sandbox
        index = words[self.block + (at.REASON >> 2)] - Reason.FIRST_GAME
        sandbox.memory.pages = words[self.block + (at.PAGES >> 2)]
        function = self._sandbox.program.game[index]
        start = sandbox.control + at.ARGUMENTS
        call = ReplayedCall(function.label, function.arguments(self._bytes, start), None)
        self._player.calls.append(call)
        event = self._player.take(Asked, f"calls {function.label}")
        if event.index != index:
            raise self._player.differs(
                f"the guest calls {function.label}, and {self._player.told(event)} before"
            )
        if len(event.results) != 8 * function.counts[1]:
            raise TraceRefused(f"the results of {function.label} are damaged")
        self._player.calls[-1] = replace(call, results=function.results(event.results))
        self._bytes[start : start + len(event.results)] = event.results
        words[self.block + (at.ANSWER >> 2)] = 1

    def _import(self, index: int) -> None:
        call, words, player = import_calls()[index], self._words, self._player
        self._sandbox.memory.pages = words[self.block + (at.PAGES >> 2)]
        is_told = call.is_log or call.name in _HEARD or call.name.startswith(_SAID)
        if call.is_log and not player.is_import(player.upcoming(), index):
            super()._import(index)  # a line that was below the level of the log
            self.answer(0)
            return
        if is_told:
            super()._import(index)
        event = player.take(Imported, f"calls {call.name}")
        if not player.is_import(event, index):
            raise player.differs(f"the guest calls {call.name}, and {player.told(event)} before")
        words[self.block + (at.ANSWER >> 2)], words[self.block + (at.VALUE >> 2)] = (
            event.answer,
            event.value,
        )
        if call.is_float:
            self._numbers[(self._sandbox.control + at.ARGUMENTS) >> 3] = event.number
        self._handlers.refusal = event.refusal
        if isinstance(player.upcoming(), Settled):
            words[self.block + (at.VALUE >> 2)] = player.take(Settled, "waits").value

    def _grow(self) -> None:
        words, control, event = self._words, self._sandbox.control, self._player.upcoming()
        rows, size = words[(control + at.WANTED_ROWS) >> 2], words[(control + at.WANTED_BYTES) >> 2]
        if isinstance(event, Ungrown) and (event.rows, event.size) == (rows, size):
            self.answer(self._player.take(Ungrown, "asks for room").code)
            return
        super()._grow()
        if self.answered_code():  # a refusal would be in the trace
            raise self._player.differs(f"the guest wants room for {rows:,} rows, which it had not")


class ReplayedLoop(CallLoop):
    """A loop that plays calls of a trace, and answers submits from it."""

    def __init__(self, instance: Instance, player: Player) -> None:
        super().__init__(instance)
        self._player = player

    def play(self, called: Called, budget: float | None) -> Any:
        """
        Play a call to its end and return its result.

        Raises the error of the guest, ReplayDiffers, TraceStops and TraceRefused.
        """
        self.is_command = called.is_command
        try:
            entry = self.begin(called.function, called.arguments, budget, called.data)
        except (EntryPointMissing, UsageError) as error:
            raise TraceRefused(f"the trace has a call that cannot be: {error}") from error
        return self._run(entry, self.fiber.advance)

    def answer(self) -> Wait | None:
        """Answer a submit from the trace."""
        event = self._player.submitted(self, self._words[self.block + (at.RECORD >> 2)])
        self.fiber.answer(event.code)
        return None

    def count_features(self) -> None:
        """Do nothing: features that are not finite were counted when the trace was recorded."""


def is_own(failed: Failed) -> bool:
    """Return whether a guest failed by its own fault, and was not stopped from outside."""
    return failed.kind in _OWN


_OWN = ("GuestTrap", "StackExhausted", "GuestExit", "GuestError")


def _memory_of(packed: PackedMemory) -> SavedMemory:
    """Return the memory at the beginning of a segment. Raises TraceRefused."""
    try:
        return SavedMemory.unpacked(packed)
    except ValueError as error:
        raise TraceRefused(f"the trace has a state that cannot be: {error}") from error


def is_same_failure(error: GuestError, failed: Failed) -> bool:
    """Return whether an error equals a recorded one in its class and its code or status."""
    code = str(getattr(error, "code", getattr(error, "status", "")))
    return type(error).__name__ == failed.kind and code == failed.code
