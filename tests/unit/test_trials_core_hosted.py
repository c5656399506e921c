"""Hosted trials: stand-ins, players that are held or away, people who take over, and the rate."""

import math

import pytest
from tests.driven_trial import (
    DrivenTrial,
    action,
    actor,
    hosted_params,
    joining,
    message_for,
    observations,
    ready,
    reward_for,
    slot,
    standing_by,
    trial_params,
)

from arkml.trials.core.error import ActorTaken, TrialError
from arkml.trials.core.hosting import (
    Acted,
    ActionNote,
    HostedRewards,
    HostedTick,
    Pacing,
    StandIn,
)
from arkml.trials.core.outputs import CallActor, EntryKind
from arkml.trials.core.states import Phase
from arkml.trials.wire.actor_pb2 import ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import CommunicationState, RewardSource, TrialState
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput
from arkml.trials.wire.players_pb2 import PlayerKind

LAST, LAST_ACK, END, HEARTBEAT = (
    CommunicationState.LAST,
    CommunicationState.LAST_ACK,
    CommunicationState.END,
    CommunicationState.HEARTBEAT,
)
WAITING = Pacing(rate=0.0)
TENTHS = Pacing(rate=10.0)
EVERY_STATE = ["INITIALIZING", "PENDING", "RUNNING", "TERMINATING", "ENDED"]


def hosted(actors=2, pacing=WAITING, *, is_logged=False, tick_zero=True, **fields):
    params = hosted_params(actors, **fields)
    return DrivenTrial(params, pacing=pacing, is_logged=is_logged).start(tick_zero=tick_zero)


def clients(count=1, **fields):
    return [actor(f"a{index}", **fields) for index in range(count)]


def events(driven):
    found = [entry for entry in driven.entries if entry.kind is EntryKind.EVENT]
    return [(entry.name, entry.origin, entry.note) for entry in found]


# Stand-ins


def test_actors_that_are_left_to_stand_ins_are_never_called_awaited_or_sent_anything():
    driven = hosted(2, tick_zero=False)
    called = driven.to_environment[:]
    driven.environment(EnvRunTrialOutput(state=1, reward=reward_for("*", (1, 1))))
    driven.environment(EnvRunTrialOutput(state=1, message=message_for("*")))
    driven.observe()

    assert called == ["init env"]
    assert driven.to_actors == {}
    assert not any(isinstance(output, CallActor) for output in driven.outputs)
    assert [one.phase for one in driven.trial.actors] == [Phase.STANDBY] * 2


def test_a_tick_without_a_player_ends_at_once_and_the_next_begins_with_its_observations():
    driven = hosted(2)
    driven.observe()
    driven.observe()

    assert driven.to_environment[1:] == [f"acted {tick} stand-in s|stand-in s" for tick in range(3)]
    assert driven.trial.tick == 2
    assert driven.trial.state == TrialState.RUNNING


@pytest.mark.parametrize(("max_steps", "expected"), [(0, 7), (20, 7), (7, 6), (1, 0)])
def test_ticks_without_players_may_be_played_ahead_up_to_the_last_one(max_steps, expected):
    driven = hosted(2, max_steps=max_steps)

    assert driven.most_ahead == [expected]


@pytest.mark.parametrize("what", ["rate", "player", "looker"])
def test_ticks_are_not_played_ahead_where_someone_or_the_clock_waits_for_them(what):
    driven = hosted(2, TENTHS if what == "rate" else WAITING, tick_zero=False)
    driven.trial.hosted.is_shown = what == "looker"
    if what == "player":
        driven.take_over("a0")
    driven.observe()
    if what == "player":
        driven.act(0)
    driven.wait(0.1)

    assert driven.most_ahead == [0]


def test_ticks_that_were_played_ahead_are_logged_as_others():
    ahead, other = hosted(2, is_logged=True), hosted(2, is_logged=True)
    source = RewardSource(sender_name="env", value=1, confidence=1).SerializeToString()
    ahead.play_ahead(3)
    for driven in (ahead, other):
        for _ in range(1 if driven is ahead else 4):
            driven.observe(rewards=[HostedRewards([0, 1], [1.0, 1.0], [source] * 2)])

    logs = [[entry._replace(content=b"") for entry in one.entries] for one in (ahead, other)]
    assert logs[0] == logs[1]
    assert ahead.trial.tick == other.trial.tick == 4
    assert ahead.trial.view() == other.trial.view()
    assert len(ahead.acted) == 2


