"""A loaded guest and its entry points."""

from __future__ import annotations

from dataclasses import dataclass

from arkml.errors import (
    CmdletFailed,
    EntryPointMissing,
    GuestError,
    GuestExit,
    InvalidArguments,
)
from arkml.guests.calls import DEFAULT_BUDGET, CallLoop
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.exported_function import ExportedFunction
from arkml.runtime.module.description import ModuleInfo
from arkml.runtime.module.normalize import START_NAME

_ALIGNMENT = 8
_U32 = 0xFFFF_FFFF
INITIALIZERS = ("_initialize", "ark_register_panic_hook", "ark_initialize")


@dataclass(frozen=True, slots=True)
class Reply:
    """What an entry point answered: its status, and the bytes it gave to `return_slice`."""

    status: int
    data: bytes


class Guest(CallLoop):
    """
    One sandboxed instance of a module.

    One call at a time: a second one, from any thread or from inside the first, raises GuestBusy.
    A guest that trapped, ran out of time or was cancelled is failed: `failure` says why, its
    handles are freed, and every later call raises GuestFailed.
    """

    @property
    def info(self) -> ModuleInfo:
        """What the module is: its kind, entry points, imports, exports and required APIs."""
        return self.program.info

    @property
    def return_slice(self) -> bytes | None:
        """What the last call gave to `core__return_slice`, or None."""
        return self.services.returned

    def initialize(self, *, budget: float | None = DEFAULT_BUDGET) -> None:
        """Run the start function and what else a module wants to be called first."""
        for name in initializers(self.program):
            self.call(name, budget=budget)

    def update(self, *, budget: float | None = DEFAULT_BUDGET) -> None:
        """Run one frame of an applet."""
        self.call("ark_applet_update", budget=budget)

    def run_cmdlet(self, arguments: str = "", *, budget: float | None = DEFAULT_BUDGET) -> bytes:
        """
        Run a cmdlet with arguments that are separated by single spaces.

        Returns what it gave to `return_slice`; raises CmdletFailed if its status is not 0.
        """
        reply = self.invoke("ark_cmdlet_run", arguments.encode(), budget=budget)
        if reply.status:
            text = reply.data.decode("utf-8", "replace") or "it gave no message"
            raise CmdletFailed(
                f"{self.name} failed with status {reply.status}: {text}", status=reply.status
            )
        return reply.data

    def help(self) -> str:
        """The help text of a cmdlet."""
        name = next(
            (n for n in ("ark_cmdlet_help", "ark_wasi_cmdlet_help") if n in self.program.functions),
            None,
        )
        if name is None:
            raise EntryPointMissing(f"{self.name} has no help: it exports no ark_cmdlet_help")
        self.call(name)
        return (self.return_slice or b"").decode("utf-8", "replace")

    def run_command(self, *, budget: float | None = None) -> int:
        """Run a WASI command and return its exit status."""
        try:
            self.call("_start", budget=budget)
        except GuestExit as leaving:
            return leaving.status
        return 0

    def invoke(
        self, function: str, data: bytes = b"", *, budget: float | None = DEFAULT_BUDGET
    ) -> Reply:
        """
        Call a function that takes bytes: `(ptr, len) -> status`.

        The bytes lie in memory from `ark_alloc` while the function runs. Raises EntryPointMissing
        if the module does not export the function or, with bytes to give, the allocator.
        """
        self._require_bytes(function, data)
        pointer = self._lend(data)
        try:
            status = self._run(self._begin_lent(function, pointer, data, budget)) or 0
            returned = self.return_slice or b""
        finally:
            if data and self.failure is None:
                self.call("ark_free", pointer, len(data), _ALIGNMENT)
        return Reply(status & _U32, returned)

    def begin_bytes(
        self, function: str, data: bytes = b"", *, budget: float | None = DEFAULT_BUDGET
    ) -> ExportedFunction:
        """Start such a call; the bytes stay in memory. Raises what `invoke` raises of it."""
        self._require_bytes(function, data)
        return self._begin_lent(function, self._lend(data), data, budget)

    def request(self, data: bytes, *, budget: float | None = DEFAULT_BUDGET) -> bytes:
        """Let a servlet answer a request; raises CmdletFailed if its status is not 0."""
        return self._successful("ark_servlet_request", data, budget)

    def persist(self) -> bytes:
        """The state of the guest, as it wants to be restored."""
        if "ark_state_persist" not in self.program.functions:
            raise EntryPointMissing(f"{self.name} exports no ark_state_persist")
        status = self.call("ark_state_persist")
        if status:
            raise CmdletFailed(f"{self.name} could not persist: code {status}", status=status)
        return self.return_slice or b""

    def restore(self, state: bytes) -> None:
        """Give a guest the state that `persist` returned."""
        self._successful("ark_state_restore", state, DEFAULT_BUDGET)

    def allocations(self) -> tuple[int, int, int, int] | None:
        """Allocations, bytes allocated, frees, bytes freed; None if the guest counts none."""
        if "ark_get_alloc_stats" not in self.program.functions:
            return None
        pointer = self.call("ark_get_alloc_stats") & _U32
        words = self._readable().read(pointer, 32)
        count, size, frees, freed = (
            int.from_bytes(words[i : i + 8], "little") for i in range(0, 32, 8)
        )
        return count, size, frees, freed

    def read_memory(self, pointer: int, size: int) -> bytes:
        """A copy of guest memory; raises InvalidArguments outside of it."""
        return self._readable().read(pointer, size)

    def write_memory(self, pointer: int, data: bytes) -> None:
        """Write guest memory; raises InvalidArguments outside of it."""
        self._readable().write(pointer, data)

    def _successful(self, function: str, data: bytes, budget: float | None) -> bytes:
        reply = self.invoke(function, data, budget=budget)
        if reply.status:
            text = reply.data.decode("utf-8", "replace")
            raise CmdletFailed(
                f"{self.name}: {function} answered {reply.status} {text}".rstrip(),
                status=reply.status,
            )
        return reply.data

    def _begin_lent(
        self, function: str, pointer: int, data: bytes, budget: float | None
    ) -> ExportedFunction:
        return self.begin(function, (pointer, len(data)), budget, data)

    def _require_bytes(self, function: str, data: bytes) -> None:
        functions = self.program.functions
        if function not in functions:
            raise EntryPointMissing(f"{self.name} exports no function {function!r}")
        if functions[function].params != ("i32", "i32"):
            raise EntryPointMissing(
                f"{function} of {self.name} is {functions[function]}: it does not take bytes"
            )
        if data and not self.info.takes_bytes:
            raise EntryPointMissing(
                f"{self.name} exports no ark_alloc and ark_free, so the {len(data)} bytes for"
                f" {function} have no place in its memory: export both, or give no bytes"
            )

    def _lend(self, data: bytes) -> int:
        """Put `data` into memory of the guest's own; the alignment stands for the empty one."""
        if not data:
            return _ALIGNMENT
        pointer = int(self.call("ark_alloc", len(data), _ALIGNMENT)) & _U32
        if pointer == 0:
            raise GuestError(f"{self.name} has no memory for {len(data)} bytes of input")
        try:
            self._readable().write(pointer, data)
        except InvalidArguments as error:
            raise GuestError(f"{self.name}: ark_alloc gave room outside memory: {error}") from None
        return pointer


def initializers(program: CompiledModule) -> list[str]:
    """What a new instance runs before anything else, in this order."""
    names = [name for name in INITIALIZERS if name in program.functions]
    return [START_NAME, *names] if program.has_start else names
