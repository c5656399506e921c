"""Ten thousand messages that a trial does not expect, in every state and on every stream."""

import random

import pytest
from tests.driven_trial import DrivenTrial, actor, joining, ready, trial_params
from tests.mutated_messages import of_actor, of_environment
from tests.unit.test_trials_core_exploration import Checks

from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput

EACH = 210
"""Messages for each of the 16 states of a trial and 3 streams: together they are 10,000."""


def absent(driven):
    pass


def one_joined(driven):
    driven.join("a0")


def one_accepted(driven):
    driven.actor(1, joining())


def environment_called(driven):
    driven.join("a0")
    driven.actor(1, joining())
    driven.join("a2")


def environment_ready(driven):
    environment_called(driven)
    driven.environment(ready())


def first_observations(driven):
    environment_ready(driven)
    driven.observe()


def one_acted(driven):
    first_observations(driven)
    driven.act(0)


def all_acted(driven):
    first_observations(driven)
    driven.act()


def later(driven):
    first_observations(driven)
    driven.play(5)


def one_lost(driven):
    later(driven)
    driven.lose_actor(2)


def end_requested(driven):
    later(driven)
    driven.terminate()


def last_actions_given(driven):
    end_requested(driven)
    driven.act()


def end_announced(driven):
    later(driven)
    driven.environment(EnvRunTrialOutput(state=3))


def last_observations(driven):
    end_announced(driven)
    driven.observe()


def environment_left(driven):
    last_observations(driven)
    driven.environment(EnvRunTrialOutput(state=4))


def some_left(driven):
    last_observations(driven)
    driven.acknowledge(0, 2)


PREFIXES = [
    absent,
    one_joined,
    one_accepted,
    environment_called,
    environment_ready,
    first_observations,
    one_acted,
    all_acted,
    later,
    one_lost,
    end_requested,
    last_actions_given,
    end_announced,
    last_observations,
    environment_left,
    some_left,
]
"""The states of a trial with one actor that joins, one that is called, and an optional one."""


@pytest.mark.parametrize("stream", [None, 0, 1], ids=["environment", "joined", "called"])
@pytest.mark.parametrize("prefix", PREFIXES, ids=lambda one: one.__name__)
def test_what_is_not_expected_ends_the_trial_or_changes_nothing_else(prefix, stream):
    chance = random.Random(f"{prefix.__name__} {stream}")
    actors = [
        actor("a0", initial_connection_timeout=5, optional=chance.random() < 0.5),
        actor("a1", endpoint="grpc://127.0.0.1:9", initial_connection_timeout=5),
        actor("a2", optional=True, response_timeout=5, initial_connection_timeout=5),
    ]
    params = trial_params(actors, max_inactivity=30)
    sent = 0
    while sent < EACH:
        driven, checks = DrivenTrial(params, is_logged=sent % 2 == 0), Checks()
        prefix(driven)
        for _ in range(chance.randint(1, 4)):
            if stream is None:
                driven.environment(of_environment(chance, 3))
            elif driven.trial.actors[stream].phase != "absent":
                driven.actor(stream, of_actor(chance))
            sent += 1
        driven.wait(1_000)
        checks.take(driven.outputs, driven.trial)

        assert driven.is_over, "it waits for nothing"
