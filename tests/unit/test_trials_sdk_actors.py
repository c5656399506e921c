"""The session of an actor against scripted ends, as the published SDK's."""

import asyncio
import logging

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.wrappers_pb2 import Int32Value, Int64Value, StringValue
from tests.trials_sdk_parts import (
    END,
    HEARTBEAT,
    LAST,
    LAST_ACK,
    NORMAL,
    Ends,
    actor,
    events_of,
    observed,
)

from arkml.trials import EventType, TrialError
from arkml.trials.sdk import event_session as sdk_session
from arkml.trials.wire.actor_pb2 import ActorInitialInput, ActorRunTrialInput
from arkml.trials.wire.common_pb2 import (
    Message,
    Reward,
    RewardSource,
    SerializedMessage,
)


@pytest.fixture
def ends():
    return Ends()


def state(kind, details=None):
    return ActorRunTrialInput(state=kind, details=details)


def message_of(payload):
    packed = Any()
    packed.Pack(payload)
    return ActorRunTrialInput(
        state=NORMAL,
        message=Message(tick_id=2, sender_name="bob", receiver_name="ann", payload=packed),
    )


async def test_a_session_has_the_names_and_the_configuration_of_its_actor(ends):
    config = SerializedMessage(content=Int32Value(value=3).SerializeToString())
    session = actor(
        ends,
        init=ActorInitialInput(
            actor_name="ann", actor_class="player", env_name="world", config=config
        ),
    )

    assert (session.name, session.actor_class, session.env_name) == ("ann", "player", "world")
    assert (session.impl_name, session.get_trial_id()) == ("impl", "t")
    assert session.config == Int32Value(value=3)
    assert session.get_tick_id() == -1
    assert not session.is_trial_over()


async def test_start_tells_the_trial_that_called_the_actor(ends):
    actor(ends).start()

    assert ends.kinds() == ["init_output"]


async def test_an_actor_that_joined_says_nothing_at_its_start(ends):
    actor(ends, has_joined=True).start()

    assert ends.sent == []


async def test_a_session_starts_once(ends):
    session = actor(ends)
    session.start()

    with pytest.raises(TrialError, match=r"^Cannot start \[ann\] more than once\.$"):
        session.start()


async def test_a_session_does_not_start_after_the_end(ends):
    session = actor(ends)
    session.receive(state(END))

    with pytest.raises(TrialError, match=r"^Cannot start \[ann\] because the trial has ended\.$"):
        session.start()


async def test_events_of_a_whole_trial_arrive_in_order_and_end_with_final(ends):
    session = actor(ends)
    session.start()
    session.receive(observed(0, "first"))
    session.receive(ActorRunTrialInput(state=NORMAL, reward=Reward(tick_id=0, value=2.0)))
    session.receive(message_of(StringValue(value="hi")))
    session.receive(state(LAST))
    session.receive(observed(1, "last"))
    session.receive(state(END))

    events = await events_of(session)

    assert [event.type for event in events] == [EventType.ACTIVE] * 3 + [
        EventType.ENDING,
        EventType.FINAL,
    ]
    first, reward, message, last, final = events
    assert first.observation.observation == StringValue(value="first")
    assert (first.observation.tick_id, first.observation.timestamp) == (0, 7)
    assert (first.actions, first.rewards, first.messages) == ([], [], [])
    assert (reward.observation, reward.rewards[0].value) == (None, 2.0)
    assert message.messages[0].payload == StringValue(value="hi")
    assert last.observation.observation == StringValue(value="last")
    assert (final.observation, final.actions, final.rewards, final.messages) == (None, [], [], [])


async def test_the_loop_waits_for_events(ends):
    session = actor(ends)
    session.start()
    loop = session.event_loop()
    first = asyncio.ensure_future(anext(loop))
    await asyncio.sleep(0)
    session.receive(observed(4))

    assert (await first).observation.tick_id == 4
    assert session.get_tick_id() == 4


async def test_two_loops_do_not_wait_at_once(ends):
    session = actor(ends)
    session.start()
    first = asyncio.ensure_future(anext(session.all_events()))
    await asyncio.sleep(0)

    with pytest.raises(TrialError, match="waited for already"):
        await anext(session.all_events())
    session.receive(observed(0))
    assert (await first).observation.tick_id == 0


