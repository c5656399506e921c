"""The ticks of a trial: observations to actors, actions to the environment."""

import pytest
from tests.driven_trial import DrivenTrial, action, actor, observations, trial_params

from arkml.trials.core.outputs import EntryKind
from arkml.trials.wire.common_pb2 import TrialState
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput, ObservationSet

ENDED = TrialState.ENDED


def test_ticks_count_from_zero_whether_they_are_named_or_not():
    driven = DrivenTrial().start(tick_zero=False)
    ticks = []
    for named in (0, -1, 2, -1, 4):
        driven.observe(named)
        ticks.append(driven.trial.tick)
        driven.act()

    assert ticks == [0, 1, 2, 3, 4]
    assert driven.to_environment[1:] == [f"actions {tick} x|x" for tick in ticks]


@pytest.mark.parametrize("tick", [0, 1, 3, -2, 2**40])
def test_a_tick_that_is_skipped_or_repeated_ends_the_trial(tick):
    driven = DrivenTrial().start()
    driven.play(1)
    driven.act()
    driven.observe(tick)

    assert driven.trial.reason == (
        f"the environment broke the protocol: it sent observations of tick {tick} instead of 2"
    )


def test_the_first_tick_cannot_be_another_one_than_zero():
    driven = DrivenTrial().start(tick_zero=False)
    driven.observe(1)

    assert "it sent observations of tick 1 instead of 0" in driven.trial.reason


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_environment_that_forgets_an_actor_ends_the_trial(count):
    driven = DrivenTrial().start()
    driven.act()
    driven.environment(observations(count))

    assert f"it sent observations for {count} of 2 actors" in driven.trial.reason


@pytest.mark.parametrize("indices", [[0, 2], [-1, 0], [5, 5]])
def test_an_actors_map_names_observations_that_are_there(indices):
    driven = DrivenTrial().start()
    driven.act()
    observed = ObservationSet(tick_id=-1, observations=[b"p", b"q"], actors_map=indices)
    driven.environment(EnvRunTrialOutput(state=1, observation_set=observed))

    assert "its actors_map names an observation that is not one of its 2" in driven.trial.reason


def test_a_refused_set_of_observations_leaves_the_tick_as_it_was():
    driven = DrivenTrial().start()
    driven.act()
    driven.observe(7)

    assert driven.trial.tick == 0
    assert driven.trial.latest.tick_id == 0


def test_actors_get_the_observations_that_the_map_gives_them():
    driven = DrivenTrial(trial_params(3)).start(tick_zero=False)
    observed = ObservationSet(tick_id=-1, observations=[b"p", b"q"], actors_map=[1, 0, 1])
    driven.environment(EnvRunTrialOutput(state=1, observation_set=observed))
    last = [driven.to_actors[index][-1] for index in range(3)]

    assert last == ["observation 0 q", "observation 0 p", "observation 0 q"]
    assert driven.sent[0][-1] is driven.sent[2][-1], "one message for one observation"


def test_observations_keep_their_time_and_get_one_if_they_have_none():
    driven = DrivenTrial().start(tick_zero=False)
    driven.environment(observations(timestamp=77))
    driven.act()
    driven.observe()

    assert driven.sent[0][1].observation.timestamp == 77
    assert driven.sent[0][2].observation.timestamp == int(driven.now * 1e9)
    assert driven.sent[None][1].action_set.timestamp == int(driven.now * 1e9)


def test_the_latest_observations_are_those_of_the_tick():
    driven = DrivenTrial()
    nothing = driven.trial.latest
    driven.start()
    driven.play(3)

    assert nothing is None
    assert driven.trial.latest.tick_id == 3
    assert driven.trial.latest.timestamp == int(driven.now * 1e9)
    assert list(driven.trial.latest.actors_map) == [0, 0]


# Actions


def test_the_environment_gets_the_actions_in_trial_order_once_there_are_all():
    driven = DrivenTrial(trial_params(3)).start()
    driven.act(2, content=b"c")
    driven.act(0, content=b"a", tick=0)
    before = list(driven.to_environment)
    driven.act(1, content=b"b")

    assert before == ["init env"]
    assert driven.to_environment[-1] == "actions 0 a|b|c"


def test_the_first_action_of_a_tick_wins():
    driven = DrivenTrial().start()
    driven.act(0, content=b"first")
    driven.act(0, content=b"second")
    driven.act(1)

    assert driven.to_environment[-1] == "actions 0 first|x"
    assert driven.notices == [
        "an action of 'a0' for tick -1 was ignored in tick 0: it is of another tick, not the"
        " first one, or before the first observation"
    ]


