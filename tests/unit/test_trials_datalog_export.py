"""Trials of the log as demonstrations: rows of numbers from messages of any types."""

import numpy as np
import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from tests.unit.datalog_parts import action, observations, reward, trial_params

from arkml.abi.codes import EpisodeState
from arkml.demonstrations.demonstration_files import read_demonstrations, write_demonstrations
from arkml.errors import UsageError
from arkml.guest_trials.learning.datalog_export import DemonstrationExport
from arkml.guest_trials.learning.vectors import Vectors
from arkml.trials.core.error import TrialError
from arkml.trials.core.outputs import Entry, EntryKind
from arkml.trials.datalog.datalog import Datalog
from arkml.trials.datalog.message_types import Spaces
from arkml.trials.datalog.reader import DatalogReader
from arkml.trials.wire.common_pb2 import TrialState

INITIAL, RUNNING, TERMINAL, INTERRUPTED = (
    EpisodeState.INITIAL,
    EpisodeState.RUNNING,
    EpisodeState.TERMINAL,
    EpisodeState.INTERRUPTED,
)

FILE = """
name: "game.proto" package: "game" syntax: "proto3"
message_type { name: "Point"
  field { name: "y" number: 2 type: TYPE_FLOAT label: LABEL_OPTIONAL }
  field { name: "x" number: 1 type: TYPE_DOUBLE label: LABEL_OPTIONAL } }
enum_type { name: "Move" value { name: "STAY" number: 0 } value { name: "GO" number: 1 } }
enum_type { name: "Odd" value { name: "NONE" number: 0 } value { name: "MANY" number: 7 } }
message_type { name: "Observation"
  field { name: "is_lit" number: 4 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "at" number: 1 type: TYPE_MESSAGE type_name: ".game.Point" label: LABEL_OPTIONAL }
  field { name: "others" number: 2 type: TYPE_MESSAGE type_name: ".game.Point"
    label: LABEL_REPEATED }
  field { name: "heights" number: 3 type: TYPE_SINT32 label: LABEL_REPEATED }
  field { name: "last" number: 5 type: TYPE_ENUM type_name: ".game.Move" label: LABEL_OPTIONAL } }
message_type { name: "Action"
  field { name: "move" number: 1 type: TYPE_ENUM type_name: ".game.Move" label: LABEL_OPTIONAL }
  field { name: "odd" number: 2 type: TYPE_ENUM type_name: ".game.Odd" label: LABEL_OPTIONAL }
  field { name: "force" number: 3 type: TYPE_FLOAT label: LABEL_OPTIONAL } }
message_type { name: "Text"
  field { name: "at" number: 1 type: TYPE_MESSAGE type_name: ".game.Named" label: LABEL_OPTIONAL } }
message_type { name: "Named"
  field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }
message_type { name: "Picture"
  field { name: "pixels" number: 1 type: TYPE_BYTES label: LABEL_OPTIONAL } }
message_type { name: "Tree"
  field { name: "left" number: 1 type: TYPE_MESSAGE type_name: ".game.Tree" label: LABEL_OPTIONAL }}
message_type { name: "Map"
  field { name: "of" number: 1 type: TYPE_MESSAGE type_name: ".game.Map.OfEntry"
    label: LABEL_REPEATED }
  nested_type { name: "OfEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL } } }
message_type { name: "Nothing" }
"""
_POOL = DescriptorPool()
_POOL.Add(text_format.Parse(FILE, FileDescriptorProto()))


def message_type(name):
    return GetMessageClass(_POOL.FindMessageTypeByName(f"game.{name}"))


Observation, Action, Point = map(message_type, ("Observation", "Action", "Point"))
SPACES = {"player": Spaces(Observation, Action)}


def observation(*heights, **fields):
    return Observation(heights=heights, **fields).SerializeToString()


def acted(move, force=0.0):
    return Action(move=move, force=force).SerializeToString()


def terminating(log):
    log.state("t", TrialState.TERMINATING, 1)


