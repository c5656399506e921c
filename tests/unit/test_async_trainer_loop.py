"""The loops of the trainers, by the order of what they do, over scripted messages."""

import re

import numpy as np
import pytest
from tests.async_parts import CountingConfig, CountingEnv, LearnerAgent, LearnerConfig
from tests.unit.test_async_trainer_buffers import item

from arkml.async_trainer import (
    ActorManager,
    ActorManagerConfig,
    ActorStat,
    AsyncTrainer,
    AsyncTrainerConfig,
    BorderAsyncTrainerError,
    PushedItemMessage,
)
from arkml.async_trainer.actor_manager import ActorParts
from arkml.async_trainer.core import (
    BufferedRecorder,
    Evaluator,
    Record,
    SimpleReplayBuffer,
    SimpleReplayBufferConfig,
    SimpleStepProcessor,
    SimpleStepProcessorConfig,
    Trainer,
    TrainerConfig,
)
from arkml.async_trainer.runners.runner import ActorEnded, Waits
from arkml.base.learning_loop import LearningLoop, TurnCounts, take_turn
from arkml.errors import UsageError


class ScriptedRunner:
    """Gives messages of one sample each, as many at a time as `per_call`, and notes calls."""

    def __init__(self, calls, per_call=1, samples=1):
        self.waits = Waits()
        self.calls = calls
        self.per_call = per_call
        self.samples = samples
        self.admitted = {}
        self.jobs = []
        self.sequence = 0
        self.is_stopped = self.is_closed = False
        self.extra = []

    def start(self, job):
        self.jobs.append(job)

    def publish(self, n_opts, _):
        self.calls.append(f"sync {n_opts}")

    def admit(self, actor, items):
        self.admitted[actor] = items

    def receive(self, _):
        extra, self.extra = self.extra, []
        if extra:
            return extra
        if self.is_stopped:
            jobs, self.jobs = self.jobs, []
            return [ActorEnded(job.actor, job.incarnation, ActorStat(7, 0.5)) for job in jobs]
        self.calls.append("drain")
        return [self.message() for _ in range(self.per_call)]

    def message(self):
        self.sequence += 1
        return PushedItemMessage(0, [item(*range(self.samples))], 0, self.sequence)

    def stop(self):
        self.is_stopped = True
        self.calls.append("stop")

    def close(self, _):
        self.is_closed = True


class ScriptedEvaluator(Evaluator):
    def __init__(self, calls, scores):
        self.calls = calls
        self.scores = iter(scores)

    def evaluate(self, agent):
        score = next(self.scores)
        self.calls.append(f"evaluate {score}")
        assert not agent.is_train()
        return score, Record.from_scalar("score", score)


class CountingRecorder(BufferedRecorder):
    def __init__(self, calls, model_dir):
        super().__init__(model_dir)
        self.calls = calls

    def store(self, record):
        self.calls.append(f"store {' '.join(record.keys())}")
        super().store(record)

    def flush(self, step):
        self.calls.append(f"flush {step}")
        super().flush(step)


def manager_of(runner, actors=1, **config):
    parts = ActorParts(
        LearnerAgent, [LearnerConfig()] * actors, CountingEnv, CountingConfig(),
        SimpleStepProcessor, SimpleStepProcessorConfig(),
    )  # fmt: skip
    manager = ActorManager(ActorManagerConfig(**config), parts, runner)
    manager.run()
    return manager


def trainer_of(config, tmp_path, scores=(), *, capacity=100, runner=None, agent=None, actors=1):
    agent = agent or LearnerAgent(LearnerConfig())
    runner = runner or ScriptedRunner(agent.calls)
    runner.calls = agent.calls
    recorder = CountingRecorder(agent.calls, tmp_path)
    evaluator = ScriptedEvaluator(agent.calls, scores)
    buffer = SimpleReplayBuffer.build(SimpleReplayBufferConfig(capacity))
    manager = manager_of(runner, actors, n_buffer=1)
    return AsyncTrainer(config, agent, buffer, manager, recorder, evaluator), recorder, runner


NEVER = {
    "eval_interval": 0,
    "flush_record_interval": 0,
    "record_compute_cost_interval": 0,
    "record_agent_info_interval": 0,
    "save_interval": 0,
    "sync_interval": 0,
}


