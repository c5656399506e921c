"""Rewards and messages of a trial: who gets them, when, and what becomes of them."""

import math

import pytest
from tests.driven_trial import (
    DrivenTrial,
    actor,
    message_for,
    reward_for,
    slot,
    trial_params,
)

from arkml.trials.core.mail import Receivers, aggregate
from arkml.trials.core.outputs import EntryKind
from arkml.trials.wire.actor_pb2 import ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import CommunicationState, Message, Reward, RewardSource
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput


def rewarded(driven, reward, sender=None):
    if sender is None:
        return driven.environment(EnvRunTrialOutput(state=1, reward=reward))
    return driven.actor(sender, ActorRunTrialOutput(state=1, reward=reward))


def told(driven, message, sender=None):
    if sender is None:
        return driven.environment(EnvRunTrialOutput(state=1, message=message))
    return driven.actor(sender, ActorRunTrialOutput(state=1, message=message))


def rewards_of(driven, index):
    return [one.reward for one in driven.sent[index] if one.WhichOneof("data") == "reward"]


# Receivers


@pytest.mark.parametrize(
    ("name", "indices"),
    [
        ("*", (0, 1, 2)),
        ("*.*", (0, 1, 2)),
        ("red.*", (0, 2)),
        ("blue.*", (1,)),
        ("red.c", (2,)),
        ("b", (1,)),
        ("blue.a", ()),
        ("green.*", ()),
        ("red", ()),
        ("*.a", ()),
        ("env", ()),
        ("", ()),
    ],
)
def test_a_name_means_an_actor_a_class_or_all(name, indices):
    receivers = Receivers([actor("a", "red"), actor("b", "blue"), actor("c", "red")])

    assert receivers.find(name) == indices


def test_a_plain_name_wins_over_a_class_and_a_name():
    receivers = Receivers([actor("red.b", "blue"), actor("b", "red")])

    assert receivers.find("red.b") == (0,)
    assert receivers.find("b") == (1,)


# Rewards


@pytest.mark.parametrize(
    ("sources", "value"),
    [
        ([], 0),
        ([(3, 1)], 3),
        ([(3, 0.25)], 3),
        ([(3, 1), (1, 1)], 2),
        ([(4, 1), (1, 0.5)], 3),
        ([(4, 0.75), (-8, 0.25)], 1),
        ([(4, 1), (100, 0)], 4),
        ([(4, 1), (100, -1)], 4),
        ([(4, 0), (100, -1)], 0),
    ],
)
def test_a_reward_is_the_mean_of_its_sources_weighted_by_confidence(sources, value):
    made = [RewardSource(value=one, confidence=confidence) for one, confidence in sources]

    assert aggregate(3, "a", made) == Reward(
        tick_id=3, receiver_name="a", value=value, sources=made
    )


def test_rewards_of_a_tick_arrive_as_one_before_the_next_observation():
    driven = DrivenTrial().start()
    rewarded(driven, reward_for("a0", (4, 1)))
    rewarded(driven, reward_for("a0", (1, 0.5), tick=0), sender=1)
    before = list(driven.to_actors[0])
    driven.play(1)
    reward = rewards_of(driven, 0)[0]

    assert before == ["init a0", "observation 0 o"]
    assert driven.to_actors[0][2:] == ["reward 0 3", "observation 1 o"]
    assert driven.to_actors[1] == ["init a1", "observation 0 o", "observation 1 o"]
    assert [(one.sender_name, one.value, one.confidence) for one in reward.sources] == [
        ("env", 4, 1),
        ("a1", 1, 0.5),
    ]
    assert reward.receiver_name == "a0"


def test_the_sender_of_a_reward_is_filled_in_and_its_user_data_kept():
    driven = DrivenTrial().start()
    reward = reward_for("a1", (1, 1))
    reward.sources[0].sender_name = "env"
    reward.sources[0].user_data.Pack(slot("because"))
    rewarded(driven, reward, sender=0)
    driven.play(1)
    source = rewards_of(driven, 1)[0].sources[0]

    assert source.sender_name == "a0"
    assert source.user_data == reward.sources[0].user_data


def test_a_reward_for_all_reaches_each_actor_with_its_own_name():
    driven = DrivenTrial(trial_params([actor("a0", "red"), actor("a1", "blue")])).start()
    rewarded(driven, reward_for("*", (2, 1)))
    rewarded(driven, reward_for("blue.*", (4, 1)))
    driven.play(1)

    assert [one.receiver_name for one in rewards_of(driven, 0)] == ["a0"]
    assert [one.value for one in rewards_of(driven, 0)] == [2]
    assert [one.value for one in rewards_of(driven, 1)] == [3]


@pytest.mark.parametrize("name", ["env", "nothing", "", "env.*"])
def test_a_reward_is_for_actors(name):
    driven = DrivenTrial().start()
    rewarded(driven, reward_for(name, (2, 1)))
    driven.play(1)

    assert driven.notices == [f"a reward of 'env' is for {name!r}, which is not an actor"]
    assert rewards_of(driven, 0) == rewards_of(driven, 1) == []


