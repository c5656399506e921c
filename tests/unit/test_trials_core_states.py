"""The states of a trial, its two ends, and the order of what each of its streams gets."""

import pytest
from tests.driven_trial import (
    DrivenTrial,
    action,
    actor,
    joining,
    message_for,
    observations,
    ready,
    reward_for,
    slot,
    trial_params,
)

from arkml.trials.core.error import TrialError
from arkml.trials.core.outputs import CallActor, CallEnvironment, ToActor, ToEnvironment
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import (
    CommunicationState,
    EnvironmentParams,
    SerializedMessage,
)
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput

EVERY_STATE = ["INITIALIZING", "PENDING", "RUNNING", "TERMINATING", "ENDED"]
LAST, LAST_ACK, END, HEARTBEAT = (
    CommunicationState.LAST,
    CommunicationState.LAST_ACK,
    CommunicationState.END,
    CommunicationState.HEARTBEAT,
)
SERVICE = "grpc://127.0.0.1:9"


def in_state(state):
    """A trial in the state of that name."""
    driven = DrivenTrial(is_begun=False)
    if state == "INITIALIZING":
        return driven
    driven.begin(trial_params())
    if state != "PENDING":
        driven.start()
    if state in ("TERMINATING", "ENDED"):
        driven.terminate()
    if state == "ENDED":
        driven.act()
        driven.observe()
        driven.environment(EnvRunTrialOutput(state=LAST_ACK))
        driven.acknowledge()
    assert driven.names[-1] == state
    return driven


def test_a_trial_that_its_environment_ends_has_every_state_once():
    driven = DrivenTrial().start()
    driven.play(2)
    driven.announce_end()
    driven.acknowledge()

    assert driven.names == EVERY_STATE
    assert driven.to_environment == [
        "init env",
        "actions 0 x|x",
        "actions 1 x|x",
        "END",
        "ended",
    ]
    assert driven.to_actors[0] == [
        "init a0",
        "observation 0 o",
        "observation 1 o",
        "observation 2 o",
        "LAST",
        "observation 3 o",
        "END",
        "ended",
    ]


def test_a_trial_that_is_terminated_softly_has_every_state_once():
    driven = DrivenTrial().start()
    driven.play(1)
    driven.terminate()
    driven.act()
    driven.observe()
    driven.environment(EnvRunTrialOutput(state=LAST_ACK))
    driven.acknowledge()

    assert driven.names == EVERY_STATE
    assert driven.to_environment == [
        "init env",
        "actions 0 x|x",
        "LAST",
        "actions 1 x|x",
        "END",
        "ended",
    ]
    assert driven.to_actors[1] == [
        "init a1",
        "observation 0 o",
        "observation 1 o",
        "LAST",
        "observation 2 o",
        "END",
        "ended",
    ]


def test_an_end_that_is_requested_while_the_environment_works_waits_for_the_next_actions():
    driven = DrivenTrial().start()
    driven.act()
    driven.terminate()
    before = list(driven.to_environment)
    driven.observe()
    driven.act()

    assert before == ["init env", "actions 0 x|x"]
    assert driven.to_environment[2:] == ["LAST", "actions 1 x|x"]


def test_an_environment_may_announce_the_end_after_it_was_asked_to_end():
    driven = DrivenTrial().start()
    driven.terminate()
    driven.act()
    driven.announce_end()
    driven.acknowledge()

    assert driven.names == EVERY_STATE
    assert driven.to_actors[0].count("LAST") == 1


def test_an_environment_may_announce_the_end_while_actions_are_missing():
    driven = DrivenTrial().start()
    driven.act(0)
    driven.announce_end()
    driven.act(1)
    driven.acknowledge()

    assert driven.names == EVERY_STATE
    assert driven.to_environment == ["init env", "END", "ended"]


