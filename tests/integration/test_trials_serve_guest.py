"""`arkml trials serve --guest`: its options, and a guest that is played over gRPC."""

import asyncio
import base64
import gc
import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from tests.integration.command_line import ENVIRONMENT, GUESTS, POLICIES, arkml, start
from tests.integration.trial_player import SETTINGS, ended
from tests.unit.policy_models import linear

from arkml.guest_trials.prompt import prompt_ticks
from arkml.trials import Context, Endpoint
from arkml.trials.wire.guest_pb2 import Observation

REACH = GUESTS / "c_reach.wasm"
NOISELESS = POLICIES / "det.onnx"
FOREIGN = """
trial_params:
  environment: {endpoint: "grpc://127.0.0.1:9100", implementation: field}
  actors: [{name: reach_0, actor_class: reach, endpoint: "cogment://client"}]
"""
STRANGER = """
trial_params:
  environment: {endpoint: "local://", implementation: guest}
  actors: [{name: ann, actor_class: reach, endpoint: "cogment://client"}]
"""


def test_threads_change_sooner_and_collections_are_rare_while_a_guest_plays_trials():
    before = gc.get_threshold(), sys.getswitchinterval()
    with prompt_ticks():
        assert gc.get_threshold()[0] >= 10 * before[0][0]
        assert sys.getswitchinterval() < before[1]

    assert (gc.get_threshold(), sys.getswitchinterval()) == before


def refused(tmp_path, *words):
    """The sentence with which a server does not start."""
    run = arkml("trials", "serve", "--lifecycle-port", "0", *words, cwd=tmp_path)
    assert run.status in (1, 2), run.err
    assert "Traceback" not in run.err
    assert not (tmp_path / "trials").exists()
    return run.err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--policy", "a.onnx"], "--policy"),
        (["--deterministic"], "--deterministic"),
        (["--tick-rate", "5"], "--tick-rate"),
        (["--away", "10"], "--away"),
        (["--end_on", "first"], "--end-on"),
        (["--seed", "0"], "--seed"),
        (["--entry", "play"], "--entry"),
        (["--args", "x"], "--args"),
        (["--configure", ""], "--configure"),
        (["--configure-numbers", "1"], "--configure-numbers"),
        (["--spec", "a.json"], "--spec"),
        (["--guest-limit", "rows=1"], "--guest-limit"),
        (["--wasi"], "--wasi"),
        (["--hive", "localhost"], "--hive"),
        (["--run", "reach=r"], "--run"),
        (["--learn", "people"], "--learn"),
        (["--learn-rewards", "guest"], "--learn-rewards"),
    ],
)
def test_an_option_of_a_guest_is_refused_without_one(tmp_path, words, option):
    assert f"{option} is about a guest: it takes --guest" in refused(tmp_path, *words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--end-on", "last"], "--end-on last: it takes first or all"),
        (["--tick-rate", "-1"], "--tick-rate -1: it takes a number from 0"),
        (["--tick-rate", "5000"], "--tick-rate 5000: it takes a number from 0 to 1000"),
        (["--away", "soon"], "--away soon: it takes a number from 0"),
        (["--seed", "-1"], "--seed -1: it takes a whole number from 0"),
        (["--guest-limit", "memory"], "--guest-limit memory: it takes NAME=VALUE"),
        (["--guest-limit", "memory=1"], "there is no limit 'memory'"),
        (["--limit", "memory_bytes=1"], "--limit memory_bytes=1: it takes NAME=VALUE, of live"),
        (["--configure", "a", "--configure-numbers", "1"], "do not go together"),
        (["--entry", "play"], "exports no function 'play'"),
        (["--spec", "none.json"], "none.json"),
        (["--policy", "none.onnx"], "none.onnx cannot be read"),
        (["--run", "reach=r"], "--run is about the run of a hive: it takes --hive HOST:PORT"),
        (["--learn", "people"], "--learn is about the run of a hive: it takes --hive HOST:PORT"),
        (["--learn", "cats"], "--learn cats: it takes people or all"),
        (["--hive", "localhost"], "--hive takes the run of a class, too: --run CLASS=NAME"),
        (["--hive", "localhost", "--run", "r"], "--run r: it takes CLASS=NAME"),
        (["--hive", "x:y", "--run", "reach=r"], "'x:y' is not an address of a hive"),
        (
            ["--hive", "localhost", "--run", "reach=r", "--run", "reach=s"],
            "--run reach=s: class 'reach' has a run already",
        ),
        (
            ["--hive", "localhost", "--run", "reach=r", "--learn-rewards", "guest"],
            "--learn-rewards says how --learn learns: it takes --learn people or all",
        ),
        (
            [
                "--hive",
                "127.0.0.1:1",
                "--run",
                "reach=r",
                "--policy",
                f"reach={POLICIES / 'det.onnx'}",
            ],
            "is a policy for class 'reach', which follows a run",
        ),
        (["--hive", "127.0.0.1:1", "--run", "reach=r"], "no hive answers at 127.0.0.1:1"),
        (
            ["--hive", "127.0.0.1:1", "--run", "walker=r"],
            "there is a policy for class 'walker', and the guest has the classes reach",
        ),
        (["--policy", REACH], "is a WebAssembly module, not an ONNX or Cervo file"),
        (
            ["--policy", f"walker={POLICIES / 'det.onnx'}"],
            "there is a policy for class 'walker', and the guest has the classes reach",
        ),
        (
            ["--policy", f"reach={POLICIES / 'mlp_f8_a3.onnx'}"],
            "mlp_f8_a3.onnx cannot act for class 'reach': the model takes 8 features",
        ),
        (
            ["--policy", POLICIES / "det.onnx", "--policy", POLICIES / "stoch.onnx"],
            "stoch.onnx is a second policy for all classes",
        ),
    ],
)
def test_what_does_not_fit_the_guest_is_refused_in_a_sentence(tmp_path, words, sentence):
    assert sentence in refused(tmp_path, "--guest", REACH, *words)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            FOREIGN,
            "the environment of --params is 'field' at grpc://127.0.0.1:9100: with --guest it is"
            " 'guest' at local://",
        ),
        (STRANGER, "the actor 'ann' is not a slot of c_reach.wasm: reach_0, reach_1, reach_2, ..."),
    ],
)
def test_parameters_that_the_guest_cannot_have_are_refused(tmp_path, text, sentence):
    params = tmp_path / "params.yaml"
    params.write_text(text)

    assert sentence in refused(tmp_path, "--guest", REACH, "--params", params)


