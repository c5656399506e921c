"""Actors behave alike in threads, in processes and, in tests/ray, on a Ray cluster."""

import pytest
from tests.integration.actor_parts import CountingEnv, Inbox, Plan, is_prefix, job
from tests.waiting import eventually

from arkml.async_trainer import (
    ActorManagerConfig,
    AsyncTrainerConfig,
    BorderAsyncTrainerError,
    util,
)
from arkml.async_trainer.core import (
    NullRecorder,
    SimpleReplayBuffer,
    SimpleReplayBufferConfig,
    SimpleStepProcessor,
    SimpleStepProcessorConfig,
)
from arkml.async_trainer.runners.choice import make_runner
from arkml.async_trainer.runners.runner import CHANNEL
from arkml.testing.async_trainer import TestAgent, TestAgentConfig, TestEnv


@pytest.fixture(params=["threads", "processes"])
def runner_name(request):
    return request.param


@pytest.fixture
def runner(runner_name):
    made = make_runner(runner_name)
    yield made
    made.close(5.0)


@pytest.fixture
def inbox(runner):
    return Inbox(runner)


def test_items_arrive_in_order_and_the_last_ones_after_a_stop(runner, inbox):
    runner.start(job())
    runner.start(job(1))
    runner.publish(0, 5)
    inbox.until(lambda seen: len(seen.items(0)) > 30 and len(seen.items(1)) > 30)
    runner.stop()
    inbox.until(lambda seen: len(seen.ended) == 2)

    for ended in inbox.ended:
        items = inbox.items(ended.actor)
        assert ended.reason == ""
        assert ended.stat.env_steps == len(items)
        assert ended.stat.duration > 0
        assert is_prefix(items, ended.actor)
        assert {model for _, _, model in items} == {5}


def test_a_message_has_n_buffer_items_but_for_the_last(runner, inbox, tmp_path):
    reports = tmp_path / "reports"
    runner.admit(0, 25)
    runner.start(job(plan=Plan("report", 24, reports=str(reports))))
    runner.publish(0, 0)
    eventually(lambda: reports.exists() and "here" in reports.read_text())
    runner.stop()
    inbox.until(lambda seen: seen.ended)

    assert [len(message.pushed_items) for message in inbox.messages] == [10, 10, 5]


def test_an_actor_waits_for_the_first_model(runner, inbox):
    runner.start(job())
    inbox.receive(0.2)
    had = len(inbox.messages)
    runner.publish(0, 3)
    inbox.until(lambda seen: seen.messages)

    assert had == 0


def test_newer_models_reach_actors_and_older_ones_do_not(runner, inbox):
    runner.publish(0, 0)
    runner.start(job(n_buffer=1, plan=Plan(pause=0.001)))
    inbox.until(lambda seen: seen.messages)
    for n_opts in range(1, 8):
        runner.publish(n_opts, 10 * n_opts)
    inbox.until(lambda seen: seen.items()[-1][2] == 70)
    runner.publish(3, 30)
    count = len(inbox.messages)
    inbox.until(lambda seen: len(seen.messages) > count + 20)

    models = [model for _, _, model in inbox.items()]
    assert models == sorted(models)
    assert models[-1] == 70


def test_an_actor_that_starts_later_begins_with_the_newest_model(runner, inbox):
    runner.publish(0, 1)
    runner.publish(100, 2)
    runner.start(job())
    inbox.until(lambda seen: seen.messages)

    assert {model for _, _, model in inbox.items()} == {2}


def test_an_actor_makes_what_is_admitted(runner, inbox):
    runner.admit(0, 20)
    runner.start(job())
    runner.publish(0, 0)
    inbox.until(lambda seen: len(seen.items()) == 20)
    inbox.receive(0.2)
    first = len(inbox.items())
    runner.admit(0, 50)
    inbox.until(lambda seen: len(seen.items()) == 50)
    inbox.receive(0.2)

    assert first == 20
    assert len(inbox.items()) == 50


def test_an_exception_ends_an_actor_after_its_items(runner, inbox):
    runner.start(job(plan=Plan("raise", at=25)))
    runner.publish(0, 0)
    inbox.until(lambda seen: seen.ended)

    (ended,) = inbox.ended
    assert (ended.actor, ended.incarnation) == (0, 0)
    assert ended.reason == "ValueError: the game is broken"
    assert ended.stat.env_steps == 25
    assert len(inbox.items()) == 25
    assert is_prefix(inbox.items(), 0)


