"""Actors in threads: the example of the seed's documentation, and trainings that go wrong."""

import signal
import threading
from dataclasses import dataclass

import pytest
from tests.async_parts import CountingConfig, CountingEnv, LearnerAgent, LearnerConfig
from tests.waiting import eventually

from arkml.async_trainer import (
    ActorManagerConfig,
    ActorStat,
    AsyncTrainerConfig,
    BorderAsyncTrainerError,
    SendMsgForPush,
    SyncModel,
    actor_manager,
    util,
)
from arkml.async_trainer.core import (
    Agent,
    BufferedRecorder,
    DefaultEvaluator,
    NullRecorder,
    ReplayBufferBase,
    SimpleReplayBuffer,
    SimpleReplayBufferConfig,
    SimpleStepProcessor,
    SimpleStepProcessorConfig,
)
from arkml.async_trainer.runners.runner import CHANNEL, ActorEnded, ActorJob
from arkml.async_trainer.runners.threads import ThreadRunner
from arkml.errors import UsageError
from arkml.testing.async_trainer import (
    TestActBatch,
    TestAgent,
    TestAgentConfig,
    TestEnv,
    TestObsBatch,
)

Env = TestEnv
ObsBatch = TestObsBatch
ActBatch = TestActBatch
ReplayBuffer = SimpleReplayBuffer[ObsBatch, ActBatch]
StepProcessor = SimpleStepProcessor[Env, ObsBatch, ActBatch]


def agent_config():
    return TestAgentConfig()


def env_config():
    return 0


def test_the_example_of_the_seed_trains():
    # Create a new agent by wrapping the existing agent in order to implement SyncModel.
    class TestAgent2(Agent, SyncModel):
        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def build(cls, config):
            return cls(TestAgent.build(config))

        def train(self):
            self.inner.train()

        def is_train(self):
            return self.inner.is_train()

        def eval(self):
            self.inner.eval()

        def opt_with_record(self, buffer):
            return self.inner.opt_with_record(buffer)

        def save_params(self, path):
            return self.inner.save_params(path)

        def load_params(self, path):
            self.inner.load_params(path)

        def opt(self, buffer):
            self.inner.opt_with_record(buffer)

        def sample(self, obs):
            return self.inner.sample(obs)

        def model_info(self):
            return 0, 0

        def sync_model(self, model_info):
            pass

    agent_configs = [agent_config()]
    env_config_train = env_config()
    env_config_eval = env_config()
    replay_buffer_config = SimpleReplayBufferConfig()
    step_proc_config = SimpleStepProcessorConfig()
    actor_man_config = ActorManagerConfig()
    async_trainer_config = AsyncTrainerConfig()
    recorder = NullRecorder()
    evaluator = DefaultEvaluator(env_config_eval, 0, 1, env=TestEnv)

    result = util.train_async(
        agent_config(),
        agent_configs,
        env_config_train,
        env_config_eval,
        step_proc_config,
        replay_buffer_config,
        actor_man_config,
        async_trainer_config,
        recorder,
        evaluator,
        agent=TestAgent2,
        env=Env,
        step_processor=StepProcessor,
        replay_buffer=ReplayBuffer,
    )

    assert result.samples >= 10_000
    assert [stat.env_steps for stat in result.actor_stats] == [result.samples]
    assert result.stat.opt_per_sec > 0


# Trainings with one thing wrong each, or with everything in order.


def train(
    *,
    actors=2,
    env=None,
    learner=None,
    recorder=None,
    manager=None,
    capacity=500,
    own=None,
    **config,
):
    """Train a LearnerAgent with a few samples of CountingEnv."""
    config = {"max_opts": 20, "warmup_period": 20, "sync_interval": 5} | config
    manager = {"n_buffer": 3} | (manager or {})
    learner = learner or LearnerConfig()
    return util.train_async(
        learner,
        own or [learner] * actors,
        env or CountingConfig(),
        CountingConfig(),
        SimpleStepProcessorConfig(),
        SimpleReplayBufferConfig(capacity),
        ActorManagerConfig(**manager),
        AsyncTrainerConfig(**config),
        NullRecorder() if recorder is None else recorder,
    )


