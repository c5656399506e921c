"""`arkml trials`: a server in a process, and the commands over the log that it leaves."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
from tests.faults.limits import make_room, no_room
from tests.integration.command_line import ENVIRONMENT, arkml, start
from tests.integration.trial_player import ended, parameters, played, player, running
from tests.unit.datalog_parts import action, event, reward, trial_params, write_trial
from tests.waiting import eventually

from arkml.demonstrations.demonstration_files import read_demonstrations
from arkml.trial_commands.trial_service import ServedTrials, TrialPorts, open_server
from arkml.trials import Context, TrialError, TrialsOptions
from arkml.trials.datalog.datalog import Datalog, DatalogOptions


@contextmanager
def served(data, *words, end=signal.SIGTERM, status=143, **environment):
    """A server in a process, its address, and what it says at its start."""
    given = {str(word).replace("_", "-") for word in words}
    given |= {"--actor-port"} if "COGMENT_ACTOR_PORT" in environment else set()
    free = [name for name in ("--lifecycle-port", "--actor-port") if name not in given]
    ports = [word for name in free for word in (name, "0")]
    process = start("trials", "serve", "--data", data, *ports, *words, **environment)
    line = process.stderr.readline()
    found = re.search(r"grpc://(127\.0\.0\.1:\d+)", line)
    assert found, line + process.communicate(timeout=300)[1]
    try:
        yield found[1], process, line
    finally:
        process.send_signal(end)
        out, err = process.communicate(timeout=300)
    assert process.returncode == status, out + err


def trials(*words, data):
    return arkml("trials", *words, "--data", data)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The log of a server that played three trials of two users."""
    data = tmp_path_factory.mktemp("served") / "log"
    with served(data) as (address, _, _):
        played(address, "one", "two")
        played(address, "three", user="eve", last=3)
    return data


def test_trials_that_were_played_are_listed_the_newest_first(log):
    listed = trials("list", "--json", data=log).json["trials"]

    assert [(one["id"], one["user"], one["state"]) for one in listed] == [
        ("three", "eve", "ENDED"),
        ("two", "ann", "ENDED"),
        ("one", "ann", "ENDED"),
    ]
    assert [one["ticks"] for one in listed] == [4, 6, 6]
    assert [one["actors"] for one in listed] == [2, 2, 2]
    assert [one["reason"] for one in listed] == ["", "", ""]


def test_the_list_is_a_table_for_people(log):
    listed = trials("list", "--user", "ann", "--last", "1", data=log)

    assert "2 trials, 1 older not shown" in listed.out
    assert re.search(r"two +ann +ENDED +6 +2 ", listed.out)
    assert "one " not in listed.out


def test_a_trial_is_shown_with_its_parameters_and_its_ticks(log):
    shown = trials("show", "one", "--json", data=log).json

    assert shown["trial"]["id"] == "one"
    assert [one["name"] for one in shown["parameters"]["actors"]] == ["ann", "bob"]
    assert [one["tick"] for one in shown["ticks"]] == [0, 1, 2, 3, 4, 5]
    assert shown["ticks"][2]["actions"]["bob"]["note"] == "given"
    assert shown["ticks"][2]["rewards"] == {"ann": 1.5, "bob": 1.5}
    assert shown["ticks"][0]["messages"][0]["type"].endswith("/google.protobuf.StringValue")
    assert shown["ticks"][5]["actions"] == {}


def test_a_trial_is_shown_for_people(log):
    shown = trials("show", "one", "--last", "2", data=log).out

    assert re.search(r"ann +counter +follow +grpc://127\.0\.0\.1", shown)
    assert re.search(r"\n *4 +ann: \d bytes +ann: 2\.5", shown)
    assert not re.search(r"\n *3 +ann: \d bytes", shown)


@pytest.fixture
def small(tmp_path):
    """A log with a trial of each of two users, one long ago."""
    with Datalog(tmp_path) as datalog:
        write_trial(datalog, "old", [action(0)], user="eve", began=10**18)
        write_trial(datalog, "new", [action(0), reward(0, "ann", float("nan"))])
    return tmp_path


def ids(data):
    return [one["id"] for one in trials("list", "--json", data=data).json["trials"]]


