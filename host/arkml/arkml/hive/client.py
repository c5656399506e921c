"""A client of a hive: one thread with an event loop, and futures for all other threads."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from msgspec import UNSET
from msgspec.structs import replace

from arkml.base.closing import Closing
from arkml.errors import ArkmlError, HiveRefused, HiveUnreachable, ProtocolError
from arkml.hive import give_way
from arkml.hive.presence import Presence
from arkml.hive.protocol.histograms import HistogramReply
from arkml.hive.protocol.labels import LabelsChange, LabelsReply
from arkml.hive.protocol.page_messages import (
    FramesReport,
    GoalReached,
    HistoryEntry,
    HistoryReply,
    ModuleReport,
)
from arkml.hive.protocol.replay_messages import (
    KeptReplay,
    ReplayDocument,
    ReplayKind,
    ReplayList,
    ReplayReport,
)
from arkml.hive.protocol.result_messages import (
    CheckpointInfo,
    CheckpointList,
    CheckpointReply,
    EvaluationReply,
    EvaluationReport,
    EvaluationStart,
    MetricsReply,
    MetricValue,
    ReplayAudit,
    SeriesPoint,
    SeriesReply,
    SnapshotKind,
)
from arkml.hive.protocol.rights import CallerInfo
from arkml.hive.protocol.rows import RowColumns
from arkml.hive.protocol.runs import (
    PROTOCOL,
    DeletedRun,
    HealthReply,
    Role,
    RunDetails,
    RunInfo,
    RunList,
    RunReply,
    RunRequest,
    require_protocol,
)
from arkml.hive.protocol.watch_messages import GuestReport
from arkml.hive.protocol.wire import Nothing, WireStruct
from arkml.hive.run_session import RunSession
from arkml.hive.transport import HiveTransport, Locate, new_key, read, reason
from arkml.hive.upload import DemonstrationUpload

T = TypeVar("T")

_OF_NOW = re.compile("(origin|goal) is unknown: ")
"""What a hive answers that does not know the newest fields of a request."""

_NOT_TAKEN = 503  # the answer, without a sentence, of a hive that takes no modules
_USES = {True: ("starts no remote workers", "--workers"), False: ("plays no versions", "--watches")}
_WASM = {"content-type": "application/wasm"}
_ENDING = 5.0  # seconds that the thread gets to end


class HiveClient(Closing):
    """
    Requests to one hive.

    Every method returns a future at once, from any thread. The future raises HiveUnreachable,
    HiveRefused or, for an answer that breaks the protocol, ProtocolError. `locate` returns the
    address of the hive; it is called before the first request and after each that failed.
    `transport` replaces real HTTP, for tests.
    """

    def __init__(
        self, locate: Locate, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.locate = locate
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        self._sessions: set[RunSession] = set()
        self._transport = HiveTransport(locate, transport=transport)
        self._presence = Presence(self._transport)
        self._watching: asyncio.Task[None] | None = None
        self._transport.on_request = self._watch
        self._thread = threading.Thread(target=self._run, name="arkml-hive-client", daemon=True)
        self._thread.start()

    @property
    def is_gone(self) -> bool:
        """True while the hive does not answer although a session or a request waits for it."""
        return self._presence.is_gone

    @property
    def has_answered(self) -> bool:
        """True once the hive has answered a request of this client."""
        return self._transport.has_answered

    @property
    def silence(self) -> str:
        """A sentence about a hive that has not answered for at least a second, else ""."""
        if not self.is_gone or (seconds := self._presence.silence) < 1.0:
            return ""
        return f"the hive at {self._transport.place} has not answered for {seconds:.0f} s"

    def health(self) -> Future[HealthReply]:
        """Check that a hive answers, and speaks this client's version of the protocol."""
        return self._ask("GET", "/health", _health_in)

    def caller(self) -> Future[CallerInfo]:
        """Return the rights of this client's token."""
        return self._ask("GET", "/whoami", lambda answer: read(answer, CallerInfo))

    def runs(self) -> Future[list[RunInfo]]:
        """List all runs, the newest first."""
        return self._ask("GET", "/runs", lambda answer: read(answer, RunList).runs)

    def create(self, request: RunRequest) -> Future[RunInfo]:
        """
        Create a run, or join the existing run of the same name, as the request says.

        If the answer is lost, the request is repeated, and returns the run that it created before.
        A hive of an older release, which knows no origin and no goal, gets the request without
        them.
        """

        async def create() -> RunInfo:
            try:
                answer = await self._created(request)
            except HiveRefused as error:
                if not _OF_NOW.match(str(error)):
                    raise
                answer = await self._created(replace(request, origin=UNSET, goal=UNSET))
            return _run_in(answer)

        return self._start(create())

    async def _created(self, request: RunRequest) -> httpx.Response:
        if (request.requires_device or request.workers) and not self.has_answered:
            # Its answer waits for a learner or workers, longer than one of an unknown server may.
            await self._transport.ask("GET", "/health")
        return await self._transport.ask("POST", "/runs", body=request, key=new_key())

    def run(self, run_id: str) -> Future[RunInfo]:
        """Fetch the description of a run."""
        return self._ask("GET", _path(run_id), _run_in)

    def details(self, run_id: str) -> Future[RunDetails]:
        """Fetch the description of a run, with its settings, its best policy and its sessions."""
        return self._ask("GET", _path(run_id), lambda answer: read(answer, RunDetails))

    def config(self, run_id: str) -> Future[str]:
        """Fetch the configuration that a run was started with, byte for byte."""
        return self._ask("GET", _path(run_id, "config"), _text)

    def snapshot(self, run_id: str, which: SnapshotKind) -> Future[bytes]:
        """Fetch a policy of a run, such as the newest or the best, as an ONNX file."""
        path = _path(run_id, f"snapshot?which={which}")
        return self._ask("GET", path, lambda answer: answer.content, is_file=True)

    def metrics(self, run_id: str) -> Future[list[MetricValue]]:
        """Fetch the newest value of every metric of a run."""
        path = _path(run_id, "metrics")
        return self._ask("GET", path, lambda answer: read(answer, MetricsReply).metrics)

    def series(self, run_id: str, name: str, since: int = 0) -> Future[list[SeriesPoint]]:
        """
        Fetch the values of a metric of a run, in order of their steps.

        Args:
            run_id: Id of the run.
            name: Name of the metric, such as "rollout/ep_rew_mean".
            since: The first step.

        """
        path = _path(run_id, f"series?name={quote(name, safe='')}&since={since}")
        return self._ask("GET", path, lambda answer: read(answer, SeriesReply).series)

    def histograms(self, run_id: str, name: str = "", since: int = 0) -> Future[HistogramReply]:
        """
        Fetch the summaries of all histograms of a run, and one of them over time.

        Args:
            run_id: Id of the run.
            name: Name of the histogram to fetch over time, empty for none.
            since: The number of rows of the run at which it begins.

        """
        path = _path(run_id, f"histograms?name={quote(name, safe='')}&since={since}")
        return self._ask("GET", path, lambda answer: read(answer, HistogramReply))

    def begin_evaluation(self, run_id: str, version: int) -> Future[RunInfo]:
        """
        Ask the hive to keep a policy version until its evaluation is reported; return the run.
        """
        path = _path(run_id, "evaluations/begin")
        return self._ask("POST", path, _run_in, EvaluationStart(version))

    def evaluate(self, run_id: str, report: EvaluationReport) -> Future[bool]:
        """Report episodes that a policy version played; true if it is the best so far."""
        path = _path(run_id, "evaluations")
        return self._ask("POST", path, lambda answer: read(answer, EvaluationReply).best, report)

    def keep_replay(self, run_id: str, report: ReplayReport) -> Future[list[KeptReplay]]:
        """Send the replay of an evaluated episode; return all replays that the run keeps then."""
        path = _path(run_id, "replays")
        return self._ask("POST", path, lambda answer: read(answer, ReplayList).replays, report)

    def replays(self, run_id: str) -> Future[list[KeptReplay]]:
        """List the replays that a run keeps."""
        path = _path(run_id, "replays")
        return self._ask("GET", path, lambda answer: read(answer, ReplayList).replays)

    def replay(
        self, run_id: str, kind: ReplayKind, version: int | None = None
    ) -> Future[ReplayDocument]:
        """
        Fetch a replay that a run keeps.

        Args:
            run_id: Id of the run.
            kind: The kind of the replay, such as "best".
            version: The policy version of a recorded episode; None for other kinds.

        """
        of = "" if version is None else f"&version={version}"
        path = _path(run_id, f"replay?which={kind}{of}")
        return self._ask(
            "GET", path, lambda answer: ReplayDocument.unpack(answer.content), is_file=True
        )

    def note_module(self, run_id: str, report: ModuleReport) -> Future[HistoryEntry]:
        """Tell the hive that a run continues with a rebuilt module of its guest."""
        path = _path(run_id, "events")
        return self._ask("POST", path, lambda answer: read(answer, HistoryEntry), report)

    def label(self, run_id: str, change: LabelsChange) -> Future[LabelsReply]:
        """
        Change the title, the note, the tags or the star of a run, or whether it is archived.

        Fields that the change leaves out stay as they are. The future raises HiveRefused with
        status 409 for a note that was changed meanwhile.
        """
        return self._ask("PATCH", _path(run_id), lambda answer: read(answer, LabelsReply), change)

    def events(self, run_id: str, since: int = 0) -> Future[list[HistoryEntry]]:
        """List the last events of a run after `since`, in nanoseconds since the Unix epoch."""
        path = _path(run_id, f"events?since={since}")
        return self._ask("GET", path, lambda answer: read(answer, HistoryReply).events)

    def note_goal(self, run_id: str, report: GoalReached) -> Future[RunInfo]:
        """Tell the hive that a training of a run has reached its goal."""
        path = _path(run_id, "goal")
        return self._ask("POST", path, _run_in, report)

    def note_frames(self, run_id: str, frames: int) -> Future[RunInfo]:
        """Tell the hive how many frames were played of a run that ends after a number of frames."""
        return self._ask("POST", _path(run_id, "frames"), _run_in, FramesReport(frames))

    def stop(self, run_id: str) -> Future[RunInfo]:
        """Stop a run for all sessions."""
        return self._ask("POST", _path(run_id, "stop"), _run_in, Nothing())

    def delete(self, run_id: str, *, force: bool = False) -> Future[str]:
        """Delete a run and all its files; `force` stops it first. Returns the id of the run."""
        path = _path(run_id) + ("?force=1" if force else "")
        return self._ask("DELETE", path, lambda answer: read(answer, DeletedRun).deleted)

    def checkpoint(self, run_id: str) -> Future[str]:
        """Save a checkpoint of a run now, and return its name."""
        path = _path(run_id, "checkpoints")
        return self._ask(
            "POST", path, lambda answer: read(answer, CheckpointReply).checkpoint, Nothing()
        )

    def checkpoints(self, run_id: str) -> Future[list[CheckpointInfo]]:
        """List the checkpoints of a run, the oldest first."""
        path = _path(run_id, "checkpoints")
        return self._ask("GET", path, lambda answer: read(answer, CheckpointList).checkpoints)

    def memory(self, run_id: str) -> Future[ReplayAudit]:
        """Fetch the numbers of rows in the log of a run and in the replay buffer of its learner."""
        return self._ask("GET", _path(run_id, "memory"), lambda answer: read(answer, ReplayAudit))

    def module(self, sha256: str) -> Future[bytes]:
        """Fetch an uploaded module by its hash, in hex."""
        path = f"/modules/{quote(sha256, safe='')}"
        return self._ask("GET", path, lambda answer: answer.content, is_file=True)

    def upload_module(self, sha256: str, data: bytes) -> Future[None]:
        """
        Upload a module for rollout workers, unless the hive already has it.

        `sha256` is the SHA-256 of `data`, in lower hex. The future raises HiveRefused if the hive
        accepts no modules, or not this one.
        """
        return self._start(self._upload_module(sha256, data, for_workers=True))

    def keep_guest(self, run_id: str, report: GuestReport, data: bytes) -> Future[GuestReport]:
        """
        Store the module of a run's guest with the run, so that people can watch its policies.

        The future raises HiveRefused if the hive lets nobody watch, or does not accept this module.

        Args:
            run_id: Id of the run.
            report: The name, arguments and SHA-256 of the guest's module.
            data: Bytes of the module.

        """

        async def keep() -> GuestReport:
            await self._upload_module(report.module, data, for_workers=False)
            path = _path(run_id, "guest")
            return read(await self._transport.ask("POST", path, body=report), GuestReport)

        return self._start(keep())

    def join(
        self,
        run_id: str,
        features: int,
        actions: int,
        *,
        on_policy: Callable[[int, bytes], object],
        choices: int = 0,
        role: Role = Role.ACT,
        block: bool = False,
        sync: bool = False,
    ) -> Future[RunSession]:
        """
        Begin a session of a run.

        Args:
            run_id: Id of the run.
            features: Number of features of a row.
            actions: Number of actions of a row.
            on_policy: Called on the client's thread with each newer policy version and its ONNX
                file.
            choices: Number of choices of all branches together, which rows may mask: 5, for
                example, for branches of 3 and 2.
            role: Whether the rows are for training or for an evaluation.
            block: Whether the guest waits for credit of the learner's rate limiter.
            sync: Whether the guest runs in lockstep with the learner.

        """
        return self._start(
            self._join(
                RunSession(
                    self._transport, self._loop, run_id, features, actions,
                    choices=choices, role=role, block=block, sync=sync, on_policy=on_policy,
                )
            )
        )  # fmt: skip

    def demonstrate(
        self, run_id: str, columns: RowColumns, key: str
    ) -> Future[DemonstrationUpload]:
        """
        Send demonstrations to a run; return the session that sent them, which is still open.

        Rows that were sent with the same key before are not sent again.

        Args:
            run_id: Id of the run.
            columns: The rows.
            key: A text that identifies the rows, such as their SHA-256.

        """
        upload = DemonstrationUpload(self._transport, run_id, columns, key=key)

        async def send() -> DemonstrationUpload:
            await upload.send()
            return upload

        return self._start(send())

    def end_upload(self, upload: DemonstrationUpload) -> Future[None]:
        """Leave the session that has sent demonstrations."""
        return self._start(upload.leave())

    def close(self) -> None:
        """End the thread, and cancel all requests. Safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not threading.current_thread():  # the collector runs anywhere
            self._thread.join(_ENDING)

    def _watch(self) -> None:
        """Watch the hive, unless a watch is in progress."""
        if self._watching is None or self._watching.done():
            watch = self._presence.watch(lambda: bool(self._sessions))
            self._watching = asyncio.ensure_future(watch)

    async def _upload_module(self, sha256: str, data: bytes, *, for_workers: bool) -> None:
        path = f"/modules/{sha256}"
        known = await self._transport.send("HEAD", f"{path}?for_workers={for_workers:d}")
        if known.status_code < 400:
            return
        if known.status_code == _NOT_TAKEN:
            played, option = _USES[for_workers]
            raise HiveRefused(
                f"the hive {played}: arkml hive serve {option} N allows it", _NOT_TAKEN
            )
        answer = await self._transport.send("PUT", path, content=data, headers=_WASM)
        if answer.status_code >= 400:
            raise HiveRefused(reason(answer), answer.status_code)

    async def _join(self, session: RunSession) -> RunSession:
        await session.begin()
        self._sessions.add(session)
        self._watch()
        session.ended.add_done_callback(lambda _: self._sessions.discard(session))
        return session

    def _ask(
        self,
        method: str,
        path: str,
        reply: Callable[[httpx.Response], T],
        body: WireStruct | None = None,
        *,
        is_file: bool = False,
    ) -> Future[T]:
        """Make a request, and return the result of `reply` for the answer."""

        async def ask() -> T:
            answer = await self._transport.ask(method, path, body=body, is_file=is_file)
            return reply(answer)

        return self._start(ask())

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._is_closed:
            work.close()
            failed: Future[T] = Future()
            failed.set_exception(HiveUnreachable("the client of the hive is closed"))
            return failed
        future: Future[T] = Future()
        self._loop.call_soon_threadsafe(_run_for, future, work)
        return future

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        give_way()  # a body that is sent late costs less than a late frame (decision 9)
        try:
            self._loop.run_forever()
        finally:
            _cancel_begun(self._loop)
            self._loop.run_until_complete(asyncio.sleep(0))  # the others begin
            _cancel_begun(self._loop)
            tasks = asyncio.all_tasks(self._loop)
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._transport.close())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


def _cancel_begun(loop: asyncio.AbstractEventLoop) -> None:
    """
    Cancel the tasks that have begun, each once.

    A task that is canceled before it begins, such as a task of anyio, never awaits its coroutine,
    about which Python warns. Tasks that close an asynchronous generator, such as a partly read
    answer, are left alone: they end soon.
    """
    for task in asyncio.all_tasks(loop):
        coroutine = task.get_coro()
        if not inspect.iscoroutine(coroutine):
            continue
        if inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED and not task.cancelling():
            task.cancel()


def _run_for(future: Future[T], work: Coroutine[Any, Any, T]) -> None:
    """
    Run `work` as a task of this loop; `future` gets its outcome, and cancels it if it is canceled.

    Unlike a future of `asyncio.run_coroutine_threadsafe`, `future` is in no reference cycle, so its
    outcome is freed with it. An ArkmlError loses its traceback, which would keep the body of the
    request alive.
    """
    if future.cancelled():
        work.close()
        return
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)

    def settle(done: asyncio.Task[T]) -> None:
        if done.cancelled():
            future.cancel()
        if not future.set_running_or_notify_cancel():
            return
        error = done.exception()
        if error is None:
            future.set_result(done.result())
            return
        if isinstance(error, ArkmlError):
            error.__traceback__ = error.__cause__ = error.__context__ = None
        future.set_exception(error)

    def cancel(future: Future[T]) -> None:
        if future.cancelled():
            with suppress(RuntimeError):  # the client is closed, and the loop with it
                loop.call_soon_threadsafe(task.cancel)

    task.add_done_callback(settle)
    future.add_done_callback(cancel)


def _health_in(answer: httpx.Response) -> HealthReply:
    health = read(answer, HealthReply)
    require_protocol(PROTOCOL, health.protocol)
    return health


def _run_in(answer: httpx.Response) -> RunInfo:
    return read(answer, RunReply).run


def _text(answer: httpx.Response) -> str:
    try:
        return answer.content.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"the hive answered with text that is not UTF-8: {error}") from None


def _path(run_id: str, rest: str = "") -> str:
    return f"/runs/{quote(run_id, safe='')}" + (f"/{rest}" if rest else "")
