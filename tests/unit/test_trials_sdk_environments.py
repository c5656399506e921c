"""The session of an environment against scripted ends."""

import pytest
from google.protobuf.wrappers_pb2 import BoolValue, Int32Value, Int64Value, StringValue
from tests.trials_sdk_parts import (
    END,
    LAST,
    NORMAL,
    Ends,
    acted,
    environment,
    events_of,
    number,
)

from arkml.trials import ActorInfo, ActorStatus, EventType, TrialError
from arkml.trials.wire.common_pb2 import Message, SerializedMessage, TrialActor
from arkml.trials.wire.environment_pb2 import EnvInitialInput, EnvRunTrialInput

A, B, C = StringValue(value="a"), StringValue(value="b"), StringValue(value="c")


@pytest.fixture
def ends():
    return Ends()


def state(kind, details=None):
    return EnvRunTrialInput(state=kind, details=details)


def given(message):
    """The observation of each actor in a message."""
    observed = message.observation_set
    contents = [StringValue.FromString(content).value for content in observed.observations]
    return [contents[index] for index in observed.actors_map]


async def test_a_session_knows_the_actors_of_its_trial(ends):
    session = environment(ends)

    assert session.get_active_actors() == [
        ActorInfo("ann", "player"),
        ActorInfo("bob", "player"),
        ActorInfo("tim", "teacher"),
    ]
    assert (session.name, session.impl_name, session.get_tick_id()) == ("world", "default", 0)
    assert session.config is None


async def test_a_session_has_the_configuration_of_the_environment(ends):
    config = SerializedMessage(content=Int32Value(value=3).SerializeToString())
    session = environment(ends, init=EnvInitialInput(name="world", config=config))

    assert session.config == Int32Value(value=3)


async def test_an_actor_of_an_unknown_class_is_refused(ends):
    actors = [TrialActor(name="cat", actor_class="animal")]

    with pytest.raises(TrialError, match=r"^class \[animal\] of actor \[cat\] cannot be found\.$"):
        environment(ends, init=EnvInitialInput(name="world", actors_in_trial=actors))


async def test_start_introduces_the_environment_and_sends_the_first_observations(ends):
    environment(ends).start([("*", A)])

    assert ends.kinds() == ["init_output", "observation_set"]
    assert ends.sent[1].observation_set.tick_id == -1
    assert ends.sent[1].observation_set.timestamp > 1_700_000_000 * 10**9  # ns


async def test_observations_may_come_after_the_start(ends):
    session = environment(ends)
    session.start()
    session.produce_observations([("*", A)])

    assert ends.kinds() == ["init_output", "observation_set"]


async def test_a_session_starts_once(ends):
    session = environment(ends)
    session.start()

    with pytest.raises(TrialError, match=r"^Cannot start \[world\] more than once\.$"):
        session.start([("*", A)])


async def test_a_start_with_wrong_observations_leaves_no_trace(ends):
    session = environment(ends)
    with pytest.raises(TrialError):
        session.start([("ann", A)])
    session.start([("*", A)])

    assert ends.kinds() == ["init_output", "observation_set"]


@pytest.mark.parametrize(
    ("observations", "expected"),
    [
        ([("*", A)], ["a", "a", "a"]),
        ([("*.*", A)], ["a", "a", "a"]),
        ([("player.*", A), ("tim", B)], ["a", "a", "b"]),
        ([("player.bob", A), ("ann", B), ("teacher.*", C)], ["b", "a", "c"]),
        ([("tim", A), ("bob", B), ("ann", C)], ["c", "b", "a"]),
    ],
)
async def test_every_actor_gets_the_observation_of_its_name(ends, observations, expected):
    environment(ends).start(observations)

    assert given(ends.sent[1]) == expected


async def test_an_observation_that_several_get_is_sent_once(ends):
    environment(ends).start([("ann", A), ("tim", B), ("bob", A)])

    assert len(ends.sent[1].observation_set.observations) == 2
    assert given(ends.sent[1]) == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("observations", "text"),
    [
        ([], "Actor [ann] is missing an observation"),
        ([("player.*", A)], "Actor [tim] is missing an observation"),
        ([("ann", A), ("ann", B)], "Duplicate actor [ann] in observations list"),
        ([("ann", A), ("player.*", B)], "Duplicate actor [player.ann] in observations list"),
        ([("player.ann", A), ("player.ann", B)], "Duplicate actor [player.ann] in"),
        ([("*", A), ("ann", B)], "Duplicate actors in observations list when using a wildcard"),
        ([("ann", A), ("*.*", B)], "Duplicate actors in observations list when using a wildcard"),
        ([(3, A)], "Target actor name [3] must be a string"),
        ([("*", A), ("world", A)], "Duplicate actors in observations list when using a wildcard"),
        ([("world", A)], "Unknown actor [world] in observations list"),
        ([("animal.*", A)], "Unknown actor [animal.*] in observations list"),
    ],
)
async def test_observations_that_do_not_fit_the_actors_are_refused(ends, observations, text):
    session = environment(ends)
    session.start()
    for give in (session.produce_observations, session.end):
        with pytest.raises(TrialError) as refused:
            give(observations)

        assert str(refused.value).startswith(text)
    assert ends.kinds() == ["init_output"]


