"""The process of a learner, as the server holds it."""

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
from arkml.hive.protocol.wire import Message, Unpacker, pack
from arkml.server.learner_log import append_line, relay_line
from arkml.workers.process_environment import environment

_STDIN, _OUTPUTS, _SOCKET, _LOCK = 0, (1, 2), 3, 4
_CHUNK = 1 << 16
_MAX_UNSENT = _MAX_UNREAD = 1 << 20
_MAX_LINE = 1 << 12
_MOST_UNLOGGED = 100  # lines of a learner that has no run yet
_OUTPUT_TIMEOUT = 1.0  # seconds to read the output of an ended process


class _Link(asyncio.Protocol):
    """
    The socket of a learner. `rest` is a copy of it, which is closed with it.

    A write to a process that has exited ends the connection, and then asyncio's streams drop bytes
    that the process had sent before, such as its last words. Those bytes are read from the copy.
    """

    transport: asyncio.Transport

    def __init__(self, rest: socket.socket) -> None:
        self._rest = rest
        self._received = bytearray()
        self._changed = asyncio.Event()
        self._has_ended = self._is_paused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._changed.set()
        if len(self._received) > _MAX_UNREAD and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def connection_lost(self, _: Exception | None) -> None:
        with self._rest, contextlib.suppress(OSError):  # the end, or the connection failed
            while part := self._rest.recv(_CHUNK, socket.MSG_DONTWAIT):
                self._received += part
        self._has_ended = True
        self._changed.set()

    async def read(self) -> bytes:
        """Return the bytes that have arrived, empty at the end of the stream."""
        while not self._received and not self._has_ended:
            self._changed.clear()
            await self._changed.wait()
        data, self._received = bytes(self._received), bytearray()
        if self._is_paused and not self.transport.is_closing():
            self._is_paused = False
            self.transport.resume_reading()
        return data

    async def close(self) -> None:
        """End the connection, and wait for that."""
        self.transport.abort()
        while not self._has_ended:
            self._changed.clear()
            await self._changed.wait()