def test_a_person_who_takes_over_plays_after_the_ticks_that_were_played_ahead():
    driven = hosted(2, is_logged=True)
    driven.take_over("a0", "ann")
    driven.play_ahead(2)
    driven.observe()
    driven.act(0, content=b"p")

    actions = [entry for entry in driven.entries if (entry.kind, entry.name) == ("action", "a0")]
    assert [one.note for one in actions] == ["stand-in", "stand-in", "stand-in", "given"]
    sent = [one for one in driven.sent[0] if one.WhichOneof("data") == "observation"]
    assert [one.observation.tick_id for one in sent] == [0, 3]
    assert driven.most_ahead == [7, 0]


def test_a_tick_that_was_played_ahead_with_too_few_stand_ins_ends_the_trial():
    driven = hosted(2)
    observed = observations(2).observation_set
    tick = HostedTick([], observed, [StandIn(b"s")])
    driven.trial.take_tick(tick, driven.now, is_ahead=True)
    driven.collect()

    assert "it offered 1 stand-ins for 2 actors" in driven.trial.reason


def test_a_stand_in_without_a_policy_version_is_the_default_action():
    driven = hosted(2, tick_zero=False)
    driven.observe(stand_ins=[StandIn(b"p", "v7"), StandIn(b"d")])

    assert driven.acted[0][1] == [
        Acted(b"p", ActionNote.STAND_IN, "v7"),
        Acted(b"d", ActionNote.DEFAULT),
    ]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_environment_that_does_not_stand_in_for_each_actor_ends_the_trial(count):
    driven = hosted(2, tick_zero=False)
    driven.observe(stand_ins=[StandIn(b"s")] * count)

    assert driven.trial.reason == (
        f"the environment broke the protocol: it offered {count} stand-ins for 2 actors"
    )


def test_stand_ins_of_one_tick_are_not_those_of_the_next():
    driven = hosted(1)
    driven.environment(observations(1))

    assert "it offered 0 stand-ins for 1 actors" in driven.trial.reason


def test_an_actor_of_another_process_or_implementation_is_called_as_ever():
    remote, local = actor("a0", endpoint="grpc://127.0.0.1:9"), actor("a1", endpoint="local://")
    driven = DrivenTrial(hosted_params([remote, local, standing_by("a2")]), pacing=WAITING)
    called = [output.actor for output in driven.outputs if isinstance(output, CallActor)]
    driven.start()
    driven.act(0, 1)

    assert called == [0, 1]
    assert driven.to_environment == ["init env", "acted 0 given x|given x|stand-in s"]


def test_the_actions_of_a_tick_are_logged_with_their_notes_and_origins():
    driven = hosted([actor("a0"), standing_by("a1"), standing_by("a2")], is_logged=True)
    driven.take_over("a1", "ben")
    driven.act(0, 1)
    logged = [entry for entry in driven.entries if entry.kind is EntryKind.ACTION]

    assert [(one.tick, one.name, one.content, one.note, one.origin) for one in logged] == [
        (0, "a0", b"x", "given", "u"),
        (0, "a1", b"x", "given", "ben"),
        (0, "a2", b"s", "stand-in", "v"),
    ]
    assert all(type(one.note) is str for one in logged), "SQLite takes those in less time"


# Without a rate


def test_without_a_rate_a_tick_waits_for_all_players():
    driven = hosted([*clients(2), standing_by("a2")])
    driven.act(1, content=b"b")
    before = list(driven.to_environment)
    driven.act(0, content=b"a")

    assert before == ["init env"]
    assert driven.to_environment[-1] == "acted 0 given a|given b|stand-in s"


def test_the_last_action_before_the_end_of_a_tick_counts():
    driven = hosted(clients(2))
    driven.act(0, content=b"first")
    driven.act(0, content=b"second")
    driven.act(1)

    assert driven.to_environment[-1] == "acted 0 given second|given x"
    assert driven.notices == []