async def test_actions_arrive_in_the_order_of_the_actors(ends):
    session = environment(ends)
    session.start([("*", A)])
    teaches = BoolValue(value=True).SerializeToString()
    session.receive(acted(3, number(5), b"", teaches))

    event = await anext(session.all_events())
    assert event.type is EventType.ACTIVE
    assert [action.action for action in event.actions] == [
        Int64Value(value=5),
        Int64Value(),
        BoolValue(value=True),
    ]
    assert [action.actor_index for action in event.actions] == [0, 1, 2]
    assert {action.status for action in event.actions} == {ActorStatus.ACTIVE}
    assert {(action.tick_id, action.timestamp) for action in event.actions} == {(3, 7)}
    assert session.get_tick_id() == 3


async def test_an_unavailable_actor_has_no_action(ends):
    session = environment(ends)
    session.start([("*", A)])
    session.receive(acted(0, number(5), b"", b"", unavailable=[1]))

    action = (await anext(session.all_events())).actions[1]
    assert (action.status, action.action) == (ActorStatus.UNAVAILABLE, None)


async def test_a_damaged_action_is_unavailable_and_the_trial_continues(ends, caplog):
    session = environment(ends)
    session.start([("*", A)])
    session.receive(acted(0, b"\xff\xff", number(2), b""))

    first, second, _ = (await anext(session.all_events())).actions
    assert (first.status, first.action) == (ActorStatus.UNAVAILABLE, None)
    assert second.action == Int64Value(value=2)
    assert "[ann]" in caplog.text


async def test_a_wrong_number_of_actions_ends_the_session_with_the_reason(ends):
    session = environment(ends)
    session.start([("*", A)])
    session.receive(acted(0, number(5)))

    assert ends.kinds()[2:] == ["END"]
    assert "Received 1 actions but have 3 actors" in ends.sent[2].details
    assert await events_of(session) == []


async def test_the_environment_ends_the_trial_itself(ends):
    session = environment(ends)
    session.start([("*", A)])
    session.end([("*", B)])
    session.receive(state(END))

    assert ends.kinds()[2:] == ["LAST", "observation_set", "LAST_ACK"]
    assert [event.type for event in await events_of(session)] == [EventType.FINAL]


async def test_final_observations_that_do_not_fit_do_not_announce_the_end(ends):
    session = environment(ends)
    session.start([("*", A)])
    with pytest.raises(TrialError):
        session.end([])
    session.receive(acted(0, b"", b"", b""))

    assert (await anext(session.all_events())).type is EventType.ACTIVE
    assert ends.kinds()[2:] == []


@pytest.mark.parametrize("method", ["produce_observations", "end"])
async def test_the_answer_to_the_last_actions_is_final(ends, method):
    session = environment(ends)
    session.start([("*", A)])
    session.receive(state(LAST))
    session.receive(acted(0, b"", b"", b""))
    session.receive(
        EnvRunTrialInput(state=NORMAL, message=Message(sender_name="ann", receiver_name="world"))
    )
    loop = session.all_events()
    last = await anext(loop)
    getattr(session, method)([("*", B)])
    session.receive(state(END))

    assert last.type is EventType.ENDING
    assert len(last.actions) == 3
    assert [event.type async for event in loop] == [EventType.ENDING, EventType.FINAL]
    assert ends.kinds()[2:] == ["observation_set", "LAST_ACK"]


async def test_nothing_is_sent_after_the_acknowledgment(ends, caplog):
    session = environment(ends)
    session.start([("*", A)])
    session.end([("*", B)])
    session.end([("*", B)])
    session.produce_observations([("*", B)])
    session.add_reward(1.0, 1.0, ["ann"])

    assert ends.kinds()[2:] == ["LAST", "observation_set", "LAST_ACK"]
    assert caplog.text.count("Cannot send after acknowledging ending") == 3


async def test_late_rewards_and_messages_come_before_sending_is_done(ends, caplog):
    session = environment(ends)
    session.start([("*", A)], auto_done_sending=False)
    session.end([("*", B)])
    session.produce_observations([("*", B)])
    session.add_reward(1.0, 1.0, ["*"])
    session.send_message(StringValue(), ["player.*"])
    session.sending_done()

    assert ends.kinds()[2:] == ["LAST", "observation_set", "reward", "message", "LAST_ACK"]
    assert "Cannot send observations after the final ones" in caplog.text


async def test_a_hard_end_gives_no_final_event(ends):
    session = environment(ends)
    session.start([("*", A)])
    session.receive(state(END, "enough"))
    session.produce_observations([("*", A)])
    session.end([("*", A)])

    assert await events_of(session) == []
    assert ends.kinds() == ["init_output", "observation_set"]


async def test_messages_reach_the_environment(ends):
    session = environment(ends)
    session.start()
    message = Message(tick_id=0, sender_name="ann", receiver_name="world")
    message.payload.Pack(A)
    session.receive(EnvRunTrialInput(state=NORMAL, message=message))

    received = (await anext(session.all_events())).messages[0]
    assert (received.sender_name, received.payload) == ("ann", A)
