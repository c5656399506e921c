"""Where a run comes from: without secrets, bounded, and never waited for longer than a second."""

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from msgspec import UNSET
from tests.waiting import eventually

from arkml.errors import HiveRefused
from arkml.hive import machine
from arkml.hive.address import Address
from arkml.hive.client import HiveClient
from arkml.hive.protocol.run_origin import RunGoal, RunOrigin
from arkml.hive.protocol.runs import CreatedRun, RunInfo, RunRequest, Status
from arkml.hive.protocol.settings import Settings
from arkml.runs import run_origins
from arkml.runs.run_origins import command_line, described_by_git, origin_of
from arkml.training.training_options import Goal


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["/usr/bin/arkml", "train", "npc.wasm", "--minutes", "2"],
         "arkml train npc.wasm --minutes 2"),
        (["/x/arkml/__main__.py", "train", "my npc.wasm"], "arkml train 'my npc.wasm'"),
        (["arkml", "--token", "abc123", "x"], "arkml --token ... x"),
        (["arkml", "--token=abc123"], "arkml --token=..."),
        (["arkml", "--hive-token", "abc123"], "arkml --hive-token ..."),
        (["arkml", "--api-key", "abc123", "--seed", "1"], "arkml --api-key ... --seed 1"),
        (["arkml", "--password", "--verbose"], "arkml --password --verbose"),
        (["arkml", "--hive", "https://ann:abc123@hive.example/x"],
         "arkml --hive https://...@hive.example/x"),
        (["arkml", "https://hive.example/?token=abc123&a=1"],
         "arkml 'https://hive.example/?token=...&a=1'"),
        (["arkml", "http://127.0.0.1/#token=abc123"], "arkml 'http://127.0.0.1/#token=...'"),
        (["arkml", "WANDB_API_KEY=abc123"], "arkml WANDB_API_KEY=..."),
        (["arkml", "--cmdlet", "seed=3 secret=abc123 speed=4"],
         "arkml --cmdlet 'seed=3 secret=... speed=4'"),
        ([], ""),
    ],
)  # fmt: skip
def test_a_command_is_shown_without_its_secrets(words, shown):
    assert command_line(words) == shown
    assert "abc123" not in command_line(words)


def test_an_origin_is_bounded_and_can_be_sent(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["arkml", "x" * 10_000, "\udcff"])
    monkeypatch.setattr(machine.socket, "gethostname", lambda: "h" * 1_000)
    origin = origin_of("n" * 1_000, "a" * 64, None)
    again = RunOrigin.from_bytes(origin.as_bytes())

    assert again == origin
    assert len(origin.command) == 4_096
    assert origin.host == "h" * 255
    assert origin.git == ""
    assert {"arkml", "python", "wasmtime", "onnxruntime"} <= origin.versions.keys()


def test_git_describes_the_folder_of_a_guest(tmp_path):
    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True,
            capture_output=True,
        )  # fmt: skip

    assert described_by_git(tmp_path) == ""
    git("init")
    (tmp_path / "npc.c").write_text("1")
    git("add", "npc.c")
    git("commit", "-m", "first")
    git("tag", "-a", "v1", "-m", "v1")
    clean = described_by_git(tmp_path)
    (tmp_path / "npc.c").write_text("2")

    assert clean == "v1"
    assert described_by_git(tmp_path) == "v1-dirty"
    assert described_by_git(tmp_path / "missing") == ""


def is_alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_a_git_that_hangs_is_ended_after_its_second_with_all_that_it_started(tmp_path, monkeypatch):
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\nsleep 600 & echo $! > pid\nwait\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(run_origins, "_GIT_WITHIN", 0.5)
    began = time.monotonic()

    assert described_by_git(tmp_path) == ""
    assert time.monotonic() - began < 60
    assert eventually(lambda: not is_alive(int((tmp_path / "pid").read_text())))


def test_a_machine_without_git_describes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert described_by_git(tmp_path) == ""


RUN = RunInfo("r1", "run", "game", Status.RUNNING, 3, 2, 0)
REQUEST = RunRequest(
    "run", "game", Settings(3, 2), origin=RunOrigin("arkml train"), goal=RunGoal(120.0)
)


def created(refusals):
    """The bodies that a hive gets which answers these refusals first, and what comes of it."""
    bodies = []

    def answer(request):
        bodies.append(RunRequest.from_bytes(request.content))
        if len(bodies) <= len(refusals):
            return httpx.Response(422, json={"error": refusals[len(bodies) - 1]})
        return httpx.Response(201, content=CreatedRun(RUN, created=True).as_bytes())

    transport = httpx.MockTransport(answer)
    with HiveClient(lambda: Address("localhost"), transport=transport) as client:
        try:
            outcome = client.create(REQUEST).result(60)
        except HiveRefused as error:
            outcome = str(error)
    return bodies, outcome


def test_a_hive_of_before_gets_the_request_without_what_it_does_not_know():
    bodies, run = created(["origin is unknown: it takes name, game, settings"])

    assert run == RUN
    assert bodies[0] == REQUEST
    assert (bodies[1].origin, bodies[1].goal) == (UNSET, UNSET)
    assert bodies[1].settings == REQUEST.settings


def test_another_refusal_is_passed_on():
    bodies, outcome = created(["batch_size is unknown: it takes gamma"])

    assert len(bodies) == 1
    assert "batch_size" in outcome


@pytest.mark.parametrize(
    ("goal", "told"),
    [
        (Goal(), None),
        (Goal(minutes=2), RunGoal(120.0)),
        (Goal(frames=600), RunGoal(frames=600)),
        (Goal(mean_return=-5), RunGoal(mean_return=-5.0)),
        (Goal(minutes=1e300), RunGoal(float((1 << 63) - 1))),
    ],
)
def test_the_goal_of_a_command_is_told(goal, told):
    found = goal.told()

    assert found == told
    assert told is None or RunGoal.from_bytes(found.as_bytes()) == told
