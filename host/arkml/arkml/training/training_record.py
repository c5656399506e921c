"""The file that records the guest and the run of a training, so that no other guest resumes it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arkml.base.files import lock_file, read_plain
from arkml.base.output_files import write_file
from arkml.errors import ProtocolError, UsageError
from arkml.hive.protocol.result_messages import EvaluationReport
from arkml.hive.protocol.runs import DOCUMENT_NAME, Status
from arkml.runs.hive_access import HiveGrant, RunIdentity
from arkml.training.results import Evaluation

if TYPE_CHECKING:
    from arkml.hive.protocol.runs import RunInfo
    from arkml.training.training_options import TrainingOptions

_NAME = "training.json"
_RUN_ID = re.compile(r"[\w-]{1,64}", re.ASCII)


class TrainingRecord:
    """
    The file `training.json` of a training's directory: its guest, its run and its options.

    `grant` is the permission to train; if the training is resumed, it expects the recorded run.
    `options` has the options of the training, with the limit of steps and the setting `sync` that
    it began with. The file also has the ids of runs at trackers, such as "wandb", and the episodes
    by which the best policy is known.
    """

    def __init__(self, data: bytes, options: TrainingOptions) -> None:
        """
        Read the file of an earlier training; `data` is the module.

        Raises UsageError if the training is neither new nor to be resumed.
        """
        directory = options.directory
        self._path = directory / _NAME
        known = _read(self._path) if options.resume else None
        self.options: TrainingOptions = options if known is None else _continued(options, known)
        self.grant: HiveGrant = self.options.grant()
        self._guest = options.name
        self.stem: str = options.stem
        """The name of the training's files: the stem of its guest's name when it began."""
        self._sha256 = hashlib.sha256(data).hexdigest()
        self._run: RunInfo | None = None
        self.known_run: str = "" if known is None else known["run"]
        """The id of the run that is resumed, empty for a new one."""
        self.doubt = ""
        """A warning of a training that was to be resumed, and is new; empty if there is none."""
        self._barren: list[Path] = []  # directories of runs that were aborted before a row
        self._lock = threading.Lock()  # the tracker's thread records, too
        self._trackers: dict[str, str] = {}
        self._best: dict[str, Evaluation] = {} if known is None else known["best"]
        is_embedded = self.grant.is_embedded
        if options.resume:
            expected = None
            if known is not None:
                self._require_same(directory, known)
                expected = _identity(known)
                self.stem = known["files"]
                self._trackers = dict(known["trackers"])
            elif is_embedded:
                expected = _first_run(directory / "hive")
            self.grant = replace(self.grant, expect_run=expected)
            if is_embedded and known is None and expected is None:
                self.doubt = f"{directory} holds no training to resume: a new one begins there"
        elif is_embedded:
            barren = _barren_runs(directory / "hive")
            if barren is None:
                raise UsageError(
                    f"{directory} holds a training already: --resume (resume=True) continues it,"
                    " --out DIR (directory=DIR) begins another"
                )
            self._barren = barren

    def clear(self) -> None:
        """
        Remove runs that were aborted before their first row: they would keep their names.

        Raises UsageError if a hive is at work there, or a run cannot be removed.
        """
        if not self._barren:
            return
        data = self._path.parent / "hive"
        try:
            lock = lock_file(data / "lock")
        except BlockingIOError:
            raise UsageError(f"{data} is in use by another hive") from None
        try:
            for run in self._barren:
                shutil.rmtree(run)
        except OSError as error:
            raise UsageError(f"{run} cannot be removed: {error.strerror or error}") from None
        finally:
            os.close(lock)

    def tracked(self, tracker: str | None) -> str | None:
        """Return the id of a tracker's record to be continued, None for a new one."""
        return self._trackers.get(tracker or "")

    def keep_tracked(self, tracker: str, run: str) -> None:
        """Store the id of a tracker's record. Raises UsageError."""
        with self._lock:
            self._trackers[tracker] = run
            self._write()

    def write(self, run: RunInfo) -> None:
        """Store the run, once there is one. Raises UsageError."""
        with self._lock:
            self._run = run
            self._write()

    def keep_best(self, rating: Evaluation | None, confirmed: Evaluation | None) -> None:
        """Store the episodes by which the best policy is known. Raises UsageError."""
        known = {"rating": rating, "confirmed": confirmed}
        with self._lock:
            self._best = {name: one for name, one in known.items() if one is not None}
            self._write()

    def best(self, version: int | None) -> tuple[Evaluation | None, Evaluation | None]:
        """Return what `keep_best` has stored of a version: its rating, and its later episodes."""
        rating, confirmed = self._best.get("rating"), self._best.get("confirmed")
        if rating is None or rating.version != version:
            return None, None
        return rating, confirmed

    def note_module(self, sha256: str) -> None:
        """Store the SHA-256 of the rebuilt module. Raises UsageError."""
        with self._lock:
            self._sha256 = sha256
            self._write()

    def _write(self) -> None:
        run = self._run
        if run is None:
            return
        record = {
            "guest": self._guest,
            "files": self.stem,
            "sha256": self._sha256,
            "run": run.id,
            "game": run.game,
            "name": run.name,
            "features": run.features,
            "actions": run.actions,
            "max_episode_steps": self.options.max_episode_steps,
            "sync": self.options.settings.get("sync", False),
            "trackers": self._trackers,
            "best": {name: one.report().as_json() for name, one in self._best.items()},
        }
        write_file(self._path, (json.dumps(record, indent=2) + "\n").encode())

    def _require_same(self, directory: Path, known: dict[str, Any]) -> None:
        """Raise UsageError for another guest; one that was renamed or rebuilt is the same."""
        if known["guest"] != self._guest and known["sha256"] != self._sha256:
            raise UsageError(
                f"{directory} holds the training of {known['guest']}, and this is {self._guest}:"
                " --out DIR (directory=DIR) begins another"
            )