def test_a_reward_that_is_not_a_number_is_shown_as_none(small):
    shown = trials("show", "new", "--json", data=small)

    assert shown.json["ticks"][0]["rewards"] == {"ann": None}


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["old"], ["new"]),
        (["old", "new", "old"], []),
        (["--user", "eve"], ["new"]),
        (["--before", "2020-01-01"], ["new"]),
        (["--before", "1d"], ["new"]),
        (["--user", "ann", "--before", "2020-01-01T12:00"], ["new", "old"]),
    ],
)
def test_trials_are_removed_and_it_is_said_which(small, words, left):
    removed = trials("rm", *words, data=small)

    assert removed.status == 0
    assert ids(small) == left
    for trial in {"old", "new"} - {*left}:
        assert f"trial {trial} of" in removed.out
    assert re.search(rf"^{2 - len(left)} trials? removed$", removed.out, re.MULTILINE)


def test_names_cannot_control_the_terminal(tmp_path):
    with Datalog(tmp_path) as datalog:
        write_trial(datalog, "t\x1b[31m", [action(0)], user="\x1b]0;x\x07", began=1)
    printed = [trials("list", data=tmp_path).out, trials("rm", "--before", "0s", data=tmp_path).out]

    assert "1 trial removed" in printed[1]
    assert not any("\x1b" in text or "\x07" in text for text in printed)