def test_after_the_response_timeout_the_last_action_is_held():
    driven = hosted(clients(response_timeout=2))
    driven.act(0, content=b"a")
    driven.observe()
    driven.wait(1.9)
    before = len(driven.acted)
    driven.wait(0.2)

    assert before == 1
    assert driven.to_environment[-1] == "acted 1 held a"
    (_, [held]) = driven.acted[-1]
    assert held.origin == "u"
    assert held.idle == pytest.approx(2.0, abs=0.01)


def test_a_player_without_any_action_leaves_the_tick_to_the_stand_in():
    driven = hosted(clients(response_timeout=2))
    driven.wait(2)

    assert driven.to_environment[-1] == "acted 0 stand-in s"


def test_a_player_that_never_answers_is_waited_for_until_it_is_away():
    driven = hosted(clients(), Pacing(rate=0, away=4))
    driven.wait(3.9)
    before = list(driven.to_environment)
    driven.wait(0.2)
    driven.observe()
    driven.observe()

    assert before == ["init env"]
    assert driven.to_environment[1:] == [f"acted {tick} stand-in s" for tick in range(3)]
    assert driven.notices == ["actor 'a0' of 'u' is away: no action for 4.0 s"]


def test_the_time_of_the_environment_does_not_make_a_player_away():
    driven = hosted(clients(response_timeout=1), Pacing(rate=0, away=5))
    driven.act(0, content=b"a")
    driven.wait(20)
    driven.observe()
    driven.wait(1)

    assert driven.to_environment[-1] == "acted 1 held a"
    assert driven.notices == []


def test_a_late_answer_of_a_named_tick_is_held_and_does_not_answer_the_present_one():
    driven = hosted(clients(response_timeout=1))
    driven.wait(1)
    driven.observe()
    driven.act(0, content=b"late", tick=0)
    before = len(driven.acted)
    driven.wait(1)

    assert before == 1
    assert driven.to_environment[-1] == "acted 1 held late"


@pytest.mark.parametrize("tick", [1, 99, -2])
def test_an_action_of_a_tick_to_come_is_ignored(tick):
    driven = hosted(clients())
    driven.act(0, content=b"wrong", tick=tick)
    before = len(driven.acted)
    driven.act(0, content=b"right", tick=0)

    assert before == 0
    assert driven.to_environment[-1] == "acted 0 given right"
    assert driven.notices == [
        f"an action of 'a0' for tick {tick} was ignored in tick 0: there is no such tick yet"
    ]


def test_an_action_before_the_first_observation_is_ignored():
    driven = hosted(clients(), tick_zero=False)
    driven.act(0, content=b"early")
    driven.observe()

    assert driven.acted == []
    assert "was ignored" in driven.notices[0]


# With a rate


def test_ticks_leave_at_the_rate_and_not_before():
    driven = hosted(clients(), TENTHS)
    began = driven.now
    for _ in range(5):
        driven.act(0)
        driven.wait(0.099)
        before = len(driven.acted)
        driven.wait(0.001)
        assert len(driven.acted) == before + 1
        driven.observe()

    times = [at - began for at, _ in driven.acted]
    assert times == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_the_time_of_the_environment_is_part_of_a_tick():
    driven = hosted(1, TENTHS)
    began = driven.now
    for _ in range(3):
        driven.wait(0.1)
        driven.now += 0.04
        driven.observe()
        driven.now -= 0.04

    assert [at - began for at, _ in driven.acted] == pytest.approx([0.1, 0.2, 0.3])


def test_late_ticks_leave_at_once_and_are_not_made_up_for():
    driven = hosted(1, TENTHS)
    began = driven.now
    driven.wait(0.1)
    driven.wait(0.45)  # the environment is late by 0.35 s
    for _ in range(3):
        driven.observe()
        driven.wait(0.1)
    times = [at - began for at, _ in driven.acted]

    assert times == pytest.approx([0.1, 0.55, 0.65, 0.75])


def test_a_missing_action_is_the_last_one_held():
    driven = hosted(clients(), TENTHS)
    driven.act(0, content=b"a")
    for _ in range(3):
        driven.wait(0.1)
        driven.observe()

    assert driven.to_environment[1:] == ["acted 0 given a", "acted 1 held a", "acted 2 held a"]
    assert [one.idle for _, [one] in driven.acted] == pytest.approx([0.0, 0.2, 0.3], abs=1e-3)


