"""Trainings passed on to a tracker, here a package of the same name that does little."""

import json
import sqlite3
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.sqlite_journals import write_hot_journal
from tests.tracked import RUN, progress, track

from arkml.errors import UsageError
from arkml.training import tracking
from arkml.training.training_options import TrainingOptions
from arkml.training.training_record import TrainingRecord


class Package:
    """The part of wandb that is used, with the calls that were made."""

    def __init__(self, fail_at=""):
        self.calls = []
        self.__spec__ = object()
        self.api = SimpleNamespace(api_key=None)
        self.id = "x1"
        self._fail_at = fail_at

    def _note(self, name, *values):
        self.calls.append((name, *values))
        if name == self._fail_at:
            raise RuntimeError(f"no {name}\nmore")

    def Settings(self, **_):  # noqa: N802
        return None

    def Artifact(self, *_, **__):  # noqa: N802
        return SimpleNamespace(add_file=lambda path: self._note("file", path.rpartition("/")[2]))

    def init(self, **values):
        self._note("init", values["name"], values["mode"], values["config"])
        self.continued = values["id"], values["resume"]
        return self

    def define_metric(self, *_, **__):
        pass

    def log(self, values):
        self._note("log", values)

    def log_artifact(self, _):
        self._note("artifact")

    def finish(self):
        self._note("finish")


@pytest.fixture
def wandb(monkeypatch):
    def install(**options):
        package = Package(**options)
        monkeypatch.setitem(sys.modules, "wandb", package)
        monkeypatch.delenv("WANDB_MODE", raising=False)
        monkeypatch.delenv("WANDB_API_KEY", raising=False)
        return package

    return install


def test_a_tracker_gets_the_settings_the_curves_and_the_policies(wandb, tmp_path):
    package = wandb()
    reports = (progress(100, a=1.0), progress(100, a=1.5), progress(200, a=2.0))
    warnings = track("wandb", tmp_path, *reports)
    (_, name, mode, config), *rest = package.calls

    assert warnings == []
    assert (name, mode) == ("walker-3", "offline")
    assert (config["hidden"], config["game"], config["run"]) == (128, "game", "r1")
    assert rest == [
        ("log", {"a": 1.0, "rows": 100}),
        ("log", {"a": 2.0, "rows": 200}),
        ("log", {"rollout/ep_rew_mean": 9.5, "rows": 700}),
        ("file", "walker.onnx"),
        ("artifact",),
        ("finish",),
    ]
    json.dumps(config)


def test_a_resumed_training_continues_its_run_at_the_tracker(wandb, tmp_path):
    package, kept = wandb(), []
    track("wandb", tmp_path, progress(100, a=1.0), keep=kept.append)
    first = package.continued
    track("wandb", tmp_path, progress(200, a=1.0), known=kept[0])

    assert first == (None, None)
    assert kept == ["x1"]
    assert package.continued == ("x1", "allow")


def test_the_run_at_a_tracker_is_in_the_record_of_a_training(tmp_path):
    options = TrainingOptions("walker.wasm", tmp_path, hive="localhost:1")
    record = TrainingRecord(b"a module", options)
    before = record.tracked("wandb")
    record.write(RUN)
    record.keep_tracked("wandb", "x1")
    again = TrainingRecord(b"a module", replace(options, resume=True))

    assert before is None
    assert again.tracked("wandb") == "x1"
    assert again.tracked("mlflow") is None
    assert again.tracked(None) is None


@pytest.mark.parametrize("hive", ["localhost:1", "embedded"])
def test_a_training_goes_on_with_the_limit_and_the_lockstep_that_it_has(tmp_path, hive):
    options = TrainingOptions("walker.wasm", tmp_path, hive=hive)
    begun = replace(options, max_episode_steps=50, settings={"sync": True, "gamma": 0.9})
    TrainingRecord(b"a module", begun).write(RUN)
    resumed = TrainingRecord(b"a module", replace(options, resume=True))
    same = TrainingRecord(b"a module", replace(options, resume=True, max_episode_steps=50))
    with pytest.raises(
        UsageError, match=r"max_episode_steps is 60, and the training in .* with 50"
    ):
        TrainingRecord(b"a module", replace(options, resume=True, max_episode_steps=60))

    assert resumed.options.max_episode_steps == same.options.max_episode_steps == 50
    assert resumed.options.settings == resumed.grant.settings == {"sync": True}


@pytest.mark.parametrize("place", ["init", "log", "file", "finish"])
def test_a_tracker_that_fails_is_one_warning_and_gets_nothing_more(wandb, tmp_path, place):
    package = wandb(fail_at=place)
    warnings = track("wandb", tmp_path, *(progress(rows, a=1.0) for rows in range(1, 400)))

    assert warnings == [
        f"the tracker wandb failed, and gets nothing more: RuntimeError: no {place}"
    ]
    assert package.calls[-1][0] == place


def test_a_tracker_that_hangs_is_left_behind(wandb, tmp_path, monkeypatch):
    package, hung = wandb(), threading.Event()
    package.log = lambda _: hung.wait(60)
    monkeypatch.setattr(tracking, "_ENDING", 0.05)
    warnings = track("wandb", tmp_path, *(progress(rows, a=1.0) for rows in range(1, 400)))
    hung.set()

    assert warnings == [
        "the tracker wandb failed, and gets nothing more: it did not end within 0.05 s"
    ]


def test_a_training_that_starts_no_run_leaves_a_tracker_alone(wandb, tmp_path):
    package = wandb()

    assert track("wandb", tmp_path, progress(0), begin=False) == []
    assert package.calls == []


@pytest.fixture
def mlflow(monkeypatch, tmp_path):
    """The part of MLflow that opens its database, as SQLite itself does."""

    def open_database(uri):
        with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
            database.execute("SELECT * FROM runs")
        database.close()
        raise RuntimeError("opened")

    package = SimpleNamespace(MlflowClient=open_database, __spec__=object())
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.entities", SimpleNamespace(Metric=None))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("CREATE TABLE runs (id TEXT)")
    database.close()
    return tmp_path / "mlflow.db"


@pytest.mark.usefixtures("mlflow")
def test_a_database_of_mlflow_is_opened(tmp_path):
    (warning,) = track("mlflow", tmp_path)

    assert warning.endswith("RuntimeError: opened")


def test_a_journal_beside_a_database_of_mlflow_deletes_no_file(mlflow, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("key")
    write_hot_journal(mlflow, victim)
    (warning,) = track("mlflow", tmp_path)

    assert "names another file: remove it" in warning
    assert victim.exists()


def test_a_tracker_whose_package_is_missing_is_refused_with_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mlflow", None)

    with pytest.raises(UsageError, match=r"pip install 'arkml\[mlflow\]'"):
        TrainingOptions("walker.wasm", tmp_path, track="mlflow")


def test_an_unknown_tracker_is_refused(tmp_path):
    with pytest.raises(UsageError, match="track is 'else': it takes wandb or mlflow"):
        TrainingOptions("walker.wasm", tmp_path, track="else")