async def test_a_cancelled_loop_is_cancelled_and_can_be_had_again(ends):
    session = actor(ends)
    session.start()
    waiting = asyncio.ensure_future(anext(session.all_events()))
    await asyncio.sleep(0)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    session.receive(observed(0))
    assert (await anext(session.all_events())).observation.tick_id == 0


async def test_the_loop_ends_when_it_is_sent_false_and_leaves_the_rest(ends):
    session = actor(ends)
    session.start()
    session.receive(observed(0))
    session.receive(observed(1))
    loop = session.event_loop()
    await anext(loop)

    with pytest.raises(StopAsyncIteration):
        await loop.asend(False)
    assert (await anext(session.event_loop())).observation.tick_id == 1


async def test_the_loop_continues_when_it_is_sent_true(ends):
    session = actor(ends)
    session.start()
    session.receive(observed(0))
    session.receive(observed(1))
    loop = session.event_loop()
    await anext(loop)

    assert (await loop.asend(True)).observation.tick_id == 1


async def test_a_hard_end_gives_no_final_event_but_what_came_before(ends):
    session = actor(ends)
    session.start()
    session.receive(observed(0))
    session.receive(state(END, "cut off"))

    assert [event.type for event in await events_of(session)] == [EventType.ACTIVE]
    assert session.is_trial_over()


async def test_a_lost_connection_ends_the_loop_without_final(ends, caplog):
    session = actor(ends)
    session.start()
    session.receive(state(LAST))
    session.lose("the cable")

    assert await events_of(session) == []
    assert session.is_trial_over()
    assert "the cable" in caplog.text


async def test_a_waiting_loop_ends_with_the_connection(ends):
    session = actor(ends)
    session.start()
    waiting = asyncio.ensure_future(events_of(session))
    await asyncio.sleep(0)
    session.lose("gone")

    assert await waiting == []


async def test_there_are_no_events_before_the_start(ends, caplog):
    session = actor(ends)
    session.receive(observed(0))

    assert await events_of(session) == []
    assert "Cannot retrieve events until [ann] is started." in caplog.text


async def test_events_from_before_the_start_are_kept(ends):
    session = actor(ends, has_joined=True)
    session.receive(observed(0))
    session.start()

    assert (await anext(session.all_events())).observation.tick_id == 0


async def test_an_action_has_the_tick_of_the_last_delivered_observation(ends):
    session = actor(ends)
    session.start()
    session.do_action(Int64Value(value=1))
    session.receive(observed(0))
    session.receive(observed(1))
    await anext(session.all_events())
    session.do_action(Int64Value(value=2))

    actions = [message.action for message in ends.sent[1:]]
    assert [action.tick_id for action in actions] == [-1, 0]
    assert actions[1].content == Int64Value(value=2).SerializeToString()
    assert actions[1].timestamp > 1_700_000_000 * 10**9  # ns


async def test_no_action_is_the_default_one_of_the_class(ends):
    session = actor(ends)
    session.start()
    session.receive(observed(0))
    await anext(session.all_events())
    session.do_action(None)

    assert ends.kinds() == ["init_output", "action"]
    assert ends.sent[1].action.content == b""


async def test_nothing_is_sent_before_the_start(ends, caplog):
    session = actor(ends)
    session.do_action(None)
    session.add_reward(1.0, 1.0, ["bob"])
    session.send_message(StringValue(), ["bob"])

    assert ends.sent == []
    assert caplog.text.count("Cannot send until session is started.") == 3


async def test_the_last_observation_is_acknowledged_on_arrival(ends):
    session = actor(ends)
    session.start()
    session.receive(observed(0))
    session.receive(state(LAST))
    assert ends.kinds() == ["init_output"]
    session.receive(observed(1))

    assert ends.kinds() == ["init_output", "LAST_ACK"]


async def test_a_late_start_acknowledges_the_last_observation(ends):
    session = actor(ends, has_joined=True)
    session.receive(state(LAST))
    session.receive(observed(0))
    assert ends.kinds() == []
    session.start()

    assert ends.kinds() == ["LAST_ACK"]


async def test_sends_after_the_acknowledgment_are_ignored_with_a_warning(ends, caplog):
    session = actor(ends)
    session.start()
    session.receive(state(LAST))
    session.receive(observed(0))
    session.do_action(None)
    session.add_reward(1.0, 1.0, ["bob"])
    session.send_message(StringValue(), ["bob"])

    assert ends.kinds() == ["init_output", "LAST_ACK"]
    assert caplog.text.count("Cannot send after acknowledging ending") == 3