def logged(directory, *steps, params=None, trial_id="t"):
    """A trial of entries, and of functions that do something else with the log."""
    with Datalog(directory) as log:
        log.begin(trial_id, "u", params or trial_params(), 1)
        for step in steps:
            if isinstance(step, Entry):
                log.add(trial_id, step)
            else:
                step(log)
        log.end(trial_id, 2, "")
    return directory


def exported(directory, actor="", spaces=SPACES):
    made = DemonstrationExport(spaces, actor)
    with DatalogReader(directory) as reader:
        for trial in reader.trials():
            made.add(reader, trial)
    return made.demonstrations()


def played(ticks, *, end=terminating):
    """Two actors who act in all ticks but the last, and how their trial ends."""
    for tick in range(ticks):
        yield observations(tick, observation(tick, 0), observation(tick, 1), actors_map=(0, 1))
        yield action(tick, acted(tick % 2, tick / 10), "ann")
        yield action(tick, acted(1, 0.5), "bob")
        yield reward(tick, "ann", tick + 0.5)
    if end is not None:
        yield end
        yield observations(ticks, observation(9, 0), observation(9, 1), actors_map=(0, 1))


def test_a_trial_is_one_episode_for_each_of_its_actors(tmp_path):
    demonstrations = exported(logged(tmp_path, *played(3)))

    rows = demonstrations.columns
    assert rows.agent.tolist() == [0] * 4 + [1] * 4
    assert rows.step.tolist() == [0, 1, 2, 3] * 2
    assert rows.state.tolist() == [INITIAL, RUNNING, RUNNING, TERMINAL] * 2
    assert rows.reward.tolist() == [0.0, 0.5, 1.5, 2.5] + [0.0] * 4
    assert rows.features[:, -4:-2].tolist() == [
        *([0, 0], [1, 0], [2, 0], [9, 0]),
        *([0, 1], [1, 1], [2, 1], [9, 1]),
    ]
    assert np.allclose(rows.action[:4], [[0, 0.0, 0], [0, 0.1, 1], [0, 0.2, 0], [0, 0, 0]])
    assert demonstrations.branches == (2,)
    assert demonstrations.warnings == ()


@pytest.mark.parametrize("name", ["rows.npz", "ann-v0"])
def test_exported_trials_are_files_of_demonstrations(tmp_path, name):
    demonstrations = exported(logged(tmp_path / "log", *played(3)))
    write_demonstrations(tmp_path / name, demonstrations)
    read = read_demonstrations(tmp_path / name)

    assert (len(read), read.episodes) == (8, 2)
    assert np.array_equal(read.columns.features, demonstrations.columns.features)


@pytest.mark.parametrize(("actor", "agents"), [("ann", 1), ("player", 2), ("", 2)])
def test_actors_are_chosen_by_their_name_or_class(tmp_path, actor, agents):
    rows = exported(logged(tmp_path, *played(2)), actor).columns

    assert set(rows.agent.tolist()) == set(range(agents))


def test_several_trials_are_the_episodes_of_several_agents(tmp_path):
    for trial_id in ("t", "again"):
        logged(tmp_path, *played(2, end=None), trial_id=trial_id)

    assert set(exported(tmp_path).columns.agent.tolist()) == {0, 1, 2, 3}


def test_a_trial_that_was_cut_off_has_no_end_in_its_rows(tmp_path):
    rows = exported(logged(tmp_path, *played(3, end=None)), "ann").columns

    assert rows.state.tolist() == [INITIAL, RUNNING, RUNNING]


def test_a_trial_that_ended_by_its_number_of_steps_is_interrupted(tmp_path):
    rows = exported(logged(tmp_path, *played(3), params=trial_params(max_steps=3)), "ann").columns

    assert rows.state.tolist() == [INITIAL, RUNNING, RUNNING, INTERRUPTED]


@pytest.mark.parametrize("note", ["default", "unavailable"])
def test_the_rows_of_an_actor_end_where_others_act_for_it(tmp_path, note):
    entries = [
        action(one.tick, one.content, one.name, note)
        if isinstance(one, Entry) and one[:2] == (EntryKind.ACTION, 2) and one.name == "ann"
        else one
        for one in played(4)
    ]
    rows = exported(logged(tmp_path, *entries), "ann").columns

    assert rows.state.tolist() == [INITIAL, RUNNING, INTERRUPTED]
    assert rows.action[-1].tolist() == [0, 0, 0]


