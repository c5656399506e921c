"""The manager of actors: seeds, replacements, admission and statistics, over a scripted runner."""

import threading

import pytest
from tests.async_parts import CountingConfig, CountingEnv, LearnerAgent, LearnerConfig
from tests.unit.test_async_trainer_loop import ScriptedRunner, manager_of

from arkml.async_trainer import (
    ActorManager,
    ActorManagerConfig,
    ActorStat,
    BorderAsyncTrainerError,
    SendMsgForPush,
)
from arkml.async_trainer.actor_manager import ActorParts, seed_of
from arkml.async_trainer.actor_pace import AdmittedItems
from arkml.async_trainer.core import SimpleStepProcessor, SimpleStepProcessorConfig
from arkml.async_trainer.runners.runner import ActorEnded
from arkml.errors import UsageError


def died(actor, incarnation, reason="RuntimeError: no", **others):
    return ActorEnded(actor, incarnation, ActorStat(10, 1.0), reason, **others)


def test_actors_have_their_numbers_as_seeds():
    runner = ScriptedRunner([])
    manager = manager_of(runner, actors=3, n_buffer=4, on_full="raise")

    assert len(manager) == 3
    assert [(job.actor, job.incarnation, job.seed) for job in runner.jobs] == [
        (0, 0, 0), (1, 0, 1), (2, 0, 2),
    ]  # fmt: skip
    assert {(job.n_buffer, job.on_full) for job in runner.jobs} == {(4, "raise")}


def test_seeds_of_replacements_are_distinct_and_follow_from_the_run():
    seeds = {seed_of(run, actor, n) for run in (0, 1) for actor in range(50) for n in range(1, 5)}

    assert len(seeds) == 2 * 50 * 4
    assert all(50 <= seed < 2**31 for seed in seeds)
    assert seed_of(7, 3, 2) == seed_of(7, 3, 2)


def test_each_actor_has_a_copy_of_its_configuration():
    config = {"layers": [64]}
    parts = ActorParts(
        LearnerAgent, [config, config], CountingEnv, CountingConfig(),
        SimpleStepProcessor, SimpleStepProcessorConfig(),
    )  # fmt: skip
    runner = ScriptedRunner([])
    ActorManager(ActorManagerConfig(), parts, runner).run()
    config["layers"].append(32)

    first, second = (job.agent_config for job in runner.jobs)
    assert first == second == {"layers": [64]}
    assert first is not second


def test_a_configuration_that_cannot_be_copied_starts_no_actor():
    parts = ActorParts(
        LearnerAgent, [LearnerConfig()], CountingEnv, threading.Lock(),
        SimpleStepProcessor, SimpleStepProcessorConfig(),
    )  # fmt: skip
    runner = ScriptedRunner([])

    with pytest.raises(UsageError, match="env_config_train has a lock that cannot be copied"):
        ActorManager(ActorManagerConfig(), parts, runner).run()
    assert runner.jobs == []


def test_a_training_without_actors_is_refused():
    with pytest.raises(UsageError, match="agent_configs is empty"):
        manager_of(ScriptedRunner([]), actors=0)


def test_a_dead_actor_is_reported_and_replaced(caplog):
    runner = ScriptedRunner([])
    manager = manager_of(runner, actors=2, seed=5)
    runner.extra = [runner.message(), died(1, 0, "RuntimeError: the guest fell over")]
    messages = manager.receive(1.0)

    assert len(messages) == 1
    assert "actor 1 (incarnation 0) died after 10 samples: RuntimeError: the guest fell over" in (
        caplog.text
    )
    replacement = runner.jobs[-1]
    assert (replacement.actor, replacement.incarnation) == (1, 1)
    assert replacement.seed == seed_of(5, 1, 1)
    assert manager.replacements == 1


def test_statistics_add_up_over_the_incarnations_of_an_actor():
    runner = ScriptedRunner([])
    manager = manager_of(runner, actors=2)
    runner.extra = [died(1, 0)]
    manager.receive(1.0)
    runner.jobs = [job for job in runner.jobs if (job.actor, job.incarnation) != (1, 0)]

    assert manager.stop_and_join() == [ActorStat(7, 0.5), ActorStat(17, 1.5)]
    assert not manager.is_running


def test_an_actor_that_dies_again_and_again_ends_the_training_with_its_reason():
    runner = ScriptedRunner([])
    manager = manager_of(runner)
    for incarnation in range(5):
        runner.extra = [died(0, incarnation)]
        manager.receive(1.0)
    runner.extra = [died(0, 5, "OSError: no display")]

    with pytest.raises(
        BorderAsyncTrainerError, match=r"actor 0 died 6 times .*OSError: no display"
    ):
        manager.receive(1.0)
    assert manager.replacements == 5


def test_a_full_channel_that_is_not_to_be_waited_for_is_raised():
    runner = ScriptedRunner([])
    manager = manager_of(runner, on_full="raise")
    runner.extra = [died(0, 0, "SendMsgForPush: full", is_channel_full=True)]

    with pytest.raises(SendMsgForPush, match="full"):
        manager.receive(1.0)
    assert len(runner.jobs) == 1


def test_an_actor_that_dies_while_it_is_stopped_is_not_replaced():
    runner = ScriptedRunner([])
    manager = manager_of(runner)
    manager.stop()
    runner.extra = [died(0, 0)]
    manager.receive(1.0)

    assert len(runner.jobs) == 1
    assert not manager.is_running


def test_a_replacement_may_make_what_its_predecessor_had_left():
    runner = ScriptedRunner([])
    manager = manager_of(runner, actors=1)
    manager.admit(10)
    runner.extra = [runner.message(), runner.message(), died(0, 0)]
    manager.receive(1.0)

    assert runner.admitted == {0: 8}
    manager.admit(11)
    assert runner.admitted == {0: 9}


def test_items_are_divided_so_that_all_actors_have_as_many_left():
    items = AdmittedItems(3)

    assert items.admit(30) == [(0, 10), (1, 10), (2, 10)]
    assert items.admit(30) == []
    items.take(0, 0, 10)
    items.take(1, 0, 4)
    assert items.admit(30) == []
    assert items.admit(40) == [(0, 18), (1, 12)]
    items.take(0, 0, 8)
    assert items.admit(20) == []


def test_an_actor_is_not_held_by_one_that_makes_nothing():
    items = AdmittedItems(2)
    admitted = dict(items.admit(20))
    for made in range(0, 1_000, 10):
        items.take(0, 0, 10)
        admitted |= dict(items.admit(20 + made + 10))

    assert admitted == {0: 1_010, 1: 10}


def test_items_of_an_earlier_incarnation_count_in_all_but_not_for_its_replacement():
    items = AdmittedItems(1)
    items.admit(10)
    items.take(0, 0, 6)

    assert items.restart(0, 1) == 4
    items.take(0, 1, 3)
    assert items.admit(20) == [(0, 14)]
