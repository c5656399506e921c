"""The policy and the files of a training, when a part of what belongs to them fails."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from tests.integration.guest_text import ACTOR
from tests.integration.scripted_hive import ScriptedHive, raw
from tests.waiting import eventually

from arkml import HiveGrant, Host
from arkml.cli import logs
from arkml.cli.launch import Grants
from arkml.cli.learned import Learned, learned
from arkml.cli.logs import LogOptions
from arkml.cli.train_command import Goal, Training
from arkml.cli.training_files import write_files
from arkml.cli.watch import Watch
from arkml.errors import ProtocolError
from arkml.hive.protocol.runs import RunInfo, RunRequest, Status
from arkml.hive.protocol.settings import Settings

RUN = RunInfo("r1", "run", "game", Status.RUNNING, 3, 2, 0)


def told(values):
    return json.dumps(values).encode()


@pytest.fixture
def hive():
    made = ScriptedHive()
    made.scripts = {"evaluations": [raw(b"nonsense")], "snapshot": [raw(b"the best")]}
    yield made
    made.close()


def test_a_report_of_an_evaluation_that_failed_does_not_cost_the_best_policy(hive):
    with Host(hive=HiveGrant(f"127.0.0.1:{hive.port}")) as host:
        client, player = host.hives.client(), SimpleNamespace(subject=host.load(ACTOR))
        report = client.evaluate("r1", 1, [1.0], [1])
        error = report.exception(20)
        with Watch(host, lambda _: None) as watch:
            found = learned(client, RUN, player, watch, [report])

    assert isinstance(error, ProtocolError)
    assert (found.which, found.policy) == ("best", b"the best")


def test_a_curve_that_cannot_be_drawn_is_told_and_costs_no_policy(tmp_path):
    training = Training(
        Path("guest.wasm"), None, Goal(), None, 1, tmp_path, None, Grants(), LogOptions(), False
    )
    run = RunInfo("r1", r"$\nonsense$", "game", Status.RUNNING, 3, 2, 0)  # no mathematics
    found = Learned("best", b"a policy", [(1, 0.5)], [], {}, run)
    files, (complaint,) = write_files(training, found)

    assert (tmp_path / "guest.onnx").read_bytes() == b"a policy"
    assert set(files) == {"onnx", "crvo"}
    assert f"{tmp_path / 'learning_curve.png'} cannot be made: ValueError" in complaint


def test_what_a_hive_says_of_a_learner_cannot_write_over_the_terminal(hive, capsys):
    ended = replace(RUN, status=Status.UNHEALTHY, reason="killed\x1b[2J\x07")
    hive.scripts = {
        "runs": [raw(told({"run": RUN.as_json()}))],
        "r1": [raw(told({"run": one.as_json()})) for one in (RUN, ended)],
        "metrics": [raw(b'{"metrics": []}')],
        "series": [raw(b'{"series": []}')],
    }
    with Host(hive=HiveGrant(f"127.0.0.1:{hive.port}", shared=True)) as host:
        host.hives.start(host.hives.client(), RunRequest("run", "game", Settings(3, 2))).result(20)
        with Watch(host, lambda _: None):
            eventually(lambda: len(hive.times.get("metrics", [])) > 1)
    said = capsys.readouterr().err

    assert said == "the learner ended, another one starts: killed\\x1b[2J\n"


def test_what_a_hive_says_in_a_log_line_cannot_write_over_the_terminal():
    said = ("the hive is gone: %s", ("killed\x1b[2J",))
    record = logging.LogRecord("arkml.hive", logging.WARNING, "", 0, *said, None)

    assert logs._Lines(debug=False).format(record).endswith("the hive is gone: killed\\x1b[2J")
