"""What is known of a run besides its rows: the file `run.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arkml.errors import HiveError, HiveRefused, InvalidSettings, ProtocolError
from arkml.files import write_atomic
from arkml.hive.protocol.runs import Best, RunRequest, Status
from arkml.server.files import read_object
from arkml.server.sessions import Session, Sessions

NAME = "run.json"

_LARGEST = (1 << 63) - 1
"""The largest count that the index can hold."""


@dataclass(slots=True)
class Document:
    """
    The run as its directory keeps it.

    `status` is Running until the run is Stopped or Aborted. `version_limit` is above every version
    of its policy that anybody has seen. `rows`, `n_opts` are as of the last time it was written.
    `reason` is why the run was aborted, or why a learner of it ended last. `lost` rows were
    acknowledged, and are damaged in the log.
    """

    id: str
    request: RunRequest
    started_at: int
    ended_at: int = 0
    status: Status = Status.RUNNING
    reason: str = ""
    names: list[str] = field(default_factory=list)
    sessions: Sessions = field(default_factory=lambda: Sessions([]))
    version_limit: int = 0
    rows: int = 0
    n_opts: int = 0
    lost: int = 0
    best: Best | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run is stopped or aborted."""
        return self.status in (Status.STOPPED, Status.ABORTED)

    def check_widths(self, features: object, actions: object, status: int) -> None:
        """Raises HiveRefused, with that HTTP status, if the run has other widths."""
        settings = self.request.settings
        if (features, actions) != (settings.features, settings.actions):
            raise HiveRefused(
                f"run {self.id} has {settings.features} features and {settings.actions} actions,"
                f" not {features!r} and {actions!r}",
                status,
            )

    def as_json(self) -> dict[str, Any]:
        best = self.best
        return {
            "id": self.id,
            "request": self.request.as_json(),
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "status": self.status,
            "reason": self.reason,
            "names": list(self.names),
            "sessions": [session.as_json() for session in self.sessions],
            "version_limit": self.version_limit,
            "rows": self.rows,
            "n_opts": self.n_opts,
            "lost": self.lost,
            "best": best and [best.by, best.score, best.version, best.n_opts],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Document:
        """What `as_json` made. Raises HiveError."""
        try:
            found = dict(values)
            found["request"] = RunRequest.from_json(found["request"])
            found["status"] = Status(found["status"])
            found["sessions"] = Sessions([Session.from_json(one) for one in found["sessions"]])
            found["best"] = Best(*found["best"]) if found["best"] else None
            document = cls(**found)
        except (KeyError, TypeError, ValueError, ProtocolError, InvalidSettings) as error:
            raise HiveError(f"no run: {error}") from error
        document._check_types()
        return document

    def _check_types(self) -> None:
        """Raise HiveError for what nothing here ever wrote."""
        best = self.best
        counts = [self.started_at, self.ended_at, self.version_limit, self.rows, self.n_opts]
        counts += [self.lost] if best is None else [self.lost, best.version, best.n_opts]
        is_right = (
            all(type(count) is int and 0 <= count <= _LARGEST for count in counts)
            and isinstance(self.id, str)
            and isinstance(self.reason, str)
            and isinstance(self.names, list)
            and all(isinstance(name, str) for name in self.names)
            and self.status in (Status.RUNNING, Status.STOPPED, Status.ABORTED)
            and (best is None or (isinstance(best.by, str) and type(best.score) in (int, float)))
        )
        if not is_right:
            raise HiveError("no run: it holds other values than a run has")


def read_document(directory: Path) -> Document:
    """The run in a directory. Raises HiveError."""
    document = Document.from_json(read_object(directory / NAME))
    if document.id != directory.name:
        raise HiveError(f"{directory} holds run {document.id}")
    return document


def packed(document: Document) -> bytes:
    """The contents of the file."""
    return json.dumps(document.as_json(), indent=1).encode()


def write_document(directory: Path, contents: bytes) -> None:
    """Replace the file. Raises OSError."""
    write_atomic(directory / NAME, contents, durable=True)