def test_a_refused_policy_file_is_named_with_the_reason(tmp_path):
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(linear([[1, 2], [3, 4]])[:40])

    assert "bad.onnx" in refused(tmp_path, "--guest", REACH, "--policy", bad)


def test_a_folder_of_a_policy_may_have_a_name_like_a_class(tmp_path):
    (tmp_path / "rate=1").mkdir()
    (tmp_path / "rate=1" / "bad.onnx").touch()

    told = refused(tmp_path, "--guest", REACH, "--policy", "rate=1/bad.onnx")
    assert "rate=1/bad.onnx is empty" in told


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "guest.wasm is empty: a WebAssembly module is expected"),
        (linear([[1]]), "guest.wasm is an ONNX model, not a WebAssembly module"),
        (b"something", "the module is not WebAssembly"),
        (b"(module)", "guest.wasm"),
        (None, "guest.wasm cannot be read"),
    ],
)
def test_a_guest_that_cannot_be_played_is_refused(tmp_path, content, sentence):
    guest = tmp_path / "guest.wasm"
    if content is not None:
        guest.write_bytes(content)

    assert sentence in refused(tmp_path, "--guest", guest)


PLAYER = """
import asyncio, json, sys
import cog_settings
from guest_pb2 import Action, GuestConfig
from arkml.trials import Context, Endpoint, EventType

seen = []

async def play(session):
    session.start()
    async for event in session.all_events():
        if event.observation and event.type == EventType.ACTIVE:
            values = event.observation.observation.values
            seen.append([session.get_tick_id(), *values])
            session.do_action(Action(continuous=[9.0, -0.5]))

async def main(address):
    endpoint = Endpoint(f"grpc://{address}")
    async with Context("ann", cog_settings) as context:
        context.register_actor(play, "play", ["reach"])
        controller = context.get_controller(endpoint)
        trial = await controller.start_trial(trial_config=GuestConfig(seed=7))
        await context.join_trial(trial, endpoint, "play", actor_name="reach_0")
    print(json.dumps({"trial": trial, "seen": seen}))

asyncio.run(main(sys.argv[1]))
"""
PARAMS = """
trial_params:
  environment: {endpoint: "local://", implementation: guest}
  actors: [{name: reach_0, actor_class: reach, endpoint: "cogment://client"}]
"""


