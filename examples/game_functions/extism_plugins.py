"""
A plug-in system in a page: the modules that others write for Extism, as guests.

    python extism_plugins.py PLUGIN.wasm FUNCTION [INPUT]

A plug-in has functions without arguments. It reads an input and leaves an output in a memory of its
host, through the functions of `Kernel`; `functions` are what a game adds of its own, from bytes to
bytes. What a plug-in may import is described at https://extism.org/docs/concepts/pdk.
"""

# ruff: noqa: ANN201, ARG002, SLF001  public methods are named and typed as what plug-ins import
from __future__ import annotations

import logging
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import arkml

Function = Callable[..., bytes]
LOG = logging.getLogger("plugins")


class PluginError(Exception):
    """A plug-in failed and said why."""


class Kernel:
    """The memory between a game and its plug-in; addresses are those of this memory, 0 is none."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._variables: dict[bytes, bytes] = {}
        self._begin(b"")

    def _begin(self, data: bytes) -> None:
        self._memory = bytearray(8)
        self._lengths: dict[int, int] = {}
        self._output, self._error = (0, 0), b""
        self._input = self._put(data)

    def _put(self, data: bytes | None) -> int:
        if data is None:
            return 0
        address = self.alloc(len(data))
        self._write(address, data)
        return address

    def _read(self, address: int, size: int) -> bytes:
        return bytes(self._memory[max(0, address) : max(0, address + size)])

    def _write(self, address: int, data: bytes) -> None:
        if 0 < address <= len(self._memory) - len(data):  # as Extism does, else nothing
            self._memory[address : address + len(data)] = data

    def _taken(self, address: int) -> bytes:
        """Return the bytes of a block and free it."""
        if address not in self._lengths:
            raise PluginError(f"there is no block at {address:#x}")
        return self._read(address, self._lengths.pop(address))

    def alloc(self, size: int):
        address = len(self._memory)
        if not 0 <= size <= 64 << 20:
            return 0
        self._memory += bytes(size + 1)
        self._lengths[address] = size
        return address

    def free(self, address: int):
        self._lengths.pop(address, None)

    def length(self, address: int):
        return self._lengths.get(address, 0)

    length_unsafe = length

    def load_u8(self, address: int):
        return int.from_bytes(self._read(address, 1))

    def load_u64(self, address: int):
        return int.from_bytes(self._read(address, 8), "little")

    def store_u8(self, address: int, value: int):
        self._write(address, bytes([value & 0xFF]))

    def store_u64(self, address: int, value: int):
        self._write(address, struct.pack("<q", value))

    def input_offset(self):
        return self._input

    def input_length(self):
        return self.length(self._input)

    def input_load_u8(self, offset: int):
        return self.load_u8(self._input + offset)

    def input_load_u64(self, offset: int):
        return self.load_u64(self._input + offset)

    def output_set(self, address: int, size: int):
        self._output = address, size  # a plug-in may write it later

    def error_set(self, address: int):
        self._error = self._taken(address) if address else b""

    def config_get(self, key: int):
        value = self._config.get(self._taken(key).decode())
        return self._put(None if value is None else value.encode())

    def var_get(self, key: int):
        return self._put(self._variables.get(self._taken(key)))

    def var_set(self, key: int, value: int):
        name = self._taken(key)
        if value:
            self._variables[name] = self._taken(value)
        else:
            self._variables.pop(name, None)

    def http_request(self, request: int, body: int):
        raise PluginError("this game lets no plug-in into the network")

    def http_status_code(self):
        return 0

    def http_headers(self):
        return 0

    def get_log_level(self):
        return {10: 1, 20: 2, 30: 3, 40: 4}.get(LOG.getEffectiveLevel(), 4)

    def log_trace(self, message: int):
        self._taken(message)

    def log_debug(self, message: int):
        LOG.debug("%s", self._taken(message).decode(errors="replace"))

    def log_info(self, message: int):
        LOG.info("%s", self._taken(message).decode(errors="replace"))

    def log_warn(self, message: int):
        LOG.warning("%s", self._taken(message).decode(errors="replace"))

    def log_error(self, message: int):
        LOG.error("%s", self._taken(message).decode(errors="replace"))


class Plugin(AbstractContextManager["Plugin"]):
    """A plug-in: functions from bytes to bytes. To be closed, as by `with`."""

    def __init__(
        self,
        source: str,
        functions: Mapping[tuple[str, str], Function] | None = None,
        config: Mapping[str, str] | None = None,
        wasi: arkml.WasiGrant | None = None,
    ) -> None:
        self._kernel = Kernel(config or {})
        imports: dict[object, object] = {"extism:host/env": self._kernel}
        for place, function in (functions or {}).items():
            imports[place] = self._through_memory(function)
        self._host = arkml.Host(
            imports=imports, wasi=wasi or arkml.WasiGrant(), limits=arkml.Limits(run_seconds=10)
        )
        try:
            self.guest = self._host.load(source)
            if "hs_init" in self.guest.module.functions:  # Haskell's runtime is not WASI's alone
                self.guest.call("hs_init", 0, 0)
        except BaseException:
            self._host.close()
            raise

    def call(self, function: str, data: bytes = b"") -> bytes:
        """
        Call a function of the plug-in. Raises PluginError if it says that it failed.

        One that is a program, as Go makes them, has "_start", which can be called once.
        """
        self._kernel._begin(data)
        try:
            status = self.guest.call(function)
        except arkml.GuestExit as ended:
            status = ended.status
        if status or self._kernel._error:
            raise PluginError(self._kernel._error.decode() or f"{function} returned {status}")
        return self._kernel._read(*self._kernel._output)

    def __exit__(self, *error: object) -> None:
        self._host.close()

    def _through_memory(self, function: Function) -> Callable[..., int | None]:
        def called(*addresses: int) -> int | None:
            value = function(*(self._kernel._taken(address) for address in addresses))
            return None if value is None else self._kernel._put(value)

        return called


def main(source: str, function: str, data: str = "") -> None:
    with Plugin(source, {("extism:host/user", "shout"): bytes.upper}) as plugin:
        print(plugin.call(function, data.encode()).decode(errors="replace"))


if __name__ == "__main__":
    main(*sys.argv[1:])
