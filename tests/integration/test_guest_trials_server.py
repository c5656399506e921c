"""Guests as environments of trials that a server runs and logs."""

import asyncio
from pathlib import Path

import pytest
from tests.integration.test_guest_trials import FIXED, NEVER, NONE, TRAP, WALKERS
from tests.integration.test_trials_datalog_service import Logger, logging_to

from arkml.guest_trials.guest_hosting import GuestHosting
from arkml.guest_trials.guest_trials_options import GuestTrialsOptions
from arkml.trials.core.hosting import HOSTED
from arkml.trials.datalog.datalog import Datalog
from arkml.trials.datalog.reader import DatalogReader
from arkml.trials.server.server import Server
from arkml.trials.wire.common_pb2 import RewardSource, TrialParams
from arkml.trials.wire.environment_pb2 import ObservationSet
from arkml.trials.wire.guest_pb2 import GuestConfig, Observation
from arkml.trials.wire.lifecycle_pb2 import TrialStartRequest

AGENTS, TICKS = 4, 20


def params(max_steps=TICKS, **config):
    made = TrialParams(max_steps=max_steps)
    made.environment.endpoint, made.environment.implementation = "local://", HOSTED
    made.trial_config.content = GuestConfig(**config).SerializeToString()
    return made


@pytest.fixture
def make():
    made = []

    def hosting(**options):
        environment = {"configure": (AGENTS, FIXED, 1, NONE, 0)}
        options = GuestTrialsOptions(module=WALKERS, environment=environment, workers=2, **options)
        made.append(GuestHosting(options))
        return made[-1]

    yield hosting
    for one in made:
        one.close()


@pytest.fixture
def hosting(make):
    return make()


async def played(hosting, directory: Path, requests):
    """Play trials to their ends; return what the log has of each."""
    with Datalog(directory) as log:
        async with Server(trial_log=log, hosting=hosting) as server:
            for trial_id, one in requests.items():
                request = TrialStartRequest(params=one, trial_id_requested=trial_id)
                await server.trials.start(request)
            async with asyncio.timeout(60):
                while server.orchestrator.live_trials():
                    await asyncio.sleep(0.01)
    with DatalogReader(directory) as reader:
        return {
            trial.id: [
                (entry.kind, entry.tick, entry.name, entry.content, entry.note, entry.origin)
                for entry in reader.entries(trial)
            ]
            for trial in reader.trials()
        }


async def test_a_trial_of_stand_ins_is_played_to_its_end_and_logged(hosting, tmp_path):
    entries = (await played(hosting, tmp_path, {"one": params(seed=3)}))["one"]

    observed = [ObservationSet.FromString(one[3]) for one in entries if one[0] == "observations"]
    assert [one.tick_id for one in observed] == list(range(TICKS + 2))
    first = [Observation.FromString(content) for content in observed[0].observations]
    assert [one.agent for one in first] == list(range(AGENTS))
    actions = [(one[2], one[4]) for one in entries if one[0] == "action"]
    assert actions == [(f"red_{slot}", "default") for slot in range(AGENTS)] * (TICKS + 1)
    rewards = [RewardSource.FromString(one[3]) for one in entries if one[0] == "reward"]
    assert {one.sender_name for one in rewards} == {"env"}
    assert len(rewards) == AGENTS * (TICKS + 1)


async def test_trials_without_players_log_the_same_with_a_rate_and_played_ahead(make, tmp_path):
    ahead = await played(make(), tmp_path / "ahead", {"one": params(seed=3)})
    timed = await played(make(tick_rate=1_000.0), tmp_path / "timed", {"one": params(seed=3)})

    assert _without_times(ahead) == _without_times(timed)


async def test_a_guest_that_fails_leaves_the_logs_of_other_trials_as_they_are(hosting, tmp_path):
    others = {f"trial {number}": params(seed=number) for number in range(20)}
    broken = params(configure_numbers=(AGENTS, FIXED, 1, TRAP, 9))

    with_it = await played(hosting, tmp_path / "with", {"broken": broken, **others})
    without = await played(hosting, tmp_path / "without", others)

    assert any("late enough" in one[4] for one in with_it.pop("broken"))
    assert _without_times(with_it) == _without_times(without)


async def test_a_trial_ends_with_its_guest(hosting, tmp_path):
    config = params(0, configure_numbers=(1, NEVER, 1, NONE, 0))
    entries = (await played(hosting, tmp_path, {"one": config}))["one"]

    states = [one[4] for one in entries if one[0] == "state"]
    assert states[-2:] == ["TERMINATING", "ENDED"]


def _without_times(logs):
    """Logs without the timestamps in observations."""
    found = {}
    for trial_id, entries in logs.items():
        found[trial_id] = []
        for kind, tick, name, content, *rest in entries:
            if kind == "observations":
                content = list(ObservationSet.FromString(content).observations)
            found[trial_id].append((kind, tick, name, content, *rest))
    return found


async def test_a_datalog_gets_every_tick_of_a_trial_of_a_guest(hosting):
    logger = Logger()
    async with logging_to(logger) as datalog, Server(hosting=hosting) as server:
        one = params(seed=3)
        one.datalog.CopyFrom(datalog)
        await server.trials.start(TrialStartRequest(params=one))
        async with asyncio.timeout(60):
            await logger.is_done.wait()

    samples = logger.samples
    assert [sample.info.tick_id for sample in samples] == [*range(TICKS + 2)]
    for sample in samples[:-1]:
        assert [action.tick_id for action in sample.actions] == [sample.info.tick_id] * AGENTS
        assert {reward.sources[0].sender_name for reward in sample.rewards} == {"env"}
    assert Observation.FromString(samples[0].observations.observations[0]).present
