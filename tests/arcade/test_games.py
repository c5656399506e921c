"""The games of the arcade as environments, and beside native builds of the same C."""

import numpy as np
import pettingzoo.test
import pytest
import stable_baselines3.common.env_checker
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from tests.arcade.guests import built, require_smoke
from tests.arcade.native import NativeGame
from tests.integration.hostile_fleet import Harm, hostile_fleet
from tools.arcade import compiler
from tools.arcade.__main__ import games

from arkml import GuestEnv, Host
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.pettingzoo_env import parallel_env

GAMES = sorted(name for name, path in games().items() if not compiler.is_plus(path))
STEPS = 10_000
FULL = 300  # frames after which the boards of a game have been full
ONE = {"configure": (1, "{seed}")}
WITHOUT_CHANCE = {"gpudrive"}  # its cars and roads are recorded
LEAVES = {"cpr"}  # agents that end leave the game until all have
HIDDEN = {
    "acrobot": [4, 5],
    "breakout": [4, 5],
    "cartpole": [1, 3],
    "lunar_lander": [2, 3, 5],
    "mountain_car_continuous": [1],
    "pong": [4, 5],
}  # the velocities among the features
ENDLESS = {"boids", "convert", "nmmo3", "rware", "target"}

pytestmark = [
    pytest.mark.arcade,
    pytest.mark.filterwarnings("ignore::UserWarning:pettingzoo"),
    pytest.mark.filterwarnings("ignore:.*Box observation space m:UserWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:stable_baselines3.common.env_checker"),
]


@pytest.fixture(params=GAMES)
def game(request):
    return built(request.param)


def answers(decision, chance, count=None):
    """Random answers for the agents that act, or for `count` agents."""
    count = int((~decision.ended).sum()) if count is None else count
    taken = decision.behavior.spec.actions
    if taken.branches:
        columns = [chance.integers(0, choices, count) for choices in taken.branches]
        return np.stack(columns, 1).astype(np.float32)
    return chance.uniform(-1, 1, (count, taken.continuous)).astype(np.float32)


def played(environment, seed, steps, before=lambda: None):
    """The rows of some random steps, as bytes; `before` is called before each."""
    (decision,) = environment.reset(seed=seed).decisions
    chance, rows = np.random.default_rng(1), []
    for _ in range(steps):
        before()
        rows += [decision.observations.tobytes(), decision.rewards.tobytes()]
        (decision,) = environment.step(answers(decision, chance)).decisions
    return b"".join(rows)


def test_a_game_passes_the_smoke_test(game):
    require_smoke(game)


def test_a_game_passes_the_checkers_of_environments(game):
    with GuestEnv(game, **ONE) as probe:
        agents = len(probe.reset(seed=1).decisions[0])
    if agents == 1:
        env = GuestGymEnv(game, **ONE)
        check_env(env, skip_render_check=True)
        stable_baselines3.common.env_checker.check_env(env)
    else:
        env = parallel_env(game, **ONE)
        pettingzoo.test.parallel_api_test(env, num_cycles=20)
    env.close()


def test_the_agents_of_a_game_are_a_vector(game):
    mode = AutoresetMode.NEXT_STEP if game.stem in LEAVES else AutoresetMode.SAME_STEP
    envs = GuestVectorEnv(game, configure=(3, "{seed}"), autoreset_mode=mode)
    envs.reset(seed=1)
    envs.action_space.seed(1)
    rewards = [envs.step(envs.action_space.sample())[1] for _ in range(100)]
    envs.close()

    assert np.isfinite(rewards).all()


def test_a_game_that_nobody_configures_is_played_until_its_boards_are_full(game):
    with GuestEnv(game) as environment:
        (decision,) = environment.reset(seed=1).decisions
        chance = np.random.default_rng(1)
        for number in range(FULL):
            step = environment.step(answers(decision, chance))
            assert step.error is None, number
            (decision,) = step.decisions


def test_a_game_follows_from_its_seed(game):
    with GuestEnv(game, **ONE) as environment:
        one, again, other = (played(environment, seed, 40) for seed in (1, 1, 2))

    assert one == again
    assert (one == other) == (game.stem in WITHOUT_CHANCE)