def test_trials_that_run_are_kept_where_a_user_is_removed(tmp_path):
    with Datalog(tmp_path) as datalog:
        write_trial(datalog, "over", [action(0)], user="eve")
        datalog.begin("runs", "eve", trial_params(), 1)
        datalog.add("runs", event(0, "x"))
        eventually(lambda: {*ids(tmp_path)} == {"over", "runs"})
        removed = trials("rm", "--user", "eve", "--json", data=tmp_path)
        refused = trials("rm", "runs", data=tmp_path)

    assert removed.json == {"removed": ["over"], "running": ["runs"]}
    assert (refused.status, "trial 'runs' is running: end it first" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rm"], "takes trials, or --user and --before"),
        (["rm", "new", "--user", "eve"], "takes trials, or --user and --before"),
        (["rm", "--before", "yesterday"], "--before yesterday: it takes a time"),
        (["rm", "neither"], "there is no trial 'neither'"),
        (["show", "neither"], "there is no trial 'neither'"),
        (["show", "ne"], "trials.sqlite; the whole id of one is new"),
        (["export", "new", "--spec", "no.yaml", "-o", "rows.txt"], "FILE.npz, or to NAME-v0"),
        (["serve", "--host", "0.0.0.0"], "gRPC has no login: --grpc-open"),
        (["serve", "--prometheus-port", "9000"], "it takes a port of its own"),
        (["serve", "--limit", "trials=3"], "it takes NAME=VALUE, of live_trials"),
        (["serve", "--limit", "live_trials=none"], "it takes a whole number above zero"),
        (["serve", "--most-bytes", "lots"], "it takes a whole number above zero"),
        (["serve", "--params", "none.yaml"], "none.yaml cannot be read"),
        (["serve", "--pre-trial-hooks", "http://x"], "is not one of: grpc://HOST:PORT"),
        (["serve", "--directory_endpoint", "grpc://d:1"], "there is no directory here"),
        (["serve", "--private_key", "key.pem"], "without TLS here"),
        (["serve", "--log-level", "loud"], "there is no log level 'loud'"),
        (["serve", "--log_format=xml"], "--log-format xml: it takes text or json"),
        (["serve", "--status-file", "no/such/file"], "--status-file no/such/file cannot be"),
        (["launch", "--quiet", "project.yaml"], "there is no launch here"),
        (["trial_datastore"], "there is no trial datastore here"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(small, words, sentence):
    given = words if words[0] in ("launch", "trial_datastore") else [*words, "--data", small]
    ended = arkml("trials", *given, cwd=small)

    assert ended.status == 2
    assert sentence in ended.err
    assert ended.err.startswith("error: ")
    assert len(ended.err.splitlines()) == 1


def test_without_a_log_nothing_is_made(tmp_path):
    listed = trials("list", data=tmp_path / "none")

    assert (listed.status, "there is no log of trials at" in listed.err) == (2, True)
    assert [*tmp_path.iterdir()] == []


HIDDEN = """
import importlib.util, sys
find = importlib.util.find_spec
def find_spec(name, *more):
    return None if name in ("grpc", "websockets") else find(name, *more)
importlib.util.find_spec = find_spec
from arkml.cli import main
sys.argv = ["arkml", "trials", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("words", [["list"], ["serve"], ["generate", "x.yaml", "--python", "x"]])
def test_without_the_extra_its_name_is_given(tmp_path, words):
    ended = subprocess.run(
        [sys.executable, "-c", HIDDEN, *words],
        capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path, check=False,
    )  # fmt: skip

    assert ended.returncode == 2
    assert "trials need grpc, websockets: pip install 'arkml[trials]'" in ended.stderr


def test_options_are_taken_from_variables_and_with_underscores(tmp_path):
    variables = {"COGMENT_ACTOR_PORT": "0", "COGMENT_STATUS_FILE": str(tmp_path / "status")}
    words = ("--lifecycle_port", "0", "--gc_frequency", "3", "--log_file", tmp_path / "s.log")
    with served(tmp_path / "log", *words, **variables) as (address, _, line):
        eventually(lambda: (tmp_path / "status").read_text() == "IR")
        played(address, "one", last=2)
    (file,) = tmp_path.glob("s_*.log")

    assert (tmp_path / "status").read_text() == "IRT"
    assert "actors join" not in line  # they share the port
    assert re.fullmatch(r"s_\d{4}-\d\d-\d\d\.log", file.name)
    assert "trial one ended in tick 2" in file.read_text()


def test_cogment_s_launchers_give_their_options_and_read_its_lines(tmp_path):
    # As cogment-verse starts an orchestrator; its helpers read the status from a FIFO.
    os.mkfifo(tmp_path / "status")
    process = start(
        "trials", "serve", "--log_format=json", "--log_level=info", "--actor_port=0",
        "--lifecycle_port=0", "--actor_http_port=0", f"--status_file={tmp_path / 'status'}",
        "--directory_auto_register=1", "--directory_authentication_token=none",
        "--directory_registration_host=here", "--directory_registration_properties=a=b,c=d",
        "--gc_frequency=10", "--data", tmp_path / "log",
    )  # fmt: skip
    with (tmp_path / "status").open() as status:
        letters = status.read(2)
        announced = json.loads(process.stderr.readline())
        played(re.search(r"grpc://(\S+),", announced["msg"])[1], "one", last=2)
        process.send_signal(signal.SIGTERM)
        letters += status.read(1)
    _, err = process.communicate(timeout=60)
    lines = [json.loads(line) for line in err.splitlines()]

    assert (letters, process.returncode) == ("IRT", 143)
    assert {"component", "level", "msg", "time"} == set(announced)
    assert any(one["msg"].startswith("trial one ended in tick 2") for one in lines)
    assert {one["level"] for one in lines} == {"info"}


def test_a_server_waits_for_nobody_who_reads_its_status(tmp_path):
    path = tmp_path / "status"
    os.mkfifo(path)
    with served(tmp_path / "log", "--status-file", path) as (address, _, _line):
        played(address, "one", last=2)
        with path.open() as late:
            assert late.read(2) == "IR"

    with served(tmp_path / "log", "--status-file", path) as (address, _, _line):
        played(address, "two", last=2)


async def test_an_ipv6_address_is_announced_as_clients_take_it(tmp_path):
    said = []
    options = ServedTrials(
        ports=TrialPorts("::1", lifecycle=0, actor=0, prometheus=0),
        trials=TrialsOptions(),
        datalog=DatalogOptions(),
        data=tmp_path,
        status_file=None,
    )
    async with open_server(options, said.append), Context("ann", None) as context:
        endpoint = re.match(r"trials: (grpc://\S+), log in ", said[0])[1]
        versions = await context.get_controller(endpoint).get_remote_versions()

    assert endpoint.startswith("grpc://[::1]:")
    assert versions["cogment-api"]


def test_default_parameters_come_from_a_file(tmp_path):
    (tmp_path / "params.yaml").write_text(
        json.dumps(
            {
                "trial_params": {
                    "max_steps": 7,
                    "environment": {"endpoint": "grpc://127.0.0.1:1"},
                    "actors": [{"name": "a", "actor_class": "c", "endpoint": "cogment://client"}],
                }
            }
        )
    )

    async def start_one(address):
        async with player(address) as (controller, _):
            trial = await controller.start_trial(trial_id_requested="one")
            await controller.terminate_trial([trial], hard=True)
            await ended(controller, trial)

    with served(tmp_path / "log", "--params", tmp_path / "params.yaml") as (address, _, _):
        asyncio.run(start_one(address))
    shown = trials("show", "one", "--json", data=tmp_path / "log").json

    assert shown["parameters"]["max_steps"] == 7
    assert shown["trial"]["reason"] == "the trial was terminated"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_running_trials_with_last_observations(tmp_path, number, status):
    async def play(address, process):
        async with player(address) as (controller, port):
            trial = await controller.start_trial(trial_params=parameters(port))
            await running(controller, trial)
            process.send_signal(number)
            await asyncio.to_thread(process.wait)

    with served(tmp_path, end=number, status=status) as (address, process, _):
        asyncio.run(play(address, process))
    (record,) = trials("list", "--json", data=tmp_path).json["trials"]
    shown = trials("show", record["id"], "--last", "1", "--json", data=tmp_path).json

    assert record["state"] == "ENDED"
    assert "cut off" not in record["reason"]
    assert shown["ticks"][-1]["states"] == ["ENDED"]
    assert shown["ticks"][-1]["actions"] == {}


def test_durations_are_served_for_prometheus(tmp_path, unused_port):
    with served(tmp_path, "--prometheus-port", unused_port) as (address, _, _):
        played(address, "one", last=4)
        with urllib.request.urlopen(f"http://127.0.0.1:{unused_port}/metrics") as reply:
            text = reply.read().decode()

    assert "orchestrator_trial_duration_seconds_count 1\n" in text
    assert "orchestrator_tick_duration_seconds_count 4\n" in text
    assert "orchestrator_garbage_collection_duration_seconds_count 0\n" in text


def test_a_port_of_metrics_in_use_is_named(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = ("--lifecycle-port", "0", "--actor-port", "0", "--prometheus-port", str(port))
        ended = trials("serve", *ports, data=tmp_path)

    text = f"error: nothing can listen at 127.0.0.1:{port} (Address already in use): take another"
    assert (ended.status, ended.err.splitlines()[-1]) == (2, text)


@pytest.fixture
def unused_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_a_server_whose_log_cannot_be_written_refuses_trials_and_ends_those_that_run(tmp_path):
    async def play(address, process):
        async with player(address) as (controller, port):
            trial = await controller.start_trial(trial_params=parameters(port))
            await running(controller, trial)
            before = no_room(process.pid)
            await ended(controller, trial)
            with pytest.raises(TrialError) as refused:
                await controller.start_trial(trial_params=parameters(port))
            make_room(process.pid, before)
            while True:
                try:
                    again = await controller.start_trial(trial_params=parameters(port, 2))
                    break
                except TrialError:
                    await asyncio.sleep(0.1)
            await ended(controller, again)
            return str(refused.value)

    with served(tmp_path) as (address, process, _):
        refusal = asyncio.run(play(address, process))
    newest, oldest = trials("list", "--json", data=tmp_path).json["trials"]

    assert "trials cannot be logged: the log of trials" in refusal
    assert "its disk is full" in refusal
    assert "its disk is full" in oldest["reason"]
    assert newest["ticks"] == 3


def test_two_servers_cannot_have_one_log(tmp_path):
    with served(tmp_path):
        second = arkml("trials", "serve", "--lifecycle-port", "0", "--data", tmp_path)

    assert (second.status, "in use by another server" in second.err) == (2, True)


def test_a_port_in_use_is_said(tmp_path):
    with served(tmp_path / "a") as (address, _, _):
        port = address.rpartition(":")[2]
        second = arkml(
            "trials",
            "serve",
            "--lifecycle-port",
            port,
            "--actor-port",
            "0",
            "--data",
            tmp_path / "b",
        )

    assert (second.status, "cannot be listened at" in second.err) == (2, True)


@pytest.fixture
def web(unused_port):
    """Ask the version of a server as a browser does; its status and what it says."""

    def ask(path="", **headers):
        request = urllib.request.Request(
            f"http://127.0.0.1:{unused_port}{path}/cogmentAPI.TrialLifecycleSP/Version",
            data=b"\0\0\0\0\0",
            headers={"content-type": "application/grpc-web+proto", **headers},
        )
        try:
            with urllib.request.urlopen(request) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    return ask


def test_browsers_are_served_at_a_port_of_their_own(tmp_path, unused_port, web):
    page = "https://game.example"
    words = ("--actor_web_port", unused_port, "--allow-origin", page)
    with served(tmp_path, *words) as (_, process, _):
        announced = process.stderr.readline()
        answered = web(origin=page)
        refused = web(origin="https://other.example")

    assert announced == f"web: http://127.0.0.1:{unused_port}\n"
    assert answered[0] == 200
    assert b"cogment-api" in answered[1]
    assert refused[0] == 403


def test_the_token_of_the_web_port_is_taken_from_its_variable_and_not_shown(
    tmp_path, unused_port, web
):
    words = ("--actor-web-port", unused_port)
    with served(tmp_path, *words, ARKML_TRIALS_TOKEN="secret") as (_, process, _):
        announced = process.stderr.readline()
        answered, refused = web("/j/secret"), web()

    assert "secret" not in announced
    assert b"cogment-api" in answered[1]
    assert b"cogment-api" not in refused[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--allow-origin", "https://x"], "--allow-origin is about the web port"),
        (["--tls-cert", "c.pem"], "--tls-cert is about the web port"),
        (["--actor-web-port", "9000"], "--actor-web-port 9000: it takes a port of its own"),
        (["--actor-web-port", "8080", "--allow-origin", "x"], "is not an origin"),
        (["--actor-web-port", "8080", "--allow-endpoint", "x"], "is not one of: grpc://HOST:PORT"),
        (["--actor-web-port", "8080", "--tls-key", "k.pem"], "--tls-key needs --tls-cert"),
    ],
)
def test_options_of_the_web_port_that_cannot_be_meant_are_refused(tmp_path, words, sentence):
    ended = arkml("trials", "serve", *words, "--data", tmp_path)

    assert ended.status == 2
    assert sentence in ended.err


SPEC = """
import: {proto: [more.proto]}
actor_classes:
  - name: counter
    action: {space: google.protobuf.DoubleValue}
    observation: {space: google.protobuf.Int64Value}
"""
PROTO = 'syntax = "proto3"; package more; import "google/protobuf/wrappers.proto";'


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "cogment.yaml").write_text(SPEC)
    (tmp_path / "more.proto").write_text(PROTO)
    return tmp_path / "cogment.yaml"


@pytest.mark.parametrize("name", ["rows.npz", "ann-v0"])
def test_trials_are_exported_as_demonstrations(log, spec, tmp_path, name):
    words = ("export", "one", "three", "--spec", spec, "--actor", "ann", "-o", tmp_path / name)
    exported = trials(*words, "--json", data=log)
    rows = read_demonstrations(tmp_path / name).columns

    assert (exported.json["rows"], exported.json["episodes"]) == (10, 2)
    assert rows.features[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert rows.reward.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 0, 0.5, 1, 1.5]
    assert np.allclose(rows.action[1:5, 0], [0.01, 0.02, 0.03, 0.04])


def test_an_export_with_another_spec_is_refused(log, spec, tmp_path):
    spec.write_text(SPEC.replace("counter", "judge"))
    refused = trials("export", "one", "--spec", spec, "-o", tmp_path / "rows.npz", data=log)

    assert refused.status == 2
    assert "actors of class 'counter', and the spec has judge" in refused.err


def test_settings_are_generated_of_a_spec_file(spec, tmp_path):
    words = (spec, "--python", tmp_path / "py", "--javascript", tmp_path / "js", "--json")
    made = arkml("trials", "generate", *words)
    neither = arkml("trials", "generate", spec)

    assert {"cog_settings.py", "CogSettings.js"} <= {
        path.rpartition("/")[2] for path in made.json["files"]
    }
    assert (neither.status, "--python, --javascript or both" in neither.err) == (2, True)
