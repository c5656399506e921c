"""The times that a trial gives its environment and actors, on a clock that tests set."""

import pytest
from tests.driven_trial import (
    DrivenTrial,
    actor,
    joining,
    ready,
    trial_params,
)

from arkml.trials.wire.actor_pb2 import ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import CommunicationState
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput

SERVICE = "grpc://127.0.0.1:9"
LAST, LAST_ACK, HEARTBEAT = (
    CommunicationState.LAST,
    CommunicationState.LAST_ACK,
    CommunicationState.HEARTBEAT,
)


@pytest.mark.parametrize("endpoint", ["cogment://client", SERVICE])
def test_a_required_actor_that_does_not_come_in_time_ends_the_trial(endpoint):
    actors = [actor("a0"), actor("a1", endpoint=endpoint, initial_connection_timeout=2.5)]
    driven = DrivenTrial(trial_params(actors))
    driven.join("a0")
    driven.wait(2.4)
    is_early = driven.is_over
    driven.wait(0.2)

    assert not is_early
    assert driven.trial.reason == "actor 'a1' was lost: it did not join within 2.5 s"
    assert driven.to_actors[0][-1] == "ended"


def test_optional_actors_that_do_not_come_in_time_are_left_out():
    actors = [
        actor("a0", optional=True, initial_connection_timeout=2),
        actor("a1", endpoint=SERVICE, optional=True, initial_connection_timeout=5),
        actor("a2"),
    ]
    driven = DrivenTrial(trial_params(actors))
    driven.join("a2")
    driven.wait(3)
    between = list(driven.notices), list(driven.to_environment)
    driven.wait(3)
    driven.environment(ready())
    driven.observe()
    driven.act(2)

    assert between == (["actor 'a0' was lost: it did not join within 2 s"], [])
    assert driven.to_environment == ["init env", "actions 0 ||x without 0,1"]
    assert driven.to_actors[1] == ["init a1", "END it did not join within 5 s", "ended"]


def test_an_actor_without_a_time_may_come_at_any_time():
    actors = [actor("a0"), actor("a1", endpoint=SERVICE)]
    driven = DrivenTrial(trial_params(actors))
    driven.wait(1e6)
    driven.join("a0")
    driven.actor(1, joining())

    assert driven.to_environment == ["init env"]
    assert driven.trial.deadline() is None


def test_time_to_join_ends_with_the_last_that_comes():
    actors = [actor("a0", initial_connection_timeout=2), actor("a1", initial_connection_timeout=3)]
    driven = DrivenTrial(trial_params(actors))
    driven.join("a0")
    driven.wait(2.5)
    driven.join("a1")
    driven.wait(1e6)

    assert driven.names[-1] == "PENDING"
    assert driven.to_environment == ["init env"]


def test_a_trial_starts_although_no_optional_actor_comes_in_time():
    actors = [actor(f"a{n}", optional=True, initial_connection_timeout=n + 1) for n in range(3)]
    driven = DrivenTrial(trial_params(actors))
    driven.wait(3)

    assert driven.names[-1] == "PENDING"
    assert driven.to_environment == ["init env"]


def test_a_required_actor_that_does_not_act_in_time_ends_the_trial():
    driven = DrivenTrial(trial_params([actor("a0"), actor("a1", response_timeout=1.5)])).start()
    driven.wait(1)
    driven.play(1)
    driven.wait(1)
    is_early = driven.is_over
    driven.wait(1)

    assert not is_early
    assert driven.trial.reason == "actor 'a1' was lost: it did not act within 1.5 s"


def test_optional_actors_that_do_not_act_in_time_are_replaced():
    actors = [
        actor("a0", optional=True, response_timeout=2, default_action=b"still"),
        actor("a1", optional=True, response_timeout=3),
        actor("a2"),
    ]
    driven = DrivenTrial(trial_params(actors)).start()
    driven.act(2)
    driven.wait(2)
    between = list(driven.to_environment)
    driven.wait(1)
    driven.observe()
    driven.act(2)

    assert between == ["init env"]
    assert driven.to_environment[1:] == [
        "actions 0 still||x without 1",
        "actions 1 still||x without 1",
    ]
    assert driven.to_actors[0][-2:] == ["END it did not act within 2 s", "ended"]


def test_several_actors_may_be_late_at_once():
    actors = [actor(f"a{n}", optional=True, response_timeout=2) for n in range(3)]
    driven = DrivenTrial(trial_params([*actors, actor("a3")])).start()
    driven.act(3)
    driven.wait(2)

    assert driven.to_environment[-1] == "actions 0 |||x without 0,1,2"


def test_an_actor_that_acted_is_not_late():
    driven = DrivenTrial(trial_params([actor("a0", response_timeout=1), actor("a1")])).start()
    driven.act(0)
    driven.wait(100)
    driven.act(1)
    driven.wait(100)

    assert driven.names[-1] == "RUNNING"
    assert driven.trial.deadline() is None


def test_actors_have_their_time_anew_in_each_tick():
    driven = DrivenTrial(trial_params([actor("a0", response_timeout=2)])).start()
    for _ in range(5):
        driven.wait(1.5)
        driven.play(1)
    driven.wait(1.5)

    assert driven.trial.tick == 5
    assert not driven.is_over


