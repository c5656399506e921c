"""The members of the published JavaScript SDK, in Python's spelling."""

import inspect

import pytest
from tests.trials_sdk_parts import Ends, actor, environment

import arkml.trials
from arkml.trials import (
    ActorInfo,
    ActorSession,
    Context,
    Controller,
    EnvironmentSession,
    EventType,
    RecvEvent,
    RecvReward,
    RecvRewardSource,
    Reward,
    RewardSource,
    Session,
    TrialInfo,
    TrialState,
)

METHODS = {
    Context: {
        "get_controller": ["endpoint"],
        "join_trial": ["trial_id", "endpoint", "impl_name", "actor_name", "actor_class"],
        "register_actor": ["impl", "impl_name", "actor_classes", "properties"],
        "register_environment": ["impl", "impl_name", "properties"],
        "register_pre_trial_hook": ["impl", "properties"],
        "serve_all_registered": [
            "served_endpoint",
            "prometheus_port",
            "directory_registration_host",
        ],
    },
    Controller: {
        "start_trial": ["trial_config", "trial_id_requested", "trial_params"],
        "terminate_trial": ["trial_ids", "hard"],
        "get_trial_info": ["trial_ids"],
        "watch_trials": ["trial_state_filters", "full_info"],
        "get_actors": ["trial_id"],
        "get_remote_versions": [],
    },
    Session: {
        "get_trial_id": [],
        "get_tick_id": [],
        "is_trial_over": [],
        "sending_done": [],
        "all_events": [],
        "event_loop": [],
        "add_reward": ["value", "confidence", "to", "tick_id", "user_data"],
        "send_message": ["payload", "to"],
    },
    ActorSession: {"start": ["auto_done_sending"], "do_action": ["action"]},
    EnvironmentSession: {
        "start": ["observations", "auto_done_sending"],
        "produce_observations": ["observations"],
        "end": ["final_observations"],
        "get_active_actors": [],
    },
}
FIELDS = {
    TrialInfo: ["trial_id", "state", "env_name", "tick_id", "duration"],
    RecvEvent: ["type", "observation", "actions", "rewards", "messages"],
    Reward: ["tick_id", "receiver_name", "value", "sources"],
    RewardSource: ["sender_name", "value", "confidence", "user_data"],
    ActorInfo: ["actor_name", "actor_class_name"],
}


@pytest.mark.parametrize(
    ("owner", "name"), [(owner, name) for owner, names in METHODS.items() for name in names]
)
def test_a_method_has_the_published_parameters(owner, name):
    parameters = list(inspect.signature(getattr(owner, name)).parameters)

    assert parameters == ["self", *METHODS[owner][name]]


@pytest.mark.parametrize("owner", FIELDS, ids=lambda owner: owner.__name__)
def test_a_value_has_the_published_fields(owner):
    assert set(FIELDS[owner]) <= set(owner.__dataclass_fields__)


def test_a_context_takes_the_user_and_then_the_settings():
    assert list(inspect.signature(Context).parameters)[:2] == ["user_id", "cog_settings"]


def test_the_enumerations_have_the_published_values():
    assert [(state.name, state.value) for state in TrialState] == [
        ("UNKNOWN", 0),
        ("INITIALIZING", 1),
        ("PENDING", 2),
        ("RUNNING", 3),
        ("TERMINATING", 4),
        ("ENDED", 5),
    ]
    assert [kind.name for kind in EventType] == ["NONE", "ACTIVE", "ENDING", "FINAL"]


def test_rewards_have_both_published_names():
    assert (Reward, RewardSource) == (RecvReward, RecvRewardSource)


async def test_both_sessions_are_sessions():
    assert isinstance(actor(Ends()), Session)
    assert isinstance(environment(Ends()), Session)
    with pytest.raises(TypeError, match="abstract"):
        Session(None, Ends(), trial_id="t", name="ann", impl_name="", config=None)


def test_all_public_names_are_there():
    for name in arkml.trials.__all__:
        assert getattr(arkml.trials, name).__name__
    assert dir(arkml.trials) == sorted(arkml.trials.__all__)
    with pytest.raises(AttributeError, match="'Nothing'"):
        assert arkml.trials.Nothing
