"""The file that says what a training is of, so that no other guest goes on with it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arkml.cli.files import read_module, write_file
from arkml.cli.train_command import Training
from arkml.errors import HiveError, UsageError
from arkml.runs.access import RunIdentity

if TYPE_CHECKING:
    from arkml.cli.launch import Grants
    from arkml.hive.protocol.runs import RunInfo

_NAME = "training.json"


class TrainingRecord:
    """
    The guest and the run of a training, in `training.json` in its directory.

    `grants` are those of the training; if it is resumed, they expect the run that goes on.
    """

    def __init__(self, training: Training) -> None:
        """Read the file. Raises UsageError if the training is neither new nor to be resumed."""
        self.grants: Grants = training.grants
        self._path = training.out / _NAME
        self._guest = training.guest.name
        self._sha256 = hashlib.sha256(read_module(training.guest)).hexdigest()
        wish = training.grants.hive
        assert wish is not None
        if wish.resume:
            known = _read(self._path)
            expected = None
            if known is not None:
                self._require_same(training.out, known)
                expected = _identity(known)
            elif wish.hive == "embedded":
                expected = _first_run(training.out / "hive")
            self.grants = replace(training.grants, hive=replace(wish, expected=expected))
        elif wish.hive == "embedded" and _is_used(training.out / "hive"):
            raise UsageError(
                f"{training.out} holds a training already: --resume goes on with it,"
                " --out DIR begins another"
            )

    def write(self, run: RunInfo) -> None:
        """Say which run it is, now that there is one. Raises UsageError."""
        told = {
            "guest": self._guest,
            "sha256": self._sha256,
            "run": run.id,
            "game": run.game,
            "name": run.name,
            "features": run.features,
            "actions": run.actions,
        }
        write_file(self._path, (json.dumps(told, indent=2) + "\n").encode())

    def _require_same(self, out: Path, known: dict[str, Any]) -> None:
        """Raise UsageError for another guest; the same one may have been renamed, or rebuilt."""
        if known["guest"] != self._guest and known["sha256"] != self._sha256:
            raise UsageError(
                f"{out} holds the training of {known['guest']}, and this is {self._guest}:"
                " --out DIR begins another"
            )


def _is_used(data: Path) -> bool:
    try:
        return data.exists() and any(data.iterdir())
    except OSError as error:
        raise UsageError(f"{data} cannot be read: {error.strerror}") from None


def _read(path: Path) -> dict[str, Any] | None:
    """What the file says, None without one. Raises UsageError if it says something else."""
    try:
        found = json.loads(path.read_bytes())
        _identity(found)
        return {**found, "guest": str(found["guest"]), "sha256": str(found["sha256"])}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{path} does not say which training is to go on") from None


def _first_run(data: Path) -> RunIdentity | None:
    """The run that a hive began with, None without one. Raises UsageError for a damaged one."""
    from arkml.server.document import DOCUMENT_NAME, read_document

    found = []
    for path in data.glob(f"runs/*/{DOCUMENT_NAME}"):
        try:
            found.append(read_document(path.parent))
        except (OSError, HiveError):
            raise UsageError(f"{path} does not say which training is to go on") from None
    if not found:
        return None
    request = min(found, key=lambda document: document.started_at).request
    widths = request.settings
    return RunIdentity(request.game, request.name, widths.features, widths.actions)


def _identity(known: dict[str, Any]) -> RunIdentity:
    """Raises KeyError, TypeError and ValueError."""
    return RunIdentity(
        str(known["game"]), str(known["name"]), int(known["features"]), int(known["actions"])
    )