def test_an_end_that_was_requested_does_not_hold_back_that_of_the_environment():
    driven = DrivenTrial().start()
    driven.terminate()
    driven.announce_end()
    driven.acknowledge()

    assert driven.names == EVERY_STATE
    assert driven.to_environment == ["init env", "END", "ended"]


@pytest.mark.parametrize("last", ["environment", "actors"])
def test_a_trial_ends_once_environment_and_actors_have_acknowledged(last):
    driven = DrivenTrial().start()
    driven.terminate()
    driven.act()
    driven.observe()
    if last == "environment":
        driven.acknowledge()
        is_early = driven.is_over
        driven.environment(EnvRunTrialOutput(state=LAST_ACK))
    else:
        driven.environment(EnvRunTrialOutput(state=LAST_ACK))
        driven.acknowledge(0)
        is_early = driven.is_over
        driven.acknowledge(1)

    assert not is_early
    assert driven.is_over


@pytest.mark.parametrize("state", ["INITIALIZING", "PENDING", "RUNNING", "TERMINATING"])
def test_a_hard_end_ends_every_state_at_once_with_the_reason(state):
    driven = in_state(state)
    driven.cut("enough")

    assert driven.names[-1] == "ENDED"
    assert driven.trial.deadline() is None
    assert driven.trial.reason == "enough"
    for stream in (driven.to_environment, *driven.to_actors.values()):
        assert stream == [] or stream[-2:] == ["END enough", "ended"]


@pytest.mark.parametrize("state", ["INITIALIZING", "PENDING"])
def test_a_soft_end_of_a_trial_that_does_not_run_yet_waits_for_its_first_actions(state):
    driven = in_state(state)
    driven.terminate()
    assert driven.names[-1] == state
    if state == "INITIALIZING":
        driven.begin(trial_params())
    driven.start()
    assert driven.names[-2:] == ["RUNNING", "TERMINATING"]
    driven.act()
    assert driven.to_environment[-2:] == ["LAST", "actions 0 x|x"]
    driven.observe()
    driven.environment(EnvRunTrialOutput(state=LAST_ACK))
    driven.acknowledge()

    assert driven.names[-4:] == ["PENDING", "RUNNING", "TERMINATING", "ENDED"]
    assert driven.trial.reason == ""


def test_a_soft_end_before_the_first_observation_leaves_actors_that_may_still_join():
    driven = DrivenTrial()
    driven.join("a0")
    driven.terminate()
    driven.join("a1")

    assert [line.split()[0] for line in driven.to_actors[0]] == ["init"]
    assert driven.to_environment == ["init env"]


@pytest.mark.parametrize("state", ["TERMINATING", "ENDED"])
def test_a_soft_end_is_requested_once(state):
    driven = in_state(state)
    outputs = len(driven.outputs)
    driven.terminate()

    assert len(driven.outputs) == outputs


def test_nothing_moves_a_trial_that_has_ended():
    driven = in_state("ENDED")
    outputs = len(driven.outputs)
    driven.observe()
    driven.act()
    driven.terminate()
    driven.cut()
    driven.lose_actor(0)
    driven.lose_environment()
    driven.wait(1_000)

    assert len(driven.outputs) == outputs
    with pytest.raises(TrialError, match="trial t is ENDED: actors join while it is PENDING"):
        driven.trial.slot(slot("a0"))


def test_an_orderly_end_has_no_reason_whatever_was_noticed_before():
    driven = DrivenTrial().start()
    driven.act(0, tick=7)
    driven.act()
    driven.announce_end()
    driven.acknowledge()

    assert "was ignored" in driven.notices[0]
    assert driven.names == EVERY_STATE
    assert driven.trial.reason == ""


# Before the first tick


def test_the_environment_is_called_after_the_last_actor():
    driven = DrivenTrial()
    driven.join("a1")
    before = list(driven.outputs)
    driven.join("a0")

    assert CallEnvironment() not in before
    assert driven.outputs[-2] == CallEnvironment()
    assert driven.to_environment == ["init env"]