def test_copies_of_a_game_do_not_depend_on_each_other(game):
    found = []
    for copies in (1, 3):
        with GuestEnv(game, configure=(copies, 5)) as environment:
            (decision,) = environment.reset().decisions
            agents = len(decision) // copies
            found.append(decision.observations[:agents].tobytes())

    assert found[0] == found[1]


def test_a_game_beside_hostile_guests_plays_as_alone(game):
    with GuestEnv(game, **ONE) as environment:
        alone = played(environment, 3, 10)
    with Host() as host:
        harms = [harm for harm in Harm if harm is not Harm.NONE]
        fleet = hostile_fleet(host, 2 * len(harms), dict(enumerate(harms)))
        with GuestEnv(game, host=host, **ONE) as environment:
            beside = played(environment, 3, 10, fleet.update)

    assert beside == alone


def test_a_game_plays_as_its_native_build_does_to_the_bit(game, tmp_path):
    with GuestEnv(game, configure=(2, 3)) as environment:
        (decision,) = environment.reset().decisions
        behavior = decision.behavior
        low, high = (
            np.concatenate([np.asarray(getattr(part, name)) for part in behavior.spec.observations])
            for name in ("low", "high")
        )
        native = NativeGame(game.stem, behavior.num_features, tmp_path)
        native.reset(2, 3)
        chance, most, ends = np.random.default_rng(0), len(decision), 0
        for number in range(STEPS):
            given = answers(decision, chance, most)
            rows = native.frame(given)
            for name in ("observations", "rewards", "started", "terminated", "truncated"):
                ours, theirs = getattr(decision, name), getattr(rows, name)
                assert ours.tobytes() == theirs.tobytes(), (number, name)
            scores = decision.metadata.values.astype(np.float32)
            assert scores.tobytes() == rows.scores.tobytes(), number
            assert (rows.observations >= low).all(), number
            assert (rows.observations <= high).all(), number
            ends += int(decision.ended.sum())
            step = environment.step(given[: int((~decision.ended).sum())])
            assert step.error is None
            (decision,) = step.decisions

    assert (ends == 0) == (game.stem in ENDLESS)


@pytest.mark.parametrize(("name", "hidden"), sorted(HIDDEN.items()))
def test_without_velocities_a_game_is_the_same_with_zeros(name, hidden):
    rows = []
    for path in (built(name), built(f"{name}_no_velocity")):
        with GuestEnv(path, configure=(2, "{seed}")) as environment:
            (decision,) = environment.reset(seed=3).decisions
            chance, steps = np.random.default_rng(4), []
            for _ in range(300):
                steps.append((decision.observations, decision.rewards, decision.ended))
                (decision,) = environment.step(answers(decision, chance)).decisions
            rows.append([np.concatenate(column) for column in zip(*steps, strict=True)])
    (shown, *rest), (seen, *others) = rows

    assert shown[:, hidden].any(axis=0).all()
    shown[:, hidden] = 0.0
    assert np.array_equal(seen, shown)
    assert all(map(np.array_equal, others, rest))
    assert rest[0].any()


def test_go_masks_what_its_rules_forbid_and_nothing_else():
    forbidden = np.float32(-0.5393516480382454)  # what such a move is paid with
    with GuestEnv(built("go"), **ONE) as environment:
        (decision,) = environment.reset(seed=1).decisions
        chance, suicides = np.random.default_rng(2), 0
        for _ in range(1_000):
            row = int(np.flatnonzero(~decision.ended)[0])
            taken = decision.observations[row, :98].reshape(49, 2).any(-1)
            masked = decision.masks[0][row] if decision.masks else np.zeros(50, bool)
            assert not masked[0]
            assert masked[1:][taken].all()
            empty = np.flatnonzero(masked[1:] & ~taken) + 1
            is_suicide = bool(len(empty) and chance.random() < 0.2)
            move = chance.choice(empty if is_suicide else np.flatnonzero(~masked))
            (decision,) = environment.step(np.array([[move]], np.float32)).decisions
            if not decision.ended.any():
                assert (decision.rewards[0] == forbidden) == is_suicide
            suicides += is_suicide

    assert suicides > 10
