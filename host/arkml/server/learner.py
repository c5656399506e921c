"""One process that learns, seen from the server."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arkml.errors import ProtocolError
from arkml.hive.protocol.messages import Message, Unpacker, pack

_LIFE_LINE, _LINK, _LOCK = 0, 3, 4
_CHUNK = 1 << 16
_MOST_UNSENT = 1 << 20
_LONGEST_LINE = 1 << 12
_READING = 1.0  # seconds to read what an ended process has printed


class Learner:
    """
    A started process: standard input is its life line, file 3 its end of the link.

    It also holds a copy of `lock`, so that no other hive opens the directory while it writes there.
    `last_line` is the last one that it has printed.
    """

    def __init__(self, pid: int, life_line: int, link: socket.socket) -> None:
        self.pid = pid
        self.last_line = ""
        self.exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._life_line = life_line
        self._link = link
        self._unpacker = Unpacker()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._reaping = threading.Lock()
        self._is_reaped = False

    @classmethod
    async def start(cls, arguments: Sequence[str], output: Path, lock: int) -> Learner:
        """A process with the arguments for Python; what it prints is added to `output`."""
        link, theirs = socket.socketpair()
        life_read, life_write = os.pipe()
        printed, printing = os.pipe()
        with contextlib.ExitStack() as ours:
            ours.callback(os.close, life_read)
            ours.callback(os.close, printing)
            ours.callback(theirs.close)
            try:
                pid = _spawn(arguments, printing, life_read, theirs.fileno(), lock)
            except BaseException:
                os.close(life_write)
                os.close(printed)
                link.close()
                raise
        learner = cls(pid, life_write, link)
        loop = asyncio.get_running_loop()
        reading = threading.Thread(target=learner._read, args=(printed, output), daemon=True)
        reading.start()
        threading.Thread(
            target=learner._reap, args=(loop, reading), name=f"arkml-learner-{pid}", daemon=True
        ).start()
        learner._reader, learner._writer = await asyncio.open_connection(sock=link)
        return learner

    def send(self, kind: str, **fields: Any) -> bool:
        """Send a message; False if the process takes none now."""
        transport = self._writer.transport
        if transport.is_closing() or transport.get_write_buffer_size() > _MOST_UNSENT:
            return False
        self._writer.write(pack(kind, **fields))
        return True

    async def receive(self) -> list[Message] | None:
        """The next messages, None once there are no more. Raises ProtocolError."""
        while True:
            try:
                data = await self._reader.read(_CHUNK)
            except OSError:
                return None
            if not data:
                return None
            try:
                messages = self._unpacker.feed(data)
            except ValueError as error:
                raise ProtocolError(f"a learner sent no message: {error}") from error
            if messages:
                return messages

    async def ended(self, seconds: float) -> bool:
        """Wait for the end of the process; whether it came in time."""
        done, _ = await asyncio.wait([self.exit], timeout=seconds)
        return bool(done)

    def kill(self) -> None:
        """End the process, and what it may have started, at once."""
        with self._reaping:
            if not self._is_reaped:
                os.killpg(self.pid, signal.SIGKILL)

    async def end(self) -> int:
        """Kill the process if it lives, wait, and close what leads to it. Its exit status."""
        self.kill()
        status = await asyncio.shield(self.exit)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        if self._life_line >= 0:
            os.close(self._life_line)
            self._life_line = -1
        return status

    def _read(self, printed: int, output: Path) -> None:
        """Add what the process prints to a file, as far as it can be written."""
        with open(printed, "rb") as lines:
            while line := lines.readline(_LONGEST_LINE):
                self.last_line = line.decode(errors="replace").strip() or self.last_line
                with contextlib.suppress(OSError), output.open("ab") as file:
                    file.write(line)

    def _reap(self, loop: asyncio.AbstractEventLoop, reading: threading.Thread) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._reaping:  # from here on the number may be another process's
            _, status = os.waitpid(self.pid, 0)
            self._is_reaped = True
        code = os.waitstatus_to_exitcode(status)
        reading.join(_READING)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._tell, code)

    def _tell(self, code: int) -> None:
        if not self.exit.done():
            self.exit.set_result(code)


def _spawn(arguments: Sequence[str], printing: int, life: int, link: int, lock: int) -> int:
    copies: list[int] = []
    try:
        # Copies with high numbers: none is overwritten by another before it is in its place.
        copies += [
            fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (life, printing, link, lock)
        ]
        places = zip((0, 1, 2, 3), ((_LIFE_LINE,), (1, 2), (_LINK,), (_LOCK,)), strict=True)
        actions = [
            (os.POSIX_SPAWN_DUP2, copies[number], place)
            for number, targets in places
            for place in targets
        ]
        command = [sys.executable, *arguments]
        return os.posix_spawn(
            sys.executable, command, environment(), file_actions=actions, setsid=True
        )
    finally:
        for descriptor in copies:
            os.close(descriptor)


def environment() -> dict[str, str]:
    """That of this process, with this package on Python's path."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}