def _continued(options: TrainingOptions, known: dict[str, Any]) -> TrainingOptions:
    """
    Return options with the limit of steps and the lockstep of the training that they continue.

    Raises UsageError for another limit than that training has begun with.
    """
    if known["sync"] and "sync" not in options.settings:
        options = replace(options, settings={**options.settings, "sync": True})
    if "max_episode_steps" not in known:  # an earlier version wrote the file
        return options
    most, given = known["max_episode_steps"], options.max_episode_steps
    if given not in (None, most):
        raise UsageError(
            f"max_episode_steps is {given}, and the training in {options.directory} began with"
            f" {most}: leave it out, or begin another (--out DIR, directory=DIR)"
        )
    return replace(options, max_episode_steps=most)


def _barren_runs(data: Path) -> list[Path] | None:
    """
    Return the directories of a hive's runs if each was aborted before its first row, else None.

    A hive without runs has none, whatever else it has written. Raises UsageError.
    """
    try:
        if not (runs := data / "runs").is_dir():
            return None if data.exists() and any(data.iterdir()) else []
        found = list(runs.iterdir())
        return found if all(map(_is_barren, found)) else None
    except OSError as error:
        raise UsageError(f"{data} cannot be read: {error.strerror}") from None


def _is_barren(run: Path) -> bool:
    """Return whether a run was aborted before its first row, as by a wrong checkpoint."""
    try:
        document = json.loads(read_plain(run / DOCUMENT_NAME, follow=False))
        is_empty = not document["rows"] + document["n_opts"]
        return document["status"] == Status.ABORTED and is_empty and not run.is_symlink()
    except (OSError, KeyError, TypeError, ValueError):
        return False


def _read(path: Path) -> dict[str, Any] | None:
    """Return the content of the file, None without one. Raises UsageError if it is damaged."""
    try:
        record = json.loads(read_plain(path, follow=False))
        _identity(record)
        return {
            **record,
            "guest": str(record["guest"]),
            "files": Path(str(record.get("files", Path(str(record["guest"])).stem))).name,
            "sha256": str(record["sha256"]),
            "run": _run_id(record.get("run")),
            "sync": bool(record.get("sync", False)),
            "trackers": {str(name): str(run) for name, run in record.get("trackers", {}).items()},
            "best": {name: _evaluation(one) for name, one in record.get("best", {}).items()},
        }
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (AttributeError, KeyError, ProtocolError, TypeError, ValueError):
        raise UsageError(f"{path} does not say which training is to be resumed") from None


def _evaluation(values: object) -> Evaluation:
    """Return an evaluation that `TrainingRecord` has written. Raises ProtocolError."""
    told = EvaluationReport.from_json(values)
    successes = None if told.successes is None else tuple(told.successes)
    returns, lengths = tuple(told.returns), tuple(map(int, told.lengths))
    return Evaluation(told.version, told.rows, returns, lengths, successes)


def _run_id(value: object) -> str:
    """Return the id of a run in a file, empty for anything else."""
    return value if isinstance(value, str) and _RUN_ID.fullmatch(value) else ""


def _first_run(data: Path) -> RunIdentity | None:
    """Return the first run of a hive, None without one. Raises UsageError for a damaged one."""
    runs: list[tuple[int, RunIdentity]] = []
    for path in data.glob(f"runs/*/{DOCUMENT_NAME}"):
        try:
            document = json.loads(read_plain(path, follow=False))
            request = document["request"]
            run = _identity({**request["settings"], **request})
            runs.append((int(document["started_at"]), run))
        except (OSError, KeyError, TypeError, ValueError):
            raise UsageError(f"{path} does not say which training is to be resumed") from None
    return min(runs, key=lambda run: run[0])[1] if runs else None


def _identity(record: dict[str, Any]) -> RunIdentity:
    """Return the run of a record. Raises KeyError, TypeError and ValueError."""
    return RunIdentity(
        str(record["game"]), str(record["name"]), int(record["features"]), int(record["actions"])
    )
