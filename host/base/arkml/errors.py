"""
The exceptions of the package; `(LimitError)` marks those that are that as well.

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
    │   └── GuestStalled
    ├── HiveError
    │   ├── ProtocolError
    │   ├── HiveUnreachable
    │   ├── HiveRefused
    │   ├── RunGone
    │   ├── RunAborted
    │   └── NothingLearned
    ├── InstanceLimitExceeded
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
    """A refused import call: the guest sees a code, and its host and other guests nothing."""


class InvalidArguments(AbiError):
    """An argument of an import call is not valid."""


class ModelRejected(InvalidArguments):
    """A model file is malformed, or contains something that untrusted models may not."""


class LimitError(AbiError):
    """A guest reached one of `Limits`; it sees the code of the other base class."""


class SnapshotTooLarge(InvalidArguments, LimitError):
    """A snapshot has too many bytes, or all snapshots that a guest uses have together."""


class TooManyRows(InvalidArguments, LimitError):
    """A batch has more rows than `Limits.rows`."""


class TooMuchMetadata(InvalidArguments, LimitError):
    """A batch has more bytes of metadata than `Limits.metadata_bytes`."""


class TextTooLong(InvalidArguments, LimitError):
    """A text has more bytes than `Limits.text_bytes`."""


class TooManyBytes(InvalidArguments, LimitError):
    """A guest handed over more than `Limits.snapshot_bytes` in one call."""


class NotFound(AbiError):
    """A handle names no live object of the wanted kind."""


class Unavailable(AbiError):
    """The requested thing is not there now; it may be later."""


class TooManyHandles(Unavailable, LimitError):
    """A guest holds `Limits.handles` live handles."""


class TooManyFutures(Unavailable, LimitError):
    """A guest holds `Limits.futures` live futures."""


class TooManyRequests(Unavailable, LimitError):
    """A guest has `Limits.requests` requests to hives that are not done."""


class ColumnsFull(Unavailable, LimitError):
    """The sessions of a guest need more than `Limits.column_bytes`, or the host is full."""


class GuestMemoryFull(Unavailable, LimitError):
    """A guest, or all of a host, would have more than `Limits.guest_bytes` or `host_bytes`."""


class ApiNotAvailable(AbiError):
    """The host does not provide the called function."""


class HttpRequestFailed(AbiError):
    """A hive answered with an error."""


class ModuleError(ArkmlError):
    """A module cannot be loaded."""


class ModuleRejected(ModuleError):
    """The bytes are not a WebAssembly core module that the host runs."""


class ModuleTooLarge(ModuleRejected):
    """A module has more bytes than `Limits.module_bytes`."""


class FunctionTooLarge(ModuleRejected):
    """A function body has more bytes than `Limits.function_bytes`."""


class ModuleTooComplex(ModuleRejected):
    """Compiling a module takes more processor time or memory than a module of its size may."""


class LinkError(ModuleError):
    """A module has imports that the host does not provide; the message lists all of them."""


class EntryPointMissing(ModuleError):
    """A module does not export the requested function."""


class GuestError(ArkmlError):
    """A guest failed while it ran."""


@dataclass(frozen=True, slots=True)
class Frame:
    """
    One frame of a wasm backtrace, innermost first.

    `function` is its name, demangled, that of its export, or its index. `offset` is the byte in the
    module as it was given, None where the stack overflowed. `places` are files with lines, the
    innermost of inlined functions first, where the module has DWARF and the environment variable
    WASMTIME_BACKTRACE_DETAILS is 1.
    """

    function: str
    module: str
    offset: int | None
    places: tuple[str, ...] = field(default=(), repr=False)


class GuestTrap(GuestError):
    """
    The guest trapped.

    `panic` is the message and the place that the guest registered, or None; `code` is wasmtime's
    name of the trap; `frames` is the wasm backtrace, innermost first.
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
    """The guest's memory needs more than `Limits.memory_bytes` at start."""


class TableLimitExceeded(GuestError):
    """The guest's tables need more than `Limits.tables` or `Limits.table_elements`."""


class GuestTimeout(GuestError):
    """
    A call took longer than it may, or a guest of a fleet was over its share of frames too often.

    Policies of the embedder and waits of the host do not count. `frames` is the wasm backtrace,
    innermost first, where the guest was in the middle of its own code, else empty.
    """

    def __init__(self, message: str, *, frames: Sequence[Frame] = ()) -> None:
        super().__init__(message)
        self.frames: tuple[Frame, ...] = tuple(frames)


class GuestExit(GuestError):
    """
    The guest called WASI `proc_exit`; `status` is the exit status.

    `panic` is the text of the panic that ended it so, as that of a program of Go, or None.
    """

    def __init__(self, message: str, *, status: int, panic: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.panic = panic


class CmdletFailed(GuestError):
    """An entry point returned a non-zero status; the message is what it gave to `return_slice`."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class GuestFailed(GuestError):
    """The guest failed in an earlier call and cannot be called again."""


class GuestBusy(GuestError):
    """The guest is in a call already: a guest takes one call at a time."""


class GuestCancelled(GuestError):
    """The call was cancelled, by `cancel`, Ctrl-C or an exception in the host."""


class PolicyFailed(GuestError):
    """
    The policy object or function of the embedder failed while it acted for the guest.

    Either it raised, and its exception is the `__cause__`, or its actions cannot be used.
    """


class GuestStalled(GuestError):
    """A guest in an environment made too many calls, or ran too long, without a submit."""


class HiveError(ArkmlError):
    """The communication between a host and its hive failed."""


class ProtocolError(HiveError):
    """Bytes do not follow the protocol of hives."""


class HiveUnreachable(HiveError):
    """No hive answers at the address."""


class HiveRefused(HiveError):
    """The hive answered with an error; `status` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class RunGone(HiveError):
    """The run was ended or deleted."""


class RunAborted(HiveError):
    """The run that is trained was aborted: no learner of it can start."""


class NothingLearned(HiveError):
    """A training ended before its learner had made one update."""


class InvalidSettings(InvalidArguments):
    """The settings of a run are not valid."""


class NotTrainable(InvalidSettings):
    """A guest starts a run that the hive cannot train, or another one than was asked for."""


class InstanceLimitExceeded(ArkmlError):
    """The host has `Limits.instances` guests, or the machine refuses the memory of another."""


class UsageError(ArkmlError):
    """The embedder used the package wrongly; the message says how it is used."""


class InvalidActions(UsageError):
    """Actions given to an environment have a wrong shape, type or value; no guest was stepped."""


class InvalidSpec(UsageError):
    """The declaration of a behavior is malformed, or contradicts the widths of its rows."""
