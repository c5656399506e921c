"""The loop of a learner: reads rows, makes updates, publishes policies, answers messages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Any

from arkml.base.learning_loop import LearningLoop, take_turn
from arkml.base.loggers import SafeLogger
from arkml.hive.protocol.rows import Place
from arkml.hive.protocol.wire import Message
from arkml.learning.compiled_algorithm import CompiledAlgorithm
from arkml.learning.learner import Learner
from arkml.learning.reporter import Reporter
from arkml.learning.server_connection import ServerConnection

log = SafeLogger(__name__)

CHECKPOINT_EVERY = 30.0
_MESSAGE_SECONDS = 0.25


class Trainer(LearningLoop):
    """
    Learns until a `stop` message, in turns of about a tenth of a second (decision 17).

    In lockstep (`Settings.sync`) every record of the log is one step: its rows are read, the
    updates that they allow are made, a policy is published, and then the next record is read. See
    `learner` for the theory of operation.
    """

    def __init__(self, learner: Learner, server: ServerConnection, reporter: Reporter) -> None:
        self._learner = learner
        self._server = server
        self._reporter = reporter
        self._sync = learner.settings.sync
        self._audits: list[int] = []
        self._paused = self._stopping = self._is_unwritten = False
        self._saved = time.monotonic()
        self._saved_opts = learner.n_opts
        self._published_opts = -1
        self._answers: dict[str, Callable[[Message], None]] = {
            "rows": self._rows,
            "names": self._names,
            "record": self._record_points,
            "version": self._version,
            "export": self._export,
            "checkpoint": self._checkpoint,
            "audit": self._audit,
            "pause": self._pause,
            "resume": self._resume,
            "stop": self._stop,
        }

    def run(self, waiting: Iterable[Message] = ()) -> None:
        """
        Learn until a `stop` message.

        Args:
            waiting: Messages that were received before, for example after the message that named
                the run.

        Raises:
            ServerGone: The connection to the server was lost.
            Diverged: A loss or a weight is not finite.
            ExportWrong: The exported policy differs from the learner's networks.
            ProtocolError: Rows cannot be read.

        """
        self._reporter.send_hello()
        self._publish(adopt=False)
        algorithm = self._learner.algorithm
        if isinstance(algorithm, CompiledAlgorithm):
            algorithm.at_work = self._reporter.begin_turn
        algorithm.prepare()
        messages = list(waiting)
        while True:
            self._reporter.begin_turn()
            for message in messages:
                self._handle(message)
            if self._stopping:
                break
            messages = self._server.receive(self._seconds_to_wait(worked=self._turn()))
        self._finish()

    def drain(self) -> int:
        """Read the next rows of the log, and return how many were read."""
        return self._learner.ingest()

    @property
    def is_ready(self) -> bool:
        """True unless the learner is paused; how many updates are due is left to `optimize`."""
        return not self._paused

    def optimize(self) -> int:
        """Make some of the updates that are due, and return their number."""
        return self._learner.train()

    @property
    def is_sync_due(self) -> bool:
        """True if the policy is to be published now."""
        if self._learner.is_exploring:
            return False
        new = self._learner.n_opts - self._published_opts
        if self._learner.algorithm.is_on_policy:
            return new > 0
        if self._sync:
            return new > 0 and not self._learner.due
        due = self._learner.publisher.is_due(time.monotonic())
        return due and new >= self._learner.settings.sync_interval

    def sync(self) -> None:
        """Publish the policy, with the newest normalization statistics."""
        self._publish(adopt=True)

    @property
    def is_record_due(self) -> bool:
        """Always True, since the reporter itself decides which reports are due."""
        return True

    def record(self) -> None:
        """Save a checkpoint if that is due, answer audits, and report the end of the turn."""
        if not self._paused and time.monotonic() - self._saved >= CHECKPOINT_EVERY:
            self._save_if_changed()
        is_read = self._learner.experience.log.is_read
        if is_read:
            self._answer_audits()
        settled = (self._sync or is_read) and not self._learner.due
        self._reporter.end_turn(settled=settled)
        self._reporter.report(at_once=self._sync and settled)

    def _turn(self) -> bool:
        """Read, train, publish and report. Return True if there may be more to do at once."""
        turn = take_turn(self)
        is_read = self._learner.experience.log.is_read
        return bool(turn.samples or turn.updates or not (is_read or self._paused))

    def _seconds_to_wait(self, *, worked: bool) -> float | None:
        """Return the seconds to wait for a message, None without a limit."""
        if worked:
            return 0.0
        reported = self._reporter.is_done and self._published_opts == self._learner.n_opts
        if self._paused or (reported and self._saved_opts == self._learner.n_opts):
            return None
        return _MESSAGE_SECONDS

    def _publish(self, *, adopt: bool) -> None:
        """Publish the policy; `adopt` takes the newest normalization statistics into use before."""
        try:
            published = self._learner.export(adopt=adopt)
        except OSError as error:
            if not self._is_unwritten:  # it is tried again in each turn
                self._is_unwritten = True
                log.warning("the policy could not be written: %s", error)
            return
        if self._is_unwritten:
            self._is_unwritten = False
            log.info("the policy can be written again")
        self._published_opts = published.n_opts
        self._server.send("policy", **published._asdict(), rows_seen=self._learner.rows)

    def _save(self, *, best: bool = False) -> dict[str, Any]:
        self._saved = time.monotonic()
        saved = self._learner.save(best=best)
        self._saved_opts = saved.n_opts
        fields = {"file": saved.file, "n_opts": saved.n_opts, "cursor": list(saved.cursor)}
        self._server.send("checkpoint", **fields)
        return fields

    def _save_if_changed(self) -> None:
        if self._saved_opts == self._learner.n_opts:
            return
        try:
            self._save()
        except OSError as error:
            log.warning("the checkpoint could not be written: %s", error)

    def _answer_audits(self) -> None:
        while self._audits:
            rows = self._learner.algorithm.buffer
            held = rows.audit()
            self._server.send(
                "reply",
                req=self._audits.pop(0),
                held=held.rows,
                overwritten=rows.rows - held.rows,
                checksum=held.checksum,
                sessions={
                    str(session): {"rows": rows, "checksum": checksum}
                    for session, (rows, checksum) in held.sessions.items()
                },
                cursor=list(self._learner.experience.log.cursor),
            )

    def _finish(self) -> None:
        if self._published_opts != self._learner.n_opts:
            # In the middle of a step, a learner that is restarted has its second half to make.
            self._publish(adopt=not (self._sync and self._learner.due))
        self._save_if_changed()
        self._reporter.close()

    def _handle(self, message: Message) -> None:
        answer = self._answers.get(message["kind"])
        if answer is None:
            log.warning("a message of the unknown kind %r is ignored", message["kind"])
        else:
            answer(message)

    def _rows(self, message: Message) -> None:
        self._learner.commit(Place(message["segment"], message["offset"]))

    def _names(self, message: Message) -> None:
        self._learner.name_metrics(message["names"])

    def _record_points(self, message: Message) -> None:
        self._reporter.record(message["points"])

    def _version(self, message: Message) -> None:
        self._learner.experience.policy_lag.publish(message["version"], time.monotonic())
        self._learner.algorithm.published(message["version"])

    def _export(self, message: Message) -> None:
        try:
            fields = self._learner.export()._asdict()
        except OSError as error:
            fields = {"error": f"the policy could not be written: {error}"}
        self._server.send("reply", req=message["req"], **fields)

    def _checkpoint(self, message: Message) -> None:
        try:
            fields = self._save(best=bool(message.get("best")))
        except OSError as error:
            fields = {"error": f"the checkpoint could not be written: {error}"}
        self._server.send("reply", req=message["req"], **fields)

    def _audit(self, message: Message) -> None:
        self._audits.append(message["req"])

    def _pause(self, _: Message) -> None:
        self._save_if_changed()
        self._hold(paused=True)

    def _resume(self, _: Message) -> None:
        self._hold(paused=False)

    def _hold(self, *, paused: bool) -> None:
        self._paused = self._reporter.is_paused = paused
        self._reporter.send_progress()

    def _stop(self, message: Message) -> None:
        _exit_within(float(message["deadline_s"]))
        self._stopping = True


def _exit_within(seconds: float) -> None:
    """End the process with status 0 after `seconds`, unless it has ended before."""

    def wait() -> None:
        time.sleep(max(0.0, seconds))
        os._exit(0)

    Thread(target=wait, name="arkml-deadline", daemon=True).start()
