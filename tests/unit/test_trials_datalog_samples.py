"""The samples that a datalog is sent, of a trial that is driven by hand."""

import pytest
from tests.driven_trial import (
    DrivenTrial,
    actor,
    message_for,
    reward_for,
    standing_by,
    trial_params,
)

from arkml.trials.core.datalog_samples import NO_ACTION, OUT_OF_SYNC, DatalogSamples
from arkml.trials.core.hosting import Pacing
from arkml.trials.core.outputs import Changed, Entries, Entry
from arkml.trials.core.parameters import checked
from arkml.trials.wire.actor_pb2 import ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import CommunicationState, DatalogParams, TrialState
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput

ENDPOINT = "grpc://127.0.0.1:9"


def logged(actors=2, *, exclude=(), **fields):
    """Parameters of a trial with a datalog."""
    datalog = DatalogParams(endpoint=ENDPOINT, exclude_fields=exclude)
    return trial_params(actors, datalog=datalog, **fields)


def sampled(driven, params, most_bytes=4 << 20):
    """The samples of a trial that was driven, each as soon as it is due, in lists of one output."""
    samples = DatalogSamples(checked(params), driven.trial.began, most_bytes)
    sent = []
    for output in driven.outputs:
        if isinstance(output, Entry | Entries):
            sent.append(samples.take([output]))
        elif isinstance(output, Changed):
            sent.append(samples.change(output.state))
    assert samples.take([Entry("event", 0, 0, note="late")]) == []
    return samples, [sample for due in sent for sample in due]


def states(sent):
    return [TrialState.Name(sample.info.state) for sample in sent]


def test_a_trial_with_a_datalog_has_entries_without_a_log_of_the_server():
    driven = DrivenTrial(logged()).start()

    assert driven.entries
    assert not DrivenTrial(trial_params()).start().entries


def test_every_tick_is_a_sample_with_everything_that_happened_in_it():
    params = logged()
    driven = DrivenTrial(params).start()
    driven.act(0, content=b"a")
    reward = reward_for("*", (2.0, 0.5))
    driven.environment(EnvRunTrialOutput(state=CommunicationState.NORMAL, reward=reward))
    driven.actor(0, ActorRunTrialOutput(state=CommunicationState.NORMAL, message=message_for("a1")))
    driven.act(1, content=b"b")
    driven.observe(content=b"second")
    driven.act()
    driven.announce_end()
    driven.acknowledge()
    _, sent = sampled(driven, params)

    assert [sample.info.tick_id for sample in sent] == [0, 1, 2]
    assert states(sent) == ["RUNNING", "TERMINATING", "ENDED"]
    first, second, last = sent
    assert [(one.tick_id, one.content) for one in first.actions] == [(0, b"a"), (0, b"b")]
    assert [one.tick_id for one in last.actions] == [NO_ACTION, NO_ACTION]
    assert first.observations.tick_id == 0
    assert list(second.observations.observations) == [b"second"]
    assert list(second.observations.actors_map) == [0, 0]
    assert [(one.receiver_name, one.value, one.tick_id) for one in first.rewards] == [("*", 2.0, 0)]
    assert first.rewards[0].sources[0].sender_name == "env"
    assert first.rewards[0].sources[0].confidence == 0.5
    assert [(one.sender_name, one.receiver_name) for one in first.messages] == [("a0", "a1")]
    assert first.messages[0].payload.type_url.endswith("SerializedMessage")
    assert second.info.special_events == ["the environment ended the trial"]
    assert all(sample.info.timestamp for sample in sent)


@pytest.mark.parametrize(("buffered", "due"), [(0, 3), (2, 3), (3, 2), (5, 0)])
def test_samples_are_kept_for_as_many_ticks_as_the_parameters_say(buffered, due):
    params = logged(nb_buffered_ticks=buffered)
    driven = DrivenTrial(params).start()
    driven.play(3)
    _, sent = sampled(driven, params)

    assert [sample.info.tick_id for sample in sent] == [*range(due)]


def test_a_reward_for_a_tick_that_was_sent_is_a_sample_out_of_sync():
    params = logged()
    driven = DrivenTrial(params).start()
    driven.play(2)
    for tick in (0, 1):
        reward = reward_for("a0", (1.0, 1.0), tick=tick)
        driven.environment(EnvRunTrialOutput(state=CommunicationState.NORMAL, reward=reward))
    driven.cut()
    _, sent = sampled(driven, params)
    late = [sample for sample in sent if sample.info.out_of_sync]

    assert [sample.info.tick_id for sample in late] == [0, 1]
    assert late[0].info.special_events == [OUT_OF_SYNC]
    assert late[0].rewards[0].receiver_name == "a0"
    assert len(late[0].actions) == 0


