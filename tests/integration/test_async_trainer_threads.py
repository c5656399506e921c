"""Actors in threads: the example of the seed's documentation, and trainings that go wrong."""

from arkml.async_trainer import ActorManagerConfig, AsyncTrainerConfig, SyncModel, util
from arkml.async_trainer.core import (
    Agent,
    DefaultEvaluator,
    NullRecorder,
    SimpleReplayBuffer,
    SimpleReplayBufferConfig,
    SimpleStepProcessor,
    SimpleStepProcessorConfig,
)
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
