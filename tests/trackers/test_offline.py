"""Trainings tracked without a server, by the packages themselves."""

import pytest
from tests.tracked import progress, track

pytestmark = [
    pytest.mark.trackers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the packages, of each other
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(autouse=True)
def _no_account(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_training_without_an_account_is_kept_by_wandb_for_a_later_sync(tmp_path):
    import wandb

    out = tmp_path / "out"
    warnings = track("wandb", out, progress(100, a=1.0), progress(200, a=2.0))
    (run,) = (out / "wandb").glob("offline-run-*")
    (file,) = run.glob("run-*.wandb")
    wandb.teardown()  # waits for the process that writes the file
    data = file.read_bytes()

    assert warnings == []
    for text in (b"rollout/ep_rew_mean", b"hidden", b"walker-3", b"policies-"):
        assert text in data


def test_a_training_without_a_server_is_kept_by_mlflow_in_a_database(tmp_path):
    from mlflow import MlflowClient

    out = tmp_path / "out"
    hostile = {"../..//guest/<b> ä": 3.0, "a": 1.0}
    warnings = track("mlflow", out, progress(100, **hostile), progress(200, a=2.0))
    client = MlflowClient(f"sqlite:///{out / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("walker")
    (run,) = client.search_runs([experiment.experiment_id])
    curve = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "a")]
    files = [one.path for one in client.list_artifacts(run.info.run_id, "policies")]

    assert warnings == []
    assert (run.info.run_name, run.info.status) == ("walker-3", "FINISHED")
    assert (run.data.params["hidden"], run.data.params["game"]) == ("128", "game")
    assert curve == [(100, 1.0), (200, 2.0)]
    assert run.data.metrics["rollout/ep_rew_mean"] == 9.5
    assert run.data.metrics["guest/_b_ ä"] == 3.0
    assert files == ["policies/walker.onnx"]


def test_a_resumed_training_continues_its_run_of_mlflow(tmp_path):
    from mlflow import MlflowClient

    out, kept = tmp_path / "out", []
    track("mlflow", out, progress(100, a=1.0), keep=kept.append)
    warnings = track("mlflow", out, progress(200, a=2.0), known=kept[0])
    client = MlflowClient(f"sqlite:///{out / 'mlflow.db'}")
    curve = [(one.step, one.value) for one in client.get_metric_history(kept[0], "a")]

    assert warnings == []
    assert curve == [(100, 1.0), (200, 2.0)]