def threads():
    return [thread.name for thread in threading.enumerate() if "arkml-actor" in thread.name]


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("ratio", [None, 0.5])
def test_actors_train_an_agent_and_end(n, ratio, tmp_path):
    recorder = BufferedRecorder(tmp_path)
    result = train(
        env=CountingConfig(n=n), recorder=recorder, max_opts=200, eval_interval=50,
        record_compute_cost_interval=100, flush_record_interval=100, save_interval=100,
        updates_per_sample=ratio,
    )  # fmt: skip

    assert result.agent.n_opts == 200
    assert result.samples == sum(stat.env_steps for stat in result.actor_stats)
    assert result.samples % n == 0
    assert len(result.actor_stats) == 2
    assert result.replacements == 0
    assert result.stat.opt_per_sec == pytest.approx(200 / result.stat.duration)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["100", "200", "best"]
    last = recorder.records[-1]
    assert last.get_scalar("Episode return_max") == 15
    for name in ("samples_total", "opt_steps_per_sec", "samples_per_sec", "samples_per_opt_steps"):
        assert last.get_scalar(f"{name}_max") >= 0
    assert threads() == []


def test_updates_are_at_most_those_of_the_samples():
    result = train(max_opts=300, updates_per_sample=0.5, manager={"n_buffer": 10})

    assert 600 <= result.samples <= 600 + 5 / 0.5 + 2 * 2 * 10
    assert result.agent.n_opts == 300


class StampedProcessor(SimpleStepProcessor):
    """Items are [seed, number of the item]."""

    def process(self, step):
        super().process(step)
        return [int(step.obs[0, 0]), int(step.obs[0, 1])]


class ListBuffer(ReplayBufferBase):
    """Keeps all items, and draws none."""

    def __init__(self):
        self.items = []

    @classmethod
    def build(cls, _):
        return cls()

    def push(self, item):
        self.items.append(item)

    def __len__(self):
        return len(self.items)

    def batch(self, size):
        return [None] * size


def test_the_samples_received_are_all_that_each_actor_made_in_their_order():
    kept = ListBuffer()

    class KeptBuffer(ListBuffer):
        @classmethod
        def build(cls, _):
            return kept

    config = AsyncTrainerConfig(max_opts=50, warmup_period=1_000)
    result = util.train_async(
        LearnerConfig(), [LearnerConfig()] * 3, CountingConfig(), CountingConfig(),
        SimpleStepProcessorConfig(), SimpleReplayBufferConfig(), ActorManagerConfig(n_buffer=7),
        config, NullRecorder(), step_processor=StampedProcessor, replay_buffer=KeptBuffer,
    )  # fmt: skip

    for actor, stat in enumerate(result.actor_stats):
        numbers = [number for seed, number in kept.items if seed == actor]
        assert numbers == list(range(1, stat.env_steps + 1))
    assert len(kept.items) == result.samples


def test_actors_act_with_newer_models_as_training_proceeds():
    kept = ListBuffer()

    class ActProcessor(SimpleStepProcessor):
        def process(self, step):
            super().process(step)
            return int(step.act[0, 0])

    class KeptBuffer(ListBuffer):
        @classmethod
        def build(cls, _):
            return kept

    config = AsyncTrainerConfig(
        max_opts=600, warmup_period=1, sync_interval=10, updates_per_sample=1.0
    )
    util.train_async(
        LearnerConfig(), [LearnerConfig()], CountingConfig(), CountingConfig(),
        SimpleStepProcessorConfig(), SimpleReplayBufferConfig(), ActorManagerConfig(n_buffer=5),
        config, NullRecorder(), step_processor=ActProcessor, replay_buffer=KeptBuffer,
    )  # fmt: skip

    assert kept.items[0] == 0
    assert kept.items == sorted(kept.items)
    assert all(n_opts % 10 == 0 for n_opts in kept.items)
    assert len(set(kept.items)) > 10


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("build", "RuntimeError: no room for a counter"),
        ("reset", "RuntimeError: the counter is stuck"),
        ("step", "RuntimeError: the counter has jumped"),
        ("exit", "SystemExit: 3"),
        ("nan", "UsageError: the environment CountingEnv returned the reward .* not finite"),
        ("obs", r"returned an observation of shape \(1, 2\), expected an array of shape \(1, 3\)"),
        ("reward", r"returned rewards of shape \(2,\)"),
        ("flags", r"returned is_truncated of shape \(1, 1\)"),
    ],
)
def test_an_environment_that_always_fails_ends_the_training_with_its_reason(fault, reason):
    with pytest.raises(BorderAsyncTrainerError, match=f"died 6 times .*{reason}"):
        train(env=CountingConfig(fault=fault), actors=1)

    assert threads() == []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("sync_model", "this is not my model"), ("sample", "no idea")],
)
def test_an_agent_that_fails_in_actors_ends_the_training_with_its_reason(fault, reason):
    with pytest.raises(BorderAsyncTrainerError, match=f"RuntimeError: {reason}"):
        train(own=[LearnerConfig(fault=fault)])

    assert threads() == []