def test_a_reward_of_a_tick_to_come_is_refused():
    driven = DrivenTrial(is_logged=True).start()
    rewarded(driven, reward_for("a0", (2, 1), tick=1))
    driven.play(2)

    assert rewards_of(driven, 0) == []
    assert [one for one in driven.entries if one.kind is EntryKind.REWARD] == []
    assert driven.notices == ["a reward of 'env' for tick 1 was refused: it is in the future"]


def test_a_reward_of_a_tick_before_is_for_the_log_alone():
    driven = DrivenTrial(is_logged=True).start()
    driven.play(4)
    rewarded(driven, reward_for("a0", (2, 1), tick=3), sender=1)
    rewarded(driven, reward_for("a0", (5, 1), tick=1), sender=1)
    driven.play(1)
    entries = [one for one in driven.entries if one.kind is EntryKind.REWARD]

    assert rewards_of(driven, 0) == []
    assert [(one.tick, one.name, one.sender) for one in entries] == [
        (3, "a0", "a1"),
        (1, "a0", "a1"),
    ]
    assert RewardSource.FromString(entries[0].content).value == 2
    assert driven.notices == ["a reward of 'a1' for tick 1 is out of sync"]


@pytest.mark.parametrize("buffered", [0, 2, 4])
def test_ticks_that_are_buffered_are_two_or_more(buffered):
    driven = DrivenTrial(trial_params(nb_buffered_ticks=buffered)).start()
    driven.play(6)
    least = 6 - max(buffered, 2)
    rewarded(driven, reward_for("a0", (1, 1), tick=least))
    before = list(driven.notices)
    rewarded(driven, reward_for("a0", (1, 1), tick=least - 1))

    assert before == []
    assert driven.notices == [f"a reward of 'env' for tick {least - 1} is out of sync"]


@pytest.mark.parametrize("ending", ["environment", "terminate"])
def test_the_last_rewards_arrive_before_the_end(ending):
    driven = DrivenTrial().start()
    if ending == "terminate":
        driven.terminate()
        driven.act()
    else:
        driven.environment(EnvRunTrialOutput(state=CommunicationState.LAST))
    rewarded(driven, reward_for("a0", (1, 1)))
    driven.observe()
    rewarded(driven, reward_for("a0", (2, 1)))
    driven.acknowledge(0)
    rewarded(driven, reward_for("*", (4, 1)), sender=1)
    driven.acknowledge(1)
    driven.environment(EnvRunTrialOutput(state=CommunicationState.LAST_ACK))

    assert driven.to_actors[0][-6:] == [
        "reward 0 1",
        "LAST",
        "observation 1 o",
        "reward 1 3",
        "END",
        "ended",
    ]
    assert driven.to_actors[1][-3:] == ["reward 1 4", "END", "ended"]


def test_the_last_rewards_arrive_although_an_actor_does_not_acknowledge_the_end():
    driven = DrivenTrial().start()
    driven.announce_end()
    rewarded(driven, reward_for("a0", (2, 1)), sender=1)
    driven.acknowledge(0)
    driven.wait(31)

    assert driven.to_actors[0][-3] == "reward 1 2"
    assert driven.names[-1] == "ENDED"


@pytest.mark.parametrize(
    "source", [(math.nan, 1), (math.inf, 1), (1, math.nan), (1, math.inf), (-math.inf, 0)]
)
def test_a_reward_that_is_not_a_number_is_refused(source):
    driven = DrivenTrial().start()
    rewarded(driven, reward_for("a0", source, (2, 1)))
    driven.play(1)

    assert "is not finite" in driven.notices[0]
    assert [one.value for one in rewards_of(driven, 0)] == []


@pytest.mark.parametrize("tick", [-2, -(2**62)])
def test_negative_ticks_other_than_that_of_the_present_one_are_refused(tick):
    driven = DrivenTrial(is_logged=True).start()
    rewarded(driven, reward_for("a0", (2, 1), tick=tick))
    told(driven, message_for("a0", tick=tick))

    assert [one.kind for one in driven.entries if one.kind is not EntryKind.EVENT] == [
        EntryKind.OBSERVATIONS
    ]
    assert len(driven.notices) == 2
    assert all(f"for tick {tick} was refused" in notice for notice in driven.notices)
    assert driven.to_actors[0] == ["init a0", "observation 0 o"]


# Messages


def test_a_message_is_delivered_at_once_with_its_sender_and_tick():
    driven = DrivenTrial().start()
    driven.play(2)
    told(driven, message_for("a0", sender="a0"), sender=1)
    told(driven, message_for("a0", tick=1))
    message = driven.sent[0][-1].message

    assert driven.to_actors[0][-2:] == ["message 2 a1 > a0", "message 1 env > a0"]
    assert message.payload == message_for("a0").payload
    assert driven.sent[0][-1].state == CommunicationState.NORMAL


