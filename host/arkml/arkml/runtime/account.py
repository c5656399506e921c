"""Accounting: the time and the memory charged to one guest, by kind."""

from __future__ import annotations

import gc
import math
import threading
import time
from array import array
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from enum import IntEnum
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from arkml.base.child_time import take_child_seconds
from arkml.runtime.kept_bytes import KeptBytes, no_limit

LONG: Final = 0.001
"""Seconds above which a stretch is compared with the processor time of its thread."""

FRESH: Final = 0.002
"""
Seconds for which a reading of a thread's processor clock is fresh enough for a new call.

So much work of the host may be charged to a guest that is held up, of 4 ms that a game gives it.
"""

_OLDEST = 2  # the generation of gc's whose collection looks at all objects

_WAITING = 0.05  # of the wall time: a thread that ran for less waited for work done elsewhere

_clock = time.perf_counter
_processor_clock = time.thread_time


class WorkKind(IntEnum):
    """Kinds of work that the host does for a guest, in addition to running its wasm."""

    IMPORTS = 0
    COPIES = 1
    VETTING = 2
    MODELS = 3


@dataclass(frozen=True, slots=True)
class Usage:
    """
    The time and the memory that one guest, or several together, have used.

    Times are in seconds since loading, sizes in bytes at present. `session_bytes` and `work_bytes`
    leave out models of the embedder.

    Attributes:
        wasm_seconds: Time in WebAssembly.
        import_seconds: Time of imports that Python answered.
        function_seconds: Time of functions of the embedder's game.
        copy_seconds: Time of copies to larger columns.
        vetting_seconds: Time of checking models that the guest brought.
        model_seconds: Time of running models that the guest brought.
        policy_seconds: Time of policies of the embedder, which is not charged.
        wait_seconds: Waits that the guest asked for, such as sleeps.
        memory_bytes: Wasm memory.
        object_bytes: The most that structs, arrays and exceptions of the guest may use together.
        column_bytes: Queues of its sessions.
        session_bytes: Snapshots that were loaded, models in use, and the observations and results
            of brains.
        agent_bytes: State of its agents, and rows that an environment keeps.
        request_bytes: Unfinished requests to hives, results that the guest has not taken, and the
            experiments of an environment.
        vector_bytes: The return slice and the pending vector of its last call.
        work_bytes: Arrays that runs of the guest's models need, such as intermediate results.
        snapshot_bytes: Snapshots of the guest that the embedder keeps.

    """

    wasm_seconds: float = 0.0
    import_seconds: float = 0.0
    function_seconds: float = 0.0
    copy_seconds: float = 0.0
    vetting_seconds: float = 0.0
    model_seconds: float = 0.0
    policy_seconds: float = 0.0
    wait_seconds: float = 0.0
    memory_bytes: int = 0
    object_bytes: int = 0
    column_bytes: int = 0
    session_bytes: int = 0
    agent_bytes: int = 0
    request_bytes: int = 0
    vector_bytes: int = 0
    work_bytes: int = 0
    snapshot_bytes: int = 0

    @property
    def run_seconds(self) -> float:
        """Seconds of all calls together that count toward `Limits.run_seconds`."""
        answers = self.import_seconds + self.function_seconds
        checks = self.copy_seconds + self.vetting_seconds
        return self.wasm_seconds + answers + checks + self.model_seconds

    @property
    def total_bytes(self) -> int:
        """Bytes that count toward `Limits.guest_bytes`."""
        return sum(getattr(self, field.name) for field in fields(self)[_FIRST_SIZE:])

    def without_memory(self) -> Usage:
        """Return a copy with all sizes 0, as for a closed guest."""
        sizes = fields(self)[_FIRST_SIZE:]
        return replace(self, **dict.fromkeys((field.name for field in sizes), 0))

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(self))
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and their sums as plain numbers, which JSON can hold."""
        return {**asdict(self), "run_seconds": self.run_seconds, "total_bytes": self.total_bytes}


_FIRST_SIZE = 8  # of the fields of Usage


_Kinds: TypeAlias = tuple[float, float, float, float, float, float, float, float]
KINDS = 8
"""Kinds of seconds but wasm's: those of `WorkKind`, models, policies, waits, functions."""


class Seconds(Protocol):
    """The part of `Lockstep` that accounts use: the seconds charged to guests, by position."""

    used: array[float]
    began: array[float]
    functions: array[float]
    work: array[float]
    before: array[float]
    touched: set[int]

    def counted(self, seconds: float, *, may_wait: bool = False) -> float:
        """Return the seconds to charge for a period that this thread just ended."""

    def leave_out(self, seconds: float) -> None:
        """
        Note that these charged seconds are not part of the thread's next processor time reading.
        """


