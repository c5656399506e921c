"""The embedded hive: the server as a child process of a host, on loopback."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arkml.base.closing import Closing
from arkml.base.files import open_file
from arkml.base.loggers import SafeLogger
from arkml.errors import HiveUnreachable
from arkml.hive.address import Address
from arkml.hive.temporary_data import TemporaryData
from arkml.workers.process_environment import environment

_log = SafeLogger(__name__)

_HOST = "127.0.0.1"
_LOG = "hive.log"
_QUOTED = 300  # characters of a log's last line
_INTERVAL = 0.1  # seconds between two checks if a hive that starts is closed
_STARTING = 30.0
_ENDING = 8.0
"""Seconds for the hive to answer, and for its learners' last checkpoints."""


class EmbeddedHive(Closing):
    """
    A hive in a process that ends with this one, however this one ends.

    `data` is its directory, or None for a temporary one. That is removed at the end or, if this
    host is killed, by the next host that makes one. `settings` are further options of
    `arkml.server`, such as `{"port": 8080}`. Any thread may call any method.
    """

    def __init__(self, data: Path | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self._is_temporary = data is None
        self._temporary: TemporaryData | None = None
        self._data = data
        self._settings = dict(settings or {})
        self._token = secrets.token_urlsafe(32)
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()  # the process whose child the hive is
        self._where: Address | None = None
        self._port = 0  # that of the process before: rollout workers know it
        self._login = ""
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The id of the process, None if there is none."""
        return self._process.pid if self._process else None

    @property
    def data(self) -> Path | None:
        """The directory; None before a temporary one was needed."""
        return self._data

    @property
    def is_dead(self) -> bool:
        """True if the process ended without `close`."""
        return self._process is not None and self._process.poll() is not None

    @property
    def page_link(self) -> str:
        """The link to the page of the hive, good for one login; empty before the first start."""
        if self._where is None:
            return ""
        return f"{self._where.url}/#token={self._login}"

    def locate(self) -> Address:
        """
        Return the address of the hive and its token, after starting it if it does not run.

        After a crash it starts on the same directory, with the same port if that is free. May take
        seconds. Raises HiveUnreachable if it does not start, or was closed.
        """
        with self._lock:
            if self._is_closed:
                raise HiveUnreachable("the embedded hive is closed")
            if self._where is None or self._process is None or self._process.poll() is not None:
                self._forget()
                self._where = self._started()
            return self._where

    def close(self) -> None:
        """
        End the hive and its learners, which write a last checkpoint. Safe to call twice.

        A start in progress is abandoned. In a fork of the process that started the hive, the hive
        keeps running.
        """
        self._is_closed = True  # before the lock, which is held while the hive starts
        if os.getpid() != self._owner:  # where the lock may never be free
            self._forget()
            return
        with self._lock:
            if self._process is not None:
                self._process.terminate()
                try:
                    self._process.wait(_ENDING)
                except subprocess.TimeoutExpired:
                    _log.warning("the embedded hive did not end within %g s and is killed", _ENDING)
            self._forget()
            if self._temporary is not None:
                self._temporary.remove()
                self._temporary = self._data = None

    def _forget(self) -> None:
        """Forget the process, after killing it if it is a child of this one."""
        process, self._process, self._where = self._process, None, None
        if process is not None:
            process.kill()
            with process:
                pass

    def _started(self) -> Address:
        """Start a hive, and return its address. Raises HiveUnreachable."""
        try:
            said = self._begun()
        except (OSError, EOFError, TypeError, ValueError) as error:
            self._forget()
            raise HiveUnreachable(f"the embedded hive does not start: {error}") from error
        except BaseException:  # Ctrl-C while it starts
            self._forget()
            raise
        if "error" in said:
            self._forget()
            self._port = 0  # which may be another process's now
            raise HiveUnreachable(f"the embedded hive does not start: {said['error']}")
        self._port = int(said["port"])
        self._login = str(said["login"])
        return Address(str(said["host"]), self._port, self._token)

    def _begun(self) -> dict[str, Any]:
        """Return a new process's first line. Raises OSError, EOFError, TypeError, ValueError."""
        data, process, begin = self._spawned()
        options = {
            "host": _HOST,
            "port": self._port,
            **self._settings,
            "data": str(data.absolute()),
            "token": self._token,
            "parent": os.getpid(),
            "temporary": self._is_temporary,
        }
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(options).encode() + b"\n")
            return self._announced(process)
        except (BrokenPipeError, EOFError):
            raise EOFError(f"its process ended: {_last_line(data / _LOG, begin)}") from None

    def _announced(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """
        Return the line with which a hive announces its address, such as {"port": 43121, …}.

        Raises OSError, TypeError or ValueError if no such line comes, OSError if the hive is closed
        meanwhile, EOFError if nothing comes.
        """
        assert process.stdout is not None
        deadline = time.monotonic() + _STARTING
        waiting = select.poll()  # `select` takes no descriptor from 1,024 on
        waiting.register(process.stdout, select.POLLIN)
        line = b""
        while not line.endswith(b"\n"):
            if self._is_closed:
                raise OSError("it was closed meanwhile")
            if not waiting.poll(1_000 * _INTERVAL):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"it said nothing for {_STARTING:g} s")
                continue
            read = process.stdout.read(4_096)
            if not read:
                raise EOFError
            line += read
        return dict(json.loads(line))

    def _spawned(self) -> tuple[Path, subprocess.Popen[bytes], int]:
        """Return the directory, a process that waits for options, and the offset of its log."""
        try:
            if self._data is None:
                self._temporary = TemporaryData()
                self._data = self._temporary.path
            self._data.mkdir(parents=True, exist_ok=True)
            self._owner = os.getpid()
            with open_file(self._data / _LOG, mode="ab") as output:
                begin = output.tell()
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "arkml.server", "--embedded"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    bufsize=0,
                    env=environment(),
                    process_group=0,  # Ctrl-C is for the host
                )
        except OSError as error:
            where = self._data or tempfile.gettempdir()
            is_log = Path(error.filename or "").name == _LOG
            reason = f"{_LOG}: {error.strerror}" if is_log else error.strerror
            raise OSError(f"it cannot use its directory {where}: {reason}") from error
        return self._data, self._process, begin


def _last_line(log: Path, begin: int) -> str:
    """Return the last line that a process has logged. Raises OSError."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it logged nothing")
    return last[-_QUOTED:]
