"""Copies of environments in the middle of an episode: both go on alike, and apart."""

import copy
import gc
import logging

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from tests.integration.guest_text import GUESTS
from tests.integration.test_game_functions import ASKING

from arkml import Host
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.pettingzoo_env import GuestParallelEnv
from arkml.errors import StateRefused, UsageError
from arkml.runtime import lockstep

PENDULUM = GUESTS / "c_pendulum.wasm"
CORRIDOR = GUESTS / "c_corridor.wasm"
CHASE = GUESTS / "c_chase.wasm"


def one(module=PENDULUM, **options):
    return GuestGymEnv(module, configure=(1, "{seed}"), **options)


def played(env, actions):
    """All that a Gymnasium environment returns for these actions, with resets at ends."""
    seen = []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        mask = info.get("action_mask")
        seen.append((shown(observation), reward, terminated, truncated, repr(mask)))
        if terminated or truncated:
            seen.append(shown(env.reset()[0]))
    return seen


def shown(observation):
    parts = observation if isinstance(observation, dict) else {"": observation}
    return {name: part.tobytes() for name, part in parts.items()}


def drawn(env, count, seed):
    space = copy.deepcopy(env.action_space)
    space.seed(seed)
    return [space.sample() for _ in range(count)]


@pytest.mark.parametrize("module", [PENDULUM, CORRIDOR], ids=["continuous", "discrete"])
@pytest.mark.parametrize("steps", [0, 1, 57, 260])
def test_a_copy_goes_on_as_the_original_does(module, steps):
    with one(module) as env:
        env.reset(seed=7)
        played(env, drawn(env, steps, 1))
        again = copy.deepcopy(env)
        actions = drawn(env, 400, 2)
        first = played(env, actions)
        assert played(again, actions) == first
        again.close()


def test_copies_do_not_touch_each_other():
    with one() as env:
        env.reset(seed=7)
        copies = [copy.deepcopy(env) for _ in range(3)]
        actions = [drawn(env, 30, number) for number in range(3)]
        apart = [
            played(each, each_actions) for each, each_actions in zip(copies, actions, strict=True)
        ]
        assert len({repr(each) for each in apart}) == 3
        assert played(env, actions[1]) == apart[1]
        for each in copies:
            each.close()


def test_the_seeds_of_later_resets_are_alike():
    with one() as env:
        env.reset(seed=7)
        again = copy.deepcopy(env)
        for _ in range(3):
            assert shown(env.reset()[0]) == shown(again.reset()[0])
        again.close()


def test_a_copy_of_a_copy_outlives_both():
    env = one()
    env.reset(seed=7)
    actions = drawn(env, 40, 1)
    played(env, actions[:10])
    second = copy.deepcopy(env)
    third = copy.deepcopy(second)
    expected = played(env, actions)
    env.close()
    second.close()
    assert played(third, actions) == expected
    third.close()
    with pytest.raises(UsageError, match="closed"):
        copy.deepcopy(third)


def test_the_host_of_an_environment_is_closed_with_its_last_copy():
    env = one()
    again = copy.deepcopy(env)
    host = env.guest_env.host
    assert again.guest_env.host is host
    env.close()
    host.load(PENDULUM).close()
    again.close()
    with pytest.raises(UsageError, match="this host is closed"):
        host.load(PENDULUM)


def test_a_host_that_was_given_is_left_open():
    with Host() as host:
        env = one(host=host)
        copy.deepcopy(env).close()
        env.close()
        host.load(PENDULUM).close()


def test_wrappers_of_gymnasium_are_copied_with_their_environment():
    env = TimeLimit(RecordEpisodeStatistics(one()), 25)
    env.reset(seed=3)
    played(env, drawn(env, 20, 1))
    again = copy.deepcopy(env)
    actions = drawn(env, 60, 2)
    assert played(env, actions) == played(again, actions)
    assert env.get_wrapper_attr("return_queue") == again.get_wrapper_attr("return_queue")
    env.close()
    again.close()


def test_an_environment_that_gymnasium_made_is_copied():
    env = gymnasium.make("arkml.envs.gym:arkml/Guest-v0", module=str(PENDULUM), configure=(1, 5))
    env.reset(seed=3)
    again = copy.deepcopy(env)
    actions = drawn(env, 20, 1)
    assert played(env, actions) == played(again, actions)
    assert again.spec.id == env.spec.id
    env.close()
    again.close()


def test_agents_of_a_parallel_environment_keep_their_names():
    def rounds(env, count):
        seen = []
        for number in range(count):
            if not env.agents:
                env.reset()
            rng = np.random.default_rng(number)
            acts = {
                agent: rng.uniform(-1, 1, env.action_space(agent).shape).astype(np.float32)
                for agent in env.agents
            }
            observations, rewards, *ends, _ = env.step(acts)
            seen.append((
                {agent: each.tobytes() for agent, each in observations.items()}, rewards, ends,
            ))  # fmt: skip
        return seen

    env = GuestParallelEnv(CHASE)
    env.reset(seed=2)
    rounds(env, 30)
    again = copy.deepcopy(env)
    assert again.agents == env.agents
    assert rounds(again, 200) == rounds(env, 200)
    env.close()
    again.close()