def test_a_reward_for_a_tick_that_is_kept_is_in_its_sample():
    params = logged(nb_buffered_ticks=3)
    driven = DrivenTrial(params).start()
    driven.play(1)
    reward = reward_for("a0", (1.0, 1.0), tick=0)
    driven.environment(EnvRunTrialOutput(state=CommunicationState.NORMAL, reward=reward))
    driven.cut()
    _, sent = sampled(driven, params)

    assert [len(sample.rewards) for sample in sent] == [1, 0]
    assert not any(sample.info.out_of_sync for sample in sent)


def test_actors_that_were_replaced_are_named_in_place_of_their_actions():
    actors = [
        actor("a0", optional=True, default_action=b"d"),
        actor("a1"),
        actor("a2", optional=True),
    ]
    params = logged(actors)
    driven = DrivenTrial(params).start()
    driven.lose_actor(2)
    driven.lose_actor(0)
    driven.act(1)
    driven.cut()
    _, (sample,) = sampled(driven, params)

    assert (list(sample.default_actors), list(sample.unavailable_actors)) == ([0], [2])
    assert [one.tick_id for one in sample.actions] == [NO_ACTION, 0, NO_ACTION]
    assert "actor 'a2' was lost: it vanished" in sample.info.special_events[0]


def test_stand_ins_of_a_hosted_trial_act_as_any_actor():
    driven = DrivenTrial(logged([standing_by("a0")], endpoint="local://"), pacing=Pacing(0, 10))
    driven.start()
    driven.cut()
    _, (sample,) = sampled(driven, driven.trial.params)

    assert [one.content for one in sample.actions] == [b"s"]
    assert not sample.default_actors


@pytest.mark.parametrize(
    "field",
    ["info", "observations", "actions", "rewards", "messages", "default_actors",
     "unavailable_actors"],
)  # fmt: skip
def test_a_field_that_is_excluded_is_not_sent(field):
    actors = [
        actor("a0", optional=True, default_action=b"d"),
        actor("a1"),
        actor("a2", optional=True),
    ]
    params = logged(actors, exclude=[field.upper()])
    driven = DrivenTrial(params).start()
    driven.lose_actor(2)
    driven.lose_actor(0)
    said = EnvRunTrialOutput(state=CommunicationState.NORMAL, message=message_for("a1"))
    driven.environment(said)
    reward = reward_for("a1", (1.0, 1.0))
    driven.environment(EnvRunTrialOutput(state=CommunicationState.NORMAL, reward=reward))
    driven.act(1)
    driven.cut()
    samples, (sample,) = sampled(driven, params)

    sent = {found.name for found, _ in sample.ListFields()}
    assert sent == {known.name for known in sample.DESCRIPTOR.fields} - {field}
    assert samples.unknown == []


def test_names_of_fields_that_samples_do_not_have_are_known():
    samples = DatalogSamples(checked(logged(exclude=["rewards", "pictures"])), 0, 1_000)

    assert samples.unknown == ["pictures"]


def test_a_trial_that_never_ran_has_one_sample_with_the_reason():
    params = logged()
    driven = DrivenTrial(params)
    driven.cut()
    _, (sample,) = sampled(driven, params)

    assert states([sample]) == ["ENDED"]
    assert sample.info.special_events == [driven.trial.reason]
    assert not sample.HasField("observations")


def test_a_sample_has_a_bound_and_says_what_is_missing():
    params = logged()
    driven = DrivenTrial(params).start()
    for _ in range(100):
        said = EnvRunTrialOutput(state=CommunicationState.NORMAL, message=message_for("a1"))
        driven.environment(said)
    driven.cut()
    _, (sample,) = sampled(driven, params, most_bytes=2_000)

    assert 0 < len(sample.messages) < 100
    assert sample.ByteSize() <= 2_000
    assert "beyond 1936 bytes are left out" in sample.info.special_events[0]


def test_samples_that_are_kept_have_a_bound_together():
    params = logged(nb_buffered_ticks=1_000_000)
    driven = DrivenTrial(params).start()
    driven.play(100)
    _, sent = sampled(driven, params, most_bytes=2_000)

    assert len(sent) > 60