def test_with_a_rate_an_action_counts_in_the_tick_that_ends_next_whatever_it_answers():
    driven = hosted(clients(), TENTHS)
    driven.wait(0.1)
    driven.act(0, content=b"between", tick=0)
    driven.observe()
    driven.wait(0.1)

    assert driven.to_environment[1:] == ["acted 0 stand-in s", "acted 1 given between"]


def test_after_a_time_the_stand_in_acts_until_the_player_is_back():
    driven = hosted(clients(), Pacing(rate=10, away=0.35), is_logged=True)
    driven.act(0, content=b"a")
    for _ in range(7):
        driven.wait(0.1)
        driven.observe()
    driven.act(0, content=b"b")
    driven.wait(0.1)

    assert [one.note for _, [one] in driven.acted] == (
        ["given"] + ["held"] * 3 + ["stand-in"] * 3 + ["given"]
    )
    assert events(driven) == [
        ("a0", "u", "actor 'a0' of 'u' is away: no action for 0.4 s"),
        ("a0", "u", "actor 'a0' of 'u' is back"),
    ]


def test_a_player_that_is_away_still_observes():
    driven = hosted(clients(), Pacing(rate=10, away=0.15))
    for _ in range(4):
        driven.wait(0.1)
        driven.observe()

    assert driven.to_actors[0] == ["init a0", *(f"observation {tick} o" for tick in range(5))]


@pytest.mark.parametrize(
    ("player", "ended", "ticks"),
    [("ann", [0], 1), ("ann", [1], 3), ("ann", [], 3), (None, [0], 3)],
)
def test_people_see_how_their_episode_ended_before_the_next_begins(player, ended, ticks):
    driven = hosted(2, Pacing(rate=10, rest=2))
    if player is not None:
        driven.take_over("a0", player)
    driven.wait(0.1)
    driven.observe(ended=ended)
    for _ in range(2):
        driven.wait(0.1)
        if len(driven.to_environment) > 2:
            driven.observe()

    assert len([text for text in driven.to_environment if text.startswith("acted")]) == ticks


def test_a_break_ends_after_its_time():
    driven = hosted(1, Pacing(rate=10, rest=2))
    driven.take_over("a0", "ann")
    driven.wait(0.1)
    driven.observe(ended=[0])
    driven.wait(2.0)
    before = len(driven.to_environment)
    driven.wait(0.1)

    assert len(driven.to_environment) == before + 1


def test_a_soft_end_waits_for_the_time_of_the_tick():
    driven = hosted(clients(), TENTHS)
    driven.terminate()
    before = list(driven.to_environment)
    driven.wait(0.1)

    assert before == ["init env"]
    assert driven.to_environment[1:] == ["LAST", "acted 0 stand-in s"]


# Players that are lost


@pytest.mark.parametrize("is_optional", [False, True])
def test_a_client_that_is_lost_leaves_its_actor_to_the_stand_in(is_optional):
    driven = hosted(clients(optional=is_optional), is_logged=True)
    driven.lose_actor(0)
    driven.observe()

    assert driven.to_environment[1:] == ["acted 0 stand-in s", "acted 1 stand-in s"]
    assert driven.to_actors[0][-2:] == ["END it vanished", "ended"]
    assert events(driven) == [("a0", "u", "actor 'a0' of 'u' was lost: it vanished")]


def test_a_client_that_breaks_the_protocol_does_not_end_the_trial():
    driven = hosted(clients())
    driven.actor(0, joining("a0"))

    assert driven.trial.state == TrialState.RUNNING
    assert driven.to_actors[0][-2].startswith("END it broke the protocol: ")


def test_a_client_that_does_not_come_in_time_leaves_its_actor_to_the_stand_in():
    driven = DrivenTrial(
        hosted_params([actor(initial_connection_timeout=2)]), pacing=WAITING, is_logged=True
    )
    driven.wait(2)
    driven.environment(ready())
    driven.observe()

    assert driven.to_environment == ["init env", "acted 0 stand-in s"]
    assert events(driven) == [("a0", "", "actor 'a0' was lost: it did not join within 2 s")]


def test_a_client_that_is_lost_before_the_first_tick_leaves_its_actor_to_the_stand_in():
    driven = hosted([actor("a0"), standing_by("a1")], tick_zero=False)
    driven.lose_actor(0)
    driven.observe()

    assert driven.to_environment[-1] == "acted 0 stand-in s|stand-in s"


