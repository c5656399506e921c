"""Facts on how a policy was trained, found in the files of the run that the policy came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from arkml.base.files import read_plain
from arkml.base.loggers import SafeLogger
from arkml.errors import ArkmlError, ModelRejected
from arkml.hive.protocol.run_origin import RunOrigin
from arkml.hive.protocol.runs import (
    BEST_NAME,
    DOCUMENT_NAME,
    PUBLISHED_NAME,
    START_NAME,
    RunRequest,
)
from arkml.hive.protocol.settings import DECIDED_BY_GUEST, Settings
from arkml.policies.cervo import is_cervo, unpack

Facts: TypeAlias = list[tuple[str, str]]

_RUNS = "hive/runs/*"  # beside the files that a training writes
_FILES = (BEST_NAME, f"{PUBLISHED_NAME}/*.onnx")
_MOST_BYTES = 16 << 20  # of a document, with the sessions of its run
_APART = (*DECIDED_BY_GUEST, "algorithm", "seed", "other")  # settings that are told elsewhere

_log = SafeLogger(__name__)


def training_facts(policy: Path, data: bytes, guest: str) -> Facts:
    """
    Return facts about the training of a policy, as names and values; empty if none are known.

    `arkml train` leaves the run's files beside its policies, and a policy in a hive's directory is
    in the directory of its run. A run counts only if it has exactly this file; an unreadable run is
    logged.

    Args:
        policy: The path of the file.
        data: The bytes of the file.
        guest: SHA-256 of the guest that the policy plays.

    """
    model = data
    if is_cervo(data):
        try:
            _, model = unpack(data)
        except ModelRejected:
            return []  # which is told where the policy is read
    folder = policy.absolute().parent
    for run in (folder, folder.parent, *sorted(folder.glob(_RUNS))):
        try:
            kept = [file for pattern in _FILES for file in run.glob(pattern)]
            same = [file.stem for file in kept if _has(file, model)]
            if same:
                return list(_facts(run, same[0], guest))
        except (OSError, ValueError, KeyError, TypeError, ArkmlError) as error:
            _log.warning("the run of the policy, %s, cannot be read: %s", run, error)
    return []


def _has(file: Path, data: bytes) -> bool:
    return file.stat().st_size == len(data) and read_plain(file, follow=False) == data


def _facts(run: Path, kept: str, guest: str) -> Iterator[tuple[str, str]]:
    """Yield the facts of a run of which a version is kept as "best", or by its number."""
    document = _read(run / DOCUMENT_NAME)
    request = RunRequest.from_json(document["request"])
    settings, best = request.settings, document["best"]
    yield "algorithm", settings.learner
    began = datetime.fromtimestamp(document["started_at"] / 1e9, UTC)
    yield "run", f"{request.name}, begun on {began:%Y-%m-%d}"
    yield "rows of the run", f"{document['rows']:,}"
    yield "updates of the run", f"{document['n_opts']:,}"
    if kept == Path(BEST_NAME).stem:
        by, score, version, updates = best
        yield "version", f"{version:,}, after {updates:,} updates: the best by {by}"
        yield "mean return by which it was chosen", f"{score:.4g}"
    else:
        yield "version", f"{int(kept):,}"
    yield "seed", str(settings.seed)
    yield "settings that are no defaults", _changed(settings)
    origin = _origin(run)
    if origin is None:
        return
    if origin.guest_sha256 not in ("", guest):
        yield "trained in another build of the guest", f"SHA-256 {origin.guest_sha256}"
    if origin.versions:
        yield "versions", ", ".join(f"{name} {one}" for name, one in origin.versions.items())


def _changed(settings: Settings) -> str:
    """Return the settings that differ from the defaults."""
    usual = Settings(settings.features, settings.actions).as_json()
    found = {k: v for k, v in settings.as_json().items() if k not in _APART and v != usual[k]}
    return ", ".join(f"{name}={value}" for name, value in found.items()) or "none"


def _origin(run: Path) -> RunOrigin | None:
    """Return where a run came from, None if its host did not say so, or before hives kept it."""
    try:
        start = _read(run / START_NAME)
    except FileNotFoundError:
        return None
    return None if start["origin"] is None else RunOrigin.from_json(start["origin"])


def _read(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(read_plain(path, follow=False, most=_MOST_BYTES))
    return found