def test_the_loop_does_everything_in_the_order_of_the_seed(tmp_path):
    config = AsyncTrainerConfig(
        max_opts=4, eval_interval=2, flush_record_interval=2, record_compute_cost_interval=4,
        record_agent_info_interval=3, save_interval=4, sync_interval=2, warmup_period=3,
    )  # fmt: skip
    trainer, recorder, _ = trainer_of(config, tmp_path, [5.0, 4.0])
    stat = trainer.train()

    costs = (
        "average_opt_time average_sample_time samples_total opt_steps_per_sec samples_per_sec"
        " samples_per_opt_steps"
    )
    assert trainer.agent.calls == [
        "train", "sync 0",
        "drain", "drain", "drain", "opt", "flush 1",
        "drain", "opt", "eval", "evaluate 5.0", "train", "save best", "sync 2", "store score",
        "drain", "opt_with_record", "store loss", "flush 3",
        "drain", "opt", "eval", "evaluate 4.0", "train", "save 4", "sync 4", f"store score {costs}",
        "sync 4", "stop", "flush 4",
    ]  # fmt: skip
    assert trainer.samples_total == 6
    assert stat.opt_per_sec == pytest.approx(4 / stat.duration)
    assert stat.samples_per_sec == pytest.approx(6 / stat.duration)
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["4", "best"]
    assert recorder.records[-1].get_scalar("samples_total_max") == 6
    assert recorder.records[-1].get_scalar("samples_per_opt_steps_max") == 1.5


def test_an_interval_of_zero_is_never(tmp_path):
    trainer, recorder, _ = trainer_of(
        AsyncTrainerConfig(max_opts=2, warmup_period=1, **NEVER), tmp_path
    )
    trainer.train()

    assert trainer.agent.calls == [
        "train", "sync 0", "drain", "opt", "drain", "opt", "sync 2", "stop",
    ]  # fmt: skip
    assert recorder.records == []


def test_average_times_are_in_milliseconds_and_minus_one_without_samples(tmp_path):
    config = AsyncTrainerConfig(
        **NEVER | {"record_compute_cost_interval": 1}, max_opts=2, warmup_period=1
    )
    trainer, recorder, runner = trainer_of(config, tmp_path)
    stored = []
    recorder.store = stored.append

    def one_message(seconds):
        runner.per_call = 0
        return [runner.message()] if seconds else []

    runner.receive = one_message
    runner.jobs.clear()
    trainer._actors._actors[0].is_running = False
    trainer.train()

    first, second = stored
    assert first.get_scalar("average_sample_time") > 0
    assert 0 < first.get_scalar("average_opt_time") < 1_000
    assert second.get_scalar("average_sample_time") == -1
    assert second.get_scalar("samples_per_opt_steps") == 0
    assert second.get_scalar("samples_total") == 1


def test_no_optimization_step_is_made_where_none_is_asked_for(tmp_path):
    trainer, _, _ = trainer_of(AsyncTrainerConfig(max_opts=0), tmp_path, capacity=10_000)
    stat = trainer.train()

    assert trainer.agent.calls == ["train", "sync 0", "sync 0", "stop"]
    assert stat.opt_per_sec == 0


def test_a_first_model_that_has_optimization_steps_is_refused(tmp_path):
    agent = LearnerAgent(LearnerConfig(first=3))
    trainer, _, _ = trainer_of(AsyncTrainerConfig(warmup_period=1), tmp_path, agent=agent)

    with pytest.raises(BorderAsyncTrainerError, match="LearnerAgent has 3 optimization steps"):
        trainer.train()


def test_a_warmup_above_the_capacity_of_the_buffer_is_refused(tmp_path):
    with pytest.raises(UsageError, match="warmup_period is 10000, and the replay buffer holds 100"):
        trainer_of(AsyncTrainerConfig(), tmp_path)


def test_an_evaluation_that_fails_leaves_the_agent_in_training(tmp_path):
    config = AsyncTrainerConfig(max_opts=1, eval_interval=1, warmup_period=1)
    trainer, _, _ = trainer_of(config, tmp_path, scores=())

    with pytest.raises(StopIteration):
        trainer.train()
    assert trainer.agent.is_train()