@contextmanager
def served(folder, *words, points=3, guest=None):
    """A server of a small reach, or a guest, its address and its lines up to that."""
    ports = ["--lifecycle-port", "0", "--actor-port", "0"]
    reach = [REACH, "--configure-numbers", f"{points},{{seed}}"]
    guest = ["--guest", *([guest] if guest else reach)]
    process = start("trials", "serve", *ports, *guest, *words, cwd=folder)
    lines = []
    try:
        while "guest:" not in (lines or [""])[-1]:
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        address = re.search(r"grpc://(127\.0\.0\.1:\d+)", "".join(lines))[1]
        yield address, lines
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 143, out + err
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder of a client, with the files that `arkml trials spec` writes."""
    folder = tmp_path_factory.mktemp("client")
    run = arkml("trials", "spec", REACH, "-o", folder, "--configure-numbers", "3,1")
    assert run.status == 0, run.err
    (folder / "python" / "player.py").write_text(PLAYER)
    return folder / "python"


def played(programs, address):
    """Join a trial as its client until it ends, in a process of its own."""
    run = subprocess.run(
        [sys.executable, "player.py", address], cwd=programs, capture_output=True, text=True,
        check=False, timeout=300, env=ENVIRONMENT,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def shown(folder, trial):
    """The ticks of a trial in the log."""
    return arkml("trials", "show", trial, "--json", "--last", "0", cwd=folder).json


def test_a_client_joins_a_slot_and_plays_beside_a_policy(tmp_path, programs):
    policy, params = tmp_path / "steer.onnx", tmp_path / "params.yaml"
    policy.write_bytes(linear([[0.5, 0], [0, 0.5], [0, 0], [0, 0]]))
    params.write_text(PARAMS)
    words = ["--policy", f"reach={policy}", "--params", params, "--tick-rate", "0"]
    with served(tmp_path, *words, "--end-on", "all") as (address, lines):
        client = played(programs, address)
    log = shown(tmp_path, client["trial"])
    taken = [tick["actions"] for tick in log["ticks"] if tick["actions"]]

    assert lines[-1] == "guest: c_reach.wasm, 1 actor reach (steer.onnx)\n"
    assert log["trial"]["reason"] == ""
    assert [one[0] for one in client["seen"]] == [*range(50)]
    assert {one["reach_0"]["note"] for one in taken} == {"given"}
    assert {one["reach_0"]["origin"] for one in taken} == {"ann"}
    for name in ("reach_1", "reach_2"):
        assert {one[name]["note"] for one in taken} == {"stand-in"}
        assert {one[name]["origin"] for one in taken} == {"steer.onnx"}


def test_slots_of_a_class_without_a_policy_are_those_of_clients(tmp_path, programs):
    with served(tmp_path, "--end-on", "first", "--tick-rate", "0", points=1) as (address, lines):
        client = played(programs, address)
    parameters = shown(tmp_path, client["trial"])["parameters"]

    assert lines[-1] == "guest: c_reach.wasm, 1 actor reach\n"
    assert [(one["name"], one["endpoint"]) for one in parameters["actors"]] == [
        ("reach_0", "cogment://client")
    ]
    assert len(client["seen"]) == 50


def started_and_ended(address, trial):
    """Start a trial with the default parameters, and wait for its end."""

    async def run():
        async with Context("ann", SETTINGS) as context:
            controller = context.get_controller(Endpoint(f"grpc://{address}"))
            await controller.start_trial(trial_id_requested=trial)
            await ended(controller, trial)

    asyncio.run(run())


def test_policies_play_trials_by_themselves_where_every_class_has_one(tmp_path):
    policy = tmp_path / "steer.onnx"
    policy.write_bytes(linear([[0.5, 0], [0, 0.5], [0, 0], [0, 0]]))
    with served(tmp_path, "--policy", policy, "--end-on", "first") as (address, lines):
        started_and_ended(address, "one")
        started_and_ended(address, "two")
    logs = [shown(tmp_path, trial) for trial in ("one", "two")]

    assert lines[-1] == "guest: c_reach.wasm, 3 actors reach (steer.onnx)\n"
    for log in logs:
        actors = log["parameters"]["actors"]
        assert {(one["endpoint"], one["implementation"]) for one in actors} == {
            ("local://", "stand-in")
        }
        taken = [one for tick in log["ticks"] for one in tick["actions"].values()]
        assert {(one["note"], one["origin"]) for one in taken} == {("stand-in", "steer.onnx")}
        assert len(taken) == 150


def test_a_seed_makes_the_trials_of_two_servers_alike(tmp_path):
    policy = tmp_path / "steer.onnx"
    policy.write_bytes(linear([[0.5, 0], [0, 0.5], [0, 0], [0, 0]]))
    logs = []
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        folder = tmp_path / name
        folder.mkdir()
        words = ["--policy", policy, "--end-on", "first", "--seed", seed]
        with served(folder, *words) as (address, _):
            started_and_ended(address, "one")
        ticks = shown(folder, "one")["ticks"]
        logs.append([(tick["observations"], tick["rewards"]) for tick in ticks])

    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


def test_a_policy_that_wants_masked_choices_takes_none_of_them(tmp_path):
    """A picker loses 8 for a masked choice, and at most 4 for its way."""
    policy = tmp_path / "stubborn.onnx"
    policy.write_bytes(linear(np.array([[0, 0], [9, 9], [9, 9]])))  # 0 and 1, or what is not there
    words = ["--policy", policy, "--end-on", "all", "--seed", "1"]
    with served(tmp_path, *words, guest=GUESTS / "c_choosers.wasm") as (address, _):
        started_and_ended(address, "one")
    ticks = shown(tmp_path, "one")["ticks"]
    rewards = [value for tick in ticks for value in tick["rewards"].values()]
    observed = [
        Observation.FromString(base64.b64decode(one))
        for tick in ticks
        for one in tick["observations"]
    ]

    assert any(not all(one.allowed) for one in observed)
    assert min(rewards) > -8
    origins = {one["origin"] for tick in ticks for one in tick["actions"].values()}
    assert origins == {"stubborn.onnx", ""}  # an agent that has ended takes no action