def test_clone_of_the_environment_beneath_numbers_agents_alike():
    env = GuestEnv(CHASE)
    step = env.reset(seed=4)

    def on(env, count):
        seen = []
        for number in range(count):
            decision = env.decision
            rng = np.random.default_rng(number)
            shape = (len(decision.acting_agents), decision.behavior.num_actions)
            step = env.step(rng.uniform(-1, 1, shape))
            seen += [(each.agents.tolist(), each.observations.tobytes()) for each in step.decisions]
        return seen

    assert step.decisions
    on(env, 40)
    again = env.clone()
    assert again.decision.agents.tolist() == env.decision.agents.tolist()
    assert on(again, 120) == on(env, 120)
    env.close()
    again.close()


def test_the_time_and_the_pace_of_the_guest_come_along():
    env = GuestEnv(PENDULUM)
    env.pace.time_scale = 2.0
    env.reset(seed=1)
    again = env.clone()
    assert again.pace is not env.pace
    assert again.pace.time_scale == 2.0
    world = again._core.instance.world
    assert world.time_of_day() == env._core.instance.world.time_of_day()
    env.close()
    again.close()


def test_an_episode_limit_counts_on():
    env = one(max_episode_steps=50)
    env.reset(seed=1)
    actions = drawn(env, 120, 1)
    played(env, actions[:30])
    again = copy.deepcopy(env)
    first = played(env, actions)
    assert played(again, actions) == first
    assert sum(len(each) == 5 and each[3] for each in first if isinstance(each, tuple)) >= 2
    env.close()
    again.close()


def test_what_a_guest_logged_is_not_logged_again(caplog):
    with caplog.at_level(logging.DEBUG), one() as env:
        env.reset(seed=1)
        played(env, drawn(env, 30, 1))
        before = len(caplog.records)
        copy.deepcopy(env).close()
        assert len(caplog.records) == before


def test_a_copy_before_the_first_reset():
    env = GuestEnv(PENDULUM)
    again = env.clone()
    assert again.decision is None
    assert (
        again.reset(seed=1).decisions[0].observations.tobytes()
        == env.reset(seed=1).decisions[0].observations.tobytes()
    )
    env.close()
    again.close()


def test_a_copy_that_a_signal_handler_cuts_off_is_freed(monkeypatch):
    class Alarm(Exception):
        """Raised by the handler, where the copy has shut its call guard and not begun its call."""

    def ring(*_):
        monkeypatch.undo()
        raise Alarm

    with one() as env:
        env.reset(seed=1)
        monkeypatch.setattr(lockstep, "_call_async", ring)
        with pytest.raises(Alarm):
            copy.deepcopy(env)
        with copy.deepcopy(env) as again:
            assert played(again, drawn(env, 5, 1)) == played(env, drawn(env, 5, 1))


def test_an_environment_of_one_guest_with_many_agents_is_copied():
    envs = gymnasium.make_vec(
        "arkml.envs.gym:arkml/Guest-v0",
        module=str(PENDULUM),
        configure=(8, "{seed}"),
        vectorization_mode="vector_entry_point",
    )
    envs.reset(seed=1)
    actions = [envs.action_space.sample() for _ in range(300)]
    for action in actions[:30]:
        envs.step(action)
    again = copy.deepcopy(envs)
    for action in actions[30:]:
        first, second = envs.step(action), again.step(action)
        assert [each.tobytes() for each in first[:4]] == [each.tobytes() for each in second[:4]]
    envs.close()
    again.close()


def test_an_environment_of_many_guests_is_refused_and_goes_on():
    envs = gymnasium.make_vec(
        "arkml.envs.gym:arkml/Guest-v0",
        3,
        module=str(PENDULUM),
        per="guest",
        configure=(1, "{seed}"),
    )
    envs.reset(seed=1)
    with pytest.raises(
        StateRefused, match=r"of 3 guests of c_pendulum.wasm cannot be copied: make"
    ):
        copy.deepcopy(envs)
    envs.step(envs.action_space.sample())
    host = envs.unwrapped.guest_env.host
    envs.close()
    with pytest.raises(UsageError, match="this host is closed"):
        host.load(PENDULUM)


def test_an_environment_with_copies_of_a_game_shares_the_game():
    class Game:
        def __deepcopy__(self, memo):
            raise AssertionError

        def ask(self, x):
            return 2 * x

    env = GuestGymEnv(ASKING, inference=True, imports={"env": Game()})
    env.reset(seed=1)
    again = copy.deepcopy(env)
    assert again.step(np.float32([0.5]))[0][0] == env.step(np.float32([0.5]))[0][0] == 1
    env.close()
    again.close()


def test_many_copies_leave_nothing_behind():
    with one() as env:
        env.reset(seed=1)
        for _ in range(30):
            copy.deepcopy(env).close()
        gc.collect()
        host = env.guest_env.host
        assert host.account.memory_bytes == env.guest_env._core.instance.guest.account.memory_bytes
