"""PufferLib runs the recipe of examples/environments."""

import runpy
import subprocess
import sys

import numpy as np
import pytest
from pufferlib import vector
from tests.integration.command_line import ENVIRONMENT, GUESTS, ROOT
from tools.houses import PYTHONPATH

pytestmark = pytest.mark.puffer
PROGRAM = ROOT / "examples" / "environments" / "puffer_env.py"
CARTPOLE = GUESTS / "c_cartpole.wasm"
FLEET = {"module": CARTPOLE, "per": "guest", "num_envs": 8, "configure": (1, "{seed}")}


def guests(**options):
    """What each worker makes; a class of a program that was run cannot be sent to one."""
    return runpy.run_path(str(PROGRAM), run_name="recipe")["GuestPufferEnv"](**options)


def played(envs, count, steps=60):
    """The observations at the end, the rewards and the ends, and the lengths of the infos."""
    envs.reset(seed=3)
    rewards, ends, told = 0.0, 0, []
    for _ in range(steps):
        seen, earned, terminals, truncations, infos = envs.step(np.ones((count, 1), "f4"))
        rewards, ends = rewards + float(earned.sum()), ends + int((terminals | truncations).sum())
        told.append(len(infos))
    seen = seen.copy()
    envs.close()
    return seen, rewards, ends, told


def test_a_native_environment_is_played():
    seen, rewards, ends, told = played(vector.make(guests, env_kwargs=FLEET), 8)

    assert seen.shape == (8, 4)
    assert rewards == 8 * 60
    assert ends > 8
    assert 0 < sum(told) <= ends


def test_workers_write_into_the_shared_memory_of_the_trainer():
    envs = vector.make(
        guests, env_kwargs=FLEET, num_envs=2, num_workers=2, batch_size=2, overwork=True,
        backend=vector.Multiprocessing,
    )  # fmt: skip
    seen, rewards, ends, _ = played(envs, 16)
    alone, _, ends_alone, _ = played(vector.make(guests, env_kwargs=FLEET), 8)

    assert rewards == 16 * 60
    assert ends > ends_alone
    assert np.array_equal(seen[:8], alone)  # the first worker has the same seed
    assert not np.array_equal(seen[8:], alone)


def test_the_program_plays_on_to_its_end():
    run = subprocess.run(
        [sys.executable, PROGRAM, CARTPOLE], capture_output=True, text=True, timeout=120,
        check=False, env={**ENVIRONMENT, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip

    assert run.returncode == 0, run.stderr[-3000:]
    assert [int(line.split()[0]) for line in run.stdout.splitlines()] == [6400, 12800, 19200]
