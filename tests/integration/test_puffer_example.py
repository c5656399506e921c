"""The recipe for PufferLib keeps the contract of its native environments."""

import runpy
import sys
from types import ModuleType

import numpy as np
import pytest
from tests.integration import puffer_contract
from tests.integration.command_line import GUESTS
from tests.integration.test_environment_examples import FOLDER, shown, without_numbers

from arkml.envs.vector_env import vector_env

CARTPOLE, WALKERS = GUESTS / "c_cartpole.wasm", GUESTS / "c_walkers_seeded.wasm"
FLEET = {"module": CARTPOLE, "per": "guest", "num_envs": 4, "configure": (1, "{seed}")}
LATE = {"module": CARTPOLE, "autoreset_mode": "NextStep", "configure": (4, "{seed}")}
SAME = 1


@pytest.fixture
def recipe(monkeypatch):
    """The names of the program, run against the contract instead of PufferLib."""
    package, vector = ModuleType("pufferlib"), ModuleType("pufferlib.vector")
    package.PufferEnv, package.vector, vector.make = (
        puffer_contract.PufferEnv, vector, puffer_contract.make,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pufferlib", package)
    monkeypatch.setitem(sys.modules, "pufferlib.vector", vector)
    monkeypatch.setattr(sys, "argv", ["puffer_env.py", str(CARTPOLE)])
    return runpy.run_path(str(FOLDER / "puffer_env.py"), run_name="recipe")


@pytest.fixture
def make(recipe):
    made = []

    def env(**options):
        made.append(puffer_contract.make(recipe["GuestPufferEnv"], env_kwargs=options))
        return made[-1]

    yield env
    for one in made:
        one.close()


def actions(count, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 4, 1)).astype("f4")


def test_guests_are_stepped_into_the_buffers_of_the_trainer(make):
    env = make(**FLEET)
    plain = vector_env(**FLEET, autoreset_mode="SameStep")
    env.async_reset(7)
    observations, rewards, terminals, truncations, _, agents, masks = env.recv()
    alike = [np.array_equal(observations, plain.reset(seed=7)[0])]
    ends = 0
    for action in actions(60):
        env.send(action)
        expected = plain.step(action)
        alike += [
            np.array_equal(buffer, array)
            for buffer, array in zip(
                (observations, rewards, terminals, truncations), expected[:4], strict=True
            )
        ]
        alike.append(masks.all())
        ends += int(terminals.sum())
    plain.close()
    again = env.recv()

    assert ends
    assert all(alike)
    assert agents.tolist() == [0, 1, 2, 3]
    assert again[0] is observations
    assert again[6] is masks


def test_agents_that_are_replaced_one_submit_later_end_in_the_step_in_which_they_are(make):
    env, plain = make(**LATE), vector_env(**LATE)
    env.async_reset(7)
    plain.reset(seed=7)
    before, alike, ends = np.zeros(4, bool), [], 0
    for action in actions(60):
        env.send(action)
        expected, _, terminated, truncated, _ = plain.step(action)
        alike += [
            np.array_equal(env.observations, expected), np.array_equal(env.terminals, before),
            not env.rewards[before].any(), np.array_equal(bool(before.any()), bool(env.infos)),
        ]  # fmt: skip
        before = terminated | truncated
        ends += int(before.sum())
    plain.close()

    assert ends > 4
    assert all(alike)


def test_infos_have_the_means_of_the_episodes_that_ended(make):
    env = make(**{**FLEET, "num_envs": 1})
    env.async_reset(1)
    steps, infos = 0, []
    while not infos:
        env.send(np.ones((1, 1), "f4"))
        infos = env.recv()[4]
        steps += 1

    assert infos == [{"episode_return": steps, "episode_length": steps}]


def test_environments_write_into_their_parts_of_shared_buffers(recipe):
    creator = recipe["GuestPufferEnv"]
    envs, whole = puffer_contract.serial(creator, 2, seed=5, **FLEET)
    envs[0].async_reset()
    first = whole["observations"].copy()
    envs[1].async_reset()
    other = whole["observations"].copy()
    alone = creator(**FLEET)
    alone.async_reset(6)
    for env in (*envs, alone):
        env.close()

    assert first[:4].any()
    assert not first[4:].any()
    assert np.array_equal(first[:4], other[:4])
    assert np.array_equal(other[4:], alone.observations)


def test_empty_places_have_no_mask_and_zeros(make):
    env = make(module=WALKERS, num_envs=6, per="agent", configure=(4, SAME, 1, 0, 0))
    env.async_reset(1)
    at_first = env.masks.copy()
    env.send(np.zeros((6, 1), "f4"))

    assert at_first.tolist() == [True] * 4 + [False] * 2
    assert env.masks.tolist() == at_first.tolist()
    assert not env.observations[4:].any()


def test_actions_beyond_their_bounds_are_clipped_and_a_reset_begins_anew(make):
    env, other = make(**FLEET), make(**FLEET)
    for one, force in ((env, 9), (other, 1)):
        one.async_reset(3)
        for _ in range(15):
            one.send(np.full((4, 1), force, "f4"))
    pushed = env.observations.copy()
    env.async_reset(3)

    assert np.array_equal(pushed, other.observations)
    assert not np.array_equal(env.observations, pushed)
    assert not env.terminals.any()
    assert not env.rewards.any()


def test_observations_in_parts_are_refused_by_pufferlib(make):
    parts = [{"name": "cart", "shape": [2]}, {"name": "pole", "shape": [2]}]

    with pytest.raises(puffer_contract.APIUsageError, match="must be a Box"):
        make(**FLEET, spec={"behaviors": {"*": {"observations": parts}}})


def test_the_program_prints_what_its_readme_says(recipe, capsys):
    recipe["main"]()

    lines = capsys.readouterr().out.splitlines()
    assert without_numbers(lines) == without_numbers(shown("puffer_env.py"))
