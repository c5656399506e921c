"""Versions of the files of a run: the steps from one to the next, made in place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkml.base.files import sync_directory, write_atomic
from arkml.base.loggers import SafeLogger
from arkml.errors import HiveError
from arkml.hive.protocol.runs import DOCUMENT_NAME
from arkml.server.hive_files import read_object
from arkml.server.old_reports import OLD_REPORTS, move_reports

_log = SafeLogger(__name__)

Values = dict[str, Any]
"""The content of `run.json`."""


def _nothing(_: Path) -> None:
    """Change no other files."""


@dataclass(frozen=True, slots=True)
class VersionStep:
    """
    The change of a run's files from one data version to the next.

    `document` returns the values of `run.json` after the change, without their version. `rewrite`
    changes other files in the directory of the run, namely the ones that match the patterns
    `files`; after a crash it is called again on files that it has changed already.
    """

    document: Callable[[Values], Values]
    files: tuple[str, ...] = ()
    rewrite: Callable[[Path], None] = _nothing


def _with_creator_and_time(values: Values) -> Values:
    lasted = max(0, values["ended_at"] - values["started_at"]) / 1e9
    return {**values, "owner": "", "creator": None, "lasted": lasted}


STEPS: Mapping[int, VersionStep] = {
    1: VersionStep(_with_creator_and_time),
    2: VersionStep(dict, OLD_REPORTS, move_reports),
}
"""
The step from each version.

Runs of version 1 tell neither whose request created them nor how long they were in use: those that
are not over count from now on. Those of version 2 have their metrics in files of lines.
"""

DATA_VERSION = max(STEPS) + 1
"""The version of the files of a run, which `run.json` has; the first release left it out."""


def version_of(values: Values) -> object:
    """Return the version that the values of `run.json` have, which may be anything."""
    return values.get("version", 1)


def upgraded(values: Values, steps: Mapping[int, VersionStep] = STEPS) -> Values:
    """
    Return the values of `run.json`, changed to those of the newest data version.

    Values of a newer version are returned unchanged. Raises HiveError if there is no step for them.
    """
    version = version_of(values)
    while type(version) is not int or version <= max(steps):
        if type(version) is not int or version not in steps:
            raise HiveError(
                f"it has data of version {version!r:.20}, and this release of arkml upgrades those"
                f" from version {min(steps)} on"
            )
        try:
            values = {**steps[version].document(values), "version": version + 1}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise HiveError(
                f"its data of version {version} cannot be upgraded: {error!r}"
            ) from error
        version += 1
    return values


def upgrade_run(directory: Path, steps: Mapping[int, VersionStep] = STEPS) -> bool:
    """
    Bring the files of the run in a directory to the newest version; return whether any was changed.

    The files that change are kept as they were in the folder `version-N` of the directory first. A
    process that is killed meanwhile leaves a run that can be upgraded. Raises HiveError, OSError.
    """
    path = directory / DOCUMENT_NAME
    values = read_object(path)
    version = version_of(values)
    if type(version) is int and version > max(steps):
        return False
    after = upgraded(values, steps)
    assert type(version) is int
    taken = [steps[number] for number in range(version, max(steps) + 1)]
    patterns = {DOCUMENT_NAME, *(pattern for step in taken for pattern in step.files)}
    kept = directory / f"version-{version}"
    if not kept.exists():
        _keep(directory, patterns, kept)
    for step in taken:
        step.rewrite(directory)
    write_atomic(path, json.dumps(after, indent=1).encode(), durable=True)
    _log.info(
        "run %s is upgraded from version %d of its data to %d; what was changed is in %s",
        directory.name, version, max(steps) + 1, kept.name,
    )  # fmt: skip
    return True


def _keep(directory: Path, patterns: set[str], kept: Path) -> None:
    """Copy the files that patterns match, all or none. Raises OSError."""
    part = kept.with_name(f".{kept.name}.new")
    shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
    files = {file for pattern in patterns for file in directory.glob(pattern) if file.is_file()}
    for file in sorted(files):
        target = part / file.relative_to(directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target, follow_symlinks=False)
    part.rename(kept)
    sync_directory(directory)
