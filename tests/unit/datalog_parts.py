"""Trials for the tests of the log: their parameters and entries, and a small file of them."""

import time

from arkml.trials.core.outputs import Entry, EntryKind
from arkml.trials.datalog.datalog import Datalog, DatalogOptions
from arkml.trials.datalog.retention import Retention
from arkml.trials.wire.common_pb2 import (
    ActorParams,
    DatalogParams,
    EnvironmentParams,
    RewardSource,
    TrialParams,
    TrialState,
)
from arkml.trials.wire.environment_pb2 import ObservationSet

RUNNING, ENDED = TrialState.RUNNING, TrialState.ENDED


def trial_params(exclude=(), max_steps=0):
    return TrialParams(
        environment=EnvironmentParams(name="env", endpoint="grpc://localhost:9000"),
        actors=[
            ActorParams(name="ann", actor_class="player", endpoint="cogment://client"),
            ActorParams(name="bob", actor_class="player", endpoint="cogment://client"),
        ],
        datalog=DatalogParams(exclude_fields=exclude),
        max_steps=max_steps,
    )


def action(tick, content=b"", name="ann", note="given", at=None):
    return Entry(EntryKind.ACTION, tick, at or time.time_ns(), name, "", content, note)


def observations(tick, *contents, actors_map=(0, 0)):
    observed = ObservationSet(tick_id=tick, observations=contents, actors_map=actors_map)
    content = observed.SerializeToString()
    return Entry(EntryKind.OBSERVATIONS, tick, time.time_ns(), content=content)


def reward(tick, receiver, value, confidence=1.0, sender="env"):
    source = RewardSource(sender_name=sender, value=value, confidence=confidence)
    content = source.SerializeToString()
    return Entry(EntryKind.REWARD, tick, time.time_ns(), receiver, sender, content)


def event(tick, text):
    return Entry(EntryKind.EVENT, tick, time.time_ns(), note=text)


def keeping(**retention):
    return DatalogOptions(Retention(**retention))


def write_trial(log, trial_id, entries=(), *, user="ann", params=None, reason="", began=None):
    """A whole trial."""
    began = began or time.time_ns()
    log.begin(trial_id, user, params or trial_params(), began)
    log.state(trial_id, RUNNING, began)
    for entry in entries:
        log.add(trial_id, entry)
    log.end(trial_id, began + 1_500_000_000, reason)


def written(directory, trial_id, *entries, **more):
    """A log that holds one trial, closed."""
    with Datalog(directory) as log:
        write_trial(log, trial_id, entries, **more)
    return directory