def test_a_message_reaches_the_environment_by_its_name():
    driven = DrivenTrial().start()
    told(driven, message_for("env"), sender=0)

    assert driven.to_environment[-1] == "message 0 a0 > env"
    assert "message" not in " ".join(driven.to_actors[0])


def test_wildcards_are_actors_alone_and_the_sender_is_among_them():
    driven = DrivenTrial(trial_params([actor("a0", "red"), actor("a1", "blue")])).start()
    told(driven, message_for("*"), sender=0)
    told(driven, message_for("blue.*"), sender=0)

    assert driven.to_actors[0][2:] == ["message 0 a0 > *"]
    assert driven.to_actors[1][2:] == ["message 0 a0 > *", "message 0 a0 > blue.*"]
    assert driven.to_environment == ["init env"]


@pytest.mark.parametrize("name", ["nothing", "", "green.*"])
def test_a_message_to_no_one_is_noted(name):
    driven = DrivenTrial().start()
    told(driven, message_for(name), sender=0)

    assert driven.notices == [f"a message of 'a0' is for {name!r}, which is not in the trial"]


def test_a_message_of_a_tick_to_come_is_refused():
    driven = DrivenTrial(is_logged=True).start()
    told(driven, message_for("a1", tick=1), sender=0)

    assert driven.notices == ["a message of 'a0' for tick 1 was refused: it is in the future"]
    assert [one for one in driven.entries if one.kind is EntryKind.MESSAGE] == []


def test_a_message_without_a_typed_payload_is_refused():
    """The published JavaScript SDK ends its stream at one."""
    driven = DrivenTrial().start()
    told(driven, Message(tick_id=-1, receiver_name="a1"), sender=0)

    assert driven.notices == ["a message of 'a0' was refused: its payload has no type_url"]
    assert driven.to_actors[1] == ["init a1", "observation 0 o"]


def test_messages_are_logged_with_sender_and_receiver():
    driven = DrivenTrial(is_logged=True).start()
    told(driven, message_for("*"), sender=0)
    told(driven, message_for("env"), sender=1)
    entries = [one for one in driven.entries if one.kind is EntryKind.MESSAGE]

    assert [(one.tick, one.name, one.sender) for one in entries] == [
        (0, "*", "a0"),
        (0, "env", "a1"),
    ]
    assert entries[0].content == message_for("*").payload.SerializeToString()


def test_rewards_and_messages_to_an_actor_that_has_gone_are_dropped():
    driven = DrivenTrial(trial_params([actor("a0", optional=True), actor("a1")])).start()
    driven.lose_actor(0)
    rewarded(driven, reward_for("*", (1, 1)))
    told(driven, message_for("*"))
    driven.play(1)

    assert driven.to_actors[0][-1] == "ended"
    assert driven.to_actors[1][2:] == ["message 0 env > *", "reward 0 1", "observation 1 o"]


# More than a trial keeps


def test_rewards_that_wait_in_one_tick_are_limited_and_the_next_tick_has_as_much_room():
    driven = DrivenTrial(trial_params(3)).start()
    large = reward_for("*", (1.0, 1.0))
    large.sources[0].user_data.value = bytes(2 << 20)
    for _ in range(40):  # each counts for three receivers
        rewarded(driven, large, sender=0)

    assert driven.notices.count("a reward of 'a0' was dropped: too much waits in the tick") == 30
    driven.play(1)
    (reward,) = rewards_of(driven, 1)
    assert len(reward.sources) == 10
    rewarded(driven, large, sender=0)
    assert len(driven.notices) == 30


def test_small_sources_of_rewards_count_for_more_than_their_bytes():
    driven = DrivenTrial(trial_params(2)).start()
    for _ in range(20):
        rewarded(driven, reward_for("a1", *[(0.0, 0.0)] * 10_000), sender=0)
    driven.play(1)

    (reward,) = rewards_of(driven, 1)
    assert len(reward.sources) == 130_000


def test_messages_that_are_not_taken_are_noted_a_hundred_times_in_a_tick():
    driven = DrivenTrial(trial_params(2), is_logged=True).start()
    for tick in range(2):
        for _ in range(500):
            told(driven, message_for("?" * 100_000), sender=0)
        driven.play(1)

        assert len(driven.notices) == 101 * (tick + 1)
        assert driven.notices[-1] == f"more messages were not taken in tick {tick}"
    assert max(map(len, driven.notices)) < 2_000
    assert not driven.is_over


def test_the_words_with_which_an_actor_leaves_are_cut():
    driven = DrivenTrial(trial_params(2)).start()
    driven.actor(0, ActorRunTrialOutput(state=CommunicationState.END, details="?" * 1_000_000))

    assert driven.is_over
    assert len(driven.trial.reason) < 2_000