def test_an_environment_that_cannot_be_built_ends_its_actor(runner, inbox):
    runner.start(job(plan=Plan("fail to build")))
    runner.publish(0, 0)
    inbox.until(lambda seen: seen.ended)

    assert inbox.ended[0].reason == "ValueError: no such game"


def test_another_incarnation_counts_from_the_beginning(runner, inbox):
    runner.publish(0, 0)
    runner.start(job(plan=Plan("raise", at=15)))
    inbox.until(lambda seen: seen.ended)
    runner.admit(0, 30)
    runner.start(job(incarnation=1))
    inbox.until(lambda seen: len(seen.items(0, 1)) == 30)

    assert is_prefix(inbox.items(0, 0), 0)
    assert is_prefix(inbox.items(0, 1), 100)


@pytest.fixture
def at_full_channel(runner, tmp_path):
    """Start an actor whose messages fill the channel; and wait until it reports `word`."""
    reports = tmp_path / "reports"

    def start(word, **options):
        runner.start(job(n_buffer=1, plan=Plan("report", CHANNEL, reports=str(reports)), **options))
        runner.publish(0, 0)
        eventually(lambda: reports.exists() and word in reports.read_text())

    return start


def test_an_actor_waits_at_a_full_channel_and_loses_nothing(runner, inbox, at_full_channel):
    at_full_channel("here")
    eventually(lambda: runner.waits.count)
    inbox.until(lambda seen: len(seen.messages) > CHANNEL + 100)
    runner.stop()
    inbox.until(lambda seen: seen.ended)

    assert is_prefix(inbox.items(), 0)
    assert inbox.ended[0].stat.env_steps == len(inbox.items())
    assert runner.waits.seconds > 0


def test_an_actor_that_is_not_to_wait_ends_at_a_full_channel(runner, inbox, at_full_channel):
    at_full_channel("closed", on_full="raise")
    inbox.until(lambda seen: seen.ended)

    assert inbox.ended[0].is_channel_full
    assert inbox.ended[0].reason.startswith("SendMsgForPush: the channel to the trainer is full")
    assert is_prefix(inbox.items(), 0)
    assert len(inbox.items()) >= CHANNEL
    assert runner.waits.count == 0


def test_an_actor_that_waits_at_a_full_channel_is_stopped(runner, inbox, at_full_channel):
    at_full_channel("here")
    eventually(lambda: runner.waits.count)
    runner.stop()
    inbox.until(lambda seen: seen.ended)

    assert inbox.ended[0].reason == ""
    assert inbox.ended[0].stat.env_steps == len(inbox.items())


def test_an_actor_that_waits_for_a_model_is_stopped(runner, inbox):
    runner.start(job())
    runner.stop()
    inbox.until(lambda seen: seen.ended)

    assert (inbox.ended[0].reason, inbox.messages) == ("", [])


def test_an_actor_that_is_held_is_stopped(runner, inbox):
    runner.admit(0, 0)
    runner.start(job())
    runner.publish(0, 0)
    runner.stop()
    inbox.until(lambda seen: seen.ended)

    assert (inbox.ended[0].reason, inbox.messages) == ("", [])


def test_a_runner_that_is_closed_does_nothing_when_it_is_stopped(runner, inbox):
    runner.start(job())
    runner.publish(0, 0)
    inbox.until(lambda seen: seen.messages)
    runner.close(5.0)
    waits = runner.waits
    runner.stop()

    assert runner.waits == waits


def test_closing_is_safe_again_and_needs_no_actors(runner):
    runner.close(1.0)
    runner.close(1.0)


def trained(runner_name, env=TestEnv, env_config=0, **options):
    return util.train_async(
        TestAgentConfig(),
        [TestAgentConfig(), TestAgentConfig()],
        env_config,
        type(env_config)(),
        SimpleStepProcessorConfig(),
        SimpleReplayBufferConfig(),
        ActorManagerConfig(runner=runner_name, n_buffer=10, **options),
        AsyncTrainerConfig(max_opts=20, warmup_period=200),
        NullRecorder(),
        agent=TestAgent,
        env=env,
        step_processor=SimpleStepProcessor,
        replay_buffer=SimpleReplayBuffer,
    )


def test_a_training_is_the_same_call(runner_name):
    result = trained(runner_name)

    assert result.samples >= 200
    assert sum(stat.env_steps for stat in result.actor_stats) == result.samples
    assert result.replacements == 0


def test_actors_that_die_again_and_again_end_the_training(runner_name):
    with pytest.raises(BorderAsyncTrainerError, match=r"died 6 times .*: ValueError: no such game"):
        trained(runner_name, CountingEnv, Plan("fail to build"))
