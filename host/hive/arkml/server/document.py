"""The state of a run besides its rows: the file `run.json`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from arkml.base.files import sync_directory, write_atomic
from arkml.errors import HiveError, HiveRefused, InvalidSettings, ProtocolError
from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.runs import (
    DOCUMENT_NAME,
    MAX_NAMES,
    PUBLISHED_NAME,
    Best,
    RunInfo,
    RunRequest,
    Status,
)
from arkml.server.creators import Creator
from arkml.server.hive_files import read_object
from arkml.server.run_origin import RunStart, write_start
from arkml.server.sessions import RunSession, Sessions
from arkml.server.upgrade import DATA_VERSION, upgraded, version_of

_FOLDERS = ("rows", "checkpoints", "policies", "events", PUBLISHED_NAME)
_MAX_METRIC_NAME = 256
_MAX_SESSIONS = 1 << 32
_MAX_COUNT = (1 << 63) - 1
"""The largest count that the index can hold."""


class NewerRun(HiveError):
    """A run whose files a newer release has written; `info` is its entry in a list of runs."""

    def __init__(self, version: object, info: RunInfo) -> None:
        super().__init__(
            f"run {info.id} has data of version {version!r:.20}, and this release of arkml reads"
            f" version {DATA_VERSION}: use the release that wrote it, or a newer one"
        )
        self.info = replace(info, reason=str(self))


@dataclass(slots=True)
class Document:
    """
    The state of a run as its directory keeps it.

    Attributes:
        status: Running until the run is Stopped or Aborted.
        names: The names of the run's masks and then of its metrics; a name's index is its number.
        version_limit: At least the largest policy version of the run.
        rows: The number of rows when the document was written last.
        owner: The id of the token that started the run, empty for the operator's token and for a
            hive without tokens.
        reason: Why the run has ended, or why its last learner in this hive ended; empty if a
            client stopped the run.
        lasted: Seconds during which a hive kept the run and it was neither stopped nor waiting for
            a learner.
        lost: The number of rows that were acknowledged and are damaged in the log.
        creator: The request that created the run, None for a request without an Idempotency-Key.
        images: The features of a row that are values of images, by the request.

    """

    id: str
    request: RunRequest
    started_at: int
    ended_at: int = 0
    lasted: float = 0.0
    status: Status = Status.RUNNING
    reason: str = ""
    names: list[str] = field(default_factory=list)
    sessions: Sessions = field(default_factory=lambda: Sessions([]))
    version_limit: int = 0
    rows: int = 0
    n_opts: int = 0
    lost: int = 0
    best: Best | None = None
    owner: str = ""
    creator: Creator | None = None
    images: int = field(init=False)

    def __post_init__(self) -> None:
        self.images = self.request.settings.images

    @property
    def is_over(self) -> bool:
        """True once the run is stopped or aborted."""
        return self.status in (Status.STOPPED, Status.ABORTED)

    @property
    def time_over(self) -> str:
        """The reason to end the run, if it has used up its time; empty otherwise."""
        seconds = self.request.seconds
        if not seconds or self.lasted < seconds:
            return ""
        return f"it has lasted the {seconds:,} s that it was started for; start a new one"

    def info(self, **measured: Any) -> RunInfo:
        """Return the entry in a list of runs; `measured` fields are not the document's."""
        request, settings = self.request, self.request.settings
        guest = request.origin.guest_sha256[:8] if request.origin else ""
        known = RunInfo(
            id=self.id,
            name=request.name,
            game=request.game,
            status=self.status,
            features=settings.features,
            actions=settings.actions,
            started_at=self.started_at,
            ended_at=self.ended_at,
            seconds=request.seconds,
            rows=self.rows,
            lost=self.lost,
            n_opts=self.n_opts,
            reason=self.reason,
            seed=settings.seed,
            branches=settings.branches,
            module_id=request.module_id,
            guest=guest or UNSET,
        )
        return replace(known, **measured)

    def check_widths(
        self, features: object, actions: object, status: int, *, images: int = 0
    ) -> None:
        """
        Raise HiveRefused if the run has rows of another width.

        Args:
            features: Number of features of a row.
            actions: Number of actions of a row.
            status: The HTTP status of a refusal for a wrong number of features or actions.
            images: Number of features of a row that come as bytes: 0, or all values of images.

        """
        settings = self.request.settings
        if (features, actions) != (settings.features, settings.actions):
            raise HiveRefused(
                f"run {self.id} has {settings.features} features and {settings.actions} actions,"
                f" not {features!r} and {actions!r}",
                status,
            )
        if images not in (0, self.images):
            raise HiveRefused(
                f"run {self.id} has images of {self.images} values, and rows have {images} bytes",
                422,
            )

    def check_branches(self, branches: Sequence[int]) -> None:
        """
        Raise HiveRefused if the run has other branches: the numbers of choices of discrete actions.
        """
        own = self.request.settings.branches
        if tuple(branches) != own:
            raise HiveRefused(f"run {self.id} has {_listed(own)}, not {_listed(branches)}", 409)

    def check_parts(self, parts: Sequence[Part]) -> None:
        """
        Raise HiveRefused, with the name of a part, if observations of the run have other parts.
        """
        own = self.request.settings.parts
        for known, wanted in zip_longest(own, parts):
            if known != wanted:
                raise HiveRefused(
                    f"run {self.id} was started with {_part(known)}, and now there is"
                    f" {_part(wanted)}: start another run",
                    409,
                )

    def select_new_names(self, names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        """Return the metric names that the run can add, and the reason for each refused one."""
        known = set(self.names)
        new: list[str] = []
        refused: dict[str, str] = {}
        for name in dict.fromkeys(names):
            if name in known:
                continue
            if not 1 <= len(name) <= _MAX_METRIC_NAME:
                refused[name] = f"a name has 1 to {_MAX_METRIC_NAME} letters, not {len(name)}"
            elif len(known) + len(new) >= MAX_NAMES + sum(self.request.settings.branches):
                refused[name] = f"the run has {MAX_NAMES} metrics already, and takes no more"
            else:
                new.append(name)
        return new, refused

    def as_json(self) -> dict[str, Any]:
        """Return the document as JSON values."""
        best = self.best
        return {
            "version": DATA_VERSION,
            "id": self.id,
            "request": self.request.as_json(),
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "lasted": self.lasted,
            "status": self.status,
            "reason": self.reason,
            "names": list(self.names),
            "sessions": [session.as_json() for session in self.sessions],
            "sessions_given": self.sessions.given,
            "version_limit": self.version_limit,
            "rows": self.rows,
            "n_opts": self.n_opts,
            "lost": self.lost,
            "owner": self.owner,
            "best": best and [best.by, best.score, best.version, best.n_opts],
            "creator": self.creator and self.creator.as_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Document:
        """
        Return the document with values from `as_json`, of now or of an older release.

        Raises NewerRun and HiveError.
        """
        try:
            fields = dict(values)
            _refuse_newer(str(fields.get("id")), fields)
            fields = upgraded(fields)
            del fields["version"]
            fields["request"] = RunRequest.from_json(fields["request"])
            fields["status"] = Status(fields["status"])
            sessions = [RunSession.from_json(one) for one in fields["sessions"]]
            fields["sessions"] = Sessions(sessions, _checked_given(fields.pop("sessions_given", 0)))
            fields["best"] = Best(*fields["best"]) if fields["best"] else None
            fields["creator"] = Creator.from_json(fields["creator"])
            document = cls(**fields)
        except (KeyError, TypeError, ValueError, ProtocolError, InvalidSettings) as error:
            raise HiveError(f"it does not hold a run: {error}") from error
        document._check_types()
        return document

    def _check_types(self) -> None:
        """Raise HiveError for values that `as_json` cannot have made."""
        best = self.best
        counts = [self.started_at, self.ended_at, self.version_limit, self.rows, self.n_opts]
        counts += [self.lost] if best is None else [self.lost, best.version, best.n_opts]
        is_right = (
            all(type(count) is int and 0 <= count <= _MAX_COUNT for count in counts)
            and type(self.lasted) in (int, float)
            and 0 <= self.lasted <= _MAX_COUNT
            and isinstance(self.id, str)
            and isinstance(self.reason, str)
            and isinstance(self.owner, str)
            and isinstance(self.names, list)
            and all(isinstance(name, str) for name in self.names)
            and self.status in (Status.RUNNING, Status.STOPPED, Status.ABORTED)
            and (best is None or (isinstance(best.by, str) and type(best.score) in (int, float)))
        )
        if not is_right:
            raise HiveError("it does not hold a run: it has other values than one")


def _checked_given(given: object) -> int:
    """Return a number of sessions. Raises ValueError if it is not one."""
    if type(given) is not int or not 0 <= given <= _MAX_SESSIONS:
        raise ValueError(f"{given!r} is not a number of sessions")
    return given


def _part(part: Part | None) -> str:
    return "no such part" if part is None else f"the part {part}"


def _listed(branches: Sequence[int]) -> str:
    if not branches:
        return "no discrete actions"
    return f"branches of {', '.join(map(str, branches))} choices"


def read_document(directory: Path) -> Document:
    """
    Return the document of the run in a directory, upgraded if an older version wrote it.

    Raises NewerRun if a newer release has written it, and HiveError.
    """
    values = read_object(directory / DOCUMENT_NAME)
    _refuse_newer(directory.name, values)
    document = Document.from_json(values)
    if document.id != directory.name:
        raise HiveError(f"{directory} holds run {document.id}")
    return document


def _refuse_newer(run_id: str, values: Mapping[str, Any]) -> None:
    """Raise NewerRun for values of a newer version, and for a version that is not a number."""
    version = version_of(dict(values))
    if type(version) is not int or version > DATA_VERSION:
        raise NewerRun(version, _brief(run_id, values))


def _brief(run_id: str, values: Mapping[str, Any]) -> RunInfo:
    """Return the readable values of a run of another version; defaults stand for the rest."""
    request = values.get("request")
    asked = request if isinstance(request, Mapping) else {}
    name, game = (str(asked.get(field, ""))[:_MAX_METRIC_NAME] for field in ("name", "game"))
    started = values.get("started_at")
    return RunInfo(
        id=run_id,
        name=name or run_id,
        game=game,
        status=Status.ABORTED,
        features=0,
        actions=0,
        started_at=started if isinstance(started, int) and 0 <= started <= _MAX_COUNT else 0,
    )


def pack_document(document: Document) -> bytes:
    """Return the content of the file `run.json` for a document."""
    return json.dumps(document.as_json(), indent=1).encode()


def write_document(directory: Path, content: bytes) -> None:
    """Replace the file `run.json` in the directory of a run. Raises OSError."""
    write_atomic(directory / DOCUMENT_NAME, content, durable=True)


def write_new(runs: Path, document: Document, start: RunStart) -> None:
    """
    Make the directory of a new run with its files, as a whole or not at all.

    Args:
        runs: The directory of all runs.
        document: The state of the new run.
        start: The circumstances in which it is started.

    Raises:
        OSError: The directory cannot be written.

    """
    directory = runs / document.id
    directory.mkdir()
    try:
        make_folders(directory)
        write_start(directory, start)
        write_document(directory, pack_document(document))
        sync_directory(runs)
    except OSError:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def refuse_links(directory: Path) -> None:
    """Raise HiveError if a run's directory or a folder in it is a symbolic link."""
    for path in (directory, *(directory / folder for folder in _FOLDERS)):
        if path.is_symlink():
            raise HiveError(f"{path} is a symbolic link, which a hive does not make")


def make_folders(directory: Path) -> None:
    """Make the missing folders of a run's directory."""
    for folder in _FOLDERS:
        (directory / folder).mkdir(exist_ok=True)
