"""`arkml hive` and `arkml train --hive`, with a hive that is served."""

import json
import re
import signal
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tests.integration.command_line import GUESTS, arkml, start
from tests.unit.test_learning_recorder import events, told
from tests.waiting import eventually

from arkml.hive.address import Address
from arkml.hive.client import HiveClient
from arkml.policies.cervo import is_cervo

REACH = GUESTS / "c_reach.wasm"
TOKEN = {"ARKML_HIVE_TOKEN": "a secret of the test"}
QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 640}


def served(*words, **environment):
    """A hive in a process, and its address."""
    process = start("hive", "serve", "--port", "0", *words, **environment)
    line = process.stderr.readline()
    return process, re.search(r"http://(\S+)", line)[1], line


@pytest.fixture(scope="module")
def hive(tmp_path_factory):
    """The address of a hive that asks for a token, with one run that was trained."""
    folder = tmp_path_factory.mktemp("hive")
    process, address, _ = served("--data", folder / "data", **TOKEN)
    config = folder / "quick.json"
    config.write_text(json.dumps(QUICK))
    trained = arkml(
        "train", REACH, "--hive", address, "--frames", "150", "--config", config,
        "--out", folder / "out", "--json", **TOKEN,
    )  # fmt: skip
    assert trained.status == 0, trained.err
    yield address, trained.json
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err


@pytest.fixture
def ask(hive):
    """Ask the hive as a person would."""
    address, _ = hive
    return lambda *words: arkml("hive", *words, "--hive", address, **TOKEN)


@pytest.mark.learns
def test_a_training_on_a_served_hive_leaves_its_files_and_its_run(hive, ask):
    _, trained = hive
    listed = ask("list", "--json")
    policy = onnxruntime.InferenceSession(trained["policy"]["onnx"])
    actions, values = policy.run(
        ["actions", "values"],
        {"observations": np.zeros((3, 4), "f4"), "epsilon": np.zeros((3, 2), "f4")},
    )

    assert [run["id"] for run in listed.json["runs"]] == [trained["run"]]
    assert listed.json["runs"][0]["status"] == "stopped"
    assert listed.json["runs"][0]["rows"] == trained["rows"]
    # The run comes while a frame is played: that frame may count without rows, or have some.
    assert trained["rows"] / 64 in (149, 150, 151)
    assert trained["updates"] > 0
    assert actions.shape == (3, 2)
    assert values.shape == (3, 1)


def test_runs_are_listed_and_shown_for_people(hive, ask):
    _, trained = hive
    listed, shown, metrics = ask("list"), ask("show", "reach"), ask("metrics", trained["run"])

    assert trained["run"] in listed.out
    assert re.search(r"status +stopped", shown.out)
    assert re.search(r"hidden +32", shown.out)
    rated = r"-?\d.* by (training|evaluation): version \d"
    assert re.search(rf"best +(not rated yet|{rated})", shown.out)
    assert re.search(r"updates_per_row +\d\S* of 1 *\n", shown.out)
    assert re.search(r"train/n_updates +\d", metrics.out)


def test_events_of_a_run_are_shown_all_or_by_kind(ask):
    shown, best = ask("events", "reach"), ask("events", "reach", "--kind", "started", "--json")
    none, wrong = (ask("events", "reach", "--kind", kind) for kind in ("stuck", "nonsense"))

    assert re.search(r"started +a learner begins after 0 updates", shown.out)
    assert [event["kind"] for event in best.json["events"]] == ["started"]
    assert none.status == 0, none.err
    assert "0 events of reach" in none.out
    assert wrong.status == 2
    assert "--kind 'nonsense': the events of reach are" in wrong.err


def test_the_frames_of_a_training_are_told(hive):
    address, trained = hive
    with HiveClient(lambda: Address.parse(address, TOKEN["ARKML_HIVE_TOKEN"])) as client:
        run = client.run(trained["run"]).result()

    assert run.goal.frames == 150
    assert run.frames == 150


def test_a_policy_is_exported_as_onnx_and_as_cervo(ask, tmp_path):
    plain = ask("snapshot", "reach", "-o", tmp_path / "now.onnx", "--json")
    packed = ask("export", "reach", "-o", tmp_path / "best.crvo")

    assert plain.json["which"] == "latest"
    onnxruntime.InferenceSession(plain.json["file"])
    assert packed.status == 0
    assert is_cervo((tmp_path / "best.crvo").read_bytes())


def test_a_run_that_is_not_there_is_named(ask):
    missing = ask("show", "walker")

    assert missing.status == 2
    assert "there is no run 'walker'" in missing.err