class SingleSeconds(Protocol):
    """The part of `SingleCalls` that accounts use: seconds of model runs in native calls."""

    def seconds(self) -> tuple[float, float]:
        """
        Return the seconds of runs of the guest's models, and of the embedder's policies.

        The guest is charged for the first number only.
        """

    def seconds_at(self, began: float) -> tuple[float, float]:
        """
        Return the result of `seconds` at the start of the call before which `began` were charged.
        """


class ByteLimits(Protocol):
    """
    The limits on the bytes of a guest; calling it raises GuestMemoryFull if they are exceeded.
    """

    def __call__(self, size: int, /) -> None:
        """Raise GuestMemoryFull if `size` more bytes are over the guest's limit."""

    def admits(self, size: int) -> bool:
        """
        Return False if a result of `size` bytes exceeds the guest's limit. Any thread may call it.
        """


class _NoLimits:
    """Limits before there is an instance: any number of bytes is right."""

    def __call__(self, size: int, /) -> None:
        no_limit(size)

    def admits(self, size: int) -> bool:
        """Admit any result."""
        return size >= 0


_NO_LIMITS = _NoLimits()


class Account:
    """
    The seconds charged to one guest, in its present call and since it was loaded.

    Args:
        lockstep: The sums of all guests that run together.
        place: The guest's position in it.
        waits_inside: Whether wasm of the guest waits for other threads, as for WASI's files. Else
            its thread was held up where it did not run: by other processes, threads of Python or
            the system.

    """

    __slots__ = (
        "_began", "_inner", "_kept", "_lockstep", "_older", "_place", "_waits_inside", "budget",
        "extra", "limits", "model_seconds", "policy_seconds", "single", "wait_seconds",
    )  # fmt: skip

    def __init__(self, lockstep: Seconds, place: int, *, waits_inside: bool = False) -> None:
        self._lockstep = lockstep
        self._place = place
        self._waits_inside = waits_inside
        self._began = -1.0  # of `began`, when `Seconds.before` was noted
        self._older = 0.0, 0.0  # of models and policies, entered since then and spent before
        self._inner = 0.0  # seconds inside of the present import that have a kind of their own
        self.budget = math.inf
        """Seconds that may be charged in a call."""
        self.extra = 0.0
        """Seconds of the present call that are not charged but count for `Limits.call_seconds`."""
        self.model_seconds = 0.0
        """Seconds of runs of models that the guest brought, except for runs inside of imports."""
        self.policy_seconds = 0.0
        """Seconds of policies that the embedder gave, which are not charged."""
        self.single: SingleSeconds | None = None
        """Further seconds of models and policies, which the native library counts."""
        self.wait_seconds = 0.0
        """Seconds of waits that the guest asked for."""
        self.limits: ByteLimits = _NO_LIMITS
        """The limits on the guest's bytes."""
        self._kept: tuple[KeptBytes, KeptBytes] | None = None  # until an environment keeps some

    @property
    def _seconds(self) -> array[float]:
        """The seconds of work of each kind."""
        start = len(WorkKind) * self._place
        return self._lockstep.work[start : start + len(WorkKind)]

    @property
    def kept_rows(self) -> KeptBytes:
        """
        Bytes of rows that an environment keeps for the guest: of live agents, and demonstrations.
        """
        return self._both_kept()[0]

    @property
    def kept_experiments(self) -> KeptBytes:
        """Bytes of experiments that an environment keeps, with their texts and names of metrics."""
        return self._both_kept()[1]

    @property
    def kept_bytes(self) -> tuple[int, int]:
        """The bytes charged for kept rows and for kept experiments. Any thread may read it."""
        if self._kept is None:
            return 0, 0
        rows, experiments = self._kept
        return rows.granted, experiments.granted

    def require_bytes(self, size: int) -> None:
        """Raise GuestMemoryFull if `size` more bytes would exceed the guest's limit."""
        self.limits(size)

    def admit(self, size: int) -> bool:
        """
        Return False if a result of `size` bytes exceeds the guest's limit. Any thread may call it.
        """
        return self.limits.admits(size)

    def _both_kept(self) -> tuple[KeptBytes, KeptBytes]:
        if self._kept is None:
            freed = partial(self._lockstep.touched.add, self._place)  # its memory may grow then
            self._kept = KeptBytes(freed, self.limits), KeptBytes(freed, self.limits)
        return self._kept

    @property
    def used(self) -> float:
        """Seconds charged in the present call."""
        return self._lockstep.used[self._place] - self._lockstep.began[self._place]

    @property
    def seconds_left(self) -> float:
        """Seconds that may still be charged in the present call, infinity without a budget."""
        return max(0.0, self.budget - self.used)

    def charge(self, kind: WorkKind, seconds: float) -> None:
        """Charge a period of one kind of work that this thread just ended."""
        if seconds > LONG:
            seconds = self.counted(seconds, may_wait=kind in _MAY_WAIT)
        self.begin_kinds()
        self._lockstep.work[len(WorkKind) * self._place + kind] += seconds
        self._lockstep.used[self._place] += seconds

    def add_run(self, seconds: float, *, is_of_guest: bool, older: float = 0.0) -> None:
        """
        Add seconds of model runs: charge them if the guest brought the model, else only count them.

        `older` of these seconds were spent before the present call.
        """
        self.begin_kinds()
        models, policies = self._older
        if is_of_guest:
            self._older = models + older, policies
            self.model_seconds += seconds
            self._lockstep.used[self._place] += seconds
            self._lockstep.leave_out(seconds)
        else:
            self._older = models, policies + older
            self.policy_seconds += seconds

    def charge_function(self, seconds: float) -> None:
        """Charge the seconds of a call of a game's function that this thread just ended."""
        if seconds > LONG:
            counted = self._lockstep.counted(seconds)
            self.add_extra(seconds - counted)  # it may have waited
            seconds = counted
        self._lockstep.functions[self._place] += seconds
        self._lockstep.used[self._place] += seconds

    def charge_import(self, seconds: float) -> None:
        """
        Charge the seconds of an import just answered, without work in it that was charged already.
        """
        self.charge(WorkKind.IMPORTS, max(0.0, seconds - self._inner))
        self._inner = 0.0

    def counted(self, seconds: float, *, may_wait: bool = False) -> float:
        """Return the seconds to charge for a period that this thread just ended."""
        counted = self._lockstep.counted(seconds, may_wait=may_wait)
        if self._waits_inside:
            self.add_extra(seconds - counted)
        return counted

    def add_wait(self, seconds: float, *, is_charged: bool) -> None:
        """Count a wait that the guest asked for, and charge it if the guest polled in a loop."""
        self.begin_kinds()
        if is_charged:
            self._lockstep.work[len(WorkKind) * self._place + WorkKind.IMPORTS] += seconds
            self._lockstep.used[self._place] += seconds
            self._lockstep.leave_out(seconds)
        else:
            self.wait_seconds += seconds
            self.add_extra(seconds)

    def vetting(self, *, is_of_guest: bool) -> AbstractContextManager[None]:
        """
        Charge the time of a `with` block that loads a model in an import, if the guest brought it.
        """
        return _Inside(self, WorkKind.VETTING, is_charged=is_of_guest)

    def running(self, *, is_of_guest: bool) -> AbstractContextManager[None]:
        """
        Charge the time of a `with` block that runs models in an import, if the guest brought them.
        """
        return _Inside(self, WorkKind.MODELS, is_charged=is_of_guest)

    def noting(self) -> AbstractContextManager[None]:
        """Charge the time of a `with` block that reads metadata of a submit; see `take_noted`."""
        return _Inside(self, WorkKind.IMPORTS, is_charged=True)

    def take_noted(self) -> float:
        """
        Return and reset the seconds of `noting`, which do not count as time of the submit itself.
        """
        noted, self._inner = self._inner, 0.0
        return noted

    def add_inside(self, kind: WorkKind, seconds: float, *, is_charged: bool) -> None:
        """Count work within an import separately from the import; charge it if `is_charged`."""
        self._inner += seconds
        self.begin_kinds()
        if is_charged:
            self.charge(kind, seconds)
        else:
            self.policy_seconds += seconds

    def usage(self, sizes: Mapping[str, int]) -> Usage:
        """
        Return the seconds since loading with the given sizes, such as {"memory_bytes": 65536}.
        """
        seconds = self._seconds
        functions = self._lockstep.functions[self._place]
        models, policies = self._models_and_policies()
        charged = sum(seconds) + models + functions
        return Usage(
            wasm_seconds=max(0.0, self._lockstep.used[self._place] - charged),
            import_seconds=seconds[WorkKind.IMPORTS],
            function_seconds=functions,
            copy_seconds=seconds[WorkKind.COPIES],
            vetting_seconds=seconds[WorkKind.VETTING],
            model_seconds=models + seconds[WorkKind.MODELS],
            policy_seconds=policies,
            wait_seconds=self.wait_seconds,
            **sizes,
        )

    def begin_kinds(self) -> None:
        """Remember the seconds by kind, before the first ones of the present call are added."""
        lockstep, place = self._lockstep, self._place
        began = lockstep.began[place]
        if began == self._began:
            return
        models, policies = self.model_seconds, self.policy_seconds
        if self.single is not None:  # no other seconds of this call may have been added
            before = self.single.seconds_at(began)
            models, policies = models + before[0], policies + before[1]
        self._began, self._older = began, (0.0, 0.0)
        kinds, start = len(WorkKind), KINDS * place  # as `_kinds`, in every step of an environment
        noted = lockstep.work[kinds * place : kinds * (place + 1)]
        noted.extend((models, policies, self.wait_seconds, lockstep.functions[place]))
        lockstep.before[start : start + KINDS] = noted

    def last_call(self) -> Usage:
        """Return the seconds, by kind, of the present call or of the last one, without sizes."""
        self.begin_kinds()
        start = KINDS * self._place
        noted = self._lockstep.before[start : start + KINDS]
        imports, copies, vetting, models, own_models, policies, waits, functions = (
            now - before for now, before in zip(self._kinds(), noted, strict=True)
        )
        others = imports + copies + vetting + models + own_models + functions  # as charged
        older_models, older_policies = self._older
        return Usage(
            wasm_seconds=max(0.0, self.used - others),
            import_seconds=imports,
            function_seconds=functions,
            copy_seconds=copies,
            vetting_seconds=vetting,
            model_seconds=models + own_models - older_models,
            policy_seconds=policies - older_policies,
            wait_seconds=waits,
        )

    def _kinds(self) -> _Kinds:
        """Return the seconds since loading, but wasm's."""
        imports, copies, vetting, models = self._seconds  # in the order of WorkKind
        functions = self._lockstep.functions[self._place]
        return (
            imports, copies, vetting, models, *self._models_and_policies(), self.wait_seconds,
            functions,
        )  # fmt: skip

    def _models_and_policies(self) -> tuple[float, float]:
        """Return the seconds of models and policies since loading."""
        models, policies = (0.0, 0.0) if self.single is None else self.single.seconds()
        return self.model_seconds + models, self.policy_seconds + policies

    def add_extra(self, seconds: float) -> None:
        """Count seconds of the present call that are not charged."""
        self.extra += seconds
        self._lockstep.touched.add(self._place)  # so that its next call forgets it