def test_a_stream_that_is_lost_twice_is_lost_once():
    driven = hosted(clients())
    driven.lose_actor(0)
    notices = list(driven.notices)
    driven.lose_actor(0)
    driven.actor(0, action())
    driven.actor(0, ActorRunTrialOutput(state=END))

    assert driven.notices == notices
    assert driven.trial.actors[0].phase is Phase.STANDBY


# People


def test_a_person_who_takes_over_gets_the_present_observation_at_once_and_acts_in_the_tick():
    driven = hosted(2, TENTHS, is_logged=True)
    driven.wait(0.05)
    driven.take_over("a1", "ann")
    seen = list(driven.to_actors[1])
    driven.act(1, content=b"p")
    driven.wait(0.051)
    driven.observe()

    assert seen == ["init a1", "observation 0 o"]
    assert driven.to_environment[1:] == ["acted 0 stand-in s|given p"]
    assert driven.acted[0][1][1] == Acted(b"p", ActionNote.GIVEN, "ann")
    assert driven.to_actors[1][2:] == ["observation 1 o"]
    assert events(driven) == [("a1", "ann", "actor 'a1' of 'ann' was taken over")]


def test_without_a_rate_an_open_tick_waits_for_one_who_takes_over_too():
    driven = hosted([actor("a0"), standing_by("a1")])
    driven.take_over("a1")
    driven.act(0)
    before = list(driven.to_environment)
    driven.act(1, content=b"p")

    assert before == ["init env"]
    assert driven.to_environment[-1] == "acted 0 given x|given p"


def test_one_who_takes_over_between_ticks_acts_in_the_next():
    driven = hosted(1)
    driven.take_over("a0")
    driven.observe()
    driven.act(0, content=b"p")

    assert driven.to_actors[0] == ["init a0", "observation 0 o", "observation 1 o"]
    assert driven.to_environment[1:] == ["acted 0 stand-in s", "acted 1 given p"]


def test_one_who_takes_over_before_the_first_tick_gets_it_like_any_other():
    driven = hosted(1, tick_zero=False)
    driven.take_over("a0")
    driven.act(0, content=b"early")
    driven.observe()
    driven.act(0, content=b"p")

    assert driven.to_actors[0] == ["init a0", "observation 0 o"]
    assert driven.to_environment[1:] == ["acted 0 given p"]


def test_actors_are_taken_over_while_others_are_awaited():
    driven = DrivenTrial(hosted_params([actor("a0"), standing_by("a1")]), pacing=WAITING)
    driven.take_over("a1")
    driven.start()
    driven.act()

    assert driven.to_environment == ["init env", "acted 0 given x|given x"]


def test_people_take_over_by_class_the_first_actor_that_stands_by():
    driven = hosted([actor("a0"), standing_by("a1"), standing_by("a2")])

    assert driven.take_over(actor_class="player") == 1
    assert driven.take_over(actor_class="player") == 2
    with pytest.raises(ActorTaken, match="has no actor of class 'player' to take over"):
        driven.take_over(actor_class="player")


def test_two_people_play_at_once():
    driven = hosted(2, TENTHS)
    driven.take_over("a0", "ann")
    driven.take_over("a1", "ben")
    for _ in range(3):
        driven.act(0, content=b"a")
        driven.act(1, content=b"b")
        driven.wait(0.1)
        driven.observe()

    assert driven.to_environment[1:] == [f"acted {tick} given a|given b" for tick in range(3)]
    assert [one.origin for one in driven.acted[-1][1]] == ["ann", "ben"]
    assert driven.trial.hosted.people() == 2


def test_an_actor_has_one_player():
    driven = hosted([actor("a0"), standing_by("a1")])
    driven.take_over("a1")
    outputs = len(driven.outputs)

    for name in ("a0", "a1"):
        with pytest.raises(ActorTaken, match=f"has no actor '{name}' to take over: it has a pl"):
            driven.trial.slot_to_take_over(slot(name))
    with pytest.raises(TrialError, match="trial t has no actor 'a9'"):
        driven.trial.slot_to_take_over(slot("a9"))
    with pytest.raises(TrialError, match="by the name of its slot or by its class"):
        driven.trial.slot_to_take_over(slot(""))
    assert len(driven.outputs) == outputs


