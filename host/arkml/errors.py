"""
The tree of what the package raises.

    ArkmlError
    ├── AbiError                a guest's import call was refused; the linker turns it into a code
    │   ├── InvalidArguments    ├── ModelRejected    ├── InvalidSettings   ├── NotTrainable
    │   ├── NotFound
    │   ├── Unavailable
    │   ├── ApiNotAvailable
    │   ├── HttpRequestFailed
    │   └── LimitError          one of `Limits` was reached; each is one of the above as well:
    │       TooManyRows  TooMuchMetadata  SnapshotTooLarge  TextTooLong  TooManyBytes
    │       TooManyHandles  TooManyFutures  ColumnsFull
    ├── ModuleError             a module cannot be loaded
    │   ├── ModuleRejected      ├── ModuleTooLarge   ├── FunctionTooLarge
    │   ├── LinkError
    │   └── EntryPointMissing
    ├── GuestError              a guest failed while it ran
    │   ├── GuestTrap           ├── StackExhausted
    │   ├── MemoryLimitExceeded ├── TableLimitExceeded
    │   ├── GuestTimeout        ├── GuestExit        ├── CmdletFailed
    │   ├── GuestFailed         ├── GuestBusy        ├── GuestCancelled
    │   └── GuestStalled
    ├── HiveError               something between a host and its hive went wrong
    │   ├── ProtocolError       ├── HiveUnreachable
    │   ├── HiveRefused         └── RunGone
    ├── InstanceLimitExceeded
    └── UsageError              the embedder asked for something that makes no sense
        ├── InvalidActions
        └── InvalidSpec
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class ArkmlError(Exception):
    """Everything this package raises on purpose."""


class AbiError(ArkmlError):
    """A guest's import call was refused. The guest sees a code, nobody else is touched."""


class InvalidArguments(AbiError):
    """An argument of an import call makes no sense."""


class ModelRejected(InvalidArguments):
    """A model file is malformed, or contains what an untrusted model may not contain."""


class LimitError(AbiError):
    """A guest reached one of `Limits`; the guest sees the code of the other base."""


class SnapshotTooLarge(InvalidArguments, LimitError):
    """A snapshot, or all that a guest uses together, has too many bytes."""


class TooManyRows(InvalidArguments, LimitError):
    """A batch has more rows than `Limits.rows`."""


class TooMuchMetadata(InvalidArguments, LimitError):
    """A batch has more bytes of metadata than `Limits.metadata_bytes`."""


class TextTooLong(InvalidArguments, LimitError):
    """A text has more bytes than `Limits.text_bytes`."""


class TooManyBytes(InvalidArguments, LimitError):
    """Bytes that a guest hands over in one call are more than `Limits.snapshot_bytes`."""


class NotFound(AbiError):
    """A handle names nothing, or nothing of that kind."""


class Unavailable(AbiError):
    """The thing asked for is not there now."""


class TooManyHandles(Unavailable, LimitError):
    """A guest holds `Limits.handles` live handles."""


class TooManyFutures(Unavailable, LimitError):
    """A guest holds `Limits.futures` live futures."""


class ColumnsFull(Unavailable, LimitError):
    """The sessions of a guest need more than `Limits.column_bytes`, or the host is full."""


class ApiNotAvailable(AbiError):
    """The host does not have that function."""


class HttpRequestFailed(AbiError):
    """A hive answered with an error."""


class ModuleError(ArkmlError):
    """A module cannot be loaded."""


class ModuleRejected(ModuleError):
    """The bytes are not a core module that this host runs."""


class ModuleTooLarge(ModuleRejected):
    """A module has more bytes than `Limits.module_bytes`."""


class FunctionTooLarge(ModuleRejected):
    """A function body has more bytes than `Limits.function_bytes`."""


class LinkError(ModuleError):
    """A module imports what the host does not have; the message lists all of it."""


class EntryPointMissing(ModuleError):
    """A module does not export what was asked for."""


class GuestError(ArkmlError):
    """A guest failed while it ran."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a wasm backtrace, innermost first."""

    function: str
    module: str
    offset: int


class GuestTrap(GuestError):
    """
    The guest trapped.

    `panic` is the message and place the guest registered, or None; `code` is wasmtime's name of
    the trap; `frames` is the wasm backtrace with function names.
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
        self.frames = tuple(frames)


class StackExhausted(GuestTrap):
    """The guest used more than `Limits.wasm_stack` bytes of stack."""


class MemoryLimitExceeded(GuestError):
    """The guest's memory needs more than `Limits.memory_bytes` at start."""


class TableLimitExceeded(GuestError):
    """The guest's tables need more than `Limits.tables` or `Limits.table_elements`."""


class GuestTimeout(GuestError):
    """One call ran longer than its time budget. Policies and suspension do not count."""


class GuestExit(GuestError):
    """The guest called WASI `proc_exit`; `status` is the exit status."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class CmdletFailed(GuestError):
    """An entry point returned a non-zero status; the message is what it gave to `return_slice`."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class GuestFailed(GuestError):
    """The guest failed in an earlier call and cannot be called again."""


class GuestBusy(GuestError):
    """The guest is in a call. One call at a time."""


class GuestCancelled(GuestError):
    """The call was cancelled by its host."""


class GuestStalled(GuestError):
    """A guest in an environment gave nobody anything to decide for too long."""


class HiveError(ArkmlError):
    """Something between a host and its hive went wrong."""


class ProtocolError(HiveError):
    """Bytes that are not what `hive.protocol` says."""


class HiveUnreachable(HiveError):
    """Nothing answers at the address of the hive."""


class HiveRefused(HiveError):
    """
    The hive answered with an error.

    `status` is the HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class RunGone(HiveError):
    """The run is not there any more."""


class InvalidSettings(InvalidArguments):
    """How a run is to learn makes no sense."""


class NotTrainable(InvalidSettings):
    """A guest starts a run that cannot be had here: its actions, or another run was wanted."""


class InstanceLimitExceeded(ArkmlError):
    """The host holds `Limits.instances` guests, or the machine has no mappings left for more."""


class UsageError(ArkmlError):
    """The embedder asked for something that makes no sense."""


class InvalidActions(UsageError):
    """Actions given to an environment have a wrong shape, type or value. Nothing has moved."""


class InvalidSpec(UsageError):
    """What was declared of a guest's behaviors makes no sense, or contradicts their widths."""
