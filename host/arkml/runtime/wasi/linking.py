"""WASI grants of guests, and the linking of their WASI imports."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, BinaryIO

import wasmtime

from arkml.errors import UsageError
from arkml.runtime import bindings
from arkml.runtime.module.imports import WASI_MODULE
from arkml.runtime.module.wasm_types import FunctionType
from arkml.runtime.shim.render import export_name

OURS = "arkml-wasi"
SHADOWED = ("poll_oneoff", "sched_yield", "fd_read", "fd_write")
VIRTUAL = ("clock_time_get", "random_get")  # the host's in an environment, which has its own clocks

# The calls that wait are the host's, which suspend the guest. Files stay with wasmtime ("theirs"),
# because they never block for long. poll_oneoff reads the guest's clock into the memory of the
# first event.
_SHIM = f"""(module
(import "arkml" "memory" (memory 0))
(import "{OURS}" "poll_oneoff" (func $poll (param i32 i32 i32 i32 i64) (result i32)))
(import "{OURS}" "sched_yield" (func $yield (result i32)))
(import "{OURS}" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
(import "{OURS}" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
(import "theirs" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
(import "theirs" "fd_read" (func $read_file (param i32 i32 i32 i32) (result i32)))
(import "theirs" "fd_write" (func $write_file (param i32 i32 i32 i32) (result i32)))
(export "memory" (memory 0))
(func (export "poll_oneoff") (param i32 i32 i32 i32) (result i32) (local $error i32)
  (if (local.tee $error (call $clock (i32.const 1) (i64.const 0) (local.get 1)))
    (then (return (local.get $error))))
  (call $poll (local.get 0) (local.get 1) (local.get 2) (local.get 3)
    (i64.load align=1 (local.get 1))))
(func (export "sched_yield") (result i32) (call $yield))
(func (export "fd_read") (param i32 i32 i32 i32) (result i32)
  (if (result i32) (local.get 0)
    (then (call $read_file (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
    (else (call $read (local.get 0) (local.get 1) (local.get 2) (local.get 3)))))
(func (export "fd_write") (param i32 i32 i32 i32) (result i32)
  (if (result i32) (i32.gt_u (local.get 0) (i32.const 2))
    (then (call $write_file (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
    (else (call $write (local.get 0) (local.get 1) (local.get 2) (local.get 3))))))"""


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory that a guest may open: `host` is its path here, `guest` its path there."""

    host: str | os.PathLike[str]
    guest: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class WasiGrant:
    """
    The access of a guest through WASI, by default to clocks and random numbers only.

    `environment` has the variables that the guest sees. `stdin` is read when the guest reads;
    `stdout` and `stderr` are called with bytes.
    """

    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directories: Sequence[Directory] = ()
    stdin: BinaryIO | bytes = b""
    stdout: Callable[[bytes], Any] | None = None
    stderr: Callable[[bytes], Any] | None = None


def config(grant: WasiGrant) -> wasmtime.WasiConfig:
    """Return the part of a grant that wasmtime provides, without the standard streams."""
    wasi = wasmtime.WasiConfig()
    wasi.argv = list(grant.arguments)
    wasi.env = list(grant.environment.items())
    for directory in grant.directories:
        try:
            wasi.preopen_dir(os.fspath(directory.host), directory.guest, directory.writable)
        except wasmtime.WasmtimeError:
            raise UsageError(
                f"{os.fspath(directory.host)} is not a directory that can be opened"
            ) from None
    return wasi


class WasiLinker:
    """A linker with wasmtime's WASI, whose calls that wait are replaced for each guest."""

    def __init__(self, engine: wasmtime.Engine, root: wasmtime.Store) -> None:
        self._root = root
        self._plain = wasmtime.Linker(engine)
        self._plain.define_wasi()
        self.linker = wasmtime.Linker(engine)
        self.linker.allow_shadowing = True
        self.linker.define_wasi()
        self._module = wasmtime.Module(engine, _SHIM)
        self.type_of = cache(self._type_of)

    def link(self, context: Any, shim: bindings.RawInstance, *, virtual: bool) -> None:
        """
        Replace wasmtime's calls that wait by the host's, for the guest in `context`.

        With `virtual` its clocks and random numbers are the host's too. Otherwise wasmtime's are
        defined again, because those of the guest linked before remain in the linker.
        """
        for name in SHADOWED:
            self._define(context, OURS, name, shim.export(export_name(OURS, name)))
        for name in ("fd_read", "fd_write"):
            self._define(context, "theirs", name, self._plain_one(context, name))
        for name in VIRTUAL:
            replacement = shim.export(export_name(OURS, name)) if virtual else None
            extern = replacement or self._plain_one(context, name)
            for module in ("theirs", WASI_MODULE):
                self._define(context, module, name, extern)
        waits = bindings.RawInstance.linked(context, self.linker, self._module)
        for name in SHADOWED:
            self._define(context, WASI_MODULE, name, waits.export(name))

    def close(self) -> None:
        """Free the linkers."""
        self._plain.close()
        self.linker.close()

    def _define(self, context: Any, module: str, name: str, extern: Any) -> None:
        bindings.define(self.linker, context, module, name, extern)

    def _plain_one(self, context: Any, name: str) -> Any:
        return bindings.defined(self._plain, context, WASI_MODULE, name)

    def _type_of(self, name: str) -> FunctionType | None:
        try:
            item = self._plain.get(self._root, WASI_MODULE, name)
        except wasmtime.WasmtimeError:
            return None
        if not isinstance(item, wasmtime.Func):
            return None
        kind = item.type(self._root)
        return FunctionType(
            tuple(str(param) for param in kind.params), tuple(str(r) for r in kind.results)
        )