def test_an_actor_that_is_awaited_cannot_be_taken_over():
    driven = DrivenTrial(hosted_params([actor("a0")]), pacing=WAITING)

    with pytest.raises(ActorTaken, match="it has a player, or awaits one"):
        driven.take_over("a0")


def test_the_actor_of_a_client_that_was_lost_can_be_taken_over():
    driven = hosted(clients())
    driven.lose_actor(0)
    driven.take_over("a0")
    driven.observe()
    driven.act(0, content=b"p")

    assert driven.to_environment[-1] == "acted 1 given p"


def test_the_actor_of_a_player_that_is_away_can_be_taken_over_and_its_stream_ends():
    driven = hosted(clients(), Pacing(rate=10, away=0.05))
    driven.wait(0.1)
    driven.observe()
    driven.take_over("a0", "ann")
    driven.act(0, content=b"p")
    driven.wait(0.1)

    assert driven.to_actors[0][3:6] == ["END 'ann' took it over", "ended", "init a0"]
    assert driven.to_environment[-1] == "acted 1 given p"


def test_nothing_of_one_player_is_held_for_the_next():
    driven = hosted(1, TENTHS)
    driven.take_over("a0", "ann")
    driven.act(0, content=b"a")
    driven.lose_actor(0)
    driven.take_over("a0", "ben")
    driven.wait(0.1)

    assert driven.to_environment[-1] == "acted 0 stand-in s"


def test_after_a_hand_back_the_stand_in_acts_from_that_tick_on_and_again_a_person():
    driven = hosted(1, TENTHS, is_logged=True)
    driven.take_over("a0", "ann")
    driven.act(0, content=b"a")
    driven.actor(0, ActorRunTrialOutput(state=END))
    driven.wait(0.1)
    driven.observe()
    driven.take_over("a0", "ann")
    driven.act(0, content=b"b")
    driven.wait(0.1)

    assert driven.to_environment[1:] == ["acted 0 stand-in s", "acted 1 given b"]
    assert [note for _, _, note in events(driven)] == [
        "actor 'a0' of 'ann' was taken over",
        "actor 'a0' of 'ann' was handed back: it left",
        "actor 'a0' of 'ann' was taken over",
    ]


def test_a_tick_that_waits_for_a_person_ends_with_the_hand_back():
    driven = hosted([standing_by("a0"), actor("a1")])
    driven.take_over("a0")
    driven.act(1)
    driven.lose_actor(0)

    assert driven.to_environment[-1] == "acted 0 stand-in s|given x"


def test_rewards_messages_and_heartbeats_reach_people_as_they_reach_clients():
    driven = hosted(2, TENTHS)
    driven.take_over("a0")
    driven.environment(EnvRunTrialOutput(state=1, reward=reward_for("*", (2, 1))))
    driven.environment(EnvRunTrialOutput(state=1, message=message_for("a0")))
    driven.actor(0, ActorRunTrialOutput(state=HEARTBEAT))
    driven.actor(0, ActorRunTrialOutput(state=1, message=message_for("env")))
    driven.wait(0.1)
    driven.observe()

    assert driven.to_actors == {
        0: [
            "init a0",
            "observation 0 o",
            "message 0 env > a0",
            "HEARTBEAT",
            "reward 0 2",
            "observation 1 o",
        ]
    }
    assert "message 0 a0 > env" in driven.to_environment


@pytest.mark.parametrize("state", ["TERMINATING", "ENDED"])
def test_people_do_not_take_over_in_a_trial_that_ends(state):
    driven = hosted(1)
    driven.terminate() if state == "TERMINATING" else driven.cut()

    with pytest.raises(TrialError, match=f"trial t is {state}: people play while it is RUNNING"):
        driven.take_over("a0")


def test_actors_of_a_trial_that_is_not_hosted_cannot_be_taken_over():
    driven = DrivenTrial(trial_params([actor("a0", optional=True), actor("a1")])).start()
    driven.lose_actor(0)

    with pytest.raises(TrialError, match="trial t is not hosted"):
        driven.take_over("a0")


# The end


