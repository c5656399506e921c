"""The parameters that controllers and hooks write, over the messages that are sent."""

import pytest
from google.protobuf.wrappers_pb2 import Int32Value, Int64Value, StringValue
from tests.trials_sdk_parts import SETTINGS

from arkml.trials import ActorParameters, TrialError, TrialParameters

TRIAL = {
    "max_steps": 5,
    "max_inactivity": 7,
    "nb_buffered_ticks": 3,
    "datalog_endpoint": "grpc://log:1",
    "datalog_exclude_fields": ("messages",),
    "environment_name": "world",
    "environment_endpoint": "grpc://world:1",
    "environment_implementation": "game",
    "properties": {"color": "red"},
    "config": Int32Value(value=1),
    "environment_config": Int32Value(value=2),
}
ACTOR = {
    "name": "ann",
    "endpoint": "cogment://client",
    "implementation": "human",
    "initial_connection_timeout": 1.5,
    "response_timeout": 2.0,
    "optional": True,
    "config": Int32Value(value=3),
    "default_action": Int64Value(value=4),
}


def player(name="ann", **attributes):
    return ActorParameters(SETTINGS, "player", name=name, **attributes)


@pytest.mark.parametrize("name", TRIAL)
def test_an_attribute_of_a_trial_is_read_as_it_was_written_and_can_be_cleared(name):
    params = TrialParameters(SETTINGS, **{name: TRIAL[name]})

    assert getattr(params, name) == TRIAL[name]
    assert params.raw_params.ByteSize() > 0
    setattr(params, name, None)
    assert not getattr(params, name)


@pytest.mark.parametrize("name", ACTOR)
def test_an_attribute_of_an_actor_is_read_as_it_was_written_and_can_be_cleared(name):
    params = ActorParameters(SETTINGS, "player", **{name: ACTOR[name]})
    written = getattr(params, name)
    setattr(params, name, None)

    assert written == ACTOR[name]
    assert not getattr(params, name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_steps", "5"),
        ("max_steps", True),
        ("max_steps", -1),
        ("max_inactivity", 1.5),
        ("environment_name", 5),
        ("config", StringValue()),
        ("environment_config", "text"),
        ("config_serialized", "text"),
        ("datalog_exclude_fields", [1]),
        ("actors", ["ann"]),
        ("color", "red"),
        ("raw_params", None),
        ("_cog_settings", None),
    ],
)
def test_a_wrong_attribute_of_a_trial_is_refused(name, value):
    with pytest.raises(TrialError):
        TrialParameters(SETTINGS, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", 5),
        ("optional", 1),
        ("response_timeout", "5"),
        ("config", Int64Value()),
        ("default_action", Int32Value()),
        ("color", "red"),
    ],
)
def test_a_wrong_attribute_of_an_actor_is_refused(name, value):
    with pytest.raises(TrialError):
        ActorParameters(SETTINGS, "player", **{name: value})


def test_an_actor_needs_the_name_of_a_class():
    with pytest.raises(TrialError, match="actor_class"):
        ActorParameters(SETTINGS, None)


def test_a_class_without_a_configuration_takes_none():
    params = ActorParameters(SETTINGS, "animal")

    with pytest.raises(TrialError, match="animal"):
        params.config = Int32Value()


def test_seconds_may_be_whole_numbers():
    assert player(response_timeout=3).response_timeout == 3.0


def test_without_settings_messages_are_written_and_read_as_bytes():
    params = TrialParameters(None, config=Int32Value(value=1))
    actor = ActorParameters(None, "player", default_action=Int64Value(value=2))

    assert params.config_serialized == Int32Value(value=1).SerializeToString()
    assert actor.default_action_serialized == Int64Value(value=2).SerializeToString()
    with pytest.raises(TrialError, match="Unknown type"):
        assert params.config
    with pytest.raises(TrialError, match="Unknown type"):
        assert actor.default_action


def test_actors_are_a_list_over_the_parameters_of_the_trial():
    params = TrialParameters(SETTINGS, actors=[player("ann"), player("bob")])
    params.actors.append(player("cat"))
    params.actors.insert(0, player("zoe"))
    params.actors[1].endpoint = "cogment://client"
    params.actors[2] = player("ben")
    del params.actors[3]

    assert [actor.name for actor in params.actors] == ["zoe", "ann", "ben"]
    assert [actor.name for actor in params.raw_params.actors] == ["zoe", "ann", "ben"]
    assert params.actors["ann"].endpoint == "cogment://client"
    assert [actor.name for actor in params.actors[1:]] == ["ann", "ben"]
    assert len(params.actors) == 3


def test_an_actor_that_is_put_in_is_copied():
    ann = player("ann")
    params = TrialParameters(SETTINGS, actors=[ann])
    ann.name = "other"

    assert params.actors[0].name == "ann"


def test_actors_may_be_replaced_by_some_of_themselves():
    params = TrialParameters(SETTINGS, actors=[player("ann"), player("bob")])
    params.actors = [params.actors["bob"]]

    assert [actor.name for actor in params.actors] == ["bob"]


def test_an_unknown_actor_is_named_in_the_error():
    with pytest.raises(TrialError, match=r"Unknown actor name \[ann\]"):
        assert TrialParameters(SETTINGS).actors["ann"]


def test_the_classes_of_a_project_are_had_by_name():
    classes = SETTINGS.actor_classes

    assert classes.player is classes["player"] is classes.get("player")
    assert [actor_class.name for actor_class in classes] == ["player", "teacher"]
    assert "player" in classes
    assert "animal" not in classes
    assert classes.get("animal") is None
    assert len(classes) == 2
    with pytest.raises(TrialError, match="player, teacher"):
        assert classes["animal"]
    with pytest.raises(AttributeError, match="animal"):
        assert classes.animal
