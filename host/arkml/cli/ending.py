"""The end of a training: its files, its exit code, and what is told of it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from arkml.cli.exits import FAILED, GOOD, exit_code, print_json, say_failure, sentence
from arkml.cli.learned import learned
from arkml.cli.train_command import Training
from arkml.cli.training_files import document_of, show, write_files
from arkml.cli.watch import RunAborted, Watch
from arkml.errors import HiveUnreachable, NotFound, UsageError

if TYPE_CHECKING:
    from arkml.cli.task_runner import Player
    from arkml.cli.training_loop import Course
    from arkml.host import Host

_FAILURES = (HiveUnreachable, RunAborted, NotFound)


class Ending:
    """The end of a training: its files, and what is told of it. `error` is what it ended with."""

    def __init__(
        self,
        training: Training,
        host: Host,
        player: Player,
        course: Course,
        watch: Watch,
        error: Exception | None,
    ) -> None:
        self._training = training
        self._host = host
        self._player = player
        self._course = course
        self._watch = watch
        self._error = error

    def write(self, reports: list[Future[bool]]) -> int:
        """Write the files and tell of them. Returns the exit code."""
        hives = self._host.hives
        assert hives is not None
        if not hives.started:
            return self._failed(self._error or _not_started(self._training, hives.failure))
        client, run = hives.started[0]
        try:
            found = learned(client, run, self._player, self._watch, reports)
        except NotFound as none:
            return self._failed(self._error or none)
        files, complaints = write_files(self._training, found)
        document = document_of(self._training, found, files) | self._played()
        errors = [self._error] if self._error else []
        errors += [HiveUnreachable(found.missing)] if found.missing else []
        errors += [UsageError(complaint) for complaint in complaints]
        for error in errors:
            say_failure(sentence(error), error, as_json=False)
        if errors:
            document = {"error": sentence(errors[0]), "type": type(errors[0]).__name__} | document
        if self._training.as_json:
            print_json(document)
        else:
            show(document)
        return _status(errors)

    def _failed(self, error: Exception) -> int:
        """Tell why nothing is written. Returns the exit code."""
        say_failure(sentence(error), error, as_json=self._training.as_json)
        return _status([error])

    def _played(self) -> dict[str, Any]:
        course = self._course
        return {
            "frames": course.frames,
            "seconds": round(course.seconds, 3),
            "late_frames": None if course.pacer is None else course.pacer.late,
        }


def _status(errors: list[Exception]) -> int:
    """The exit code: 1 for a hive that is gone, a run that was aborted, and no policy."""
    for error in errors:
        return (
            FAILED
            if isinstance(error, HiveUnreachable | RunAborted | NotFound)
            else exit_code(error)
        )
    return GOOD


def _not_started(training: Training, failure: Exception | None) -> Exception:
    why = "" if failure is None else f": {failure}"
    return NotFound(f"{training.guest.name} started no training{why}")