@pytest.mark.parametrize("pacing", [WAITING, TENTHS], ids=["waiting", "paced"])
def test_the_last_observations_reach_the_players_and_their_acknowledgements_end_the_trial(pacing):
    driven = hosted([actor("a0"), standing_by("a1"), standing_by("a2")], pacing)
    driven.take_over("a1")
    driven.announce_end()
    driven.acknowledge(0)
    is_early = driven.is_over
    driven.acknowledge(1)

    assert not is_early
    assert driven.names == EVERY_STATE
    assert driven.trial.reason == ""
    for index in (0, 1):
        assert driven.to_actors[index][-4:] == ["LAST", "observation 1 o", "END", "ended"]
    assert 2 not in driven.to_actors
    assert driven.acted == []


def test_a_trial_without_a_player_ends_with_its_environment():
    driven = hosted(1)
    driven.announce_end()

    assert driven.names == EVERY_STATE


def test_a_soft_end_has_the_environment_told_before_the_last_actions():
    driven = hosted(1)
    driven.observe()
    driven.terminate()
    driven.observe()
    driven.observe()
    driven.environment(EnvRunTrialOutput(state=LAST_ACK))

    assert driven.to_environment[2:] == [
        "acted 1 stand-in s",
        "LAST",
        "acted 2 stand-in s",
        "END",
        "ended",
    ]
    assert driven.names == EVERY_STATE


def test_the_last_step_ends_a_hosted_trial():
    driven = hosted(1, max_steps=2)
    driven.observe()
    driven.observe()
    driven.observe()
    driven.environment(EnvRunTrialOutput(state=LAST_ACK))

    assert [line.split()[0] for line in driven.to_environment] == [
        "init",
        "acted",
        "acted",
        "LAST",
        "acted",
        "END",
        "ended",
    ]


def test_a_person_who_is_lost_at_the_end_is_not_awaited():
    driven = hosted(1)
    driven.take_over("a0")
    driven.announce_end()
    driven.lose_actor(0)

    assert driven.names == EVERY_STATE


def test_a_hard_end_reaches_people_with_the_reason():
    driven = hosted(2)
    driven.take_over("a0")
    driven.cut("enough")

    assert driven.to_actors[0][-2:] == ["END enough", "ended"]
    assert driven.to_environment[-2:] == ["END enough", "ended"]
    assert driven.trial.deadline() is None


@pytest.mark.parametrize("pacing", [WAITING, TENTHS], ids=["waiting", "paced"])
def test_a_hosted_trial_is_active_while_it_ticks(pacing):
    driven = hosted(1, pacing, max_inactivity=3)
    for _ in range(6):
        driven.wait(1)
        driven.observe()
    is_active = not driven.is_over
    driven.wait(4)

    assert is_active
    assert driven.trial.reason == "nothing happened for 3 s (max_inactivity)"


# Rewards of the environment as one batch


def batch(*rewards):
    """Rewards as (actor, value), whose sources say where they come from."""
    sources = [
        RewardSource(sender_name="env", value=value, confidence=1).SerializeToString()
        for _, value in rewards
    ]
    return HostedRewards([one for one, _ in rewards], [value for _, value in rewards], sources)


@pytest.mark.parametrize("is_batch", [False, True])
def test_rewards_in_a_batch_are_delivered_logged_and_shown_as_those_of_messages(is_batch):
    driven = hosted([actor("a0"), standing_by("a1"), standing_by("a2")], TENTHS, is_logged=True)
    driven.trial.hosted.is_shown = True
    early = reward_for("*", (8, 0.25))
    driven.actor(0, ActorRunTrialOutput(state=1, reward=early))
    batches = [batch((2, 0.5), (0, -2)), batch((1, 3))] if is_batch else []
    if not is_batch:
        for index, value in ((2, 0.5), (0, -2), (1, 3)):
            reward = reward_for(f"a{index}", (value, 1))
            driven.environment(EnvRunTrialOutput(state=1, reward=reward))
    driven.act(0)
    driven.wait(0.1)
    driven.observe(rewards=batches)
    logged = [entry for entry in driven.entries if entry.kind is EntryKind.REWARD]
    (reward,) = [one.reward for one in driven.sent[0] if one.HasField("reward")]

    assert driven.to_actors[0][1:] == ["observation 0 o", "reward 0 0", "observation 1 o"]
    assert [(one.sender_name, one.value, one.confidence) for one in reward.sources] == [
        ("a0", 8, 0.25),
        ("env", -2, 1),
    ]
    assert [(one.tick, one.name, one.sender) for one in logged] == [
        (0, "*", "a0"), (0, "a2", "env"), (0, "a0", "env"), (0, "a1", "env"),
    ]  # fmt: skip
    assert [RewardSource.FromString(one.content).value for one in logged] == [8, 0.5, -2, 3]
    assert list(driven.views[-1].rewards) == [0, 4, 2]