def test_an_agent_that_fails_in_the_trainer_raises_what_it_raised():
    with pytest.raises(ArithmeticError, match="the loss is not finite"):
        train(learner=LearnerConfig(fault="opt"), own=[LearnerConfig()])

    assert threads() == []


def test_an_actor_that_dies_now_and_then_is_replaced_and_loses_nothing():
    # The environment of seed 0 fails at its 31st step, those of later incarnations never do.
    result = train(env=FailsOnceConfig(at=31), actors=1, manager={"n_buffer": 7}, warmup_period=100)

    assert result.replacements == 1
    assert result.samples == result.actor_stats[0].env_steps > 100


@dataclass(frozen=True)
class FailsOnceConfig(CountingConfig):
    fault: str = "step"


class FailsOnceEnv(CountingEnv):
    @classmethod
    def build(cls, config, seed):
        return super().build(config if seed == 0 else CountingConfig(), seed)


FailsOnceConfig.builds = FailsOnceEnv


def test_a_training_that_is_interrupted_ends_its_actors():
    class InterruptedAgent(LearnerAgent):
        def update(self, _):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        util.train_async(
            LearnerConfig(), [LearnerConfig()] * 2, CountingConfig(), CountingConfig(),
            SimpleStepProcessorConfig(), SimpleReplayBufferConfig(), ActorManagerConfig(),
            AsyncTrainerConfig(warmup_period=10), NullRecorder(), agent=InterruptedAgent,
        )  # fmt: skip

    assert threads() == []


def test_a_first_model_with_optimization_steps_is_refused():
    with pytest.raises(BorderAsyncTrainerError, match="has 4 optimization steps"):
        train(learner=LearnerConfig(first=4))

    assert threads() == []


def test_a_buffer_smaller_than_the_warmup_is_refused():
    with pytest.raises(UsageError, match="warmup_period is 20, and the replay buffer holds 19"):
        train(capacity=19)

    assert threads() == []


def test_a_buffer_smaller_than_a_batch_is_refused():
    with pytest.raises(UsageError, match=r"a batch of 40 samples .* capacity 30"):
        train(capacity=30, learner=LearnerConfig(batch_size=40))

    assert threads() == []


class PatientAgent(LearnerAgent):
    """Makes its first update after all actors have ended."""

    def update(self, buffer):
        eventually(lambda: threads() == [])
        super().update(buffer)


def test_a_full_channel_ends_the_training_where_actors_are_to_raise():
    with pytest.raises(SendMsgForPush, match="1000 messages wait there, and a message of 1 items"):
        util.train_async(
            LearnerConfig(), [LearnerConfig()], CountingConfig(), CountingConfig(),
            SimpleStepProcessorConfig(), SimpleReplayBufferConfig(),
            ActorManagerConfig(n_buffer=1, on_full="raise"),
            AsyncTrainerConfig(warmup_period=10), NullRecorder(), agent=PatientAgent,
        )  # fmt: skip


def job_of(**others):
    fields = {
        "actor": 0, "incarnation": 0, "seed": 0, "n_buffer": 1, "on_full": "wait",
        "agent": LearnerAgent, "agent_config": LearnerConfig(),
        "env": CountingEnv, "env_config": CountingConfig(),
        "step_processor": SimpleStepProcessor,
        "step_processor_config": SimpleStepProcessorConfig(),
    }  # fmt: skip
    return ActorJob(**fields | others)


def received_until_the_end(runner):
    arrived = []
    while not arrived or not isinstance(arrived[-1], ActorEnded):
        arrived += runner.receive(30.0)
    return arrived