class _Inside:
    """A context that adds its seconds to an account, such as the time of noting metadata."""

    __slots__ = ("_account", "_began", "_is_charged", "_kind")

    def __init__(self, account: Account, kind: WorkKind, *, is_charged: bool) -> None:
        self._account = account
        self._kind = kind
        self._is_charged = is_charged
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = _clock()

    def __exit__(self, *raised: object) -> None:
        seconds = _clock() - self._began
        self._account.add_inside(self._kind, seconds, is_charged=self._is_charged)


_MAY_WAIT = frozenset({WorkKind.VETTING, WorkKind.MODELS})


class _Thread(threading.local):
    """
    The last reading of a thread's processor clock: after a long stretch, or before a call.

    `collected` are the seconds since then in which Python ran full garbage collections, which
    happened to fall into this thread; `collecting` is the beginning of the last one.
    """

    reading = 0.0
    collected = 0.0
    collecting = 0.0


_thread = _Thread()


def _note_collection(phase: str, info: dict[str, int]) -> None:
    """
    Note the time of a full garbage collection, as one of `gc.callbacks`; others are cheap.
    """
    if info["generation"] < _OLDEST:
        return
    if phase == "start":
        _thread.collecting = _processor_clock()
    else:
        _thread.collected += _processor_clock() - _thread.collecting