def test_rewards_in_a_batch_that_are_not_numbers_are_refused_alone():
    driven = hosted([actor("a0"), actor("a1")], is_logged=True)
    driven.act(0, 1)
    driven.observe(rewards=[batch((0, math.nan), (1, 2)), batch((0, math.inf))])

    assert [one.name for one in driven.entries if one.kind is EntryKind.REWARD] == ["a1"]
    assert driven.to_actors[0][1:] == ["observation 0 o", "observation 1 o"]
    assert driven.to_actors[1][2] == "reward 0 2"
    assert driven.notices == [
        f"a reward of 'env' was refused: its value {value} with confidence 1 is not finite"
        for value in ("nan", "inf")
    ]


def test_rewards_in_a_batch_of_an_environment_that_has_left_mean_nothing():
    driven = hosted(1, is_logged=True)
    driven.lose_environment()
    driven.observe(rewards=[batch((0, 1))])

    assert [one for one in driven.entries if one.kind is EntryKind.REWARD] == []


# Views


def test_a_view_has_a_tick_with_the_rewards_and_actions_of_the_one_before():
    driven = hosted([actor("a0"), standing_by("a1"), standing_by("a2")], Pacing(10, away=0.05))
    driven.trial.hosted.is_shown = True
    driven.take_over("a1", "ann")
    driven.act(1, content=b"p")
    driven.environment(EnvRunTrialOutput(state=1, reward=reward_for("a1", (3, 1), (1, 1))))
    driven.wait(0.1)
    driven.observe(content=b"n")
    (view,) = driven.views

    assert (view.tick_id, view.state) == (1, TrialState.RUNNING)
    assert (view.observations.tick_id, list(view.observations.observations)) == (1, [b"n"])
    assert list(view.rewards) == [0, 2, 0]
    assert list(view.actions) == [b"s", b"p", b"s"]
    assert [(one.kind, one.name, one.is_held, one.is_away) for one in view.players] == [
        (PlayerKind.CLIENT, "u", False, True),
        (PlayerKind.PERSON, "ann", False, False),
        (PlayerKind.STAND_IN, "v", False, False),
    ]


def test_a_view_says_who_is_held():
    driven = hosted(clients(), TENTHS)
    driven.act(0)
    driven.wait(0.1)
    driven.observe()
    driven.wait(0.1)
    driven.trial.hosted.is_shown = True
    driven.observe()

    assert driven.views[0].players[0].is_held


def test_there_are_no_views_where_no_one_looks():
    driven = hosted(2)
    driven.observe()

    assert driven.views == []


def test_a_trial_can_be_seen_before_its_first_tick_and_after_its_end():
    driven = hosted(2, tick_zero=False)
    before = driven.trial.view()
    driven.observe()
    driven.cut("enough")
    after = driven.trial.view()

    assert (before.state, len(before.players), len(before.actions)) == (TrialState.PENDING, 2, 0)
    assert not before.HasField("observations")
    assert (after.state, after.reason) == (TrialState.ENDED, "enough")


# What is refused


@pytest.mark.parametrize("rate", [-1.0, 1_000.5, float("nan"), float("inf")])
def test_a_rate_is_a_number_of_ticks_a_second(rate):
    with pytest.raises(TrialError, match="the tick rate is"):
        Pacing(rate=rate)


@pytest.mark.parametrize("away", [-0.1, float("nan"), float("inf")])
def test_away_is_a_number_of_seconds(away):
    with pytest.raises(TrialError, match="away is"):
        Pacing(away=away)
    with pytest.raises(TrialError, match="rest is"):
        Pacing(rest=away)


def test_an_action_of_a_megabyte_and_more_costs_a_player_the_place():
    driven = hosted(2)
    driven.take_over("a0")
    driven.observe()
    driven.actor(0, action(bytes((1 << 20) + 1)))

    assert "its action has 1048577 bytes, more than 1048576" in driven.notices[-1]
    assert not driven.trial.actors[0].is_present
    assert not driven.is_over
