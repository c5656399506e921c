"""Serving a hive until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import uvicorn

from arkml.server import lifeline
from arkml.server.app import make_app
from arkml.server.hive import Hive
from arkml.server.options import ServeOptions

Announce = Callable[[str, int], None]
"""Called with host and port once the hive answers there."""

_HURRY = 0.5
"""Seconds that learners have for a checkpoint when nobody is left to wait for it."""


class _Server(uvicorn.Server):
    """One that leaves signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """A hive at an address. `end` ends it, from the thread of its event loop."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self._server: _Server | None = None
        self._is_ending = False
        self._hive: Hive | None = None

    async def run(self, announce: Announce | None = None) -> None:
        """Serve until `end`. Raises HiveError or OSError if it cannot begin."""
        options = self._options
        listening = _listen(options.host, options.port)
        with contextlib.closing(listening):
            self._hive = hive = await Hive.open(options)
            try:
                self._server = server = _Server(_config(hive, options))
                serving = asyncio.create_task(server.serve(sockets=[listening]))
                while not server.started and not serving.done():
                    await asyncio.sleep(0.005)
                if self._is_ending:
                    server.should_exit = True
                elif announce is not None and not serving.done():
                    announce(options.host, listening.getsockname()[1])
                await serving
            finally:
                await hive.close()

    def end(self, *, hurry: bool = False) -> None:
        """Checkpoint, and end; `hurry`: nobody waits for it, and it is to be over soon."""
        self._is_ending = True
        if self._hive is not None:
            self._hive.begin_end(_HURRY if hurry else self._options.patience.stop)
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
    Serve a hive until SIGTERM, SIGINT or SIGHUP. For the main thread.

    With `parent`, a process, it also ends when that does: standard input is its life line then.
    Raises HiveError if the directory is in use, and OSError if it or the address cannot be had.
    """

    async def run() -> None:
        serving = Serving(options)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                loop.add_signal_handler(number, serving.end)
        if parent is not None:
            lifeline.hold(0, parent, lambda: serving.end(hurry=True))
        await serving.run(announce)

    with asyncio.Runner(loop_factory=_loops()) as runner:
        runner.run(run())


def _loops() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


def _config(hive: Hive, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(hive, options.token),
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        # Longer than clients keep a connection, or both would close it at once.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
        server_header=False,
        date_header=False,
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError:
        listening.close()
        raise
    return listening
