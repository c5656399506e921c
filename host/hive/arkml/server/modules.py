"""Modules of guests that were uploaded for workers and players, by their SHA-256."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from starlette.types import Receive

from arkml.base.files import write_atomic
from arkml.errors import HiveRefused
from arkml.hive.protocol.runs import ModuleReply, require_sha256
from arkml.server.usage import DiskUse

_WASM = b"\0asm\x01\0\0\0"
"""Magic and version of a core module in the binary format."""


class ModuleStore:
    """
    The store of uploaded modules in a directory.

    Args:
        directory: The directory of the modules.
        most: The largest number of modules. A new module replaces the one that was unused for
            longest.
        max_bytes: The largest size of a module; 0 to accept none.
        is_used: Tells whether a module is in use; such a module is never replaced.
        disk: Counts the bytes of all modules.

    """

    def __init__(
        self,
        directory: Path,
        disk: DiskUse,
        *,
        max_bytes: int,
        most: int,
        is_used: Callable[[str], bool],
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._max_bytes = max_bytes
        self._most = most
        self._is_used = is_used
        self._writing = asyncio.Lock()

    def path(self, sha256: str) -> Path:
        """Return the file of a module. Raises HiveRefused and ProtocolError."""
        self._require_allowed()
        require_sha256("module", sha256)
        path = self._directory / f"{sha256}.wasm"
        if not path.is_file():
            raise HiveRefused(f"there is no module {sha256}: upload it first", 404)
        return path

    def use(self, sha256: str) -> None:
        """
        Note that a module is used now, so that others are replaced before it.

        Raises HiveRefused if the store does not have it, and OSError.
        """
        os.utime(self.path(sha256))

    async def receive(self, sha256: str, declared: int | None, receive: Receive) -> ModuleReply:
        """
        Keep the module in the body of a request.

        Args:
            sha256: The SHA-256 of the module, in hexadecimal digits.
            declared: The size that the request declares, in bytes; None without one.
            receive: The ASGI callable that yields the body.

        Raises:
            HiveRefused: The module is too large, has another SHA-256 or is not WebAssembly, or
                there is no room for it.
            ProtocolError: `sha256` is malformed.
            OSError: The module cannot be written.

        """
        self._require_allowed()
        require_sha256("module", sha256)
        data = await self._read(declared, receive)
        if not data.startswith(_WASM):
            raise HiveRefused(f"a body of {len(data)} bytes is not a WebAssembly module", 422)
        actual = hashlib.sha256(data).hexdigest()
        if actual != sha256:
            raise HiveRefused(f"the body has the SHA-256 {actual}, not {sha256}", 422)
        self._disk.take(len(data))
        async with self._writing:
            created = await asyncio.to_thread(self._write, sha256, data)
        return ModuleReply(sha256, len(data), created)

    async def _read(self, declared: int | None, receive: Receive) -> bytes:
        """
        Return the body of a request. Raises HiveRefused if it exceeds the size limit.

        Up to twice the limit is read even so: an interrupted sender may miss the answer.
        """
        data, size, more = bytearray(), 0, True
        while more and max(size, declared or 0) <= 2 * self._max_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HiveRefused("the sender went away", 400)
            part = message.get("body", b"")
            size += len(part)
            more = message.get("more_body", False)
            if size <= self._max_bytes:
                data += part
        if more or size > self._max_bytes:
            size = max(size, declared or 0)
            raise HiveRefused(f"a module of {size} bytes: {self._max_bytes} at most", 413)
        return bytes(data)

    def _write(self, sha256: str, data: bytes) -> bool:
        """Write a module unless it is there; return whether it was written."""
        path = self._directory / f"{sha256}.wasm"
        if path.is_file():
            os.utime(path)
            return False
        self._directory.mkdir(exist_ok=True)
        self._make_room()
        write_atomic(path, data, durable=True)
        return True

    def _make_room(self) -> None:
        """Delete the modules that were unused for longest. Raises HiveRefused if all are in use."""
        kept = sorted(self._directory.glob("*.wasm"), key=lambda one: one.stat().st_mtime)
        unused = [one for one in kept if not self._is_used(one.stem)]
        surplus = len(kept) + 1 - self._most
        if surplus > len(unused):
            raise HiveRefused(
                f"this hive keeps {self._most} modules, and runs that are not over use them all",
                503,
            )
        for path in unused[: max(0, surplus)]:
            path.unlink()

    def _require_allowed(self) -> None:
        if not self._max_bytes:
            raise HiveRefused(
                "this hive plays no guests, and takes no modules: arkml hive serve --watches N and"
                " --workers N allow them",
                503,
            )