async def test_an_actor_that_ends_sending_itself_sends_until_then(ends):
    session = actor(ends)
    session.start(auto_done_sending=False)
    session.receive(state(LAST))
    session.receive(observed(0))
    session.add_reward(1.0, 1.0, ["bob"])
    session.sending_done()
    session.sending_done()
    session.receive(state(END))

    assert ends.kinds() == ["init_output", "reward", "LAST_ACK"]
    assert [event.type for event in await events_of(session)] == [
        EventType.ENDING,
        EventType.FINAL,
    ]


async def test_sending_done_is_not_for_automatic_sessions(ends):
    session = actor(ends)
    session.start()

    with pytest.raises(
        TrialError, match=r"^Cannot manually end sending as it is set to automatic$"
    ):
        session.sending_done()


async def test_sending_is_not_done_before_the_end(ends):
    session = actor(ends)
    session.start(auto_done_sending=False)

    with pytest.raises(TrialError, match=r"^Cannot stop sending before trial is ready to end$"):
        session.sending_done()


async def test_sending_done_after_the_end_is_ignored(ends, caplog):
    session = actor(ends)
    session.start(auto_done_sending=False)
    session.receive(state(LAST))
    session.receive(state(END))
    session.sending_done()

    assert ends.kinds() == ["init_output"]
    assert "already ended" in caplog.text


async def test_a_heartbeat_is_answered(ends):
    session = actor(ends)
    session.receive(state(HEARTBEAT))

    assert ends.kinds() == ["HEARTBEAT"]


@pytest.mark.parametrize("kind", [LAST_ACK, 0, 17])
async def test_a_state_that_is_never_sent_to_actors_is_logged(ends, kind, caplog):
    session = actor(ends)
    session.start()
    session.receive(state(kind))

    assert not session.is_trial_over()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize(
    "wrong",
    [
        ActorRunTrialInput(state=NORMAL),
        ActorRunTrialInput(state=NORMAL, details="text"),
        ActorRunTrialInput(state=NORMAL, init_input=ActorInitialInput()),
        ActorRunTrialInput(state=NORMAL, observation={"tick_id": 0, "content": b"\xff\xff"}),
    ],
    ids=["no data", "details", "a second introduction", "damaged"],
)
async def test_what_cannot_be_read_ends_the_session_with_the_reason(ends, wrong):
    session = actor(ends)
    session.start()
    session.receive(wrong)

    assert ends.kinds() == ["init_output", "END"]
    assert "cannot read" in ends.sent[1].details
    assert ends.is_closed
    assert await events_of(session) == []


async def test_rewards_have_their_sources(ends):
    extra = Any()
    extra.Pack(StringValue(value="why"))
    sources = [
        RewardSource(sender_name="bob", value=1.0, confidence=0.5, user_data=extra),
        RewardSource(sender_name="world", value=3.0, confidence=1.0),
    ]
    reward = Reward(tick_id=4, receiver_name="ann", value=2.5, sources=sources)
    session = actor(ends)
    session.start()
    session.receive(ActorRunTrialInput(state=NORMAL, reward=reward))

    received = (await anext(session.all_events())).rewards[0]
    assert (received.tick_id, received.receiver_name, received.value) == (4, "ann", 2.5)
    assert received.get_nb_sources() == 2
    assert list(received.all_sources()) == received.sources
    first, second = received.sources
    assert (first.sender_name, first.value, first.confidence) == ("bob", 1.0, 0.5)
    assert first.user_data == extra
    assert second.user_data is None


async def test_messages_have_their_sender_and_a_payload_of_its_type(ends):
    session = actor(ends)
    session.start()
    session.receive(message_of(Int32Value(value=9)))

    received = (await anext(session.all_events())).messages[0]
    assert (received.tick_id, received.sender_name, received.receiver_name) == (2, "bob", "ann")
    assert received.payload == Int32Value(value=9)


@pytest.mark.parametrize(
    "packed",
    [
        Any(type_url="type.googleapis.com/never.Heard", value=b"123"),
        Any(type_url="type.googleapis.com/google.protobuf.StringValue", value=b"\xff\xff"),
        Any(type_url="", value=b"123"),
    ],
    ids=["unknown", "damaged", "without a type"],
)
async def test_a_payload_that_cannot_be_decoded_stays_packed(ends, packed):
    session = actor(ends)
    session.start()
    session.receive(ActorRunTrialInput(state=NORMAL, message=Message(payload=packed)))

    assert (await anext(session.all_events())).messages[0].payload == packed