def test_init_input_has_what_the_parameters_say():
    config = SerializedMessage(content=b"c")
    environment = EnvironmentParams(
        name="world", endpoint=SERVICE, implementation="flat", config=config
    )
    actors = [
        actor("a0", "player", implementation="human", config=config),
        actor("a1", "referee", SERVICE),
    ]
    driven = DrivenTrial(trial_params(actors, environment=environment))
    driven.join("a0")
    driven.actor(1, joining())
    first, second = driven.sent[0][0].init_input, driven.sent[1][0].init_input
    world = driven.sent[None][0].init_input

    assert (first.actor_name, first.actor_class, first.impl_name, first.env_name) == (
        "a0",
        "player",
        "human",
        "world",
    )
    assert first.config == config
    assert not second.HasField("config")
    assert (world.name, world.impl_name, world.tick_id, world.config) == (
        "world",
        "flat",
        0,
        config,
    )
    assert [(one.name, one.actor_class) for one in world.actors_in_trial] == [
        ("a0", "player"),
        ("a1", "referee"),
    ]


def test_service_actors_are_called_and_take_part_once_they_accept():
    driven = DrivenTrial(trial_params([actor(endpoint=SERVICE)]))
    called = list(driven.outputs)
    driven.actor(0, joining())

    assert CallActor(0) in called
    assert isinstance(called[-1], ToActor)
    assert isinstance(driven.outputs[-1], ToEnvironment)


def test_actors_join_by_name_or_take_the_first_free_slot_of_their_class():
    actors = [actor("a0", "b"), actor("a1", "c"), actor("a2", "c"), actor("a3", "c", SERVICE)]
    driven = DrivenTrial(trial_params(actors))

    assert driven.join("a1") == 1
    assert driven.join(actor_class="c") == 2
    with pytest.raises(TrialError, match=r"no free slot for an actor of class 'c': it is taken"):
        driven.trial.slot(slot(actor_class="c"))
    with pytest.raises(TrialError, match=r"no free slot for an actor 'a1': it is taken"):
        driven.trial.slot(slot("a1"))
    with pytest.raises(TrialError, match=r"no free slot for an actor 'a3': it is taken, or called"):
        driven.trial.slot(slot("a3"))
    with pytest.raises(TrialError, match="trial t has no actor 'a9'"):
        driven.trial.slot(slot("a9"))
    with pytest.raises(TrialError, match="trial t has no actor of class 'a0'"):
        driven.trial.slot(slot(actor_class="a0"))
    for empty in (ActorInitialOutput(), slot(""), slot(actor_class="")):
        with pytest.raises(TrialError, match="by the name of its slot or by its class"):
            driven.trial.slot(empty)


@pytest.mark.parametrize("state", ["INITIALIZING", "RUNNING", "TERMINATING", "ENDED"])
def test_actors_join_only_while_the_trial_is_pending(state):
    driven = in_state(state)

    with pytest.raises(TrialError, match=f"trial t is {state}: actors join while it is PENDING"):
        driven.trial.slot(slot("a0"))


def test_a_required_actor_that_vanishes_before_the_first_tick_ends_the_trial():
    driven = DrivenTrial()
    driven.join("a0")
    driven.lose_actor(0)

    assert driven.names == ["INITIALIZING", "PENDING", "ENDED"]
    assert driven.trial.reason == "actor 'a0' was lost: it vanished"


def test_an_optional_actor_that_vanishes_before_the_first_tick_is_not_awaited_again():
    driven = DrivenTrial(trial_params([actor("a0", optional=True), actor("a1")]))
    driven.join("a0")
    driven.lose_actor(0)
    driven.join("a1")
    driven.environment(ready())
    driven.observe()
    driven.act(1)

    assert driven.to_environment[-1] == "actions 0 |x without 0"
    with pytest.raises(TrialError):
        driven.trial.slot(slot("a0"))


