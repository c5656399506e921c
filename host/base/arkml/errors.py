"""
The exceptions of the package; `(LimitError)` marks errors that are one as well.

    ArkmlError
    ├── AbiError
    │   ├── InvalidArguments
    │   │   ├── ModelRejected
    │   │   ├── SnapshotTooLarge (LimitError)
    │   │   ├── TooManyRows (LimitError)
    │   │   ├── TooMuchMetadata (LimitError)
    │   │   ├── TextTooLong (LimitError)
    │   │   ├── TooManyBytes (LimitError)
    │   │   └── InvalidSettings
    │   │       └── NotTrainable
    │   ├── LimitError
    │   ├── NotFound
    │   ├── Unavailable
    │   │   ├── TooManyHandles (LimitError)
    │   │   ├── TooManyFutures (LimitError)
    │   │   ├── TooManyRequests (LimitError)
    │   │   ├── ColumnsFull (LimitError)
    │   │   └── GuestMemoryFull (LimitError)
    │   ├── ApiNotAvailable
    │   └── HttpRequestFailed
    ├── ModuleError
    │   ├── ModuleRejected
    │   │   ├── ModuleTooLarge
    │   │   ├── FunctionTooLarge
    │   │   └── ModuleTooComplex
    │   ├── LinkError
    │   └── EntryPointMissing
    ├── GuestError
    │   ├── GuestTrap
    │   │   └── StackExhausted
    │   ├── MemoryLimitExceeded
    │   ├── TableLimitExceeded
    │   ├── GuestTimeout
    │   ├── GuestExit
    │   ├── CmdletFailed
    │   ├── GuestFailed
    │   ├── GuestBusy
    │   ├── GuestCancelled
    │   ├── PolicyFailed
    │   ├── GameFunctionFailed
    │   ├── ReloadUndone
    │   └── GuestStalled
    ├── HiveError
    │   ├── ProtocolError
    │   ├── HiveUnreachable
    │   ├── HiveRefused
    │   ├── RunGone
    │   ├── RunAborted
    │   └── NothingLearned
    ├── InstanceLimitExceeded
    ├── StateRefused
    ├── TraceRefused
    ├── ReplayDiffers
    └── UsageError
        ├── InvalidActions
        └── InvalidSpec
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


class ArkmlError(Exception):
    """Base class of all exceptions of the package. They can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[ArkmlError], args: tuple[Any, ...], attributes: dict[str, Any]
) -> ArkmlError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class AbiError(ArkmlError):
    """A refused import call: the guest gets an error code, and its host is unaffected."""


class InvalidArguments(AbiError):
    """An argument of an import call is invalid."""


class ModelRejected(InvalidArguments):
    """A model file is malformed, or has content that is forbidden in untrusted models."""


class LimitError(AbiError):
    """A guest reached one of `Limits`; it gets the error code of the other base class."""


class SnapshotTooLarge(InvalidArguments, LimitError):
    """A snapshot, or all snapshots of a guest together, have too many bytes."""


class TooManyRows(InvalidArguments, LimitError):
    """A batch has more rows than `Limits.rows`."""


class TooMuchMetadata(InvalidArguments, LimitError):
    """A batch has more bytes of metadata than `Limits.metadata_bytes`."""


class TextTooLong(InvalidArguments, LimitError):
    """A text has more bytes than `Limits.text_bytes`."""


class TooManyBytes(InvalidArguments, LimitError):
    """A guest passed more than `Limits.snapshot_bytes` in one call."""


class NotFound(AbiError):
    """A handle does not name a live object of the expected kind."""


class Unavailable(AbiError):
    """The requested object is not available now, such as a hive that does not answer."""


class TooManyHandles(Unavailable, LimitError):
    """A guest holds `Limits.handles` live handles."""


class TooManyFutures(Unavailable, LimitError):
    """A guest holds `Limits.futures` live futures."""


class TooManyRequests(Unavailable, LimitError):
    """A guest has `Limits.requests` unfinished requests to hives."""


class ColumnsFull(Unavailable, LimitError):
    """The sessions of a guest need more than `Limits.column_bytes`, or the host is full."""


class GuestMemoryFull(Unavailable, LimitError):
    """A guest would exceed `Limits.guest_bytes`, or all guests of a host `host_bytes`."""


class ApiNotAvailable(AbiError):
    """The host does not provide the called function."""


class HttpRequestFailed(AbiError):
    """A hive answered with an error."""


class ModuleError(ArkmlError):
    """A module cannot be loaded."""


class ModuleRejected(ModuleError):
    """The bytes are not a core module that the host can run, for example a component."""


class ModuleTooLarge(ModuleRejected):
    """A module has more bytes than `Limits.module_bytes`."""


class FunctionTooLarge(ModuleRejected):
    """A function body has more bytes than `Limits.function_bytes`."""


class ModuleTooComplex(ModuleRejected):
    """Compiling a module takes more processor time or memory than its size permits."""


class LinkError(ModuleError):
    """A module has imports that the host does not provide; the message lists them all."""