gc.callbacks.append(_note_collection)


def last_reading() -> float:
    """Return the last reading of this thread's processor clock, 0 if there was none."""
    return _thread.reading


def counted_seconds(seconds: float, *, may_wait: bool = False, charged: float = 0.0) -> float:
    """
    Return the seconds to charge for `seconds` of wall time that this thread just spent.

    These are at most the processor time since the last reading of the thread's clock, less the
    seconds `charged` for shorter periods since then. So a thread that was held up by others, or by
    a garbage collection of the whole process, is charged only for its own time: 10 ms if it ran for
    10 ms of 30. Time that child processes report for it is charged, too. With `may_wait`, a thread
    that hardly ran, and for which no process reports time, counts as waiting for work done
    elsewhere, and is charged for all of it.
    """
    now = _processor_clock()
    ran, _thread.reading = max(0.0, now - _thread.reading - charged), now
    collected, _thread.collected = _thread.collected, 0.0
    elsewhere = take_child_seconds()
    if may_wait and elsewhere <= 0.0 and ran < _WAITING * seconds:
        return seconds
    return min(seconds, max(0.0, ran - collected) + elsewhere)


def read_processor_clock() -> float:
    """
    Read the processor clock of this thread before it runs a guest, and return the reading.

    Without the reading, the thread's work between two calls would count as work of the second call,
    and hide that the thread was held up in it.
    """
    reading = _thread.reading = _processor_clock()
    _thread.collected = 0.0
    take_child_seconds()
    return reading