def test_an_actor_waits_at_a_full_channel_and_loses_nothing():
    runner = ThreadRunner()
    runner.publish(0, 0)
    runner.start(job_of())
    eventually(lambda: runner.waits.count == 1)
    first = runner.receive(30.0)
    eventually(lambda: runner.waits.count == 2)
    runner.stop()
    *rest, ended = received_until_the_end(runner)
    runner.close(30.0)

    messages = first + rest
    assert len(first) == CHANNEL
    assert [message.sequence for message in messages] == list(range(len(messages)))
    assert ended == ActorEnded(0, 0, ended.stat)
    assert ended.stat.env_steps == len(messages) == 2 * CHANNEL + 1
    assert runner.waits.seconds > 0
    assert threads() == []


def test_an_actor_that_is_to_raise_ends_at_a_full_channel():
    runner = ThreadRunner()
    runner.publish(0, 0)
    runner.start(job_of(on_full="raise"))
    eventually(lambda: threads() == [])
    *messages, ended = received_until_the_end(runner)
    runner.close(30.0)

    assert len(messages) == CHANNEL
    assert ended.is_channel_full
    assert ended.reason.startswith("SendMsgForPush: the channel to the trainer is full")
    assert runner.waits.count == 0


def test_an_actor_is_held_at_what_is_admitted_and_sends_its_rest_when_it_is_stopped():
    runner = ThreadRunner()
    runner.admit(0, 10)
    runner.start(job_of(n_buffer=4))
    runner.publish(0, 0)
    messages = []
    while len(messages) < 2:
        messages += runner.receive(30.0)
    runner.admit(0, 13)
    while len(messages) < 3:
        messages += runner.receive(30.0)
    runner.stop()
    *rest, ended = received_until_the_end(runner)
    runner.close(30.0)

    assert [len(message.pushed_items) for message in messages + rest] == [4, 4, 4, 1]
    assert ended == ActorEnded(0, 0, ended.stat)
    assert ended.stat.env_steps == 13


def test_actors_that_wait_for_a_model_stop_without_one():
    runner = ThreadRunner()
    runner.start(job_of())
    runner.stop()

    assert received_until_the_end(runner) == [ActorEnded(0, 0, ActorStat(0, 0.0))]


def test_an_environment_is_closed_at_every_end():
    closed = []

    class ClosedEnv(CountingEnv):
        def close(self):
            closed.append(self.config.fault)

    for fault in ("reset", "step"):
        runner = ThreadRunner()
        runner.publish(0, 0)
        runner.start(job_of(env=ClosedEnv, env_config=CountingConfig(fault=fault)))
        received_until_the_end(runner)

    assert closed == ["reset", "step"]


def test_environments_are_built_one_at_a_time():
    building = []
    overlaps = []

    class SlowEnv(CountingEnv):
        @classmethod
        def build(cls, config, seed):
            building.append(seed)
            overlaps.append(len(building))
            threading.Event().wait(0.02)
            building.remove(seed)
            return super().build(config, seed)

    runner = ThreadRunner()
    for actor in range(5):
        runner.start(job_of(actor=actor, seed=actor, env=SlowEnv))
    eventually(lambda: len(overlaps) == 5)
    runner.stop()
    runner.close(30.0)

    assert overlaps == [1] * 5


class StuckEnv(CountingEnv):
    """Does not return from its steps before it is let go."""

    is_stuck, let_go = threading.Event(), threading.Event()

    def step(self, act):
        self.is_stuck.set()
        self.let_go.wait(300)
        return super().step(act)


def test_actors_are_given_up_that_are_stuck():
    manager = actor_manager.ActorManager(
        ActorManagerConfig(),
        actor_manager.ActorParts(
            LearnerAgent, [LearnerConfig()], StuckEnv, CountingConfig(),
            SimpleStepProcessor, SimpleStepProcessorConfig(),
        ),
    )  # fmt: skip
    manager.run()
    manager.publish(0, 0)
    assert StuckEnv.is_stuck.wait(300)

    assert manager.stop_and_join(0.2) == [ActorStat(0, 0.0)]
    assert manager.is_running
    StuckEnv.let_go.set()
    eventually(lambda: threads() == [])