def test_numbers_are_in_the_order_of_field_numbers():
    points = [Point(x=1, y=2), Point(x=3, y=4)]
    sent = Observation(is_lit=True, at=Point(y=9), others=points, heights=[-5, 6], last=1)

    row = Vectors(Observation).row(sent.SerializeToString(), "x")
    assert row == [0, 9, 1, 2, 3, 4, -5, 6, 1, 1]


def test_enumerations_in_actions_are_choices_behind_the_numbers():
    vectors = Vectors(Action, has_choices=True)
    row = vectors.row(Action(move=1, odd=7, force=0.5).SerializeToString(), "x")

    assert row == [7, 0.5, 1]
    assert (vectors.branches, vectors.width) == ((2,), 3)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Text", "field 'name' of game.Named is text"),
        ("Picture", "field 'pixels' of game.Picture is bytes"),
        ("Tree", "game.Tree contains itself"),
        ("Map", "field 'of' of game.Map is a map"),
    ],
)
def test_types_that_are_not_rows_of_numbers_are_refused(name, reason):
    with pytest.raises(TrialError, match=reason):
        Vectors(message_type(name))


def test_a_type_without_numbers_is_refused():
    with pytest.raises(TrialError, match="Nothing has no numbers to export"):
        Vectors(message_type("Nothing")).row(b"", "x")


def test_rows_of_changing_width_are_refused(tmp_path):
    entries = [*played(2, end=None)]
    entries.append(observations(2, observation(1, 2, 3)))

    with pytest.raises(
        TrialError,
        match=r"'heights' has 3 values in the observation of 'ann' in tick 2 of trial 't', and 2",
    ):
        exported(logged(tmp_path, *entries, action(2, acted(0))))


def test_a_message_with_too_many_numbers_is_refused():
    with pytest.raises(TrialError, match="more than 65536 numbers"):
        Vectors(Observation).row(observation(*range(70_000)), "x")


def test_messages_of_another_spec_are_refused(tmp_path):
    entries = observations(0, b"\x0a\xff"), action(0, b"")

    with pytest.raises(
        TrialError, match="cannot be parsed as Observation: is this the spec of its trial"
    ):
        exported(logged(tmp_path, *entries))


def test_an_observation_that_the_log_lacks_is_damage(tmp_path):
    entries = observations(0, observation(1), actors_map=(0, 5)), action(0, acted(0), "bob")

    with pytest.raises(TrialError, match="there is no observation of 'bob' in tick 0"):
        exported(logged(tmp_path, *entries), "bob")


def test_a_choice_that_there_is_not_is_refused(tmp_path):
    entries = [observations(0, observation(1)), action(0, b"\x08\x05"), observations(1, b"")]

    with pytest.raises((TrialError, UsageError), match="which has 2 choices"):
        exported(logged(tmp_path, *entries[:2], observations(1, observation(2))), "ann")


def test_an_unknown_actor_is_refused_with_those_that_there_are(tmp_path):
    with pytest.raises(TrialError, match=r"no actor 'eve': it has ann \(player\), bob \(player\)"):
        exported(logged(tmp_path, *played(2)), "eve")


def test_actors_of_several_classes_are_refused(tmp_path):
    params = trial_params()
    params.actors[1].actor_class = "judge"

    with pytest.raises(TrialError, match="of the classes judge, player: choose one of them"):
        exported(logged(tmp_path, *played(2), params=params))


def test_a_class_that_the_spec_lacks_is_refused(tmp_path):
    with pytest.raises(TrialError, match="of class 'player', and the spec has judge"):
        exported(logged(tmp_path, *played(2)), spaces={"judge": SPACES["player"]})


@pytest.mark.parametrize("left_out", ["observations", "actions"])
def test_without_observations_or_actions_there_is_nothing_to_export(tmp_path, left_out):
    directory = logged(tmp_path, *played(3), params=trial_params([left_out]))

    with pytest.raises(TrialError, match="there is nothing to export"):
        exported(directory)
