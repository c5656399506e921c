"""Guests that play for trainers, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
import zipfile
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from tests.integration.command_line import ENVIRONMENT, GUESTS, ROOT, arkml, start
from tests.integration.test_environment import INITIAL, INTERRUPTED, RUNNING, TERMINAL, scripted
from tests.integration.test_llapi_environment import can_bind, free_port, is_running
from tests.waiting import PATIENCE

from arkml import WasiGrant
from arkml.envs.llapi import handshake
from arkml.envs.llapi.base_env import ActionTuple
from arkml.envs.llapi.communicator_objects.agent_action_pb2 import AgentActionProto
from arkml.envs.llapi.communicator_objects.command_pb2 import QUIT, RESET
from arkml.envs.llapi.communicator_objects.unity_input_pb2 import UnityInputProto
from arkml.envs.llapi.communicator_objects.unity_rl_input_pb2 import UnityRLInputProto
from arkml.envs.llapi.environment import UnityEnvironment
from arkml.envs.llapi.exception import UnityWorkerInUseException
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.llapi.player_bundle import write_bundle
from arkml.envs.llapi.registry.remote_registry_entry import RemoteRegistryEntry
from arkml.envs.llapi.rpc_communicator import RpcCommunicator
from arkml.envs.llapi.side_channel.engine_configuration_channel import (
    EngineConfigurationChannel,
)
from arkml.envs.llapi.side_channel.raw_bytes_channel import RawBytesChannel
from arkml.envs.llapi.side_channel.stats_side_channel import (
    StatsAggregationMethod,
    StatsSideChannel,
)

PENDULUM = GUESTS / "c_pendulum.wasm"
SWING = "pendulum?team=0"
NAME = "script?team=0"
FEW = "--configure-numbers=4,{seed}"
GAME = [
    [(1, INITIAL, 0.5), (2, INITIAL, 0)],
    [(1, TERMINAL, 5), (2, RUNNING, 1), (3, INITIAL, 0)],
    [(3, INTERRUPTED, 2), (2, INTERRUPTED, 1)],
    [(4, INITIAL, 0)],
]
DEAF = """
  (func (export "ark_alloc") (param i32 i32) (result i32) (i32.const 4096))
  (func (export "ark_free") (param i32 i32 i32))
  (func (export "arkml_side_channel") (param i32 i32) (result i32) (i32.const 77))
"""
SEEDED = """
  (global $seed (mut i64) (i64.const 0))
  (func (export "arkml_seed") (param i64) (global.set $seed (local.get 0)))
