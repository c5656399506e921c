"""WASI grants of guests, and the linking of their WASI imports."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, BinaryIO

import wasmtime

from arkml.base.output_files import path_of
from arkml.base.short_reprs import cut_repr, short_repr
from arkml.base.texts import utf8
from arkml.errors import UsageError
from arkml.runtime import bindings
from arkml.runtime.module.imports import WASI_MODULE, Linkage
from arkml.runtime.module.wasm_types import FunctionType
from arkml.runtime.shared_engine import ShimExports
from arkml.runtime.shim.render import export_name
from arkml.runtime.steps import MEMORY, OTHER, SHIM, StepList
from arkml.runtime.wasi.shim import CHOSEN, FREE, OURS, SHADOWED, VIRTUAL, WAITING

_STREAMS = 3  # descriptors that every guest has
_MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Directory:
    """
    A directory of the machine that a guest may open.

    Args:
        host: Path of the directory on this machine, such as "data".
        guest: Path under which the guest finds it, such as "/data".
        writable: True allows the guest to write.

    Example:
        saves = arkml.Directory("saves", "/saves", writable=True)

    """

    host: str | os.PathLike[str]
    guest: str
    writable: bool = False

    def __post_init__(self) -> None:
        utf8(str(path_of(self.host, "host")), "host")
        utf8(self.guest, "guest")


@dataclass(frozen=True, slots=True)
class WasiGrant:
    """
    The access of a guest through WASI, by default to clocks and random numbers only.

    Attributes:
        arguments: Arguments of the program, including its name, as in `["program", "--fast"]`.
        environment: Variables of the environment, such as `{"HOME": "/"}`.
        directories: Directories that the guest may open.
        stdin: Standard input, bytes or a file opened for bytes. A file is read when the guest
            reads.
        stdout: Function that is called with bytes, such as `file.write`. None writes to the
            `sys.stdout` of that moment, and drops the output if that is None.
        stderr: The same for the standard error output and `sys.stderr`.

    Example:
        grant = arkml.WasiGrant(
            arguments=["program", "--fast"],
            directories=[arkml.Directory("data", "/data")],
        )
        with arkml.Host(wasi=grant) as host:
            status = host.load("program.wasm").run_command()

    """

    __repr__ = short_repr

    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directories: Sequence[Directory] = ()
    stdin: BinaryIO | bytes = b""
    stdout: Callable[[bytes], Any] | None = None
    stderr: Callable[[bytes], Any] | None = None

    def __post_init__(self) -> None:
        self._require_texts()
        if isinstance(self.stdin, bytearray | memoryview):
            object.__setattr__(self, "stdin", bytes(self.stdin))
        if not isinstance(self.stdin, bytes) and (
            isinstance(self.stdin, io.TextIOBase) or not hasattr(self.stdin, "read")
        ):
            raise UsageError(
                f"stdin is {cut_repr(self.stdin)}: it takes bytes or a file opened for bytes"
            )
        for name in ("stdout", "stderr"):
            output = getattr(self, name)
            if output is not None and not callable(output):
                raise UsageError(
                    f"{name} is {cut_repr(output)}: it takes a function of bytes, as `file.write`"
                )
        for argument in self.arguments:
            utf8(argument, "an argument")
        for name, value in self.environment.items():
            utf8(f"{name}={value}", "a variable")

    def _require_texts(self) -> None:
        """Raise UsageError for invalid arguments, variables and directories."""
        arguments, directories = self.arguments, self.directories
        if not _is_sequence(arguments) or not all(map(_is_text, arguments)):
            raise UsageError(
                f"arguments is {cut_repr(arguments)}: it takes a sequence of texts without NUL, as"
                " ['program', '--fast']"
            )
        variables = self.environment
        if not isinstance(variables, Mapping) or not all(
            _is_text(name) and _is_text(value) and name and "=" not in name
            for name, value in variables.items()
        ):
            raise UsageError(
                f"environment is {cut_repr(variables)}: it takes a mapping of names, without = and"
                " NUL, to texts without NUL, as {'HOME': '/'}"
            )
        if not _is_sequence(directories) or not all(
            isinstance(one, Directory) for one in directories
        ):
            raise UsageError(
                f"directories is {cut_repr(directories)}: it takes a sequence of Directory, as"
                " [Directory('data', '/data')]"
            )


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _is_text(value: object) -> bool:
    """Return whether a value is a text without NUL, which would end it in C."""
    return isinstance(value, str) and "\0" not in value


NO_GRANT = WasiGrant()
"""Nothing is granted."""


def _drop(_: bytes) -> None:
    """Drop the output of a guest."""


QUIET_GRANT = WasiGrant(stdout=_drop, stderr=_drop)
"""Clocks, random numbers and a console that nobody reads, and no files: for guests that play."""


def shim_exports(linkage: Linkage) -> ShimExports:
    """Return the functions that a guest's shim must export, for the guest and for the WASI shim."""
    beneath = [(OURS, name) for name in (*WAITING, *VIRTUAL)] if linkage.wasi else []
    return ShimExports(frozenset((*linkage.shim, *beneath)), linkage.game)