def test_only_a_better_score_is_saved_as_the_best(tmp_path):
    config = AsyncTrainerConfig(**NEVER | {"eval_interval": 1}, max_opts=5, warmup_period=1)
    trainer, _, _ = trainer_of(config, tmp_path, [float("nan"), -3.0, -3.0, -2.0, -9.0])
    trainer.train()

    calls = [call for call in trainer.agent.calls if re.match("save|evaluate", call)]
    assert calls == [
        "evaluate nan", "evaluate -3.0", "save best", "evaluate -3.0", "evaluate -2.0",
        "save best", "evaluate -9.0",
    ]  # fmt: skip


def test_messages_that_arrive_while_actors_stop_are_pushed(tmp_path):
    trainer, _, runner = trainer_of(AsyncTrainerConfig(max_opts=1, warmup_period=1), tmp_path)
    stop = runner.stop

    def stop_with_rest():
        runner.extra = [runner.message(), runner.message()]
        stop()

    runner.stop = stop_with_rest
    trainer.train()

    assert trainer.samples_total == len(trainer.buffer) == 3
    assert trainer._actors.stop_and_join() == [ActorStat(7, 0.5)]
    assert runner.is_closed


@pytest.mark.parametrize(("ratio", "samples"), [(0.5, 1), (2.0, 1), (0.25, 4)])
def test_updates_keep_to_the_samples_and_actors_to_the_updates(ratio, samples, tmp_path):
    config = AsyncTrainerConfig(
        **NEVER | {"sync_interval": 2}, max_opts=20, warmup_period=6, updates_per_sample=ratio
    )
    runner = ScriptedRunner([], samples=samples)
    trainer, _, _ = trainer_of(config, tmp_path, runner=runner)
    made = []

    def receive(_):
        # An actor makes what it may, and nothing more.
        if sum(made) >= runner.admitted[0]:
            return []
        made.append(1)
        assert trainer.opt_steps <= trainer.samples_total * ratio
        return [runner.message()]

    runner.receive = receive
    trainer._actors._actors[0].is_running = False
    trainer.train()

    ahead = trainer.samples_total - max(6, 20 / ratio)
    assert trainer.opt_steps == 20
    assert 20 / ratio <= trainer.samples_total
    assert ahead <= 2 / ratio + 2 * samples


