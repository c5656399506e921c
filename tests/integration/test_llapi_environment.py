"""UnityEnvironment with a player in a process of its own."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import os
import socket
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.programs import program_text, write_program
from tests.waiting import eventually

from arkml.envs.llapi import environment as environment_module
from arkml.envs.llapi import handshake
from arkml.envs.llapi.base_env import ActionTuple
from arkml.envs.llapi.environment import UnityEnvironment
from arkml.envs.llapi.exception import (
    UnityActionException,
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
    UnityWorkerInUseException,
)
from arkml.envs.llapi.registry import UnityEnvRegistry
from arkml.envs.llapi.side_channel.raw_bytes_channel import RawBytesChannel

BALL = "Ball?team=0"
LATE = "Late?team=1"
SOURCE = Path(__file__).with_name("fake_unity_player.py")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def can_bind(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def player(tmp_path_factory):
    """The path of a player, as Unity builds are named, without its extension."""
    path = write_program(tmp_path_factory.mktemp("player") / "Fake.x86_64", SOURCE.read_text())
    return str(path.with_suffix(""))


@pytest.fixture
def start(player):
    """Starts players and closes those that a test left open."""
    started = []

    def start(*arguments, **settings):
        settings = {"base_port": free_port(), "timeout_wait": 20, **settings}
        environment = UnityEnvironment(player, additional_args=list(arguments), **settings)
        started.append(environment)
        return environment

    yield start
    for environment in started:
        environment._close(0)


def actions(*rows):
    return ActionTuple(np.array([row[:2] for row in rows]), np.array([row[2:] for row in rows]))


def test_a_player_is_stepped_as_the_original_does_it(start):
    environment = start()
    before = dict(environment.behavior_specs)
    environment.step()
    decisions, terminals = environment.get_steps(BALL)
    environment.set_actions(BALL, actions((0.5, 0, 1, 0), (0, 0.25, 2, 1)))
    environment.step()
    moved, _ = environment.get_steps(BALL)
    environment.set_action_for_agent(BALL, 1, actions((0.75, 0, 0, 1)))
    environment.step()
    second, ended = environment.get_steps(BALL)
    late, _ = environment.get_steps(LATE)
    environment.step()
    third, cut = environment.get_steps(BALL)
    nobody, _ = environment.get_steps(LATE)

    assert before == {}
    assert (list(decisions), list(terminals)) == ([0, 1], [])
    assert decisions.obs[0].tolist() == [[0, 0, 0], [1, 0, 0]]
    assert moved.reward.tolist() == [1.5, 3.25]
    assert [mask.tolist() for mask in moved.action_mask] == [
        [[False, False, False], [True, False, False]],
        [[False, False], [False, False]],
    ]
    assert list(second) == [1, 2]
    assert list(ended) == [0]
    assert not ended[0].interrupted
    assert (ended[0].reward, second[1].reward) == (0, 1.75)
    assert list(late) == [9]
    assert list(environment.behavior_specs) == [BALL, LATE]
    assert (list(third), list(cut)) == ([2, 1], [1])  # one that ended may decide again at once
    assert cut[1].interrupted
    assert third[2].reward == 0
    assert len(nobody) == 0
    assert environment.get_steps(BALL)[0] is third


def test_reset_begins_anew_and_forgets_actions(start):
    environment = start()
    environment.reset()
    environment.set_actions(BALL, actions((1, 1, 0, 0), (1, 1, 0, 0)))
    environment.reset()
    environment.step()
    decisions, _ = environment.get_steps(BALL)

    assert decisions.obs[0].tolist() == [[0, 1, 0], [1, 1, 0]]


def test_actions_are_checked_before_they_are_kept(start):
    environment = start()
    environment.reset()

    with pytest.raises(UnityActionException, match="The group X does not correspond to an exist"):
        environment.set_actions("X", actions((0, 0, 0, 0)))
    with pytest.raises(UnityActionException, match="The group X does not correspond"):
        environment.get_steps("X")
    with pytest.raises(UnityActionException, match="needs a continuous input of dimension"):
        environment.set_actions(BALL, actions((0, 0, 0, 0)))
    with pytest.raises(UnityActionException, match="is NaN"):
        environment.set_action_for_agent(BALL, 0, actions((0, np.nan, 0, 0)))
    with pytest.raises(UnityActionException, match="which has 3 actions"):
        environment.set_actions(BALL, actions((0, 0, 3, 0), (0, 0, 0, 0)))
    with pytest.raises(IndexError) as caught:
        environment.set_action_for_agent(BALL, 5, actions((0, 0, 0, 0)))
    assert str(caught.value) == ("agent_id 5 is did not request a decision at the previous step")
    environment.step()
    assert environment.get_steps(BALL)[0].reward.tolist() == [0, 0]


def test_actions_are_copied(start):
    environment = start()
    environment.reset()
    mine = actions((1, 0, 0, 0), (1, 0, 0, 0))
    environment.set_actions(BALL, mine)
    environment.set_action_for_agent(BALL, 0, actions((0, 0, 2, 0)))
    environment.step()

    assert mine.continuous.tolist() == [[1, 0], [1, 0]]
    assert environment.get_steps(BALL)[0].reward.tolist() == [2, 1]


def test_actions_that_cannot_be_written_are_copied_too(start):
    environment = start()
    environment.reset()
    fixed = actions((1, 0, 0, 0), (1, 0, 0, 0))
    fixed.continuous.setflags(write=False)
    fixed.discrete.setflags(write=False)
    environment.set_actions(BALL, fixed)
    environment.set_action_for_agent(BALL, 0, actions((0, 0, 2, 0)))
    environment.step()

    assert environment.get_steps(BALL)[0].reward.tolist() == [2, 1]


def test_a_closed_environment_says_so(start):
    environment = start()
    environment.close()
    environment.close()

    for call in (environment.step, environment.reset):
        with pytest.raises(UnityEnvironmentException, match=r"No Unity environment is loaded\."):
            call()


def test_closing_ends_the_player_and_frees_the_port(start, tmp_path):
    report = tmp_path / "report"
    environment = start("--report", str(report))
    environment.reset()
    pid = json.loads(report.read_text())["pid"]
    environment.close()

    assert not is_running(pid)
    assert can_bind(environment._port)


def test_a_dropped_environment_ends_the_player_and_frees_the_port(player, tmp_path):
    report, port = tmp_path / "report", free_port()
    held = [
        UnityEnvironment(
            player, base_port=port, timeout_wait=20, additional_args=["--report", str(report)]
        )
    ]
    held[0].reset()
    pid = json.loads(report.read_text())["pid"]

    with pytest.warns(ResourceWarning, match=f"unclosed <UnityEnvironment at port {port}>"):
        held.clear()
    assert not is_running(pid)
    assert can_bind(port)


def test_an_environment_is_a_context_manager(player, tmp_path):
    report = tmp_path / "report"
    port = free_port()
    arguments = ["--report", str(report)]
    with UnityEnvironment(player, base_port=port, additional_args=arguments) as environment:
        environment.reset()
    pid = json.loads(report.read_text())["pid"]

    assert not is_running(pid)
    assert can_bind(port)


def test_a_player_that_stays_is_killed(start, tmp_path):
    report = tmp_path / "report"
    environment = start("--stay", "--report", str(report), timeout_wait=5)
    pid = json.loads(report.read_text())["pid"]
    environment._timeout_wait = 0.1
    environment.close()

    assert not is_running(pid)


def test_the_player_is_told_seed_areas_and_flags(start, tmp_path):
    report = tmp_path / "report"
    environment = start(
        "--report", str(report), seed=11, num_areas=4, no_graphics=True, log_folder=str(tmp_path)
    )
    told = json.loads(report.read_text())

    assert (told["seed"], told["num_areas"], told["version"]) == (11, 4, "1.5.0")
    assert told["argv"] == [
        "-nographics", "-batchmode", "--mlagents-port", str(environment._port),
        "-logFile", str(tmp_path / "Player-0.log"), "--report", str(report),
    ]  # fmt: skip
    assert environment.academy_capabilities == handshake.capabilities()


def test_graphics_monitor_and_log_file_of_ones_own(start, tmp_path):
    report = tmp_path / "report"
    base_port = free_port() - 1
    environment = start(
        "-logFile", "mine", "--report", str(report),
        worker_id=1, base_port=base_port, no_graphics_monitor=True, log_folder=str(tmp_path),
    )  # fmt: skip
    arguments = json.loads(report.read_text())["argv"]

    assert environment._port == base_port + 1
    assert arguments[:4] == ["-nographics", "-batchmode", "--mlagents-port", str(base_port + 1)]
    assert arguments.count("-logFile") == 1


def test_defaults_are_those_of_the_original():
    assert UnityEnvironment.API_VERSION == "1.5.0"
    assert UnityEnvironment.DEFAULT_EDITOR_PORT == 5004
    assert UnityEnvironment.BASE_ENVIRONMENT_PORT == 5005


def test_side_channels_travel_with_steps(start):
    channel = RawBytesChannel(uuid.UUID(int=7))
    mine = [channel]
    environment = start(side_channels=mine)
    channel.send_raw_data(b"with the reset")
    environment.reset()
    first = channel.get_and_clear_received_messages()
    environment.step()

    assert first == [b"with the reset"]
    assert channel.get_and_clear_received_messages() == []
    assert mine == [channel]


def test_a_broken_frame_is_an_error_and_the_environment_can_be_closed(start):
    environment = start("--bad", "frame")

    with pytest.raises(UnityEnvironmentException, match="problem reading a message in a SideChan"):
        environment.reset()
    environment.close()


def test_nan_in_an_observation_is_an_error(start):
    environment = start("--bad", "nan")

    with pytest.raises(RuntimeError, match=r"The observations provided had NaN values\."):
        environment.reset()


def test_a_player_of_too_many_behaviors_is_an_error(start, monkeypatch):
    monkeypatch.setattr(environment_module, "_MOST_BEHAVIORS", 1)
    environment = start()
    environment.step()
    environment.step()

    with pytest.raises(UnityCommunicationException, match="declares more than 1 behaviors"):
        environment.step()


def test_messages_may_be_large(start):
    environment = start("--numbers", "1500000")
    environment.reset()

    assert environment.get_steps(BALL)[0].obs[0].shape == (2, 1_500_000)


def test_a_player_that_stops_is_told_apart(start):
    environment = start("--stop-at", "1")
    environment.reset()

    with pytest.raises(UnityCommunicatorStoppedException, match=r"Communicator has exited\."):
        environment.step()
    environment.close()


def test_a_player_that_dies_is_named_with_its_signal(start):
    environment = start("--die-at", "1")
    environment.reset()

    with pytest.raises(UnityEnvironmentException) as caught:
        environment.step()
    assert str(caught.value) == "Environment shut down with return code -9 (SIGKILL)."
    with pytest.raises(UnityCommunicatorStoppedException):
        environment.step()
    environment.close()
    assert can_bind(environment._port)


def test_a_player_that_hangs_is_a_time_out(start):
    environment = start("--hang-at", "1")
    environment.reset()
    environment._communicator.timeout_wait = 0.3

    with pytest.raises(UnityTimeOutException, match="took too long to respond"):
        environment.step()
    with pytest.raises(UnityCommunicatorStoppedException):
        environment.step()


def test_a_player_that_never_connects_is_a_time_out_and_is_ended(start):
    port = free_port()

    with pytest.raises(UnityTimeOutException):
        start("--silent", base_port=port, timeout_wait=0.3)
    assert can_bind(port)


def test_a_player_that_ends_at_once_is_named_with_its_status(start):
    with pytest.raises(UnityEnvironmentException) as caught:
        start("--exit", "5")

    assert str(caught.value) == "Environment shut down with return code 5."


def test_another_version_of_the_protocol_is_refused(start, tmp_path):
    report = tmp_path / "report"
    port = free_port()

    with pytest.raises(UnityEnvironmentException) as caught:
        start("--api", "2.0.0", "--report", str(report), base_port=port)
    assert "Python API: 1.5.0, Unity API: 2.0.0." in str(caught.value)
    assert can_bind(port)


def test_two_environments_on_one_port_are_an_error(start):
    environment = start()

    with pytest.raises(UnityWorkerInUseException, match="worker number 0 is still in use"):
        start(base_port=environment._port)
    environment.reset()
    assert list(environment.get_steps(BALL)[0]) == [0, 1]


def test_an_editor_has_worker_zero():
    with pytest.raises(UnityEnvironmentException) as caught:
        UnityEnvironment(None, worker_id=1)

    assert str(caught.value) == (
        "If the environment name is None, "
        "the worker-id must be 0 in order to connect with the Editor."
    )


def test_what_is_no_player_cannot_be_launched(tmp_path):
    port = free_port()
    text = "Couldn't launch the nothing environment. Provided filename does not match any environ"
    plain = tmp_path / "plain.x86_64"
    plain.write_text("text")

    with pytest.raises(UnityEnvironmentException, match=text):
        UnityEnvironment("nothing", base_port=port)
    with pytest.raises(UnityEnvironmentException, match="make sure permissions are set correctly"):
        UnityEnvironment(str(plain), base_port=port)
    plain.chmod(0o755)
    with pytest.raises(UnityEnvironmentException, match="is not a program"):
        UnityEnvironment(str(plain), base_port=port)
    assert can_bind(port)


def test_an_editor_connects_by_itself(player):
    port = free_port()
    editor = subprocess.Popen([f"{player}.x86_64", "--mlagents-port", str(port)])
    environment = UnityEnvironment(base_port=port, timeout_wait=20)
    environment.reset()
    agents = list(environment.get_steps(BALL)[0])
    environment.close()

    assert agents == [0, 1]
    assert editor.wait(300) == 0


def own_addresses():
    """The addresses of this machine by its name, which may have none."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    except socket.gaierror:
        return []
    return [address[4][0] for address in found]