def test_without_the_token_nothing_is_told(hive):
    address, _ = hive
    refused = arkml("hive", "list", "--hive", address, ARKML_HIVE_TOKEN="wrong")

    assert refused.status == 2
    assert refused.out == ""
    assert "token" in refused.err


def test_a_hive_that_is_not_there_is_one_sentence():
    gone = arkml("hive", "list", "--hive", "127.0.0.1:9")

    assert gone.status == 2
    assert gone.err.startswith("error: no hive answers at 127.0.0.1:9")


def test_a_guest_that_was_to_train_at_a_hive_that_is_not_there_is_told_of_at_its_end():
    played = arkml("run", REACH, "--frames", "2", "--hive", "127.0.0.1:9")

    assert played.status == 1
    assert "error: c_reach.wasm has trained nothing: no hive answers at 127.0.0.1:9" in played.err


def test_a_guest_that_was_to_train_without_the_token_is_told_of_at_its_end(hive):
    address, _ = hive
    played = arkml("run", REACH, "--frames", "1", "--hive", address, ARKML_HIVE_TOKEN="wrong")

    assert played.status == 1
    assert "has trained nothing: the token of the hive is missing or wrong" in played.err


def test_a_hive_for_others_insists_on_a_token(tmp_path):
    refused = arkml("hive", "serve", "--host", "0.0.0.0", "--data", tmp_path)

    assert refused.status == 2
    assert "ARKML_HIVE_TOKEN" in refused.err


def test_a_port_that_is_in_use_is_one_sentence(hive, tmp_path):
    port = hive[0].rpartition(":")[2]
    refused = arkml("hive", "serve", "--port", port, "--data", tmp_path)

    assert refused.status == 2
    assert f"error: port {port} of 127.0.0.1 is in use" in refused.err
    assert "bug" not in refused.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--port", "80000"), "--port 80000: it takes a whole number from 0 to 65535"),
        (("--port", "-1"), "--port -1: it takes a whole number from 0 to 65535"),
        (("--host", "192.0.2.1"), "192.0.2.1 is not an address of this machine"),
        (("--host", "not a host"), "nothing can listen at not a host port 0"),
        (("--host", "x" * 80), "nothing can listen at xxx"),
        (("--device", "tpu"), "--device tpu: it takes one of auto, cpu, cuda"),
        (("--device", "cuda"), "--device cuda: device is 'cuda', and JAX finds none here"),
        (("--idle-stop", "nan"), "--idle-stop nan: it takes a number of seconds above 0"),
    ],
)
def test_an_option_that_cannot_be_followed_is_one_sentence(tmp_path, words, sentence):
    port = () if "--port" in words else ("--port", "0")
    given = {"JAX_PLATFORMS": "cpu"} | TOKEN  # no GPU, wherever this runs
    refused = arkml("hive", "serve", *words, *port, "--data", tmp_path, **given)

    assert refused.status == 2
    assert sentence in refused.err
    assert "bug" not in refused.err


@pytest.mark.parametrize("place", ["file/data", "file", "lock", "runs"])
def test_a_data_directory_that_cannot_be_used_is_one_sentence(tmp_path, place):
    (tmp_path / "file").touch()
    data = tmp_path / "data"
    data.mkdir()
    if "file" in place:
        data = tmp_path / place
    elif place == "runs":
        (data / place).touch()
    else:
        (data / place).mkdir()
    refused = arkml("hive", "serve", "--port", "0", "--data", data)

    assert refused.status == 2
    assert str(data) in refused.err
    assert "bug" not in refused.err


def test_a_disk_that_is_full_from_the_start_is_one_sentence(tmp_path):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        process = start("hive", "serve", "--port", "0", "--data", tmp_path / "data")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    _, err = process.communicate(timeout=300)

    assert process.returncode == 2
    assert "its disk is full" in err
    assert "bug" not in err


@pytest.mark.learns
def test_a_training_starts_from_a_run_of_the_hive(hive, ask, tmp_path):
    address, _ = hive
    config = tmp_path / "quick.json"
    config.write_text(json.dumps(QUICK))
    (source,) = ask("list", "--json").json["runs"]
    words = ("train", REACH, "--hive", address, "--frames", "20", "--config", config, "--json")
    trained = arkml(*words, "--from", source["id"], "--out", tmp_path / "out", **TOKEN)
    missing = arkml(*words, "--from", "nobody@3", "--out", tmp_path / "other", **TOKEN)
    ask("rm", trained.json["run"])

    assert trained.status == 0, trained.err
    assert trained.json["updates"] >= source["n_opts"] > 0
    assert missing.status == 2
    assert missing.json["error"] == "there is no checkpoint 'nobody@3'"