def test_a_trial_whose_actors_are_all_absent_starts_with_a_warning():
    driven = DrivenTrial(trial_params([actor("a0", endpoint=SERVICE, optional=True)]))
    driven.lose_actor(0)
    assert driven.to_environment == ["init env"]
    assert driven.notices[-1] == "no actor takes part: the environment plays without any"
    driven.environment(ready())
    driven.observe()

    assert driven.names[-1] == "RUNNING"
    assert driven.to_environment[-1] == "actions 0  without 0"
    driven.announce_end()
    assert driven.names[-1] == "ENDED"


def test_a_trial_whose_actors_have_all_gone_while_it_runs_goes_without_them():
    driven = DrivenTrial(trial_params([actor("a0", optional=True)])).start()
    driven.lose_actor(0)
    driven.observe()
    driven.announce_end()

    assert driven.to_environment[1:3] == ["actions 0  without 0", "actions 1  without 0"]
    assert driven.names == EVERY_STATE


# What the peers may not do

BREACHES_OF_ACTORS = {
    "a state without data": ActorRunTrialOutput(state=1),
    "no state": ActorRunTrialOutput(),
    "an unknown state": ActorRunTrialOutput(state=77),
    "LAST": ActorRunTrialOutput(state=LAST),
    "LAST_ACK before LAST": ActorRunTrialOutput(state=LAST_ACK),
    "init_output again": joining("a0"),
    "details": ActorRunTrialOutput(state=1, details="so"),
    "an action that is not NORMAL": ActorRunTrialOutput(state=LAST, action=action().action),
}


@pytest.mark.parametrize("name", BREACHES_OF_ACTORS)
def test_a_required_actor_that_breaks_the_protocol_ends_the_trial(name):
    driven = DrivenTrial().start()
    driven.actor(0, BREACHES_OF_ACTORS[name])

    assert driven.names[-2:] == ["RUNNING", "ENDED"]
    assert driven.trial.reason.startswith("actor 'a0' was lost: it broke the protocol: ")
    assert driven.to_environment[-2].startswith("END actor 'a0' was lost")


@pytest.mark.parametrize("name", BREACHES_OF_ACTORS)
def test_an_optional_actor_that_breaks_the_protocol_loses_its_place(name):
    driven = DrivenTrial(trial_params([actor("a0", optional=True), actor("a1")])).start()
    driven.actor(0, BREACHES_OF_ACTORS[name])
    driven.play(1)

    assert driven.names[-1] == "RUNNING"
    assert driven.to_actors[0][-2].startswith("END it broke the protocol: ")
    assert driven.to_environment[-1] == "actions 0 |x without 0"


BREACHES_OF_ENVIRONMENTS = {
    "a state without data": EnvRunTrialOutput(state=1),
    "no state": EnvRunTrialOutput(),
    "an unknown state": EnvRunTrialOutput(state=77),
    "LAST_ACK before LAST": EnvRunTrialOutput(state=LAST_ACK),
    "init_output again": ready(),
    "details": EnvRunTrialOutput(state=1, details="so"),
    "observations again": observations(),
}


@pytest.mark.parametrize("name", BREACHES_OF_ENVIRONMENTS)
def test_an_environment_that_breaks_the_protocol_ends_the_trial(name):
    driven = DrivenTrial().start()
    driven.environment(BREACHES_OF_ENVIRONMENTS[name])

    assert driven.names[-2:] == ["RUNNING", "ENDED"]
    assert driven.trial.reason.startswith("the environment broke the protocol: ")
    assert driven.to_actors[0][-2].startswith("END the environment broke the protocol: ")


@pytest.mark.parametrize("state", [LAST, LAST_ACK])
def test_an_environment_cannot_end_before_its_first_observations(state):
    driven = DrivenTrial().start(tick_zero=False)
    driven.environment(EnvRunTrialOutput(state=state))

    assert driven.names == ["INITIALIZING", "PENDING", "ENDED"]


