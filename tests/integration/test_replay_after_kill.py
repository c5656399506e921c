"""Traces of processes that were killed: they replay up to the last whole block."""

import signal
import subprocess
import sys

import pytest
from tests.integration.command_line import ENVIRONMENT as VARIABLES
from tests.integration.command_line import GUESTS, ROOT
from tests.waiting import eventually

from arkml import Replay

PENDULUM = GUESTS / "c_pendulum.wasm"
RUNNING = """
import arkml, sys
with arkml.Host(trace=sys.argv[1]) as host:
    guest = host.load(sys.argv[2])
    while True:
        guest.update()
"""
FLEET = """
import arkml, sys
with arkml.Host(trace=sys.argv[1]) as host:
    fleet = host.fleet(sys.argv[2], 2)
    while True:
        fleet.update()
"""
ENVIRONMENT = """
import arkml, sys
import numpy as np
with arkml.GuestEnv(sys.argv[2], configure=(1, "{seed}"), trace=sys.argv[1]) as env:
    step = env.reset(seed=1)
    while True:
        step = env.step([[0.5]] * len(step.decisions[0].acting_agents) or np.zeros((0, 1)))
"""
TRIAL = """
import sys
from arkml.__main__ import main
sys.argv[1:] = [
    "trials", "play", sys.argv[2], "--trace", sys.argv[1], "--configure-numbers",
    "3,0,1,0,0", "--tick-rate", "500", "--port", "0", "--no-record",
]
main()
"""


@pytest.mark.parametrize(
    ("program", "source", "name"),
    [
        (RUNNING, GUESTS / "c_applet.wasm", "guest.trace"),
        (FLEET, GUESTS / "c_applet.wasm", "guest.1.trace"),
        (ENVIRONMENT, PENDULUM, "guest.trace"),
        (TRIAL, GUESTS / "c_walkers.wasm", "guest.trace"),
    ],
    ids=["run", "fleet", "environment", "trial"],
)
def test_a_killed_process_leaves_what_replays(tmp_path, program, source, name):
    path = tmp_path / name
    words = [sys.executable, "-c", program, tmp_path / "guest.trace", source]
    with subprocess.Popen(words, cwd=ROOT, env=VARIABLES) as process:
        try:
            eventually(lambda: process.poll() is not None or has_frames(path))
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL

    with Replay(path, source) as replay:
        frames = list(replay)
        assert replay.ending
    assert len(frames) > 100
    assert all(frame.error is None for frame in frames)


def has_frames(path):
    """Whether there is more than a block or two on the disk."""
    return path.exists() and path.stat().st_size > 20_000