def test_only_this_machine_is_served(start):
    environment = start()
    other = [address for address in own_addresses() if not address.startswith("127.")]

    assert environment._communicator.port == environment._port
    for address in other:
        with socket.socket() as probe:
            assert probe.connect_ex((address, environment._port)) != 0


def test_every_interface_is_served_when_asked(player):
    port = free_port()
    environment = UnityEnvironment(player, base_port=port, timeout_wait=20, listen="")
    environment.reset()

    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) == 0
    environment.close()


def test_a_program_that_forgets_to_close_ends_and_so_does_its_player(player, tmp_path):
    report = tmp_path / "report"
    program = (
        "from arkml.envs.llapi.environment import UnityEnvironment\n"
        f"env = UnityEnvironment({player!r}, base_port={free_port()}, timeout_wait=20,"
        f" additional_args=['--report', {str(report)!r}])\n"
        "env.reset()\n"
    )
    subprocess.run([sys.executable, "-c", program], timeout=300, check=True)
    pid = json.loads(report.read_text())["pid"]

    assert not is_running(pid)


def test_a_registry_downloads_and_starts_a_player(tmp_path, caplog):
    archive, report, port = tmp_path / "game.zip", tmp_path / "report", free_port()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("Game/Game.x86_64", program_text(SOURCE.read_text()))
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(
        "environments:\n- Game:\n    expected_reward: 1.0\n    description: text\n"
        f"    linux_url: {archive.as_uri()}\n    tmp_dir: {tmp_path}\n"
        f"    linux_sha256: {hashlib.sha256(archive.read_bytes()).hexdigest()}\n"
        "    additional_args: ['--numbers', '4']\n"
    )
    registry = UnityEnvRegistry()
    registry.register_from_yaml(manifest.as_uri())
    environment = registry["Game"].make(
        file_name="mine", base_port=port, additional_args=["--report", str(report)]
    )
    environment.reset()
    decisions, _ = environment.get_steps(BALL)
    environment.close()

    assert decisions.obs[0].shape == (2, 4)
    assert json.loads(report.read_text())["argv"] == [
        "--mlagents-port", str(port), "--report", str(report), "--numbers", "4",
    ]  # fmt: skip
    assert "file_name is ignored" in caplog.text


def test_exchanges_leave_no_threads_behind(start):
    import threading

    before = {thread.name for thread in threading.enumerate()}
    environment = start()
    environment.reset()
    environment.close()
    gc.collect()

    def are_gone():
        left = {thread.name for thread in threading.enumerate()} - before
        return not any(name.startswith("arkml-player") for name in left)

    assert eventually(are_gone)
    assert logging.getLogger("arkml.envs.llapi").handlers == []