class EntryPointMissing(ModuleError):
    """A module does not export the requested function."""


class GuestError(ArkmlError):
    """A guest failed while it ran."""


@dataclass(frozen=True, slots=True)
class Frame:
    """
    One frame of a wasm backtrace.

    Args:
        function: The function's demangled name, or the name of its export, or its index.
        module: Name of the module.
        offset: Byte offset in the original module, None after a stack overflow.
        places: Source files with lines, such as "src/lib.rs:12:5", innermost inlined function
            first. They need DWARF in the module and the environment variable
            WASMTIME_BACKTRACE_DETAILS=1.

    """

    function: str
    module: str
    offset: int | None
    places: tuple[str, ...] = field(default=(), repr=False)


class GuestTrap(GuestError):
    """
    The guest trapped.

    `panic` is the message and source location that the guest registered, or None. `code` is
    wasmtime's name of the trap, such as "integer division by zero". `frames` is the wasm backtrace,
    innermost first.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        panic: str | None = None,
        frames: Sequence[Frame] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.panic = panic
        self.frames: tuple[Frame, ...] = tuple(frames)


class StackExhausted(GuestTrap):
    """The guest used more than `Limits.wasm_stack` bytes of stack."""


class MemoryLimitExceeded(GuestError):
    """The guest's memory, structs and arrays at start need more than `Limits` allow."""


class TableLimitExceeded(GuestError):
    """The guest's tables need more than `Limits.tables` or `Limits.table_elements`."""


class GuestTimeout(GuestError):
    """
    A call exceeded its time, or a guest of a fleet exceeded its share of frames too often.

    Time in the embedder's policies and waits of the host does not count. `frames` is the wasm
    backtrace, innermost first; it is empty if the guest waited, as in a sleep.
    """

    def __init__(self, message: str, *, frames: Sequence[Frame] = ()) -> None:
        super().__init__(message)
        self.frames: tuple[Frame, ...] = tuple(frames)


class GuestExit(GuestError):
    """
    The guest called WASI `proc_exit`; `status` is the exit status.

    `panic` is the text of a panic that caused it, for example in a Go program, or None.
    """

    def __init__(self, message: str, *, status: int, panic: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.panic = panic


class CmdletFailed(GuestError):
    """An entry point returned a non-zero status; the message is its `return_slice` text."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class GuestFailed(GuestError):
    """The guest failed in an earlier call, and cannot be called again."""


class GuestBusy(GuestError):
    """The guest is already in a call; it takes one call at a time."""


class GuestCancelled(GuestError):
    """The call was canceled, by `cancel`, Ctrl-C or an exception in the host."""


class PolicyFailed(GuestError):
    """
    The embedder's policy object or function failed.

    Either it raised an exception, which is the `__cause__`, or its actions are unusable, for
    example of a wrong shape.
    """


class GameFunctionFailed(GuestError):
    """
    A function of the embedder's game, which the guest imports, failed.

    Either it raised an exception, which is the `__cause__`, or it returned a value that the import
    cannot take.
    """


class ReloadUndone(GuestError):
    """
    A guest failed right after a reload, and continues with the previous module and its state.

    The error of the guest is the `__cause__`.
    """


class GuestStalled(GuestError):
    """A guest in an environment made too many calls, or ran too long, without a submit."""


class HiveError(ArkmlError):
    """Communication between a host and its hive failed."""


class ProtocolError(HiveError):
    """Bytes do not follow the hive protocol."""


class HiveUnreachable(HiveError):
    """No hive answers at the address."""


class HiveRefused(HiveError):
    """The hive answered with an error; `status` is the HTTP status, such as 403."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class RunGone(HiveError):
    """The run was ended or deleted."""


class RunAborted(HiveError):
    """The training run was aborted because its learner cannot start."""


class NothingLearned(HiveError):
    """A training ended before its learner made an update."""


class InvalidSettings(InvalidArguments):
    """The settings of a run are invalid."""


class NotTrainable(InvalidSettings):
    """A guest starts a run that the hive cannot train, or a different run than requested."""


class InstanceLimitExceeded(ArkmlError):
    """The host has `Limits.instances` guests, or the machine lacks memory for another one."""


class StateRefused(ArkmlError):
    """
    The state of a guest cannot be saved or restored.

    The state is of another module, damaged, of a later release or over a limit; or the guest has
    something that cannot be copied.
    """


class TraceRefused(ArkmlError):
    """A trace cannot be replayed: it is damaged, of another release, or of another module."""


class ReplayDiffers(ArkmlError):
    """
    A guest does something else in a replay than when the trace was recorded.

    Attributes:
        frame: The number of the frame that differs.

    """

    def __init__(self, message: str, *, frame: int = 0) -> None:
        super().__init__(message)
        self.frame = frame


class UsageError(ArkmlError):
    """The embedder used the package wrongly; the message explains the correct use."""


class InvalidActions(UsageError):
    """Actions for an environment have a wrong shape, dtype or value; no guest was stepped."""


class InvalidSpec(UsageError):
    """The declaration of a behavior is malformed, or contradicts the width of its rows."""