async def test_a_reward_is_sent_to_each_receiver(ends):
    session = actor(ends)
    session.start()
    session.add_reward(2.0, 0.5, ["bob", "player.*"], tick_id=3, user_data=StringValue(value="x"))

    first, second = (message.reward for message in ends.sent[1:])
    assert (first.receiver_name, second.receiver_name) == ("bob", "player.*")
    assert (first.tick_id, first.value) == (3, 2.0)
    (source,) = first.sources
    assert (source.value, source.confidence) == (2.0, 0.5)
    assert source.user_data.Is(StringValue.DESCRIPTOR)


async def test_a_reward_is_for_the_present_tick_by_default(ends):
    session = actor(ends)
    session.start()
    session.add_reward(2.0, 0.5, ["bob"])

    assert ends.sent[1].reward.tick_id == -1
    assert not ends.sent[1].reward.sources[0].HasField("user_data")


async def test_a_message_is_sent_to_each_receiver(ends):
    session = actor(ends)
    session.start()
    session.send_message(StringValue(value="x"), ["*", session.env_name])

    first, second = (message.message for message in ends.sent[1:])
    assert (first.receiver_name, second.receiver_name) == ("*", "world")
    assert first.tick_id == -1
    assert first.payload.Is(StringValue.DESCRIPTOR)


async def test_a_packed_payload_is_sent_as_it_is(ends):
    packed = Any(type_url="type.googleapis.com/never.Heard", value=b"123")
    session = actor(ends)
    session.start()
    session.send_message(packed, ["bob"])

    assert ends.sent[1].message.payload == packed


async def test_one_text_is_not_a_list_of_receivers(ends):
    session = actor(ends)
    session.start()

    with pytest.raises(TrialError, match="'bob'"):
        session.add_reward(1.0, 1.0, "bob")
    with pytest.raises(TrialError, match="'bob'"):
        session.send_message(StringValue(), "bob")
    with pytest.raises(TrialError, match="None"):
        session.send_message(None, ["bob"])
    assert ends.kinds() == ["init_output"]


async def test_leaving_before_the_end_tells_the_trial_the_reason(ends):
    session = actor(ends)
    session.start()
    session.leave("tired")

    assert ends.kinds() == ["init_output", "END"]
    assert ends.sent[1].details == "tired"
    assert ends.is_closed
    assert session.is_trial_over()


async def test_leaving_after_the_acknowledgment_says_nothing_more(ends):
    session = actor(ends)
    session.start()
    session.receive(state(LAST))
    session.receive(observed(0))
    session.leave("done")

    assert ends.kinds() == ["init_output", "LAST_ACK"]
    assert ends.is_closed


async def test_what_arrives_after_the_end_is_ignored(ends):
    session = actor(ends)
    session.start()
    session.receive(state(END))
    session.receive(observed(0))
    session.receive(state(HEARTBEAT))
    session.do_action(None)

    assert await events_of(session) == []
    assert ends.kinds() == ["init_output"]


async def test_a_session_that_leaves_too_many_events_unread_leaves_its_trial(monkeypatch, caplog):
    monkeypatch.setattr(sdk_session, "MOST_UNREAD", 100)
    ends = Ends()
    unread = actor(ends)
    unread.start()
    for _ in range(1_000):
        unread.receive(message_of(StringValue(value="hello")))

    assert ends.is_closed
    assert ends.sent[-1].details == "it left 100 events unread"
    assert len(await events_of(unread)) == 100
    assert len(caplog.records) == 1


async def test_a_session_that_leaves_too_many_bytes_unread_leaves_its_trial(monkeypatch):
    monkeypatch.setattr(sdk_session, "MOST_UNREAD_BYTES", 10_000)
    ends = Ends()
    unread = actor(ends)
    unread.start()
    for _ in range(1_000):
        unread.receive(message_of(StringValue(value="x" * 1_000)))

    assert ends.is_closed
    assert len(unread._events) < 30


async def test_a_session_that_reads_gets_any_number_of_events(monkeypatch):
    monkeypatch.setattr(sdk_session, "MOST_UNREAD_BYTES", 10_000)
    ends = Ends()
    reading = actor(ends)
    reading.start()
    loop = reading.all_events()
    for _ in range(100):
        reading.receive(message_of(StringValue(value="x" * 1_000)))
        await anext(loop)
    await loop.aclose()

    assert not ends.is_closed
