"""All runs in one directory."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from arkml.errors import HiveError, HiveRefused
from arkml.files import sync_directory
from arkml.hive.protocol.runs import OnConflict, RunInfo, RunRequest, Status
from arkml.hive.protocol.settings import Settings
from arkml.server.checkpoints import exists
from arkml.server.document import NAME, Document, packed, read_document, write_document
from arkml.server.files import lock
from arkml.server.index import Index
from arkml.server.learner_pool import LearnerPool
from arkml.server.listing import info
from arkml.server.options import ServeOptions
from arkml.server.run import Run
from arkml.server.sessions import Session

_log = logging.getLogger(__name__)

_DELETED = (Status.STOPPED, Status.ABORTED, Status.NOT_FOUND)
_PARTS = ("rows", "checkpoints", "policies", "events", "published")


class Hive:
    """The runs in `options.data`, one directory each."""

    def __init__(self, options: ServeOptions, held: int) -> None:
        self.options = options
        self._runs: dict[str, Run] = {}
        self._sessions: dict[str, tuple[Run, Session]] = {}
        self._directory = options.data / "runs"
        self._deleted = options.data / "deleted"
        self._held = held
        self._index = Index(options.data / "index.sqlite")
        self._learners = LearnerPool(
            options.learner, options.data / "learners.log", held, spare=options.spare
        )
        self._creating = asyncio.Lock()
        self._waking: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Future[Any] | None = None

    @classmethod
    async def open(cls, options: ServeOptions) -> Hive:
        """
        The hive in a directory, which is made if it is not there.

        LearnerPool of a hive that died hold the directory until they are gone too, so this may take
        a while. Raises HiveError if it stays in use, and OSError.
        """
        (options.data / "runs").mkdir(parents=True, exist_ok=True)
        hive = cls(options, await _locked(options.data / "lock", options.patience.opening))
        await hive._load()
        await hive._learners.refill()
        return hive

    async def _load(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self._deleted, ignore_errors=True)
        for directory in sorted(self._directory.iterdir()):
            try:
                await self._take_over(self._made(read_document(directory)))
            except (HiveError, OSError, ArithmeticError, ValueError) as error:
                self._runs.pop(directory.name, None)
                _log.error("run %s is left alone: %s", directory.name, error)

    async def _take_over(self, run: Run) -> None:
        await run.note()
        await run.measurements.catch_up()
        if not run.document.is_over:
            self._go_on(run)
            run.tend()

    def _go_on(self, run: Run) -> None:
        """Wake a run that had sessions just before the hive was opened: they will come back."""
        age = time.time() - (run.directory / NAME).stat().st_mtime
        if age < self.options.patience.idle_stop and any(not s.left for s in run.document.sessions):
            self._waking.add(task := asyncio.create_task(_woken(run)))
            task.add_done_callback(self._waking.discard)

    def _made(self, document: Document) -> Run:
        directory = self._directory / document.id
        run = Run(directory, document, self._index, self._learners, self.options)
        self._runs[document.id] = run
        return run

    def runs(self) -> list[RunInfo]:
        """All runs, newest first."""
        infos = [info(run) for run in self._runs.values()]
        return sorted(infos, key=lambda one: one.started_at, reverse=True)

    def run(self, run_id: str) -> Run:
        """The run with that id. Raises HiveRefused."""
        run = self._runs.get(run_id)
        if run is None:
            raise HiveRefused(f"there is no run {run_id!r}", 404)
        return run

    def session(self, sid: str) -> tuple[Run, Session]:
        """A session and its run. Raises HiveRefused."""
        known = self._sessions.get(sid)
        if known is not None:
            return known
        for run in self._runs.values():
            for session in run.document.sessions:
                if session.sid == sid:
                    self._sessions[sid] = run, session
                    return run, session
        raise HiveRefused(f"there is no session {sid!r}", 404)

    async def create(self, request: RunRequest) -> tuple[Run, bool]:
        """
        A run as asked for, and whether it is new.

        Raises HiveRefused, InvalidSettings, OSError.
        """
        async with self._creating:
            same = [run for run in self._runs.values() if _is_named(run, request, request.name)]
            if same and request.on_conflict is OnConflict.JOIN:
                run = max(same, key=lambda one: one.document.started_at)
                settings = request.settings
                run.document.check_widths(settings.features, settings.actions, 409)
                return run, False
            if request.checkpoint and not exists(self._directory, request.checkpoint):
                raise HiveRefused(f"there is no checkpoint {request.checkpoint!r}", 404)
            request = replace(
                request, name=self._free_name(request), settings=self._settings(request)
            )
            document = Document(secrets.token_hex(8), request, time.time_ns())
            await asyncio.to_thread(self._write_new, document)
            run = self._made(document)
        await run.note()
        await run.wake()
        return run, True

    def _free_name(self, request: RunRequest) -> str:
        name, number = request.name, 1
        while any(_is_named(run, request, name) for run in self._runs.values()):
            number += 1
            name = f"{request.name}-{number}"
        return name

    def _settings(self, request: RunRequest) -> Settings:
        settings, cap = request.settings, self.options.memory_max_size or math.inf
        if settings.device == "auto" and self.options.device != "auto":
            settings = replace(settings, device=self.options.device)
        if settings.memory_max_size > cap:
            settings = replace(settings, memory_max_size=int(cap))
        return settings

    def _write_new(self, document: Document) -> None:
        directory = self._directory / document.id
        directory.mkdir()
        try:
            for part in _PARTS:
                (directory / part).mkdir()
            write_document(directory, packed(document))
            sync_directory(self._directory)
        except OSError:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    async def delete(self, run_id: str, *, force: bool) -> None:
        """Delete a run and all it has. Raises HiveRefused if it is not over, unless `force`."""
        run = self.run(run_id)
        if run.status is Status.NOT_FOUND:
            await run.close(0.0)
        elif force:
            await run.stop(for_all=True)
        if run.status not in _DELETED:
            raise HiveRefused(f"run {run_id} is {run.status}: it can go once it is stopped", 409)
        del self._runs[run_id]
        self._sessions = {sid: one for sid, one in self._sessions.items() if one[0] is not run}
        await self._index.forget(run_id)
        if run.directory.exists():
            self._deleted.mkdir(exist_ok=True)
            gone = self._deleted / run_id
            run.directory.rename(gone)
            await asyncio.to_thread(shutil.rmtree, gone)

    def begin_end(self, seconds: float) -> None:
        """Begin to checkpoint every run, within so many seconds each, and to end every process."""
        if self._ending is None:
            runs = (run.close(seconds) for run in self._runs.values())
            self._ending = asyncio.gather(*runs, self._learners.close())

    async def close(self) -> None:
        """Checkpoint every run and end every process, if that has not begun; wait until it is."""
        self.begin_end(self.options.patience.stop)
        assert self._ending is not None
        await self._ending
        self._index.close()
        os.close(self._held)


async def _woken(run: Run) -> None:
    try:
        await run.wake()
    except (HiveError, OSError) as error:
        _log.error("run %s does not go on: %s", run.document.id, error)


def _is_named(run: Run, request: RunRequest, name: str) -> bool:
    known = run.document.request
    return (known.game, known.name) == (request.game, name)


async def _locked(path: Path, seconds: float) -> int:
    patience = time.monotonic() + seconds
    while True:
        try:
            return lock(path)
        except HiveError:
            if time.monotonic() > patience:
                raise
        await asyncio.sleep(0.05)
