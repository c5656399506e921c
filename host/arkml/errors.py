"""
The exceptions of the package.

    ArkmlError
    ├── AbiError                a guest's import call was refused; the guest receives a code
    │   ├── InvalidArguments    ├── ModelRejected    ├── InvalidSettings   ├── NotTrainable
    │   ├── NotFound
    │   ├── Unavailable
    │   ├── ApiNotAvailable
    │   ├── HttpRequestFailed
    │   └── LimitError          one of `Limits` was reached; each class is also one of the above:
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
    ├── HiveError               communication between a host and its hive failed
    │   ├── ProtocolError       ├── HiveUnreachable
    │   ├── HiveRefused         └── RunGone
    ├── InstanceLimitExceeded
    └── UsageError              the embedder passed arguments that are not valid
        ├── InvalidActions
        └── InvalidSpec
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class ArkmlError(Exception):
    """Base class of all exceptions of this package."""


class AbiError(ArkmlError):
    """A guest's import call was refused. The guest receives a code and keeps running."""


class InvalidArguments(AbiError):
    """An argument of an import call is not valid."""


class ModelRejected(InvalidArguments):
    """A model file is malformed, or contains parts that are not allowed in untrusted models."""


class LimitError(AbiError):
    """A guest reached one of `Limits`; it receives the code of the other base class."""


class SnapshotTooLarge(InvalidArguments, LimitError):
    """A snapshot, or the snapshots that a guest uses together, have too many bytes."""


class TooManyRows(InvalidArguments, LimitError):
    """A batch has more rows than `Limits.rows`."""


class TooMuchMetadata(InvalidArguments, LimitError):
    """A batch has more bytes of metadata than `Limits.metadata_bytes`."""


class TextTooLong(InvalidArguments, LimitError):
    """A text has more bytes than `Limits.text_bytes`."""


class TooManyBytes(InvalidArguments, LimitError):
    """A guest passed more than `Limits.snapshot_bytes` bytes in one call."""


class NotFound(AbiError):
    """A handle does not name a live object of the expected kind."""


class Unavailable(AbiError):
    """The requested resource is not available now."""


class TooManyHandles(Unavailable, LimitError):
    """A guest holds `Limits.handles` live handles."""


class TooManyFutures(Unavailable, LimitError):
    """A guest holds `Limits.futures` live futures."""


class ColumnsFull(Unavailable, LimitError):
    """The sessions of a guest need more than `Limits.column_bytes`, or the host is full."""


class ApiNotAvailable(AbiError):
    """The host does not implement the function."""


class HttpRequestFailed(AbiError):
    """A hive answered with an error."""


class ModuleError(ArkmlError):
    """A module cannot be loaded."""


class ModuleRejected(ModuleError):
    """The bytes are not a core module that this host can run."""


class ModuleTooLarge(ModuleRejected):
    """A module has more bytes than `Limits.module_bytes`."""


class FunctionTooLarge(ModuleRejected):
    """A function body has more bytes than `Limits.function_bytes`."""


class LinkError(ModuleError):
    """A module has imports that the host does not provide; the message lists them all."""


class EntryPointMissing(ModuleError):
    """A module does not export the requested entry point."""


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

    `panic` is the message and location that the guest registered, or None; `code` is wasmtime's
    name of the trap; `frames` is the wasm backtrace with function names.
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
    """The guest's initial memory is larger than `Limits.memory_bytes`."""


class TableLimitExceeded(GuestError):
    """The guest's tables exceed `Limits.tables` or `Limits.table_elements`."""


class GuestTimeout(GuestError):
    """A call ran longer than its time budget, which excludes policies and suspension."""


class GuestExit(GuestError):
    """The guest called WASI `proc_exit`; `status` is the exit status."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class CmdletFailed(GuestError):
    """An entry point returned a non-zero status; the message comes from its `return_slice`."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class GuestFailed(GuestError):
    """The guest failed in an earlier call and cannot be called again."""


class GuestBusy(GuestError):
    """The guest is in a call and cannot begin another one."""


class GuestCancelled(GuestError):
    """The call was cancelled by its host."""


class GuestStalled(GuestError):
    """A guest in an environment ran for too long without submitting observations."""


class HiveError(ArkmlError):
    """Communication between a host and its hive failed."""


class ProtocolError(HiveError):
    """Bytes from a hive that do not follow its protocol, `arkml.hive.protocol`."""


class HiveUnreachable(HiveError):
    """No hive answers at the address."""


class HiveRefused(HiveError):
    """
    The hive answered with an error.

    `status` is the HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class RunGone(HiveError):
    """The run no longer exists."""


class InvalidSettings(InvalidArguments):
    """The settings of a run are not valid."""


class NotTrainable(InvalidSettings):
    """A guest starts a run that cannot be trained here, such as one with discrete actions."""


class InstanceLimitExceeded(ArkmlError):
    """The host has `Limits.instances` guests, or the machine has no memory mappings for more."""


class UsageError(ArkmlError):
    """The embedder passed arguments that are not valid."""


class InvalidActions(UsageError):
    """Actions of an environment have a wrong shape, type or value. No agent has moved."""


class InvalidSpec(UsageError):
    """A declaration of a guest's behaviors is not valid, or contradicts their widths."""