def config(grant: WasiGrant) -> wasmtime.WasiConfig:
    """Return the wasmtime configuration for a grant, without the standard streams."""
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


def free_descriptors(limit: int, grant: WasiGrant) -> int:
    """
    Return how many descriptors a guest may open beside its streams and directories.

    With one directory and a limit of 256, for example, it is 252.
    """
    return min(max(0, limit - _STREAMS - len(grant.directories)), _MOST)


class WasiLinker:
    """
    A linker with wasmtime's WASI, in which the WASI shim of each guest replaces some calls.

    `shim` is the compiled `SHIM`; an inner linker has the calls of WASI that the shim imports.
    """

    def __init__(
        self, engine: wasmtime.Engine, root: wasmtime.Store, shim: wasmtime.Module
    ) -> None:
        self._root = root
        self._beneath, self.linker = wasmtime.Linker(engine), wasmtime.Linker(engine)
        for linker in (self._beneath, self.linker):
            linker.allow_shadowing = True
            linker.define_wasi()
        self._module = shim
        self.type_of = cache(self._type_of)

    def link(
        self,
        steps: StepList,
        imported: Sequence[str],
        *,
        free: int,
        virtual: bool,
    ) -> None:
        """
        Add the steps that define the WASI functions that a guest imports.

        Args:
            steps: The steps that make the guest, whose main shim and memory are there.
            imported: Names of the WASI functions that the guest imports.
            free: Number of descriptors that the guest may open.
            virtual: True also takes the guest's clocks and random numbers from the host.

        """
        steps.define(self._beneath, "arkml", "memory", MEMORY)
        for name in WAITING:
            steps.export(SHIM, export_name(OURS, name))
            steps.define(self._beneath, OURS, name)
        for name in VIRTUAL:
            if virtual:
                steps.export(SHIM, export_name(OURS, name))
            else:
                steps.find(self._beneath, WASI_MODULE, name)
            steps.define(self._beneath, CHOSEN, name)
        steps.instantiate(OTHER, self._beneath, self._module)
        steps.export(OTHER, FREE)
        steps.set_global("i32", free)
        for name in imported:
            if name in SHADOWED:
                steps.export(OTHER, name)
                steps.define(self.linker, WASI_MODULE, name)

    def close(self) -> None:
        """Free the linkers."""
        bindings.free(self._beneath)
        bindings.free(self.linker)

    def _type_of(self, name: str) -> FunctionType | None:
        try:
            item = self._beneath.get(self._root, WASI_MODULE, name)
        except wasmtime.WasmtimeError:
            return None
        if not isinstance(item, wasmtime.Func):
            return None
        kind = item.type(self._root)
        return FunctionType(
            tuple(str(param) for param in kind.params), tuple(str(r) for r in kind.results)
        )