def test_a_run_is_deleted(hive, ask, tmp_path):
    address, _ = hive
    config = tmp_path / "quick.json"
    config.write_text(json.dumps(QUICK))
    other = arkml(
        "train", REACH, "--hive", address, "--frames", "20", "--config", config,
        "--out", tmp_path / "out", "--json", **TOKEN,
    )  # fmt: skip
    deleted = ask("rm", other.json["run"])
    left = ask("list", "--json").json["runs"]

    assert other.json["name"] == "reach-2"
    assert deleted.status == 0
    assert [run["name"] for run in left] == ["reach"]


@pytest.mark.learns
def test_evaluations_are_in_the_metrics_and_for_tensorboard(tmp_path):
    config, data = tmp_path / "quick.json", tmp_path / "data"
    config.write_text(json.dumps(QUICK))
    process, address, _ = served("--data", data)
    trained = arkml(
        "train", REACH, "--hive", address, "--frames", "120", "--eval-every", "50",
        "--config", config, "--out", tmp_path / "out", "--json",
    )  # fmt: skip
    metrics = arkml("hive", "metrics", "reach", "--hive", address, "--json").json["metrics"]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    (directory,) = data.glob("runs/*/events")
    recorded = {}
    for step, values in map(told, events(directory)):
        for name, value in values:
            recorded.setdefault(name, []).append((step, value))
    series = [tuple(point) for point in trained.json["mean_return"]["series"]]

    assert trained.json["mean_return"]["of"] == "evaluations"
    assert len(series) == 2
    assert recorded["eval/mean_reward"] == [(step, pytest.approx(mean)) for step, mean in series]
    assert recorded["eval/mean_ep_length"] == [(step, 50.0) for step, _ in series]
    assert metrics["eval/mean_reward"] == pytest.approx(series[-1][1])


@pytest.mark.learns
def test_a_training_that_is_interrupted_keeps_everything_and_is_resumed(tmp_path):
    config = tmp_path / "quick.json"
    config.write_text(json.dumps(QUICK))
    words = ("train", REACH, "--config", config, "--out", tmp_path / "out", "--json")
    with start(*words, "--minutes", "5") as process:
        policies = tmp_path / "out" / "hive" / "runs"
        eventually(lambda: list(policies.glob("*/policies/*3.onnx")))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    first = json.loads(out)
    again = arkml(*words, "--frames", "10")
    resumed = arkml(*words, "--frames", "50", "--resume")

    assert process.returncode == 130, err
    assert first["updates"] > 0
    assert again.status == 2
    assert "--resume" in again.err
    assert resumed.status == 0, resumed.err
    assert resumed.json["run"] == first["run"]
    assert resumed.json["rows"] >= first["rows"] + 49 * 64


def test_a_report_of_a_run_is_the_same_from_its_hive_and_from_its_directory(hive, ask, tmp_path):
    address, trained = hive
    (run,) = (one for one in ask("list", "--json").json["runs"] if one["id"] == trained["run"])
    by_hive, by_data = tmp_path / "hive.html", tmp_path / "data.html"
    data = Path(trained["policy"]["onnx"]).parents[1] / "data"
    asked = arkml("report", run["name"], "--hive", address, "-o", by_hive, **TOKEN)
    read = arkml("report", run["id"], "--data", data, "-o", by_data, "--json")
    curves = [
        re.findall(r'class="line c0" d="([^"]+)"', path.read_text()) for path in (by_hive, by_data)
    ]

    assert (asked.status, read.status) == (0, 0), asked.err + read.err
    assert read.json == {
        "file": str(by_data), "bytes": by_data.stat().st_size, "runs": [run["id"]],
    }  # fmt: skip
    same = int(re.search(r"(\d+) metrics? stayed the same", by_hive.read_text())[1])
    assert len(curves[0]) + same == len(run["latest"])
    assert len(curves[0]) > 1
    assert curves[0] == curves[1]


def test_a_report_that_cannot_be_made_is_refused_with_a_sentence(tmp_path):
    nothing = arkml("report", "-o", tmp_path / "a.html")
    empty = arkml("report", "--data", tmp_path, "-o", tmp_path / "a.html")
    runs = tmp_path / "my runs"
    runs.mkdir()
    named = arkml("report", runs, "--hive", "127.0.0.1:9", "-o", tmp_path / "a.html")

    assert (nothing.status, empty.status, named.status) == (2, 2, 2)
    assert named.err.startswith("error: no hive answers at 127.0.0.1:9: ")
    assert named.err.endswith(f"; {runs} is a directory, which --data '{runs}' reads\n")
    assert "name a run, or a directory with --data" in nothing.err
    assert "holds no runs: name the data directory of a hive, or the directory" in empty.err
    assert not (tmp_path / "a.html").exists()