def test_actors_of_unknown_width_may_make_their_first_messages_only(tmp_path):
    config = AsyncTrainerConfig(warmup_period=50, updates_per_sample=1.0)
    runner = ScriptedRunner([])
    trainer, _, _ = trainer_of(config, tmp_path, runner=runner, actors=3)
    trainer.drain()
    first = dict(runner.admitted)
    trainer.drain()

    assert first == {0: 1, 1: 1, 2: 1}
    assert runner.admitted == {0: 1 + (2 + 50 + 100) // 3, 1: 50, 2: 50}


def test_a_trainer_to_which_no_actor_sends_anything_warns(tmp_path, caplog):
    runner = ScriptedRunner([], per_call=0)
    trainer, _, _ = trainer_of(AsyncTrainerConfig(warmup_period=5), tmp_path, runner=runner)
    trainer.drain()
    before = caplog.text
    trainer._received_at -= 61.0
    trainer.drain()
    trainer.drain()

    assert before == ""
    assert caplog.text.count("no actor has sent a sample for 61 seconds") == 1


class OneTurn(LearningLoop):
    def __init__(self, **answers):
        self.answers = answers
        self.calls = []

    def drain(self):
        self.calls.append("drain")
        return 3

    is_ready = property(lambda self: self.answers["is_ready"])
    is_sync_due = property(lambda self: self.answers["is_sync_due"])
    is_record_due = property(lambda self: self.answers["is_record_due"])

    def optimize(self):
        self.calls.append("optimize")
        return 2

    def sync(self):
        self.calls.append("sync")

    def record(self):
        self.calls.append("record")


@pytest.mark.parametrize("is_record_due", [True, False])
@pytest.mark.parametrize("is_sync_due", [True, False])
@pytest.mark.parametrize("is_ready", [True, False])
def test_a_turn_drains_then_optimizes_syncs_and_records_what_is_due(
    is_ready, is_sync_due, is_record_due
):
    loop = OneTurn(is_ready=is_ready, is_sync_due=is_sync_due, is_record_due=is_record_due)
    counts = take_turn(loop)

    expected = ["drain"]
    expected += ["optimize"] * is_ready
    expected += ["sync"] * (is_ready and is_sync_due)
    expected += ["record"] * is_record_due
    assert loop.calls == expected
    assert counts == TurnCounts(3, 2 if is_ready else 0)


def train_here(config, tmp_path, scores=(), capacity=100, length=5):
    agent = LearnerAgent(LearnerConfig())
    recorder = CountingRecorder(agent.calls, tmp_path)
    evaluator = ScriptedEvaluator(agent.calls, scores)
    buffer = SimpleReplayBuffer.build(SimpleReplayBufferConfig(capacity))
    env = CountingEnv.build(CountingConfig(length=length), 0)
    processor = SimpleStepProcessor.build(SimpleStepProcessorConfig())
    Trainer.build(config).train(env, processor, agent, buffer, recorder, evaluator)
    return agent, recorder, env, buffer


def test_the_synchronous_trainer_optimizes_after_every_few_environment_steps(tmp_path):
    config = TrainerConfig(
        max_opts=4, opt_interval=3, warmup_period=5, eval_interval=2, save_interval=3,
        record_agent_info_interval=4, record_compute_cost_interval=4, flush_record_interval=3,
    )  # fmt: skip
    agent, recorder, env, buffer = train_here(config, tmp_path, [1.0, 2.0])

    assert env.steps == len(buffer) == 15
    assert agent.calls == [
        "train",
        "opt", "flush 1",
        "opt", "eval", "evaluate 1.0", "train", "save best", "store score",
        "opt", "save 3",
        "opt_with_record", "eval", "evaluate 2.0", "train", "save best",
        "store loss score average_opt_time average_sample_time fps opt_steps_per_sec", "flush 4",
    ]  # fmt: skip
    for name in ("fps", "average_opt_time", "average_sample_time"):
        assert recorder.records[-1].get_scalar(f"{name}_max") > 0


def test_the_synchronous_trainer_does_nothing_by_default(tmp_path):
    agent, _, env, _ = train_here(TrainerConfig(), tmp_path)

    assert agent.calls == ["train"]
    assert env.steps == 0


def test_the_synchronous_trainer_refuses_a_warmup_above_the_capacity(tmp_path):
    with pytest.raises(UsageError, match="warmup_period is 101, and the replay buffer holds 100"):
        train_here(TrainerConfig(max_opts=1, warmup_period=101), tmp_path)


def test_offline_training_takes_samples_from_the_buffer_alone(tmp_path):
    agent = LearnerAgent(LearnerConfig())
    buffer = SimpleReplayBuffer.build(SimpleReplayBufferConfig(10))
    buffer.push(item(1, 2))
    recorder, evaluator = CountingRecorder(agent.calls, tmp_path), ScriptedEvaluator(None, [])
    config = TrainerConfig(max_opts=3, opt_interval=9, warmup_period=50, flush_record_interval=0)
    Trainer.build(config).train_offline(agent, buffer, recorder, evaluator)

    assert agent.calls == ["train", "opt", "opt", "opt"]
    assert len(buffer) == 2


def test_offline_training_with_an_empty_buffer_is_refused(tmp_path):
    agent = LearnerAgent(LearnerConfig())
    buffer = SimpleReplayBuffer.build(SimpleReplayBufferConfig(10))
    arguments = agent, buffer, BufferedRecorder(tmp_path), ScriptedEvaluator(None, [])

    with pytest.raises(UsageError, match="has no samples yet"):
        Trainer.build(TrainerConfig(max_opts=1)).train_offline(*arguments)


def test_what_an_environment_records_is_stored(tmp_path):
    class RecordingEnv(CountingEnv):
        def step(self, act):
            step, _ = super().step(act)
            return step, Record({"height": self.steps})

    agent = LearnerAgent(LearnerConfig())
    recorder = BufferedRecorder(tmp_path)
    env = RecordingEnv.build(CountingConfig(), 0)
    buffer = SimpleReplayBuffer.build(SimpleReplayBufferConfig(10))
    processor = SimpleStepProcessor.build(SimpleStepProcessorConfig())
    config = TrainerConfig(max_opts=2, opt_interval=2)
    Trainer.build(config).train(
        env, processor, agent, buffer, recorder, ScriptedEvaluator(None, [])
    )

    assert [record.get_scalar("height_max") for record in recorder] == [2, 4]
    assert np.isclose(recorder.records[1].get_scalar("height_mean"), 3.5)
