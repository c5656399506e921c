"""A trial server with its ports, its log and its status file, which runs until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arkml.base.descriptors import room_for_connections
from arkml.base.host_names import listening_authority
from arkml.base.terminal import harmless
from arkml.cli.units import counted
from arkml.errors import UsageError
from arkml.trials.core.hosting import Hosting
from arkml.trials.datalog.datalog import Datalog, DatalogOptions
from arkml.trials.server.durations import MeasuredLog, serve_metrics
from arkml.trials.server.orchestrator import TrialLog
from arkml.trials.server.server import Server
from arkml.trials.server.server_options import TrialsOptions
from arkml.trials.server.web.page_files import page_link
from arkml.trials.server.web.port import WebPort
from arkml.trials.server.web.web_options import WebOptions
from arkml.trials.wire.common_pb2 import TrialParams

if TYPE_CHECKING:
    from arkml.guest_trials.learning.trial_learning import TrialLearning

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class TrialPorts:
    """
    The address of a trial server and its ports; 0 takes a free port, except for Prometheus: none.
    """

    host: str
    lifecycle: int
    actor: int
    prometheus: int


@dataclass(frozen=True, slots=True)
class ServedTrials:
    """The settings of `arkml trials serve`."""

    ports: TrialPorts
    trials: TrialsOptions
    datalog: DatalogOptions
    data: Path
    status_file: Path | None
    web: WebOptions | None = None
    hosting: Hosting | None = None
    learning: TrialLearning | None = None


def serve(options: ServedTrials, announce: Callable[[str], object]) -> int:
    """
    Serve trials until SIGINT, SIGTERM or SIGHUP, and return the number of the signal.

    The signal ends all trials, softly for some seconds, and at once after a second signal. Call
    `serve` on the main thread. Raises TrialError and UsageError if the server cannot begin.
    """
    return asyncio.run(_serve(options, announce))


async def _serve(options: ServedTrials, announce: Callable[[str], object]) -> int:
    room_for_connections()
    ending = EndingSignals()
    with _status(options.status_file) as mark:
        mark("I")
        async with open_server(options, announce) as server:
            mark("R")
            number = await ending.first
            await ending.end(server)
        mark("T")
    return number


class EndingSignals:
    """
    The signals that end a server, except signals ignored from the start, as under nohup.

    `first` is a future of the number of the first signal.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[int] = loop.create_future()
        self._second = asyncio.Event()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._take, number)

    def _take(self, number: int) -> None:
        if self.first.done():
            self._second.set()
        else:
            self.first.set_result(number)

    async def end(self, server: Server) -> None:
        """End all trials; a second signal ends them at once."""
        softly = asyncio.create_task(server.close())
        hurry = asyncio.create_task(self._second.wait())
        await asyncio.wait((softly, hurry), return_when=asyncio.FIRST_COMPLETED)
        if not softly.done():
            await server.close(0.0)
        hurry.cancel()
        await softly


@contextlib.asynccontextmanager
async def open_log(
    data: Path, options: DatalogOptions
) -> AsyncIterator[tuple[Datalog, list[Server]]]:
    """
    Open the log of trials, and yield it with a list to which its servers are added.

    These servers end their trials once the log can no longer be written. Raises TrialError.
    """
    running: list[Server] = []

    def fail(reason: str) -> None:
        for server in running:
            server.orchestrator.end_running(reason)

    loop = asyncio.get_running_loop()
    log = await asyncio.to_thread(Datalog, data, options, loop=loop, on_failure=fail)
    try:
        yield log, running
    finally:
        await asyncio.to_thread(log.close)


@contextlib.asynccontextmanager
async def open_server(
    options: ServedTrials, announce: Callable[[str], object]
) -> AsyncIterator[Server]:
    """Open a server with its log and its ports, and announce its endpoints."""
    ports = options.ports
    async with open_log(options.data, options.datalog) as (log, running):
        measured = MeasuredLog(log)
        hosting, learning = options.hosting, options.learning
        trial_log: TrialLog = measured if learning is None else learning.learned_log(measured)
        async with Server(options.trials, trial_log=trial_log, hosting=hosting) as server:
            running.append(server)
            lifecycle, actor = await server.listen(ports.host, ports.lifecycle, ports.actor)
            shown = listening_authority(ports.host, lifecycle)
            if actor != lifecycle:
                shown += f", actors join at grpc://{listening_authority(ports.host, actor)}"
            announce(f"trials: grpc://{shown}, log in {options.data.resolve()}")
            if options.hosting is not None:
                announce(f"guest: {_described(options.hosting, options.trials.params)}")
            if learning is not None:
                announce(f"runs: {_runs(learning)}")
            async with contextlib.AsyncExitStack() as stack:
                if ports.prometheus:
                    metrics = await serve_metrics(measured, ports.host, ports.prometheus)
                    stack.callback(metrics.close)
                if options.web is not None:
                    web = WebPort(server, options.web)
                    stack.push_async_callback(web.close)
                    await web.open()
                    announce(f"web: {_web_endpoint(web, options.web)}")
                    if options.web.page is not None:
                        token = "" if options.web.token else web.access.token
                        announce(f"page: {page_link(web.endpoint(), token=token)}")
                yield server


def _described(hosting: Hosting, params: TrialParams) -> str:
    """Return the guest, the classes of the actors by default, and their policies."""
    described = hosting.describe()
    counts = Counter(actor.actor_class for actor in params.actors)
    parts = [
        f"{counted(counts[one.name], 'actor')} {one.name}" + f" ({one.policy})" * bool(one.policy)
        for one in described.classes
    ]
    return harmless(f"{described.guest}, {', '.join(parts)}")


def _runs(learning: TrialLearning) -> str:
    """Return the runs of the classes, and the actions that are learned from."""
    runs = [
        f"{joined.run.name} ({joined.run.id}) of {one}" for one, joined in learning.runs.items()
    ]
    return harmless(" ".join((f"{', '.join(runs)}.", learning.options.sentence)).rstrip())


def _web_endpoint(web: WebPort, options: WebOptions) -> str:
    """Return the endpoint of browsers, with the token if it is a new one."""
    if options.token:
        return f"{web.endpoint()}/j/..., with the token that was given"
    return web.endpoint(web.access.token)


@contextlib.contextmanager
def _status(path: Path | None) -> Iterator[Callable[[str], object]]:
    """
    Open the status file; yield a function that adds a letter to it. Raises UsageError.

    A pipe keeps the letters until it is read: it has a reader here, so none is waited for.
    """
    if path is None:
        yield lambda _: None
        return
    try:
        flags = os.O_RDWR if path.is_fifo() else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        file = os.fdopen(os.open(path, flags | os.O_CLOEXEC, 0o666), "wb", buffering=0)
    except OSError as error:
        raise UsageError(f"--status-file {path} cannot be written: {error.strerror}") from None
    with file:
        yield lambda letter: file.write(letter.encode("ascii"))