def test_observations_before_init_output_are_a_breach():
    driven = DrivenTrial()
    driven.join("a0")
    driven.join("a1")
    driven.observe()

    assert driven.trial.reason.startswith("the environment broke the protocol: ")


def test_last_ack_before_the_last_observations_is_a_breach():
    driven = DrivenTrial().start()
    driven.environment(EnvRunTrialOutput(state=LAST))
    driven.environment(EnvRunTrialOutput(state=LAST_ACK))

    assert "LAST_ACK before its last observations" in driven.trial.reason


def test_observations_after_the_last_ones_are_a_breach():
    driven = DrivenTrial().start()
    driven.environment(EnvRunTrialOutput(state=LAST))
    driven.observe()
    driven.observe()

    assert driven.names[-1] == "ENDED"
    assert driven.trial.reason.startswith("the environment broke the protocol: ")


@pytest.mark.parametrize("details", ["", "it is late"])
def test_end_of_a_peer_is_its_loss(details):
    left = details or "it left"
    of_actor, of_environment = DrivenTrial().start(), DrivenTrial().start()
    of_actor.actor(0, ActorRunTrialOutput(state=END, details=details))
    of_environment.environment(EnvRunTrialOutput(state=END, details=details))

    assert of_actor.trial.reason == f"actor 'a0' was lost: {left}"
    assert of_environment.trial.reason == f"the environment was lost: {left}"


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "TERMINATING"])
def test_a_heartbeat_is_answered_with_one(state):
    driven = in_state(state)
    if state == "PENDING":
        driven.start(tick_zero=False)
    driven.actor(1, ActorRunTrialOutput(state=HEARTBEAT))
    driven.environment(EnvRunTrialOutput(state=HEARTBEAT))

    assert driven.to_actors[1][-1] == "HEARTBEAT"
    assert driven.to_environment[-1] == "HEARTBEAT"
    assert "HEARTBEAT" not in driven.to_actors[0]


def test_an_environment_that_is_lost_ends_the_trial_unless_it_has_left():
    lost, left = DrivenTrial().start(), DrivenTrial().start()
    lost.lose_environment()
    left.announce_end()
    left.lose_environment()
    left.acknowledge()

    assert lost.trial.reason == "the environment was lost: it vanished"
    assert left.names == EVERY_STATE
    assert left.trial.reason == ""


def test_an_actor_that_is_lost_at_the_end_is_not_awaited():
    driven = DrivenTrial().start()
    driven.announce_end()
    driven.acknowledge(0)
    driven.lose_actor(0)
    driven.lose_actor(1)

    assert driven.names == EVERY_STATE
    assert driven.trial.reason == ""


def test_what_an_actor_sends_after_its_last_ack_is_ignored():
    driven = DrivenTrial().start()
    driven.announce_end()
    driven.acknowledge(0)
    driven.actor(0, action())
    driven.actor(0, ActorRunTrialOutput(state=1, reward=reward_for("a1", (5, 1))))
    driven.actor(0, ActorRunTrialOutput(state=1, message=message_for("a1")))
    driven.acknowledge(0)
    driven.acknowledge(1)

    assert driven.names == EVERY_STATE
    assert driven.to_actors[1][-4:] == ["LAST", "observation 1 o", "END", "ended"]


def test_nothing_of_a_message_is_changed_by_the_trial():
    driven = DrivenTrial(is_logged=True)
    driven.start(tick_zero=False)
    sent = observations()
    reward = ActorRunTrialOutput(state=1, reward=reward_for("a1", (1, 1)))
    before = sent.SerializeToString(), reward.SerializeToString()
    for _ in range(3):
        driven.environment(sent)
        driven.actor(0, reward)
        driven.act()

    assert driven.trial.tick == 2
    assert (sent.SerializeToString(), reward.SerializeToString()) == before
