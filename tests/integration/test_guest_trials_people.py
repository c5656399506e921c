"""People who play a guest in trials, from whom a run of a real hive learns."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from tests.faults.serving import TOKEN, Served
from tests.integration.command_line import arkml
from tests.people_rows import (
    NAME,
    SPARSE,
    actions_in,
    assert_are_the_ticks,
    exported,
    learn,
    stored,
)
from tests.scripted_people import Player, TakenOver
from tests.unit.guest_trial_parts import same_rows

from arkml.guest_trials.guest_hosting import GuestHosting
from arkml.guest_trials.guest_trials_options import GuestTrialsOptions
from arkml.guest_trials.learning.run_options import LearningOptions
from arkml.guest_trials.learning.trial_learning import TrialLearning
from arkml.guest_trials.stand_ins import StandIns
from arkml.hive.protocol.rows import RowKind
from arkml.trials import ActorClass, ActorClassList, Context, Server
from arkml.trials.core.hosting import HOSTED, STAND_IN
from arkml.trials.datalog.datalog import Datalog
from arkml.trials.server.server_options import TrialsOptions
from arkml.trials.wire.common_pb2 import ActorParams, EnvironmentParams, TrialParams
from arkml.trials.wire.guest_pb2 import Action, GuestConfig, Observation
from arkml.trials.wire.lifecycle_pb2 import TrialStartRequest

SETTINGS = SimpleNamespace(
    actor_classes=ActorClassList(ActorClass(NAME, None, Action, Observation)),
    trial=SimpleNamespace(config_type=GuestConfig),
    environment=SimpleNamespace(config_type=GuestConfig),
)


@pytest.fixture
def hive(tmp_path):
    with Served(tmp_path / "hive") as served:
        yield served


@asynccontextmanager
async def served(hive, data, *, learn="people", **pacing):
    """A server of trials of sparse reach that a run learns from, and its part in the run."""
    stand_ins = StandIns(run_classes=[NAME])
    runs = LearningOptions(
        hive=f"127.0.0.1:{hive.port}", token=TOKEN, runs={NAME: "played"}, learn=learn
    )
    options = GuestTrialsOptions(
        module=SPARSE, stand_ins=stand_ins, seed=3, learning=runs.sentence, **pacing
    )
    with GuestHosting(options) as hosting:
        learning = await asyncio.to_thread(
            TrialLearning, runs, NAME, hosting.classes, stand_ins.offer
        )
        try:
            with Datalog(data) as datalog:
                log = learning.learned_log(datalog)
                async with Server(TrialsOptions(), trial_log=log, hosting=hosting) as server:
                    yield server, learning
        finally:
            await asyncio.to_thread(learning.close)


def params(*clients):
    environment = EnvironmentParams(endpoint="local://", implementation=HOSTED)
    made = TrialParams(environment=environment)
    for slot in range(16):
        name = f"{NAME}_{slot}"
        is_client = name in clients
        made.actors.append(
            ActorParams(
                name=name,
                actor_class=NAME,
                endpoint="cogment://client" if is_client else "local://",
                implementation="" if is_client else STAND_IN,
            )
        )
    return made


async def start(server, *clients):
    request = TrialStartRequest(params=params(*clients), user_id="ann")
    return (await server.trials.start(request)).trial_id


async def until(condition):
    """Wait in the loop of the trials."""
    for _ in range(60_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the condition never came true")


async def played_over_grpc(hive, data, episodes, then=lambda: None):
    """
    Play one slot by the SDK from the first tick on; return what the person did.

    `then` is called on a thread while the server still takes part in the run.
    """
    person = Player(episodes)

    async def play(session):
        session.start()
        async for event in session.all_events():
            if event.observation:
                action = person.action(event.observation.observation.SerializeToString())
                if person.is_done:
                    return  # the stand-in acts from here on
                session.do_action(action)

    async with served(hive, data, tick_rate=0.0) as (server, _):
        port, _ = await server.listen("127.0.0.1", 0)
        async with Context("ann", SETTINGS) as context:
            context.register_actor(play, "person", [NAME])
            trial = await start(server, f"{NAME}_0")
            place = f"grpc://127.0.0.1:{port}"
            joined = asyncio.create_task(
                context.join_trial(trial, place, "person", actor_name=f"{NAME}_0")
            )
            await until(lambda: person.is_done or joined.done())
            await server.trials.terminate([trial], is_hard=False)
            await joined
        await asyncio.to_thread(then)
    return person


def read_log(data, trial_id):
    """A trial of a log with all of its ticks."""
    words = ("trials", "show", trial_id, "--data", data, "--last", "0", "--json")
    return arkml(*words).json


@pytest.mark.learns
async def test_demonstrations_are_the_ticks_of_a_person_who_plays_twenty_episodes(hive, tmp_path):
    person = await played_over_grpc(hive, tmp_path / "log", episodes=20)
    rows = stored(hive)

    assert_are_the_ticks(rows, person.acted)
    assert len(set(rows.agent.tolist())) == 20
    assert rows.reward.sum() == 20
    assert same_rows(rows, (await asyncio.to_thread(exported, tmp_path / "log")).columns)


async def test_people_who_take_over_and_hand_back_have_spans_of_their_own(hive, tmp_path):
    people = [Player(), Player()]
    async with served(hive, tmp_path / "log", tick_rate=0.0) as (server, _):
        trial_id = await start(server)
        (trial,) = server.orchestrator.live_trials()
        for name, person in zip(("ann", "bob"), people, strict=True):
            await until(lambda: trial.tick > 0)
            seat = TakenOver(person, ticks=12)
            await seat.take_over(server.players, trial_id, f"{NAME}_5", name)
            await until(lambda seat=seat: seat.is_handed_back)
        last = trial.tick
        await until(lambda: trial.tick > last + 9)
        await server.trials.terminate([trial_id], is_hard=True)
    rows = stored(hive)

    # Who takes over between two ticks sees both observations, and acts in the second of the two.
    first, second = (person.acted for person in people)
    ways = [one + other for one in (first, first[1:]) for other in (second, second[1:])]
    assert actions_in(rows) in ways
    assert_are_the_ticks(rows, actions_in(rows))
    assert [len(first), len(second)] == [12, 12]
    assert len(set(rows.agent.tolist())) >= 2
    assert same_rows(rows, (await asyncio.to_thread(exported, tmp_path / "log")).columns)


@pytest.mark.learns
async def test_policies_of_the_run_play_beside_people_and_are_learned_from(hive, tmp_path):
    data = tmp_path / "log"
    async with served(hive, data, learn="all", tick_rate=0.0) as (server, learning):
        while not (description := await server.players.describe()).classes[0].policy:
            await asyncio.sleep(0.01)
        name = learning.runs[NAME].run.name
        trial_id = await start(server)
        (trial,) = server.orchestrator.live_trials()
        await until(lambda: trial.tick > 100)
        await server.trials.terminate([trial_id], is_hard=True)
    rows = stored(hive, RowKind.TRAINING)
    shown = (await asyncio.to_thread(read_log, data, trial_id))["ticks"]
    acted = [
        [one for one in tick["actions"].values() if one["note"] == "stand-in"] for tick in shown
    ]
    origins = {one["origin"] for ones in acted for one in ones}
    versions = {int(origin.rpartition("@")[2]) for origin in origins}

    assert description.learning == (
        "What players do is learned from, with the game's rewards, by the hive's runs: played (as"
        " sparse_reach)."
    )
    assert {origin.rpartition("@")[0] for origin in origins} == {name}
    assert set(rows.version.tolist()) == versions
    assert len(actions_in(rows)) == sum(map(len, acted[:-1]))  # the last has no outcome


@pytest.mark.slow
async def test_a_run_learns_sparse_reach_from_twenty_episodes_of_a_person(hive, tmp_path, capsys):
    ratings = {}
    person = await played_over_grpc(
        hive, tmp_path / "log", episodes=20, then=lambda: learn(hive, ratings)
    )
    with capsys.disabled():
        print(f"\n{len(person.acted)} ticks of a person; successes by rows: {ratings}")

    assert max(ratings.values()) >= 0.9
