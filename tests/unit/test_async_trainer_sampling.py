"""Steps, step processors, samplers, evaluators and the proxy of the replay buffer."""

import numpy as np
import pytest
from tests.async_parts import CountingConfig, CountingEnv, LearnerAgent, LearnerConfig

from arkml.async_trainer import (
    ActorStat,
    AsyncTrainStat,
    PushedItemMessage,
    ReplayBufferProxy,
    ReplayBufferProxyConfig,
    actor_stats_fmt,
)
from arkml.async_trainer.core import (
    DefaultEvaluator,
    ExperienceBufferBase,
    Sampler,
    SimpleStepProcessor,
    SimpleStepProcessorConfig,
    Step,
)
from arkml.errors import UsageError
from arkml.testing.async_trainer import TestAct, TestEnv, TestObs


class ListBuffer(ExperienceBufferBase):
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def __len__(self):
        return len(self.items)


def sampled(steps, config):
    """The items of some steps, and the sampler that made them."""
    buffer = ListBuffer()
    sampler = Sampler(CountingEnv.build(config, 7), processor())
    agent = LearnerAgent(LearnerConfig(first=2))
    for _ in range(steps):
        sampler.sample_and_push(agent, buffer)
    return buffer.items, sampler


def processor():
    return SimpleStepProcessor.build(SimpleStepProcessorConfig())


def test_a_step_is_done_where_an_episode_of_any_environment_ended():
    def is_done(terminated, truncated):
        flags = (np.array(terminated, np.int8), np.array(truncated, np.int8))
        return Step(None, None, np.zeros(2, np.float32), *flags, None).is_done

    assert is_done([0, 1], [0, 0])
    assert is_done([0, 0], [1, 0])
    assert not is_done([0, 0], [0, 0])


def test_the_default_step_with_reset_begins_the_next_episode():
    env = CountingEnv.build(CountingConfig(n=2, length=2), 0)
    env.reset()
    env.counters[0] = 1
    step, _ = env.step_with_reset(np.zeros((2, 1)))

    assert step.obs[:, 2].tolist() == [2, 1]
    assert step.init_obs[:, 2].tolist() == [0, 1]


@pytest.mark.parametrize("n", [1, 3])
def test_items_are_transitions_of_one_step_within_episodes(n):
    items, sampler = sampled(8, CountingConfig(n=n, length=3))

    assert [item.obs.array[0, 2] for item in items] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert [item.next_obs.array[0, 2] for item in items] == [1, 2, 3, 1, 2, 3, 1, 2]
    assert [item.reward.tolist() for item in items[:3]] == [[1] * n, [2] * n, [3] * n]
    assert [item.is_truncated[0] for item in items] == [0, 0, 1, 0, 0, 0, 0, 0]
    assert [item.is_terminated[0] for item in items] == [0, 0, 0, 0, 0, 1, 0, 0]
    assert all(len(item) == n and item.act.array.tolist() == [[2]] * n for item in items)
    assert sampler.samples == 8 * n


def test_environments_side_by_side_end_their_episodes_one_by_one():
    env = CountingEnv.build(CountingConfig(n=2, length=3), 0)
    buffer, sampler = ListBuffer(), Sampler(env, processor())
    agent = LearnerAgent(LearnerConfig())
    sampler.sample_and_push(agent, buffer)
    env.counters[1] = 2
    sampler._prev_obs[1, 2] = 2
    for _ in range(3):
        sampler.sample_and_push(agent, buffer)

    assert [item.obs.array[:, 2].tolist() for item in buffer.items[1:]] == [[1, 2], [2, 0], [0, 1]]
    assert [item.next_obs.array[:, 2].tolist() for item in buffer.items[1:]] == [
        [2, 3],
        [3, 1],
        [1, 2],
    ]


def test_a_step_processor_that_was_not_reset_refuses_steps():
    step, _ = TestEnv.build(0, 0).step(TestAct(1))

    with pytest.raises(UsageError, match="call reset before process"):
        processor().process(step)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nan", r"CountingEnv returned the reward array\(\[nan.*which is not finite"),
        ("obs", r"an observation of shape \(2, 2\), expected an array of shape \(2, 3\)"),
        ("reward", r"rewards of shape \(3,\), expected an array of shape \(2,\)"),
        ("flags", r"is_truncated of shape \(2, 1\), expected an array of shape \(2,\)"),
    ],
)
def test_a_step_that_cannot_be_learned_from_is_refused_and_not_pushed(fault, message):
    buffer = ListBuffer()
    env = CountingEnv.build(CountingConfig(n=2, fault=fault, at=2), 0)
    sampler = Sampler(env, processor())
    sampler.sample_and_push(LearnerAgent(LearnerConfig()), buffer)

    with pytest.raises(UsageError, match=message):
        sampler.sample_and_push(LearnerAgent(LearnerConfig()), buffer)
    assert len(buffer) == sampler.samples / 2 == 1


def test_rewards_that_are_a_list_are_refused():
    class ListEnv(CountingEnv):
        def step(self, act):
            step, record = super().step(act)
            step.reward = [1.0]
            return step, record

    sampler = Sampler(ListEnv.build(CountingConfig(), 0), processor())
    with pytest.raises(UsageError, match=r"rewards of shape \[1\.0\], expected an array"):
        sampler.sample_and_push(LearnerAgent(LearnerConfig()), ListBuffer())


def test_an_end_without_the_next_observation_is_refused():
    class NoReset(CountingEnv):
        def step_with_reset(self, act):
            return self.step(act)

    sampler = Sampler(NoReset.build(CountingConfig(length=1), 0), processor())
    with pytest.raises(UsageError, match="init_obs after an episode's end of shape None"):
        sampler.sample_and_push(LearnerAgent(LearnerConfig()), ListBuffer())


