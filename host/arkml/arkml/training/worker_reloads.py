"""Rebuilt modules that are sent to a rollout worker while it plays."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from arkml.errors import ArkmlError
from arkml.guests.reloading import Reloaded
from arkml.training.module_reloader import ModuleChange, ModuleReloader
from arkml.training.tasks import compile_module

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arkml.hive.protocol.worker_jobs import WorkerJob
    from arkml.host import Host
    from arkml.runtime.compiled_module import CompiledModule
    from arkml.training.task_runner import TaskRunner
    from arkml.training.worker_watch import Report

MODULE_EVENT = "module"
"""The event of a worker on a module that it was sent."""


class ReloadAnswer(NamedTuple):
    """
    A worker's report on a module that was sent to it.

    Attributes:
        digest: SHA-256 of the module, in hex.
        way: How the state was carried over, if the module's first calls have succeeded.
        refusal: Why the worker continues with the previous module, or empty.

    """

    digest: str
    way: Reloaded | None
    refusal: str

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> ReloadAnswer:
        """Return the report in an event of a worker. Raises KeyError and ValueError."""
        way = event["way"]
        return cls(event["hash"], None if way is None else Reloaded(way), str(event["refusal"]))

    def event(self) -> dict[str, Any]:
        """Return the report as an event of a worker."""
        way = None if self.way is None else self.way.value
        return {
            "event": MODULE_EVENT, "hash": self.digest, "way": way, "refusal": self.refusal,
        }  # fmt: skip


def module_message(module: bytes) -> dict[str, Any]:
    """Return the message that sends a module to a worker."""
    return {"module": b64encode(module).decode()}


class WorkerReloads:
    """
    Compiles modules that are sent to the worker, on a thread, and reloads them between frames.

    Each module is answered by a `ReloadAnswer` once its first calls have succeeded, or when the
    previous module continues.
    """

    def __init__(
        self,
        job: WorkerJob,
        host: Host,
        runner: TaskRunner,
        messages: SimpleQueue[dict[str, Any]],
        report: Report,
    ) -> None:
        self._job = job
        self._host = host
        self._messages = messages
        self._report = report
        self._way: Reloaded | None = None
        self._reloader = ModuleReloader(
            runner, lambda _: None, taken=self._take, settled=self._settle, refused=self._refuse
        )
        self.step = self._reloader.step
        """Steps the guest, with the newest module."""
        Thread(target=self._compile, name="arkml-worker-modules", daemon=True).start()

    def _compile(self) -> None:
        while True:
            data = b64decode(self._messages.get()["module"])
            try:
                module = compile_module(self._host, data, self._job.module_name)
            except ArkmlError as error:
                self._answer(hashlib.sha256(data).hexdigest(), None, str(error))
            else:
                self._reloader.offer(module)

    def _take(self, change: ModuleChange) -> None:
        self._way = change.way
        if change.reason:
            self._answer(change.before.digest, None, change.reason)

    def _settle(self, module: CompiledModule) -> None:
        self._answer(module.digest, self._way, "")

    def _refuse(self, module: CompiledModule, error: ArkmlError) -> None:
        self._answer(module.digest, None, str(error))

    def _answer(self, digest: str, way: Reloaded | None, refusal: str) -> None:
        self._report(ReloadAnswer(digest, way, refusal).event())