"""


def module(folder, data):
    path = folder / "script.wasm"
    path.write_bytes(data)
    return path


def floats(*values):
    return ActionTuple(continuous=np.array(values, "f4").reshape(len(values), 1))


@pytest.fixture
def launch(tmp_path):
    """Has a UnityEnvironment launch a player; closes those that a test left open."""
    opened = []

    def launch(guest, *words, **settings):
        program = write_bundle(tmp_path / "bundle", guest, words)
        settings = {"base_port": free_port(), "timeout_wait": 60, **settings}
        opened.append(UnityEnvironment(str(program), **settings))
        return opened[-1]

    yield launch
    for environment in opened:
        environment._close(5)


@pytest.fixture
def trainer():
    """Serves a player that a test starts, message by message."""
    made = []

    def serve():
        line = RpcCommunicator(0, free_port(), 60)
        made.append(line)
        greeting = UnityInputProto(rl_initialization_input=handshake.greeting(0, 1))
        return line, lambda: line.initialize(greeting)

    yield serve
    for line in made:
        line.close()


def told(**fields):
    return UnityInputProto(rl_input=UnityRLInputProto(**fields))


@contextmanager
def playing(*words):
    """A player in a process of its own, which does not outlive a test that fails."""
    with start("player", *words) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def ended(process):
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def rows(steps):
    decisions, terminals = steps
    return [
        decisions.obs[0].tolist(), decisions.reward.tolist(), decisions.agent_id.tolist(),
        terminals.obs[0].tolist(), terminals.reward.tolist(), terminals.agent_id.tolist(),
        terminals.interrupted.tolist(),
    ]  # fmt: skip


def test_a_launched_guest_plays_as_it_does_in_this_process(launch):
    theirs = launch(PENDULUM, FEW, seed=3)
    ours = GuestUnityEnv(PENDULUM, configure=(4, "{seed}"), seed=3)
    random = np.random.default_rng(1)
    pid, port = theirs._process.pid, theirs._port
    seen = []
    for count in (202, 3):  # an episode has 200 steps; then everything begins anew
        for env in (theirs, ours):
            env.reset()
        for _ in range(count):
            seen.append([rows(env.get_steps(SWING)) for env in (theirs, ours)])
            action = floats(*random.uniform(-1, 1, len(ours.get_steps(SWING)[0])))
            for env in (theirs, ours):
                env.set_actions(SWING, action)
                env.step()
    specs = [dict(env.behavior_specs) for env in (theirs, ours)]
    ours.close()
    theirs.close()

    assert specs[0] == specs[1]
    assert len(seen) == 205
    assert all(one == other for one, other in seen)
    assert any(one[5] for one, _ in seen)
    assert not is_running(pid)
    assert can_bind(port)


def test_rows_that_ended_come_with_those_that_decide(launch, tmp_path):
    env = launch(module(tmp_path, scripted(*GAME)))
    env.reset()
    seen = [rows(env.get_steps(NAME))]
    for _ in range(3):
        env.step()
        seen.append(rows(env.get_steps(NAME)))

    assert [(row[2], row[5], row[6]) for row in seen] == [
        ([0, 1], [], []),
        ([1, 2], [0], [False]),
        ([], [2, 1], [True, True]),
        ([3], [], []),
    ]
    assert seen[1][4] == [5.0]


def test_areas_are_instances_whose_seeds_count_up(launch):
    env = launch(PENDULUM, FEW, seed=11, num_areas=3)
    env.reset()
    decisions, _ = env.get_steps(SWING)
    alone = []
    for seed in (11, 12, 13):
        one = GuestUnityEnv(PENDULUM, configure=(4, "{seed}"), seed=seed)
        one.reset()
        alone.append(one.get_steps(SWING)[0].obs[0])
        one.close()
    env.set_actions(SWING, floats(*range(12)))
    env.step()

    assert len(set(decisions.agent_id.tolist())) == 12
    assert np.array_equal(decisions.obs[0], np.concatenate(alone))


def test_the_command_line_overrides_seed_and_areas_of_the_trainer(launch):
    env = launch(PENDULUM, FEW, "--seed=5", "--num-areas=2", seed=11, num_areas=3)
    env.reset()
    decisions, _ = env.get_steps(SWING)
    one = GuestUnityEnv(PENDULUM, configure=(4, "{seed}"), seed=5)
    one.reset()

    assert len(decisions) == 8
    assert np.array_equal(decisions.obs[0][:4], one.get_steps(SWING)[0].obs[0])
    one.close()


def test_what_a_guest_says_arrives_as_averages(launch):
    stats = StatsSideChannel()
    env = launch(PENDULUM, FEW, side_channels=[stats])
    env.reset()
    for _ in range(200):
        env.step()
    got = stats.get_and_reset_stats()

    assert list(got) == ["angle"]
    assert len(got["angle"]) == 4
    assert {method for _, method in got["angle"]} == {StatsAggregationMethod.AVERAGE}


def test_messages_reach_the_guest_and_broken_ones_end_nothing(launch, tmp_path):
    channel = RawBytesChannel(uuid.UUID(int=7))
    frames = [[(1, RUNNING if turn else INITIAL, 0)] for turn in range(9)]
    guest = module(tmp_path, scripted(*frames, exports=DEAF))
    env = launch(guest, side_channels=[channel], log_folder=str(tmp_path))
    env.reset()
    channel.send_raw_data(b"hello")
    for _ in range(2):
        env.step()
    env._side_channel_manager.generate_side_channel_messages = lambda: b"cut off"
    for _ in range(2):
        env.step()
    alive = len(env.get_steps(NAME)[0])
    env.close()
    log = (tmp_path / "Player-0.log").read_text()

    assert alive == 1
    assert log.count("arkml_side_channel answered 77") == 1
    assert log.count("There was a problem reading a message in a SideChannel.") == 2


def test_a_guest_that_finishes_interrupts_its_agents_and_stops_the_player(trainer):
    line, greet = trainer()
    cmdlet = GUESTS / "ark_api" / "cmdlet_train_016.wasm"
    words = ["--args", "localhost 12356 60", "--json", f"--mlagents-port={line.port}"]
    with playing(cmdlet, *words) as process:
        greet()
        last = output = line.exchange(told(command=RESET))
        while output is not None:
            last, output = output, line.exchange(told())
        line.close()
        status, out, err = ended(process)
    agents = [each for info in last.rl_output.agentInfos.values() for each in info.value]

    assert agents
    assert all(agent.done and agent.max_step_reached for agent in agents)
    assert (status, json.loads(out)["resets"]) == (0, 1), err
    assert "The guest has finished" in err


def test_a_guest_that_fails_interrupts_its_agents_and_fails_the_player(trainer, tmp_path):
    line, greet = trainer()
    guest = module(tmp_path, scripted([(1, INITIAL, 0)], after="unreachable"))
    with playing(guest, f"--mlagents-port={line.port}") as process:
        greet()
        first = line.exchange(told(command=RESET))
        last = line.exchange(told())
        after = line.exchange(told())
        line.close()
        status, _, err = ended(process)

    brains = [each.rl_initialization_output.brain_parameters for each in (first, last)]

    assert [[brain.brain_name for brain in some] for some in brains] == [[NAME], []]
    assert [agent.max_step_reached for agent in last.rl_output.agentInfos[NAME].value] == [True]
    assert after is None
    assert status == 1
    assert "unreachable" in err


def test_a_guest_that_does_not_come_to_its_first_submit_stops_the_player(trainer, tmp_path):
    line, greet = trainer()
    with playing(module(tmp_path, scripted()), f"--mlagents-port={line.port}") as process:
        greet()
        answer = line.exchange(told(command=RESET))
        why = line._current.request.header.message
        line.close()
        status, _, err = ended(process)

    assert answer is None
    assert (status, "submitted nothing in 1000 calls" in why) == (1, True)
    assert why in err


def test_the_other_areas_go_on_and_a_reset_brings_one_that_failed_back(launch, tmp_path):
    later = """(if (i64.eq (global.get $seed) (i64.const 8)) (then unreachable))
      (call $row (i64.const 1) (i32.const 0) (f32.const 3)) (call $answer (i32.const 1))"""
    guest = module(tmp_path, scripted([(1, INITIAL, 0)], exports=SEEDED, after=later))
    env = launch(guest, seed=7, num_areas=2)
    env.reset()
    seen = [rows(env.get_steps(NAME))]
    for _ in range(2):
        env.step()
        seen.append(rows(env.get_steps(NAME)))
    env.reset()
    env.step()

    assert [(row[2], row[5], row[6]) for row in seen] == [
        ([0, 1], [], []),
        ([0], [1], [True]),
        ([0], [], []),
    ]
    assert len(env.get_steps(NAME)[0]) == 2


@pytest.mark.parametrize("at", ["before the first step", "in mid-episode"])
def test_a_player_ends_when_its_trainer_is_killed(at):
    port = free_port()
    steps = 0 if at == "before the first step" else 5
    program = f"""