def test_samples_a_second_are_those_since_the_last_call():
    _, sampler = sampled(4, CountingConfig())

    assert sampler.take_fps() > 0
    assert sampler.take_fps() == 0


@pytest.mark.parametrize("n", [1, 2])
def test_the_evaluator_plays_numbered_episodes_and_means_their_returns(n):
    evaluator = DefaultEvaluator(CountingConfig(n=n, length=4), 3, 5)
    agent = LearnerAgent(LearnerConfig())
    score, record = evaluator.evaluate(agent)
    evaluator.close()

    assert score == 1 + 2 + 3 + 4
    assert list(record) == [("Episode return", score)]
    assert evaluator._env.episodes[0] == 4
    assert evaluator._env.seed == 3
    assert evaluator._env.is_closed


def test_episodes_side_by_side_count_until_their_own_ends():
    class Staggered(CountingEnv):
        def reset_with_index(self, ix):
            obs = super().reset_with_index(ix)
            self.counters[1] = 2
            return obs

    evaluator = DefaultEvaluator(CountingConfig(n=2, length=4), 0, 1, env=Staggered)

    assert evaluator.evaluate(LearnerAgent(LearnerConfig()))[0] == (10 + 7) / 2


class ComingAndGoing(CountingEnv):
    """Environments of which the first one ends after a step, and two others come after that."""

    def reset_with_index(self, ix):
        self.turn = ix
        return np.zeros((2, 1))

    def step(self, act):
        self.turn += 1
        count, over = len(act), np.zeros(len(act), np.int8)
        over[0] = self.turn == 1
        over[-1] = self.turn == 3
        reward = np.arange(1, count + 1, dtype="f4") * 10**self.turn
        return Step(act, np.zeros((count, 1)), reward, over, np.zeros(count, np.int8), None), None

    def begin_next(self, step):
        if self.turn == 1:
            step.init_obs, step.continues = np.zeros((3, 1)), self.after()

    def after(self):
        return np.array([-1, -1, 1])


def test_episodes_of_environments_that_come_and_go_are_those_of_the_beginning():
    evaluator = DefaultEvaluator(CountingConfig(), 0, 1, env=ComingAndGoing)

    returns = [10, 20 + 300 + 3_000]
    assert evaluator.evaluate(LearnerAgent(LearnerConfig()))[0] == sum(returns) / 2


def test_an_episode_that_neither_ends_nor_continues_is_refused():
    class Losing(ComingAndGoing):
        def after(self):
            return np.array([-1, -1, -1])

    evaluator = DefaultEvaluator(CountingConfig(), 0, 1, env=Losing)
    with pytest.raises(UsageError, match=r"row 1 of a step neither ended nor continues.* -1\]"):
        evaluator.evaluate(LearnerAgent(LearnerConfig()))


def test_an_evaluator_without_episodes_is_refused():
    with pytest.raises(UsageError, match="n_episodes is 0"):
        DefaultEvaluator(0, 0, 0, env=TestEnv)


def test_the_seeds_environment_counts_from_its_configuration():
    env = TestEnv.build(5, 0)
    first = env.reset()
    step, record = env.step_with_reset(TestAct(2))

    assert (first, step.obs, env.reset_with_index(3)) == (TestObs(5), TestObs(7), TestObs(5))
    assert (len(first), step.is_done, record.is_empty) == (1, False, True)


def test_a_proxy_sends_exactly_when_its_buffer_is_full():
    sent = []
    proxy = ReplayBufferProxy(4, ReplayBufferProxyConfig(n_buffer=3), sent.append, incarnation=2)
    counts = []
    for item in range(7):
        proxy.push(item)
        counts.append(len(sent))

    assert counts == [0, 0, 1, 1, 1, 2, 2]
    assert sent == [PushedItemMessage(4, [0, 1, 2], 2, 0), PushedItemMessage(4, [3, 4, 5], 2, 1)]


def test_a_proxy_sends_the_rest_when_it_is_flushed_and_nothing_twice():
    sent = []
    proxy = ReplayBufferProxy(0, ReplayBufferProxyConfig(n_buffer=3), sent.append)
    proxy.push("a")
    proxy.flush()
    proxy.flush()

    assert sent == [PushedItemMessage(0, ["a"], 0, 0)]


def test_a_proxy_has_neither_a_length_nor_batches():
    proxy = ReplayBufferProxy(0, ReplayBufferProxyConfig(n_buffer=3), print)

    with pytest.raises(UsageError, match="no length"):
        len(proxy)
    with pytest.raises(UsageError, match="no batch of 32"):
        proxy.batch(32)


def test_statistics_of_actors_are_the_seeds_text():
    stats = [ActorStat(300, 2.0), ActorStat(100, 3.0), ActorStat(0, 0.0)]

    assert actor_stats_fmt(stats) == (
        "actor_id, samples, samples/sec, duration\n"
        "0, 300, 150, 2\n"
        "1, 100, 33.333332, 3\n"
        "2, 0, 0, 0\n"
    )
    assert actor_stats_fmt([]) == "actor_id, samples, samples/sec, duration\n"


def test_statistics_of_a_training_are_the_seeds_text():
    stat = AsyncTrainStat(samples_per_sec=1e7, duration=0.1, opt_per_sec=1 / 3)

    assert stat.fmt() == "samples/sec, opt_steps/sec, duration\n10000000, 0.33333334, 0.1\n"
