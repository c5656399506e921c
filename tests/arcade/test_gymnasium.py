"""Gymnasium's games as guests, beside the originals and beside native builds."""

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.box2d.bipedal_walker import BipedalWalkerHeuristics
from gymnasium.envs.box2d.lunar_lander import heuristic
from gymnasium.utils.env_checker import check_env
from tests.arcade.guests import built, require_own_imports, require_smoke
from tests.arcade.native_plus import ends_beside_native
from tests.integration.hostile_fleet import Harm, hostile_fleet

from arkml import GuestEnv, Host
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv

ORIGINALS = {
    "acrobot": ("Acrobot-v1", {}),
    "bipedal_walker": ("BipedalWalker-v3", {}),
    "bipedal_walker_hardcore": ("BipedalWalkerHardcore-v3", {}),
    "lunar_lander": ("LunarLander-v3", {}),
    "lunar_lander_continuous": ("LunarLander-v3", {"continuous": True}),
    "mountain_car_continuous": ("MountainCarContinuous-v0", {}),
}
SEEDS = 20
STEPS = 200
EPISODES = 100
NATIVE_STEPS = {"acrobot": 200}
"""Where fewer than 10,000 steps are equal: later the last bits of a C library's sines show."""

pytestmark = [
    pytest.mark.arcade,
    pytest.mark.filterwarnings("ignore:.*Box observation space m:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(params=sorted(ORIGINALS))
def game(request):
    return built(request.param)


def original(name):
    number, options = ORIGINALS[name]
    return gymnasium.make(number, **options)


class Policy:
    """The heuristic that Gymnasium has for a game, or a push along the motion; of one agent."""

    def __init__(self, name, env):
        self._name, self._env = name, env
        self._walker = BipedalWalkerHeuristics() if name.startswith("bipedal") else None

    def action(self, observation):
        if self._name == "acrobot":
            return 2 if observation[5] > 0 else 0
        if self._name == "mountain_car_continuous":
            return np.sign(observation[1:]) * np.float32(0.5)
        if self._walker is not None:
            return self._walker.step_heuristic(observation).astype(np.float32)
        action = heuristic(self._env, observation)
        return action if isinstance(action, int) else action.astype(np.float32)


def answer(action):
    """An action of Gymnasium as a row of answers."""
    return np.atleast_1d(np.asarray(action, np.float32))[None]


def bits(number):
    return np.float32(number).tobytes()


def test_a_game_passes_the_smoke_test(game):
    require_smoke(game)


def test_a_game_imports_nothing_but_our_functions(game):
    require_own_imports(game)


def test_a_game_passes_the_checker_of_environments(game):
    env = GuestGymEnv(game, configure=(1, "{seed}"))
    check_env(env, skip_render_check=True)
    env.close()


def test_a_game_has_the_spaces_of_gymnasium(game):
    theirs = original(game.stem)
    env = GuestGymEnv(game, configure=(1, "{seed}"))
    env.reset(seed=1)
    low, high = (
        np.concatenate([getattr(part, name) for part in env.observation_space.spaces.values()])
        for name in ("low", "high")
    )
    env.close()

    assert np.array_equal(low, theirs.observation_space.low)
    assert np.array_equal(high, theirs.observation_space.high)
    assert env.action_space.shape == theirs.action_space.shape


def test_the_agents_of_a_game_are_a_vector(game):
    envs = GuestVectorEnv(game, configure=(3, "{seed}"))
    envs.reset(seed=1)
    envs.action_space.seed(1)
    rewards = [envs.step(envs.action_space.sample())[1] for _ in range(200)]
    envs.close()

    assert np.isfinite(rewards).all()


def test_the_next_agent_plays_by_the_next_seed(game):
    with GuestEnv(game, configure=(3, 5)) as environment:
        (three,) = environment.reset().decisions
    with GuestEnv(game, configure=(1, 7)) as environment:
        (one,) = environment.reset().decisions

    assert three.observations[2].tobytes() == one.observations[0].tobytes()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_game_moves_as_gymnasium_does_to_the_bit(game, seed):
    env = original(game.stem)
    observation, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    with GuestEnv(game, configure=(1, seed)) as environment:
        (decision,) = environment.reset().decisions
        for number in range(STEPS):
            assert decision.observations[0].tobytes() == observation.tobytes(), number
            action = env.action_space.sample()
            (decision,) = environment.step(answer(action)).decisions
            observation, reward, terminated, _, _ = env.step(action)
            assert bits(decision.rewards[0]) == bits(reward), number
            assert bool(decision.terminated[0]) == terminated, number
            if terminated:
                break
        assert decision.observations[0].tobytes() == observation.tobytes()


@pytest.mark.parametrize(
    ("name", "action", "steps"),
    [("acrobot", 1, 600), ("lunar_lander", 2, 500), ("mountain_car_continuous", [0.0], 1100)],
)
def test_later_episodes_go_on_with_the_same_random_numbers(name, action, steps):
    """Play past an end: of the others than the lander that of the limit of steps."""
    env, ends = original(name), 0
    action = np.float32(action) if isinstance(action, list) else action
    observation, _ = env.reset(seed=3)
    with GuestEnv(built(name), configure=(1, 3)) as environment:
        (decision,) = environment.reset().decisions
        for _ in range(steps):
            assert decision.observations[0].tobytes() == observation.tobytes()
            if decision.ended[0]:
                ends += 1
                (decision,) = environment.step(np.zeros((0, 1), np.float32)).decisions
                observation, _ = env.reset()
                continue
            (decision,) = environment.step(answer(action)).decisions
            observation, _, terminated, truncated, _ = env.step(action)
            assert (decision.terminated[0], decision.truncated[0]) == (terminated, truncated)

    assert ends > 0


@pytest.mark.timeout(1800)
def test_the_heuristic_scores_as_in_gymnasium(game):
    """Play whole episodes, with their ends by the rules and by the limit of steps."""
    name = game.stem
    theirs, ours = np.zeros(EPISODES), np.zeros(EPISODES)
    lengths, cut = np.zeros(EPISODES), np.zeros(EPISODES, bool)
    for seed in range(EPISODES):
        env = original(name)
        policy, done = Policy(name, env), False
        observation, _ = env.reset(seed=seed)
        while not done:
            observation, reward, terminated, cut[seed], _ = env.step(policy.action(observation))
            theirs[seed] += reward
            lengths[seed] += 1
            done = terminated or cut[seed]
    policies = [Policy(name, env) for _ in range(EPISODES)]
    is_done, our_lengths, our_cut = (np.zeros(EPISODES, kind) for kind in (bool, float, bool))
    with GuestEnv(game, configure=(EPISODES, 0)) as environment:
        (decision,) = environment.reset().decisions
        while not is_done.all():
            rows = decision.observations[~decision.ended]
            live = np.flatnonzero(~decision.ended)
            answers = [
                answer(policies[agent].action(row))[0]
                for agent, row in zip(live, rows, strict=True)
            ]
            width = decision.behavior.num_actions
            given = np.array(answers, np.float32).reshape(-1, width)
            (decision,) = environment.step(given).decisions
            ours += np.where(is_done, 0, decision.rewards)
            our_lengths += ~is_done
            our_cut |= ~is_done & decision.truncated
            is_done |= decision.ended

    assert np.array_equal(our_lengths, lengths)
    assert np.array_equal(our_cut, cut)
    assert ours == pytest.approx(theirs, abs=0.01)
    assert abs(ours.mean() - theirs.mean()) <= theirs.std() / EPISODES**0.5


def test_a_game_beside_hostile_guests_plays_as_alone(game):
    with GuestEnv(game, configure=(1, 3)) as environment:
        alone = played(environment, lambda: None)
    with Host() as host:
        harms = [harm for harm in Harm if harm is not Harm.NONE]
        fleet = hostile_fleet(host, len(harms), dict(enumerate(harms)))
        with GuestEnv(game, host=host, configure=(1, 3)) as environment:
            beside = played(environment, fleet.update)

    assert beside == alone


def played(environment, between):
    """The observations and rewards of ten steps, as bytes."""
    (decision,) = environment.reset().decisions
    rows = []
    for _ in range(10):
        between()
        action = np.full((1, decision.behavior.num_actions), 1, np.float32)
        (decision,) = environment.step(action).decisions
        rows += [decision.observations.tobytes(), decision.rewards.tobytes()]
    return b"".join(rows)


@pytest.mark.parametrize("name", ["acrobot", "lunar_lander", "mountain_car_continuous"])
def test_an_ended_episode_has_its_score_and_length(name):
    with GuestEnv(built(name), configure=(1, 0)) as environment:
        (decision,) = environment.reset().decisions
        score, length = 0.0, 0
        while not decision.ended[0]:
            (decision,) = environment.step(answer(0)).decisions
            score, length = score + decision.rewards[0], length + 1

    assert decision.metadata.values.tolist() == pytest.approx([score, length])


def test_a_game_plays_as_its_native_build_does_to_the_bit(game, tmp_path):
    ends = ends_beside_native(game, tmp_path, NATIVE_STEPS.get(game.stem, 10_000))

    assert (ends > 0) == (game.stem not in NATIVE_STEPS)