import signal, sys
from arkml.envs.llapi.environment import UnityEnvironment
env = UnityEnvironment(base_port={port}, timeout_wait=60)
env.reset()
for _ in range({steps}):
    env.step()
print("there", flush=True)
signal.pause()
"""
    with playing(PENDULUM, f"--mlagents-port={port}", "--json") as player:
        with subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as trainer:
            assert trainer.stdout.readline() == "there\n"
            os.kill(trainer.pid, signal.SIGKILL)
        status, out, err = ended(player)

    assert status == 0, err
    assert json.loads(out) == {
        "guest": "c_pendulum.wasm", "areas": 1, "resets": 1, "steps": steps,
    }  # fmt: skip
    assert "is gone" in err


@pytest.mark.parametrize("how", ["quit", "close"])
def test_a_trainer_that_is_done_ends_its_player(trainer, how):
    line, greet = trainer()
    with playing(PENDULUM, f"--mlagents-port={line.port}") as process:
        greet()
        line.exchange(told(command=RESET))
        if how == "quit":
            line._answer(told(command=QUIT))
        else:
            line.close()
        status, out, _ = ended(process)

    assert (status, out) == (0, "")


def test_a_player_waits_for_its_trainer():
    with ExitStack() as stack:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            port = mute.getsockname()[1]
            process = stack.enter_context(playing(PENDULUM, FEW, f"--mlagents-port={port}"))
            mute.accept()[0].close()  # it has asked for a trainer before there is one
        env = UnityEnvironment(base_port=port, timeout_wait=60)
        env.reset()
        count = len(env.get_steps(SWING)[0])
        env.close()
        status, _, err = ended(process)

    assert (count, status) == (4, 0), err


def test_a_port_that_nobody_serves_is_said_to():
    with socket.socket() as mute:  # somebody who is no trainer has the other one
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        for port in (free_port(), mute.getsockname()[1]):
            found = arkml("player", PENDULUM, f"--mlagents-port={port}", "--timeout-wait=0.5")

            assert found.status == 2
            assert f"No trainer serves on 127.0.0.1:{port}, waited 0.5 s" in found.err


def test_two_environments_on_one_port_are_refused_and_the_first_plays_on(launch):
    env = launch(PENDULUM, FEW)
    env.reset()
    with pytest.raises(UnityWorkerInUseException, match="worker number 0 is still in use"):
        launch(PENDULUM, FEW, base_port=env._port)
    env.step()

    assert len(env.get_steps(SWING)[0]) == 4


def test_a_second_player_is_turned_away_and_the_first_plays_on(launch):
    env = launch(PENDULUM, FEW)
    second = arkml("player", PENDULUM, f"--mlagents-port={env._port}")
    env.step()

    assert second.status == 2
    assert "does not answer as a trainer: RESOURCE_EXHAUSTED" in second.err
    assert len(env.get_steps(SWING)[0]) == 4


def test_a_trainer_of_another_version_is_refused(trainer):
    line, _ = trainer()
    with playing(PENDULUM, f"--mlagents-port={line.port}") as process:
        line._next(None)
        greeting = handshake.greeting(0, 1)
        greeting.communication_version = "2.0.0"
        line._answer(UnityInputProto(rl_initialization_input=greeting))
        status, _, err = ended(process)

    assert status == 2
    assert "Python API: 2.0.0, Unity API: 1.5.0" in err


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ({NAME: [[0.5], [0.5]]}, "There are 2 actions for script?team=0, of which 1 agents decide"),
        ({NAME: [[0.5, 1]]}, "An action for script?team=0 has 2 parts"),
        ({"walker": [[0.5]]}, "There are actions for walker, which is unknown"),
        ({NAME: [[float("nan")]]}, "received a continuous action that is NaN"),
    ],
)
def test_actions_that_make_no_sense_stop_the_player_with_a_reason(trainer, tmp_path, actions, text):
    line, greet = trainer()
    frames = [[(1, RUNNING if turn else INITIAL, 0)] for turn in range(3)]
    guest = module(tmp_path, scripted(*frames))
    message = told()
    for name, values in actions.items():
        message.rl_input.agent_actions[name].value.extend(
            AgentActionProto(continuous_actions=row) for row in values
        )
    with playing(guest, f"--mlagents-port={line.port}") as process:
        greet()
        line.exchange(told(command=RESET))
        answer = line.exchange(message)
        why = line._current.request.header.message
        line.close()
        status, _, err = ended(process)

    assert answer is None
    assert text in why
    assert status == 2
    assert text in err


def test_a_bundle_is_a_player_of_the_registry(tmp_path):
    written = arkml("player", PENDULUM, FEW, "--bundle", tmp_path / "swing", "--json")
    archive = tmp_path / "swing.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (tmp_path / "swing").iterdir():
            file.write(path, f"swing/{path.name}")
    entry = RemoteRegistryEntry(
        "Swing", 0.0, "", archive.as_uri(), None, None, tmp_dir=str(tmp_path / "cache")
    )
    env = entry.make(base_port=free_port())
    env.reset()
    pid, count = env._process.pid, len(env.get_steps(SWING)[0])
    env.close()

    assert written.json == {"executable": str(tmp_path / "swing" / "c_pendulum.x86_64")}
    assert count == 4
    assert not is_running(pid)


def test_a_bundle_keeps_the_specification_it_was_given(tmp_path):
    spec = tmp_path / "mine.json"
    parts = [{"name": "way", "shape": [2]}, {"name": "speed", "shape": [1], "type": "goal"}]
    spec.write_text(json.dumps({"behaviors": {"*": {"observations": parts}}}))
    found = arkml("player", PENDULUM, FEW, "--spec", spec, "--bundle", tmp_path / "a b")
    spec.unlink()
    env = UnityEnvironment(found.out.strip(), base_port=free_port(), seed=-1)
    env.reset()
    seen = env.behavior_specs[SWING].observation_specs
    shapes = [part.shape for part in env.get_steps(SWING)[0].obs]
    env.close()

    assert [(part.name, part.observation_type.name) for part in seen] == [
        ("way", "DEFAULT"),
        ("speed", "GOAL_SIGNAL"),
    ]
    assert shapes == [(4, 2), (4, 1)]


def test_a_guest_with_wasi_plays_by_the_clock_that_its_trainer_sets(launch):
    engines = [EngineConfigurationChannel() for _ in range(2)]
    guest, words = GUESTS / "c_drift.wasm", "--configure-numbers=4,0"
    theirs = launch(guest, words, "--wasi", seed=3, side_channels=engines[:1])
    ours = GuestUnityEnv(
        guest, configure=(4, 0), wasi=WasiGrant(), seed=3, side_channels=engines[1:]
    )
    seen = []
    for scale in (None, 7.0):
        for engine in engines:
            engine.set_configuration_parameters(time_scale=scale)
        for env in (theirs, ours):
            for _ in range(4):
                env.step()
        (name,) = theirs.behavior_specs
        seen.append([rows(env.get_steps(name)) for env in (theirs, ours)])
    ours.close()

    assert all(one == other for one, other in seen)
    assert seen[0] != seen[1]


def test_a_bundle_says_what_it_holds_and_keeps_hard_words(tmp_path):
    words = ["--args=a 'b' $(c)", "--limit=memory_bytes=64MiB", "--seed=3"]
    cmdlet = GUESTS / "ark_api" / "cmdlet_train_016.wasm"
    folder = tmp_path / "it's here"
    found = arkml("player", cmdlet, *words, "--bundle", folder)
    about = json.loads((folder / "arkml.json").read_text())
    run = subprocess.run(
        [found.out.strip(), "--mlagents-port=1", "--timeout-wait=0.1", "-nographics",
         "-batchmode", "-logFile", tmp_path / "logs" / "Player-0.log", "-screen-width", "80"],
        capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=tmp_path,
    )  # fmt: skip

    assert about["guest"] == "cmdlet_train_016.wasm"
    assert about["options"] == ["--args=a 'b' $(c)", "--seed=3", "--limit=memory_bytes=64MiB"]
    assert run.returncode == 2
    assert "No trainer serves on 127.0.0.1:1" in run.stderr
    assert (tmp_path / "logs" / "Player-0.log").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--mlagents-port=none"], "--mlagents-port none: it takes a whole number"),
        (["--num-areas=0"], "--num-areas 0: it takes a whole number from 1"),
        (["--configure-numbers=1,b"], "it takes whole numbers and {seed}, with commas"),
        (["--configure=a", "--configure-numbers=1"], "do not go together"),
        (["--entry=nothing"], "exports no function 'nothing'"),
        (["--bundle=fixtures/guests"], "a file that is read: name another"),
        (["--bundle=README.md"], "cannot be written to README.md"),
        (["-logFile", "README.md/x"], "README.md/x cannot be written"),
    ],
)
def test_bad_options_are_said_to(words, text):
    found = arkml("player", PENDULUM, *words, cwd=ROOT)

    assert found.status == 2
    assert text in found.err


def test_a_player_without_grpc_says_what_to_install(monkeypatch):
    from arkml.envs.llapi.command import require_grpc
    from arkml.errors import UsageError

    monkeypatch.setitem(sys.modules, "grpc", None)

    with pytest.raises(UsageError, match=r"a player needs grpc: pip install 'arkml\[unity\]'"):
        require_grpc()