@pytest.mark.parametrize("tick", [0, 2, 99, -2])
def test_an_action_of_another_tick_is_ignored(tick):
    driven = DrivenTrial().start()
    driven.play(1)
    driven.act(0, content=b"wrong", tick=tick)
    driven.act(0, content=b"right", tick=1)
    driven.act(1)

    assert driven.to_environment[-1] == "actions 1 right|x"
    assert f"an action of 'a0' for tick {tick} was ignored in tick 1" in driven.notices[0]


def test_an_action_before_the_first_observation_is_ignored():
    driven = DrivenTrial().start(tick_zero=False)
    driven.act(0, content=b"early")
    driven.observe()
    driven.act(0, content=b"x")
    driven.act(1)

    assert driven.to_environment[-1] == "actions 0 x|x"
    assert "an action of 'a0' for tick -1 was ignored" in driven.notices[0]


def test_an_empty_action_is_an_action():
    driven = DrivenTrial().start()
    driven.act(content=b"")

    assert driven.to_environment[-1] == "actions 0 |"


def test_an_optional_actor_that_has_gone_is_replaced_by_its_default_action():
    actors = [
        actor("a0", optional=True, default_action=b"still"),
        actor("a1", optional=True),
        actor("a2"),
    ]
    driven = DrivenTrial(trial_params(actors)).start()
    driven.lose_actor(0)
    driven.act(1, 2)
    driven.observe()
    driven.lose_actor(1)
    driven.act(2)

    assert driven.to_environment[1:] == [
        "actions 0 still|x|x",
        "actions 1 still||x without 1",
    ]
    assert driven.to_actors[0][-2:] == ["END it vanished", "ended"]


def test_a_default_action_may_be_empty():
    actors = [actor("a0", optional=True, default_action=b""), actor("a1")]
    driven = DrivenTrial(trial_params(actors)).start()
    driven.lose_actor(0)
    driven.act(1)

    assert driven.to_environment[-1] == "actions 0 |x"


def test_an_actor_that_goes_after_its_action_has_acted():
    driven = DrivenTrial(trial_params([actor("a0", optional=True), actor("a1")])).start()
    driven.act(0, content=b"given")
    driven.lose_actor(0)
    driven.act(1)

    assert driven.to_environment[-1] == "actions 0 given|x"


# The number of steps


@pytest.mark.parametrize("steps", [1, 3])
def test_a_trial_ends_softly_after_its_most_steps(steps):
    driven = DrivenTrial(trial_params(max_steps=steps)).start()
    driven.play(steps)
    is_ending = driven.names[-1] == "TERMINATING"
    driven.act()
    last = driven.to_environment[-2:]
    driven.announce_end()
    driven.acknowledge()

    assert is_ending
    assert last == ["LAST", f"actions {steps} x|x"]
    assert driven.to_actors[0][-4:-2] == ["LAST", f"observation {steps + 1} o"]
    assert driven.is_over


# The log


def test_the_log_has_what_happened_in_order():
    actors = [actor("a0"), actor("a1", optional=True), actor("a2", optional=True)]
    actors[1].default_action.content = b"d"
    driven = DrivenTrial(trial_params(actors), is_logged=True).start()
    driven.lose_actor(1)
    driven.lose_actor(2)
    driven.act(0)
    entries = [(one.kind, one.tick, one.name, one.content, one.note) for one in driven.entries]
    observed = ObservationSet.FromString(driven.entries[0].content)

    assert (observed.tick_id, list(observed.observations)) == (0, [b"o"])
    assert [entry for entry in entries if entry[0] is not EntryKind.EVENT][1:] == [
        (EntryKind.ACTION, 0, "a1", b"d", "default"),
        (EntryKind.ACTION, 0, "a2", b"", "unavailable"),
        (EntryKind.ACTION, 0, "a0", b"x", "given"),
    ]
    assert [entry[4] for entry in entries if entry[0] is EntryKind.EVENT] == [
        "actor 'a1' was lost: it vanished",
        "actor 'a2' was lost: it vanished",
    ]


def test_a_trial_that_is_not_logged_has_no_entries():
    driven = DrivenTrial().start()
    driven.play(2)

    assert driven.entries == []


def test_actions_that_take_too_much_in_one_tick_cost_their_senders_their_places():
    players = [actor(f"a{index}", optional=True) for index in range(40)]
    driven = DrivenTrial(trial_params(players)).start()
    for index in range(40):
        driven.actor(index, action(bytes(3 << 20)))
    lost = [text for text in driven.notices if "those of the tick take over 67108864" in text]

    assert len(lost) == 40 - 21
    assert not driven.is_over
    assert driven.to_environment[-1].endswith("without " + ",".join(map(str, range(21, 40))))
    driven.observe()
    driven.actor(0, action(bytes(3 << 20)))
    assert driven.trial.actors[0].is_present
