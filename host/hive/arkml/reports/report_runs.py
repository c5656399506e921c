"""The runs in a report, read from a hive or from a data directory."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arkml.errors import HiveError, UsageError
from arkml.hive.protocol.result_messages import CheckpointInfo
from arkml.hive.protocol.runs import Best, RunInfo, find_run
from arkml.hive.protocol.settings import Settings

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient

Curve = Sequence[tuple[float, float]]
"""Values of one metric: (rows, value) pairs, in the order of their times."""


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """
    One run in a report.

    Attributes:
        info: The run and its state.
        settings: The settings of the run.
        best: The best rating of its policies, None if no policy was rated.
        module: The SHA-256 of the guest's uploaded module, empty for none.
        checkpoints: The checkpoints that still exist.
        curves: The curves of the run's metrics.
        source: The hive or the directory from which the run was read.
        directory: The directory of the run, None if it was read from a hive.

    """

    info: RunInfo
    settings: Settings
    best: Best | None
    module: str
    checkpoints: Sequence[CheckpointInfo]
    curves: Mapping[str, Curve]
    source: str
    directory: Path | None = None


def read_from_hive(client: HiveClient, names: Sequence[str], source: str) -> list[ReportedRun]:
    """
    Return runs of a hive by their ids or names; a name stands for the newest run of that name.

    Args:
        client: The hive.
        names: The ids or names.
        source: The address of the hive, for messages.

    Raises:
        UsageError: A run is not there.
        HiveError: The hive cannot be reached, or refuses the request.

    """
    runs = client.runs().result()
    return [_ask(client, _chosen(runs, name, source), source) for name in names]


def read_from_directory(
    data: Path, names: Sequence[str], warn: Callable[[str], object]
) -> list[ReportedRun]:
    """
    Return runs of a directory by their ids or names; a hive may serve them meanwhile.

    Args:
        data: The data directory of a hive, or the directory of a training or of several seeds.
        names: The ids or names; empty for all runs.
        warn: Called with a sentence for each run that is not named and cannot be read.

    Raises:
        UsageError: The directory has no runs, or a named run is not there.
        HiveError: A named run cannot be read.

    """
    seeds = [one for one in sorted(data.glob("seed-*")) if one.is_dir()]
    places = {one: _runs_of(one) for one in (data, *seeds)}
    homes = [home for home in places.values() if home is not None]
    if not homes:
        raise UsageError(f"{data} holds no runs{_way_out(data)}")
    for one in seeds:
        if places[one] is None:
            warn(f"{one} holds no runs")
    known = [_read_all(home, names, warn) for home in homes]
    if not names:
        return [run for runs in known for run in runs]
    infos = [_newest_first(runs) for runs in known]
    found = []
    for name in names:
        _chosen([info for one in infos for info in one], name, str(data))  # raises for none
        chosen = ((home, find_run(one, name)) for home, one in zip(homes, infos, strict=True))
        found += [_read(home / info.id) for home, info in chosen if info is not None]
    return found


def _read_all(home: Path, names: Sequence[str], warn: Callable[[str], object]) -> list[ReportedRun]:
    """Read the runs of a directory; without their curves where some are named."""
    known = []
    for directory in sorted(home.iterdir()):
        try:
            known.append(_read(directory, is_brief=bool(names)))
        except HiveError as error:
            if directory.name in names:
                raise
            warn(str(error))
    return known


def _newest_first(runs: Sequence[ReportedRun]) -> list[RunInfo]:
    return sorted((run.info for run in runs), key=lambda info: info.started_at, reverse=True)


def _runs_of(data: Path) -> Path | None:
    """Return the directory of runs of a hive's data, or of a training, None if there is none."""
    places = (data / "runs", data / "hive" / "runs")
    return next((one for one in places if one.is_dir()), None)


def _way_out(data: Path) -> str:
    """Return what to name in place of a directory without runs, as the end of a sentence."""
    from arkml.server.hive_files import read_object

    try:
        record = read_object(data / "training.json")
        run = shlex.quote(str(record["run"] or record["name"]))
    except (HiveError, KeyError):
        return ": name the data directory of a hive, or the directory of a training"
    return (
        f", only what a training took from its hive: arkml report {run} --hive HOST:PORT reads the"
        " run there"
    )


def checkpoint_file(directory: Path, n_opts: int) -> Path:
    """Return the path of a run's checkpoint after this number of updates."""
    return directory / "checkpoints" / f"{n_opts:012d}.safetensors"


def _chosen(runs: Sequence[RunInfo], wanted: str, source: str) -> RunInfo:
    if (found := find_run(runs, wanted)) is None:
        raise UsageError(f"there is no run {wanted!r} in {source}, which has {len(runs)} runs")
    return found


def _ask(client: HiveClient, info: RunInfo, source: str) -> ReportedRun:
    details = client.details(info.id).result()
    names = sorted(name for name, *_ in client.metrics(info.id).result())
    curves = {}
    for name in names:
        points = client.series(info.id, name).result()
        curves[name] = [(float(point.step), point.value) for point in points]
    checkpoints = client.checkpoints(info.id).result()
    return ReportedRun(
        details.run, details.settings, details.best, details.module, checkpoints, curves, source
    )


def _read(directory: Path, *, is_brief: bool = False) -> ReportedRun:
    """Return the run in a directory; a brief one has no curves. Raises HiveError."""
    from arkml.server.checkpoints import list_checkpoints
    from arkml.server.document import read_document
    from arkml.server.metrics_store import read_curves

    try:
        document = read_document(directory)
    except HiveError as error:
        raise HiveError(f"run {directory.name} cannot be read: {error}") from error
    request = document.request
    try:
        curves = {} if is_brief else read_curves(directory)
        checkpoints = list_checkpoints(directory)
    except (OSError, sqlite3.Error) as error:
        raise HiveError(f"{directory} cannot be read: {error}") from error
    return ReportedRun(
        document.info(workers=request.workers), request.settings, document.best, request.module,
        checkpoints, curves, str(directory), directory,
    )  # fmt: skip