def test_a_time_to_act_does_not_run_while_the_environment_works():
    driven = DrivenTrial(trial_params([actor("a0", response_timeout=1)])).start()
    driven.act()
    driven.wait(1e6)

    assert not driven.is_over


def test_a_late_optional_actor_does_not_hold_back_the_end():
    actors = [actor("a0", optional=True, response_timeout=2), actor("a1")]
    driven = DrivenTrial(trial_params(actors)).start()
    driven.act(1)
    driven.terminate()
    driven.wait(2)

    assert driven.to_environment[-2:] == ["LAST", "actions 0 |x without 0"]


# The end


def test_an_environment_has_a_minute_for_its_last_observations():
    driven = DrivenTrial().start()
    driven.terminate()
    driven.act()
    driven.wait(59.9)
    is_early = driven.is_over
    driven.wait(0.2)

    assert not is_early
    assert driven.trial.reason == "not all acknowledged the end in time: env did not"


def test_an_environment_that_announced_the_end_has_a_minute_too():
    driven = DrivenTrial().start()
    driven.environment(EnvRunTrialOutput(state=LAST))
    driven.wait(59.9)
    is_early = driven.is_over
    driven.wait(0.2)

    assert not is_early
    assert driven.trial.reason == "not all acknowledged the end in time: env did not"


def test_actors_have_half_a_minute_to_acknowledge_the_end():
    driven = DrivenTrial().start()
    driven.announce_end()
    driven.acknowledge(0)
    driven.wait(29.9)
    is_early = driven.is_over
    driven.wait(0.2)

    assert not is_early
    assert driven.trial.reason == "not all acknowledged the end in time: a1 did not"
    assert driven.to_actors[0][-2].startswith("END not all acknowledged the end")


def test_an_environment_has_its_minute_although_the_actors_have_left():
    driven = DrivenTrial().start()
    driven.terminate()
    driven.act()
    driven.wait(10)
    driven.observe()
    driven.acknowledge()
    driven.wait(49.9)
    is_early = driven.is_over
    driven.environment(EnvRunTrialOutput(state=LAST_ACK))

    assert not is_early
    assert driven.is_over
    assert driven.trial.reason == ""


def test_an_environment_that_is_silent_after_its_last_observations_is_given_up():
    driven = DrivenTrial().start()
    driven.terminate()
    driven.act()
    driven.wait(50)
    driven.observe()
    driven.acknowledge()
    driven.wait(9.9)
    is_early = driven.is_over
    driven.wait(0.2)

    assert not is_early
    assert driven.trial.reason == "not all acknowledged the end in time: env did not"


# Inactivity


@pytest.mark.parametrize("silent", ["init_output", "tick 0", "actors", "env"])
def test_a_trial_in_which_nothing_happens_is_cut_off(silent):
    driven = DrivenTrial(trial_params(max_inactivity=30))
    if silent == "init_output":
        driven.join("a0")
        driven.join("a1")
    elif silent == "tick 0":
        driven.start(tick_zero=False)
    else:
        driven.start()
        if silent == "env":
            driven.act()
    driven.wait(29.9)
    is_early = driven.is_over
    driven.wait(0.2)

    assert not is_early
    assert driven.trial.reason == "nothing happened for 30 s (max_inactivity)"
    assert driven.to_environment[-2:] == ["END nothing happened for 30 s (max_inactivity)", "ended"]


def test_a_trial_that_waits_for_its_actors_is_not_inactive():
    driven = DrivenTrial(trial_params(max_inactivity=30))
    driven.wait(1e6)

    assert driven.names[-1] == "PENDING"


def test_what_anyone_sends_is_activity():
    driven = DrivenTrial(trial_params(max_inactivity=30)).start()
    driven.wait(20)
    driven.act(0)
    driven.wait(20)
    driven.actor(1, ActorRunTrialOutput(state=HEARTBEAT))
    driven.wait(20)
    driven.terminate()
    driven.wait(20)
    driven.act(1)
    driven.wait(29)

    assert driven.names[-1] == "TERMINATING"


def test_a_trial_without_a_limit_may_be_silent():
    driven = DrivenTrial(trial_params(max_inactivity=0)).start()
    driven.wait(1e9)

    assert driven.names[-1] == "RUNNING"
    assert driven.trial.deadline() is None


def test_elapse_before_the_deadline_does_nothing():
    driven = DrivenTrial(trial_params([actor(response_timeout=2)], max_inactivity=9)).start()
    outputs = len(driven.outputs)
    driven.trial.elapse(driven.now + 1.9)
    driven.collect()

    assert len(driven.outputs) == outputs
    assert driven.trial.deadline() == driven.now + 2


def test_a_duration_is_never_negative():
    driven = DrivenTrial().start()
    driven.now -= 500

    assert driven.trial.duration == 0


def test_a_duration_ends_with_the_trial():
    driven = DrivenTrial().start()
    driven.now += 5
    running = driven.trial.duration
    driven.cut()
    driven.now += 5

    assert running == driven.trial.duration == 5_000_000_000