class LearnerProcess:
    """
    A learner's process, with a pipe as its standard input and a socket as its descriptor 3.

    The process ends when the pipe is closed (`parent_watch`); messages go over the socket. It holds
    a copy of the lock of the data directory, so that no other hive opens the directory while the
    learner writes to it. `last_line` is the last line that it has printed, `exit` resolves to its
    exit status. Its lines are logged as lines of the run `run_id`, once that is set.
    """

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self.last_line = ""
        self.run_id = ""
        self.exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pipe = pipe
        self._unpacker = Unpacker()
        self._link: _Link
        self._reaping = threading.Lock()
        self._is_reaped = False
        self._run: Path | None = None
        self._unlogged: list[bytes] = []
        self._logging = threading.Lock()

    @classmethod
    async def start(cls, arguments: Sequence[str], output: Path, lock: int) -> LearnerProcess:
        """
        Start Python with these arguments.

        Args:
            arguments: The arguments for Python.
            output: A file to which the output of the process is appended.
            lock: The descriptor of the lock on the data directory, which the process inherits.

        Raises:
            OSError: The process cannot be started.

        """
        parent_socket, child_socket = socket.socketpair()
        stdin_read, stdin_write = os.pipe()
        output_read, output_write = os.pipe()
        with contextlib.ExitStack() as child_ends:
            child_ends.callback(os.close, stdin_read)
            child_ends.callback(os.close, output_write)
            child_ends.callback(child_socket.close)
            try:
                pid = _spawn(arguments, stdin_read, output_write, child_socket.fileno(), lock)
            except BaseException:
                os.close(stdin_write)
                os.close(output_read)
                parent_socket.close()
                raise
        learner = cls(pid, stdin_write)
        loop = asyncio.get_running_loop()
        copying = threading.Thread(
            target=learner._copy_output, args=(output_read, output), daemon=True
        )
        copying.start()
        threading.Thread(
            target=learner._reap, args=(loop, copying), name=f"arkml-learner-{pid}", daemon=True
        ).start()
        link = _Link(parent_socket.dup())
        _, learner._link = await loop.create_connection(lambda: link, sock=parent_socket)
        return learner

    def log_to(self, run: Path) -> None:
        """
        Also append the process's output, from its beginning on, to the log file of a run.

        `run` is the directory of the run.
        """
        with self._logging:
            self._run = run
            for line in self._unlogged:
                append_line(run, line)
            self._unlogged.clear()

    def send(self, kind: str, **fields: Any) -> bool:
        """Send a message of a kind with fields. Returns False if the socket is full or closed."""
        transport = self._link.transport
        if transport.is_closing() or transport.get_write_buffer_size() > _MAX_UNSENT:
            return False
        transport.write(pack(kind, **fields))
        return True

    async def receive(self) -> list[Message] | None:
        """
        Wait for the next messages; return None once the process sends no more.

        Raises ProtocolError.
        """
        while True:
            data = await self._link.read()
            if not data:
                return None
            try:
                messages = self._unpacker.feed(data)
            except ValueError as error:
                raise ProtocolError(f"a learner sent an invalid message: {error}") from error
            if messages:
                return messages

    async def wait(self, seconds: float) -> bool:
        """Wait for the process to exit. Returns False if it still runs after `seconds`."""
        done, _ = await asyncio.wait([self.exit], timeout=seconds)
        return bool(done)

    def kill(self) -> None:
        """Kill the process group: the process, and any that it has started."""
        with self._reaping:
            if not self._is_reaped:
                os.killpg(self.pid, signal.SIGKILL)

    async def end(self) -> int:
        """Kill the process unless it has exited, and free everything. Returns its exit status."""
        self.kill()
        status = await asyncio.shield(self.exit)
        await self._link.close()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        return status

    def _copy_output(self, descriptor: int, output: Path) -> None:
        """Append the output of the process to a file; lines that cannot be written are dropped."""
        with open(descriptor, "rb") as lines:
            while line := lines.readline(_MAX_LINE):
                text = line.decode(errors="replace").strip()
                self.last_line = text or self.last_line
                relay_line(text, run=self.run_id)
                with contextlib.suppress(OSError), output.open("ab") as file:
                    file.write(line)
                self._log_line(line)

    def _log_line(self, line: bytes) -> None:
        with self._logging:
            if self._run is not None:
                append_line(self._run, line)
            elif len(self._unlogged) < _MOST_UNLOGGED:
                self._unlogged.append(line)

    def _reap(self, loop: asyncio.AbstractEventLoop, copying: threading.Thread) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._reaping:  # from here on the process id may be another process's
            _, status = os.waitpid(self.pid, 0)
            self._is_reaped = True
        code = os.waitstatus_to_exitcode(status)
        copying.join(_OUTPUT_TIMEOUT)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._set_exit, code)

    def _set_exit(self, code: int) -> None:
        if not self.exit.done():
            self.exit.set_result(code)


def _spawn(arguments: Sequence[str], stdin: int, output: int, link: int, lock: int) -> int:
    """Start Python in a process group of its own. Returns the process id. Raises OSError."""
    copies: list[int] = []
    try:
        # Copies with high numbers: none is overwritten before it has been duplicated.
        copies += [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (stdin, output, link, lock)]
        targets = zip(copies, ((_STDIN,), _OUTPUTS, (_SOCKET,), (_LOCK,)), strict=True)
        actions = [
            (os.POSIX_SPAWN_DUP2, copy, number) for copy, numbers in targets for number in numbers
        ]
        command = [sys.executable, *arguments]
        return os.posix_spawn(
            sys.executable, command, environment(), file_actions=actions, setpgroup=0
        )
    finally:
        for descriptor in copies:
            os.close(descriptor)
