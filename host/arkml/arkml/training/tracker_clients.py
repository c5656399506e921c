"""Clients of trackers, services that store curves of trainings: Weights & Biases and MLflow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from arkml.base.short_reprs import cut_repr
from arkml.base.sqlite_files import names_another_file
from arkml.errors import UsageError

TrackerName = Literal["wandb", "mlflow"]
"""The name of a tracker, of its package and of the extra that installs it."""

_UNNAMED = re.compile(r"[^\w\-. :/]")
_MAX_NAME, _MAX_VALUE = 250, 6_000  # of MLflow, in characters


class Tracker(Protocol):
    """
    The record of one training at a tracker. Its methods raise any error of the tracker's package.

    `id` is the id of the record there, by which a resumed training continues it.
    """

    @property
    def id(self) -> str: ...

    def log(self, metrics: Mapping[str, float], rows: int) -> None:
        """Send values of metrics at this number of rows."""

    def keep(self, files: Sequence[Path]) -> None:
        """Upload or copy files with the policies of the training."""

    def end(self) -> None:
        """End the record, after everything was sent or written."""


def require_tracker(name: str) -> None:
    """Raise UsageError for an unknown tracker, or one whose package is not installed."""
    if name not in get_args(TrackerName):
        raise UsageError(
            f"track is {cut_repr(name)}: it takes {' or '.join(get_args(TrackerName))}"
        )
    if find_spec(name) is None:
        raise UsageError(
            f"track is {name}, whose package is not installed: pip install 'arkml[{name}]'"
        )


def open_tracker(
    name: TrackerName,
    title: str,
    group: str,
    directory: Path,
    config: Mapping[str, Any],
    known: str | None = None,
) -> Tracker:
    """
    Begin a run called `title` in a project or experiment called `group`.

    With `known`, the id of the run of a resumed training, it continues that run. Without a server
    the files of the tracker go to `directory`, for example to `mlflow.db`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if name == "wandb":
        return _Wandb(title, group, directory, config, known)
    return _Mlflow(title, group, directory, config, known)


class _Wandb:
    """A run of Weights & Biases; without a key it is kept in the directory, for `wandb sync`."""

    def __init__(
        self,
        title: str,
        group: str,
        directory: Path,
        config: Mapping[str, Any],
        known: str | None,
    ) -> None:
        import wandb

        self._package = wandb
        mode = os.environ.get("WANDB_MODE")
        if mode is None and not (os.environ.get("WANDB_API_KEY") or wandb.api.api_key):
            mode = "offline"
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "arkml"),
            group=group,
            name=title,
            id=known,
            resume=None if known is None else "allow",
            dir=directory,
            config=dict(config),
            mode=mode,
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("rows")
        self._run.define_metric("*", step_metric="rows")

    @property
    def id(self) -> str:
        return str(self._run.id)

    def log(self, metrics: Mapping[str, float], rows: int) -> None:
        self._run.log({**metrics, "rows": rows})

    def keep(self, files: Sequence[Path]) -> None:
        artifact = self._package.Artifact(f"policies-{self._run.id}", type="model")
        for path in files:
            artifact.add_file(str(path))
        self._run.log_artifact(artifact)

    def end(self) -> None:
        self._run.finish()


class _Mlflow:
    """A run of MLflow; without MLFLOW_TRACKING_URI it is kept in a database in the directory."""

    def __init__(
        self,
        title: str,
        group: str,
        directory: Path,
        config: Mapping[str, Any],
        known: str | None,
    ) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        self._metric = Metric
        path = directory.absolute()
        database = path / "mlflow.db"
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri and names_another_file(database):
            raise UsageError(f"the journal beside {database} names another file: remove it")
        self._client = MlflowClient(uri or f"sqlite:///{database}")
        if known is not None:
            self._id = self._client.get_run(known).info.run_id
            self._client.update_run(known, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", group)
        found = self._client.get_experiment_by_name(name)
        files = None if uri else (path / "mlflow").as_uri()
        number = found.experiment_id if found else self._client.create_experiment(name, files)
        self._id = self._client.create_run(number, run_name=title).info.run_id
        for key, value in config.items():
            self._client.log_param(self._id, key, str(value)[:_MAX_VALUE])

    @property
    def id(self) -> str:
        return str(self._id)

    def log(self, metrics: Mapping[str, float], rows: int) -> None:
        now = int(time.time() * 1_000)
        values = [self._metric(_name(key), value, now, rows) for key, value in metrics.items()]
        self._client.log_batch(self._id, metrics=values)

    def keep(self, files: Sequence[Path]) -> None:
        for path in files:
            self._client.log_artifact(self._id, str(path), "policies")

    def end(self) -> None:
        self._client.set_terminated(self._id)


def _name(metric: str) -> str:
    """Return the name of a metric for MLflow, such as "a_b/c" for "a+b/../c"."""
    parts = _UNNAMED.sub("_", metric)[:_MAX_NAME].split("/")
    return "/".join(part for part in parts if part not in ("", ".", "..")) or "_"
