"""The runs in one data directory."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveError, HiveRefused, UsageError
from arkml.hive.notifier import Notifier
from arkml.hive.protocol.masks import mask_names
from arkml.hive.protocol.runs import DOCUMENT_NAME, OnConflict, RunInfo, RunRequest, Status
from arkml.hive.protocol.settings import Settings
from arkml.server.access.callers import Caller
from arkml.server.access.credentials import OPEN, Credentials
from arkml.server.access.one_time_tokens import OneTimeTokens
from arkml.server.checkpoints import checkpoint_exists, list_checkpoints
from arkml.server.creators import Creator, Creators
from arkml.server.curve_reader import CurveReader
from arkml.server.document import (
    Document,
    NewerRun,
    make_folders,
    read_document,
    refuse_links,
    write_new,
)
from arkml.server.hive_files import lock_within
from arkml.server.learner_places import LearnerPlaces
from arkml.server.learner_pool import LearnerPool
from arkml.server.lifecycle import HiveParts
from arkml.server.modules import ModuleStore
from arkml.server.old_reports import OLD_INDEX
from arkml.server.ownership import refusal
from arkml.server.request_context import note_session
from arkml.server.resources import ResourceMeter
from arkml.server.run import Run
from arkml.server.run_origin import RunStart, start_of
from arkml.server.serve_options import ServeOptions
from arkml.server.sessions import RunSession
from arkml.server.upgrade import upgrade_run
from arkml.server.usage import DiskUse
from arkml.server.watchdog.run_watch import Notices
from arkml.server.watches import Watches
from arkml.server.worker_pool import WorkerPool

_log = SafeLogger(__name__)

_DELETABLE = (Status.STOPPED, Status.ABORTED, Status.NOT_FOUND)
_LEARNER_WITHIN = 45.0
"""Seconds in which the learner of a run that requires its device finds it."""

_MEASURE_EVERY = 1.0
_DISK_EVERY = 5
"""Seconds between two measurements of learners, and how many of them come to one of the disk."""

_LAST_NOTICES = 1.0
"""Seconds that notices have to be sent when a hive ends."""

_BEGINNING_BYTES = 64 << 10
"""Disk space that a hive has to find when it opens: that of a run that begins, without rows."""

_DOCUMENT_BYTES = 4_096
"""Disk space of a run without rows, at least."""


class Hive:
    """
    The runs in `options.data`, one directory each.

    Attributes:
        lock: The descriptor of the lock on the data directory, which the hive closes.
        address: "HOST:PORT" or a URL, at which rollout workers reach the hive.
        credentials: The tokens that the hive accepts.
        one_time: The tokens that are good for one login.
        runs_closed: An event that is set once the hive has closed its runs.

    """

    def __init__(self, options: ServeOptions, lock: int, address: str) -> None:
        self.options = options
        self._runs: dict[str, Run] = {}
        self._newer: dict[str, RunInfo] = {}  # runs that this release cannot read
        self._sessions: dict[str, tuple[Run, RunSession]] = {}
        self._directory = options.data / "runs"
        self._deleted = options.data / "deleted"
        self._lock = lock
        taken = options.workers
        self._workers = WorkerPool(taken, address)
        self.credentials = Credentials(options, self._workers.tokens)
        self.one_time = OneTimeTokens()
        self._metrics = ThreadPoolExecutor(1, "arkml-metrics")
        self.disk = DiskUse(options.data, options.limits.disk_bytes)
        self._places = LearnerPlaces(options.limits)
        self._learners = LearnerPool(
            options.learner,
            options.data / "learners.log",
            lock,
            self._places,
            spare=options.spare,
        )
        self.modules = ModuleStore(
            options.data / "modules",
            self.disk,
            max_bytes=taken.module_bytes if taken.total or options.watches.total else 0,
            most=taken.modules,
            is_used=self._uses_module,
        )
        self.watches = Watches(options.watches)
        self._notifier = Notifier(options.notify)
        notices = Notices(self._notifier, _page(options, address))
        self._parts = HiveParts(
            options, self._metrics, self._learners, self._workers, self.disk, notices
        )
        self._measuring: asyncio.Task[None] | None = None
        self.refused_rows: Counter[str] = Counter()
        """Rows that this process has refused, by the reason."""
        self._creating = asyncio.Lock()
        self._creators = Creators()
        self._starting: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Future[Any] | None = None
        self.runs_closed = asyncio.Event()
        self.curves = CurveReader()
        self.resources = ResourceMeter()

    @classmethod
    async def open(cls, options: ServeOptions, address: str) -> Hive:
        """
        Open the hive in a directory, which is created if it does not exist.

        Learners of a hive that died hold the directory's lock until they have exited too, so this
        may take some seconds. Raises HiveError if the directory stays in use, its tokens cannot be
        read or workers have no place to run, UsageError for a directory of another user and for a
        hive that is open to others, and OSError.
        """
        try:
            options.data.mkdir(0o700, parents=True, exist_ok=True)
            (options.data / "runs").mkdir(exist_ok=True)
            locked = await lock_within(options.data / "lock", options.timeouts.opening)
        except PermissionError as error:
            raise UsageError(refusal(options.data.absolute(), error)) from error
        try:
            with tempfile.TemporaryFile(dir=options.data) as file:
                file.write(bytes(_BEGINNING_BYTES))  # a full disk is told now, not by the first run
                file.flush()
            hive = cls(options, locked, address)
            await hive._workers.open()
        except (HiveError, UsageError, OSError):
            os.close(locked)
            raise
        await hive.disk.measure()
        await hive._load()
        hive._measuring = asyncio.create_task(hive._measure())
        await hive._learners.refill()
        return hive

    async def _load(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self._deleted, ignore_errors=True)
        for name in OLD_INDEX:
            with contextlib.suppress(OSError):
                (self.options.data / name).unlink()
        used = []
        for directory in sorted(self._directory.iterdir()):
            try:
                refuse_links(directory)
                await asyncio.to_thread(upgrade_run, directory)
                document = read_document(directory)
                await asyncio.to_thread(make_folders, directory)  # a backup has no empty ones
                if await self._restore(run := self._add(document)):
                    used.append(run)
            except NewerRun as newer:
                self._newer[directory.name] = newer.info
                _log.error("%s", newer)
            except (HiveError, OSError, ArithmeticError, ValueError) as error:
                self._runs.pop(directory.name, None)
                _log.error("run %s cannot be opened: %s", directory.name, error)
        before = None
        for run in sorted(used, key=lambda run: run.document.started_at):
            waits = asyncio.Event()
            self._starting.add(task := asyncio.create_task(run.lifecycle.restart(before, waits)))
            task.add_done_callback(self._starting.discard)
            before = waits

    async def _restore(self, run: Run) -> bool:
        """Restore a run, and return whether it was in use when the hive ended."""
        is_used = not run.document.is_over and self._was_in_use(run)
        await run.restore()
        return is_used

    def _was_in_use(self, run: Run) -> bool:
        """Return whether a run had sessions until shortly ago, which may continue."""
        age = time.time() - (run.directory / DOCUMENT_NAME).stat().st_mtime
        is_recent = age < self.options.timeouts.idle_stop
        return is_recent and any(not session.left for session in run.document.sessions)

    def _add(self, document: Document) -> Run:
        directory = self._directory / document.id
        run = Run(directory, document, self._parts)
        self._runs[document.id] = run
        if document.creator is not None:
            self._creators.add(document.creator, document.id, document.started_at)
        return run

    def _uses_module(self, sha256: str) -> bool:
        """Return whether a run that is not over has workers that run a module."""
        documents = [run.document for run in self._runs.values()]
        return any(one.request.module == sha256 and not one.is_over for one in documents)

    @property
    def is_ending(self) -> bool:
        """True once the hive is being closed."""
        return self._closing is not None

    @property
    def present_runs(self) -> list[Run]:
        """All runs whose files this release can read, whether they have ended or not."""
        return list(self._runs.values())

    @property
    def owners(self) -> dict[str, str]:
        """The id of the token that has started each run, by the id of the run."""
        return {name: run.document.owner for name, run in self._runs.items()}

    def runs(self, caller: Caller = OPEN) -> list[RunInfo]:
        """
        Return the runs that a caller may list, by default all, the newest first.

        A run whose files a newer release has written is listed with the reason why this release
        cannot use it; its owner is not known.
        """
        infos = [run.info() for run in self._runs.values() if caller.lists(run.document.owner)]
        infos += [info for info in self._newer.values() if caller.lists("")]
        return sorted(infos, key=lambda one: one.started_at, reverse=True)

    def run(self, run_id: str) -> Run:
        """Return the run with that id. Raises HiveRefused if there is none."""
        run = self._runs.get(run_id)
        if run_id in self._newer:
            raise HiveRefused(self._newer[run_id].reason, 409)
        if run is None:
            raise HiveRefused(f"there is no run {run_id!r}", 404)
        note_session(run_id)
        return run

    def session(self, sid: str) -> tuple[Run, RunSession]:
        """Return the run and the session with the id `sid`. Raises HiveRefused if there is none."""
        known = self._sessions.get(sid)
        if known is not None and not known[1].is_forgotten:
            note_session(known[0].document.id, known[1].index)
            return known
        for run in self._runs.values():
            for session in run.document.sessions:
                if session.sid == sid:
                    self._sessions[sid] = run, session
                    note_session(run.document.id, session.index)
                    return run, session
        raise HiveRefused(f"there is no session {sid!r}", 404)

    def require_session(self, run_id: str, join_key: str) -> None:
        """
        Raise HiveRefused if a new session with `join_key` would exceed the limits of sessions.
        """
        run, limits = self.run(run_id), self.options.limits
        lease = self.options.timeouts.lease
        known = run.document.sessions.find(join_key)
        if known is not None and known.is_alive(lease):
            return
        alive = [
            (one is run, one.document.sessions.count_alive(lease, workers=False))
            for one in self._runs.values()
        ]
        own, total = sum(count for is_own, count in alive if is_own), sum(n for _, n in alive)
        if limits.sessions_per_run and own >= limits.sessions_per_run:
            raise HiveRefused(
                f"run {run_id} has {own} sessions, and may have {limits.sessions_per_run}"
                " (--max-sessions-a-run): join it again when others have left",
                429,
            )
        if limits.sessions and total >= limits.sessions:
            raise HiveRefused(
                f"this hive has {total} sessions, and may have {limits.sessions} (--max-sessions):"
                " join again when others have left",
                429,
            )

    async def create(
        self, request: RunRequest, key: str = "", *, owner: str = "", owner_name: str = ""
    ) -> tuple[Run, bool]:
        """
        Create a run, or join the newest one of its game and name if the request allows that.

        Args:
            request: The game, the name and the settings of the run.
            key: The Idempotency-Key, empty for none. A request with the key of an earlier request
                has to be equal to it and of the same `owner`, and gets the run of that request.
            owner: The id of the token that a new run belongs to.
            owner_name: The name of that token, which is kept with a new run.

        Returns:
            The run, and whether it is new.

        Raises:
            HiveRefused: A limit of the hive is reached, or the request does not fit an earlier one.
            InvalidSettings: The settings cannot be used.
            OSError: The directory of the run cannot be written.

        """
        create = partial(self._create_or_join, owner, owner_name)
        run_id, is_new = await self._creators.start(key, owner, request, create)
        return self.run(run_id), is_new

    async def _create_or_join(
        self, owner: str, owner_name: str, request: RunRequest, creator: Creator | None
    ) -> tuple[str, bool]:
        if request.module:
            self.modules.use(request.module)
        async with self._creating:
            same = [run for run in self._runs.values() if _is_named(run, request, request.name)]
            if same and request.on_conflict is OnConflict.JOIN:
                run = max(same, key=lambda one: one.document.started_at)
                settings = request.settings
                run.document.check_widths(settings.features, settings.actions, 409)
                run.document.check_branches(settings.branches)
                run.document.check_parts(settings.parts)
                run.lifecycle.require_time()
                if not run.lifecycle.sessions:
                    await run.start_file.resume(request)
                is_new = False
            elif request.on_conflict is OnConflict.JOIN and (newer := self._newer_one(request)):
                raise HiveRefused(newer.reason, 409)
            else:
                start = start_of(request, owner_name)
                run, is_new = await self._create(request, creator, owner, start), True
        if is_new:
            await self._begin(run, request)
        elif request.workers:
            await run.lifecycle.resume_with_workers(request)
        return run.document.id, is_new

    async def _create(
        self, request: RunRequest, creator: Creator | None, owner: str, start: RunStart
    ) -> Run:
        """Write a new run. Raises HiveRefused and OSError."""
        if request.checkpoint and not checkpoint_exists(self._directory, request.checkpoint):
            raise HiveRefused(f"there is no checkpoint {request.checkpoint!r}", 404)
        if request.workers:
            self._workers.require(request.workers)
        most = self.options.limits.runs
        if most and len(self._runs) >= most:
            raise HiveRefused(
                f"this hive has {len(self._runs)} runs, and may have {most} (--max-runs): delete"
                " those that are over, by arkml hive rm",
                429,
            )
        self.disk.take(_DOCUMENT_BYTES)
        request = replace(
            request,
            name=self._free_name(request),
            settings=self._settings(request),
            origin=UNSET,  # both are in a file of their own
            goal=UNSET,
        )
        names = mask_names(request.settings.branches)
        run_id = secrets.token_hex(8)
        document = Document(
            run_id, request, time.time_ns(), names=names, owner=owner, creator=creator
        )
        await asyncio.to_thread(write_new, self._directory, document, start)
        return self._add(document)

    async def _begin(self, run: Run, request: RunRequest) -> None:
        """Start a new run. Raises HiveRefused if its learner or workers cannot start; OSError."""
        await run.restore()
        await run.start()
        try:
            if request.requires_device:
                await run.lifecycle.require_learner(_LEARNER_WITHIN)
            if request.workers:
                await run.workers.start(run.document.request)
        except HiveRefused:
            await self.delete(run.document.id, force=True)
            raise

    def _free_name(self, request: RunRequest) -> str:
        name, number = request.name, 1
        taken = {(run.game, run.name) for run in self._newer.values()}
        while (request.game, name) in taken or any(
            _is_named(run, request, name) for run in self._runs.values()
        ):
            number += 1
            name = f"{request.name}-{number}"
        return name

    def _newer_one(self, request: RunRequest) -> RunInfo | None:
        """Return the run of a newer release that has the game and the name of a request."""
        wanted = (request.game, request.name)
        return next((run for run in self._newer.values() if (run.game, run.name) == wanted), None)

    def _settings(self, request: RunRequest) -> Settings:
        settings, cap = request.settings, self.options.memory_max_size or math.inf
        if settings.device == "auto" and self.options.device != "auto":
            settings = replace(settings, device=self.options.device)
        if settings.memory_max_size > cap:
            settings = replace(settings, memory_max_size=int(cap))
        return settings

    async def delete(self, run_id: str, *, force: bool) -> None:
        """Delete a run with its files; `force` stops it first. Raises HiveRefused and OSError."""
        run = self.run(run_id)
        if run.status is Status.NOT_FOUND:
            await run.close(0.0)
        elif force:
            await run.stop()
        if run.status not in _DELETABLE:
            raise HiveRefused(
                f"run {run_id} is {run.status}: it can be deleted once it is stopped", 409
            )
        await self.watches.end_run(run_id)
        del self._runs[run_id]
        self._sessions = {sid: one for sid, one in self._sessions.items() if one[0] is not run}
        await run.metrics.close()
        if run.directory.exists():
            self._deleted.mkdir(exist_ok=True)
            deleted = self._deleted / run_id
            run.directory.rename(deleted)
            await run.metrics.close()  # which a reader may have opened again
            await asyncio.to_thread(shutil.rmtree, deleted)

    def begin_close(self, seconds: float) -> None:
        """Begin to close all runs and learners; each run has `seconds` for its last checkpoint."""
        if self._closing is None:
            if self._measuring is not None:
                self._measuring.cancel()
            self._closing = asyncio.gather(
                self._close_runs(seconds),
                self._learners.close(),
                self._workers.close(),
                self.watches.close(),
                return_exceptions=True,  # each is closed, also after another one has failed
            )

    async def _close_runs(self, seconds: float) -> None:
        used = [run for run in self._runs.values() if run.is_active]
        closing = (run.close(seconds) for run in self._runs.values())
        try:
            _require(await asyncio.gather(*closing, return_exceptions=True))
            for run in used:
                saved = await asyncio.to_thread(list_checkpoints, run.directory)
                last = (
                    f"a checkpoint after {saved[-1].n_opts} updates" if saved else "no checkpoint"
                )
                rows = run.lifecycle.log.rows
                line = "run %s is saved: %d rows, and %s"
                _log.info(line, run.lifecycle.title, rows, last, extra={"run": run.document.id})
            kept = "the hive ends, runs that are kept in %s: %d"
            _log.info(kept, self.options.data, len(self._runs))
        finally:
            self.runs_closed.set()

    async def close(self) -> None:
        """Close every run and every learner, and wait until all are closed."""
        self.begin_close(self.options.timeouts.stop)
        assert self._closing is not None
        parts = await self._closing
        self.curves.close()
        for run in self._runs.values():
            await run.metrics.close()
        self._metrics.shutdown()
        await asyncio.to_thread(self._notifier.close, _LAST_NOTICES)
        os.close(self._lock)
        _require(parts)

    async def _measure(self) -> None:
        """Measure learners and the disk at intervals, and drop sessions that were forgotten."""
        while True:
            for _ in range(_DISK_EVERY):
                await asyncio.sleep(_MEASURE_EVERY)
                self._places.measure()
            await self.disk.measure()
            for run in list(self._runs.values()):
                if run.is_active:
                    await run.record_usage()
                else:
                    await run.metrics.close()
            known = self._sessions.items()
            self._sessions = {sid: one for sid, one in known if not one[1].is_forgotten}


def _require(results: Iterable[object]) -> None:
    """Raise the first exception of what was done side by side, if there is one."""
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _page(options: ServeOptions, address: str) -> str:
    """Return the URL of the hive's page, as far as it is known."""
    if options.public_url or "://" in address:
        return options.public_url or address
    return f"{'http' if options.tls_cert is None else 'https'}://{address}"


def _is_named(run: Run, request: RunRequest, name: str) -> bool:
    known = run.document.request
    return (known.game, known.name) == (request.game, name)
