"""The service: a hive that answers requests at an address until it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from arkml.base.descriptors import room_for_connections
from arkml.base.host_names import authority_of, is_loopback
from arkml.base.http_server import LimitedServer, listen_at
from arkml.base.loggers import SafeLogger
from arkml.base.parent_watch import watch_parent
from arkml.errors import HiveError, UsageError
from arkml.hive.tracing import tracing
from arkml.server.connections import HiveConfig
from arkml.server.error_answers import FULL
from arkml.server.hive import Hive
from arkml.server.hive_app import make_app
from arkml.server.serve_options import ServeOptions

Announce = Callable[[str, int, str], None]
"""Called once the hive answers: host, port, and a token for one login to its page."""

_log = SafeLogger(__name__)

_LAST_PORT = 65_535
_STDIN = 0
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Hosts that stand for all addresses of a machine, and the one that it reaches itself at."""

_HURRIED_STOP = 0.5
"""Seconds that learners have for a checkpoint once the parent has exited."""

_EXIT_WITHIN = 1.75
"""Seconds for an orderly end once the parent has exited; then the process exits at once."""

_BEYOND_STOP = 2.5
"""
Seconds that a service may take to end beyond those that learners have for a checkpoint.

With the default of those it has ended 7.5 s after SIGTERM: docker kills after 10.
"""


class HiveService:
    """A hive that serves at an address. Its methods belong to one event loop."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self._server: LimitedServer | None = None
        self._is_ending = False
        self._hive: Hive | None = None

    async def run(self, announce: Announce | None = None) -> None:
        """Serve until `end` is called. Raises HiveError and UsageError if the hive cannot serve."""
        options = self._options
        listening = _listen(options.host, options.port)
        with contextlib.closing(listening):
            port = listening.getsockname()[1]
            _warn_if_open(options.data)
            self._hive = hive = await _open_hive(options, _worker_address(options, port))
            try:
                config = HiveConfig(make_app(hive), options, _room(options.limits.connections))
                config.load()
                self._server = server = LimitedServer(config)
                serving = await server.begin(listening)
                if self._is_ending:
                    server.should_exit = True
                elif announce is not None and not serving.done():
                    page = hive.one_time.issue(hive.credentials.operator)
                    announce(options.host, port, page)
                await serving
            finally:
                await hive.close()
                if (traces := tracing("arkml-hive")) is not None:
                    await asyncio.to_thread(traces.flush)

    def end(self, *, hurry: bool = False) -> None:
        """Save checkpoints and end the service; with `hurry`, learners get about a second."""
        self._is_ending = True
        if self._hive is not None:
            self._hive.begin_close(_HURRIED_STOP if hurry else self._options.timeouts.stop)
        if self._server is not None:
            self._server.should_exit = True
            self._server.force_exit = hurry


def serve(
    options: ServeOptions,
    announce: Announce | None = None,
    *,
    parent: int | None = None,
) -> None:
    """
    Serve a hive until SIGTERM, SIGINT or SIGHUP. Called by the main thread.

    After the signal, learners have `Timeouts.stop` for their last checkpoint. If a part of the
    server hangs for 2.5 seconds longer, the process exits with status 1; acknowledged rows are in
    the files.

    Args:
        options: The address, the data directory and the limits.
        announce: Called once the hive listens.
        parent: The id of the process at the other end of standard input: the service ends when that
            process exits.

    Raises:
        HiveError: The directory or the address is in use or cannot be used.
        UsageError: The port is invalid.

    """
    ended = threading.Event()

    async def run() -> None:
        service = HiveService(options)
        loop = asyncio.get_running_loop()

        def end() -> None:
            service.end()
            limit = options.timeouts.stop + _BEYOND_STOP
            threading.Thread(target=_exit_unless, args=(ended, limit), daemon=True).start()

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                loop.add_signal_handler(number, end)
        if parent is not None:
            watch_parent(_STDIN, parent, lambda: _end_hurriedly(loop, service))
        await service.run(announce)

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(run())
    finally:
        ended.set()


def _exit_unless(ended: threading.Event, seconds: float) -> None:
    """End the process at once unless `ended` is set in time. Runs in a thread."""
    if not ended.wait(seconds):
        _log.error("the hive has not ended within %g s, so its process exits now", seconds)
        os._exit(1)


def _end_hurriedly(loop: asyncio.AbstractEventLoop, service: HiveService) -> None:
    """End the service and then the process, even if a part of it hangs. Called by a thread."""
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(lambda: service.end(hurry=True))
    time.sleep(_EXIT_WITHIN)
    os._exit(1)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


def _worker_address(options: ServeOptions, port: int) -> str:
    """
    Return "HOST:PORT" or the URL at which rollout workers reach a hive that listens at a port.

    Raises UsageError if workers of another machine cannot know the address, or the certificate does
    not hold for it.
    """
    if options.tls_cert is not None and options.workers.total:
        if not options.public_url:
            raise UsageError(
                "--workers with --tls-cert takes --public-url, the URL for whose name the"
                " certificate is good: the workers reach the hive there"
            )
        return options.public_url
    host, ray = options.host, options.workers.ray_address
    is_elsewhere = ray is not None and not is_loopback(ray.rpartition(":")[0])
    if is_elsewhere and (host in _ANY_ADDRESS or is_loopback(host)):
        raise UsageError(
            f"the nodes of the Ray cluster at {ray} cannot reach a hive at {host}: give --host the"
            " address by which they reach this machine"
        )
    host = _ANY_ADDRESS.get(host, host)
    return authority_of(host, port)


async def _open_hive(options: ServeOptions, address: str) -> Hive:
    try:
        return await Hive.open(options, address)
    except OSError as error:
        raise HiveError(f"the data directory {options.data}: {_describe(error)}") from error


def _warn_if_open(data: Path) -> None:
    """Log a warning if other users can read the data of a hive, or a group can change it."""
    mode = data.stat().st_mode & 0o777 if data.is_dir() else 0
    if mode & 0o027:
        _log.warning(
            "the data directory %s is open to %s (mode %04o), who can %s: chmod 700 %s",
            data,
            "every user of this machine" if mode & 0o007 else "its group",
            mode,
            "change rows and policies, and make themselves tokens"
            if mode & 0o022
            else "read rows, policies and configurations",
            data,
        )


def _room(connections: int) -> int:
    """Return the number of connections that open files are left for, at most `connections`."""
    room = room_for_connections(connections)
    if room < connections:
        _log.warning(
            "this process may have %d connections at a time, not %d as a hive does: raise its limit"
            " of open files (ulimit -Hn, LimitNOFILE= of systemd)",
            room,
            connections,
        )
    return room


def _describe(error: OSError) -> str:
    problem = "its disk is full" if error.errno in FULL else "it cannot be used"
    if error.errno in (errno.EACCES, errno.EPERM):
        problem += f" by user {os.geteuid()}, as whom this hive runs"
    return f"{problem} ({error.strerror})"


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= _LAST_PORT:
        raise UsageError(f"port {port}: it takes a whole number from 0 to {_LAST_PORT}")
    try:
        return listen_at(host, port)
    except (OSError, ValueError) as error:
        raise HiveError(_listen_problem(host, port, error)) from error


def _listen_problem(host: str, port: int, error: OSError | ValueError) -> str:
    """Return why the address cannot be listened at."""
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return f"port {port} of {host} is in use, perhaps by another hive: take another port"
        case errno.EACCES | errno.EPERM:
            return f"port {port} of {host} is not permitted for this user: take one from 1024 on"
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine"
        case _:
            return f"nothing can listen at {host} port {port}: {error}"
