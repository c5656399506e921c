"""Faults in the trials of a guest: each ends its own trial at most, and leaves nothing behind."""

import asyncio
import gc
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.integration.served_guest_trials import (
    END,
    PATIENCE,
    Seat,
    logs,
    served,
    started,
    until_ended,
    until_tick,
)
from tests.unit.policy_models import linear, model, node, port, weight

from arkml import Limits
from arkml.errors import ModelRejected
from arkml.guest_trials.stand_ins import StandInFile, StandIns
from arkml.trials.core.error import ActorTaken, TrialError

WALKERS = Path("fixtures/guests/c_walkers_seeded.wasm")
FIXED, SAME_SUBMIT, NEXT_SUBMIT = range(3)
NONE, STALL, TRAP = range(3)
HANG = 9
THREE = {"configure": (3, SAME_SUBMIT, 1, NONE, 0)}


def steering():
    """A policy whose actions depend on what is seen."""
    return StandIns([StandInFile("steer.onnx", linear([[-0.5], [0.25]]))])


def noisy():
    """A policy that adds noise to what it sees."""
    graph = model(
        [
            node("MatMul", "obs w", "seen"),
            node("Add", "seen epsilon", "actions"),
        ],
        [port("obs", "N", 2), port("epsilon", "N", 1)],
        [port("actions", "N", 1)],
        [weight("w", [[0.5], [0.0]])],
    )
    return StandIns([StandInFile("noisy.onnx", graph)], seed=5)


async def test_a_guest_of_a_hundred_that_traps_leaves_the_logs_of_the_others_as_they_are(tmp_path):
    names = [f"trial-{number}" for number in range(100)]
    outcomes = []
    for fault in (NONE, TRAP):
        data = tmp_path / str(fault)
        options = {"stand_ins": steering(), "tick_rate": 0.0, "workers": 2, "seed": 1}
        async with served(WALKERS, data, THREE, **options) as server:
            for number, name in enumerate(names):
                numbers = (3, SAME_SUBMIT, 1, fault if number == 42 else NONE, 9)
                await started(server, name, seed=number, configure_numbers=numbers, max_steps=20)
            await until_ended(server, *names)
        outcomes.append(logs(data))
    whole, broken = outcomes
    entries, reason = broken.pop("trial-42")
    del whole["trial-42"]

    assert "panicked: late enough" in reason
    assert max(entry[1] for entry in entries) == 8
    assert all(one[1] == "" for one in broken.values())
    assert broken == whole


async def test_a_guest_that_hangs_takes_turns_with_the_frames_of_another():
    """Guests of one worker have turns of 10 ms, and each has at most its budget for a frame."""
    budget = 2.0
    environment = {**THREE, "limits": Limits(run_seconds=budget, call_seconds=600.0)}
    async with served(WALKERS, None, environment, tick_rate=20.0, workers=1) as server:
        paced = await started(server)
        seat = await Seat().take_over(server, paced, "red_0")
        await seat.until(lambda one: len(one.observations) > 5)
        stalled = await started(server, configure_numbers=(1, FIXED, 1, STALL, 1))
        hanging = await started(server, configure_numbers=(1, FIXED, 1, HANG, 1))
        seen = len(seat.observations)
        await until_ended(server, stalled, hanging)
        seen_meanwhile = len(seat.observations) - seen
        await seat.until(lambda one: len(one.observations) > 60)
        reasons = [server.orchestrator._ended[one].reason for one in (stalled, hanging)]
        live = [one.id for one in server.orchestrator.live_trials()]

    assert "submitted nothing in 1000 calls" in reasons[0]
    assert "over its budget of 2 s" in reasons[1]
    assert live == [paced]
    assert seen_meanwhile > 3  # of some forty, and one at most if they took no turns


async def test_of_many_people_who_take_one_slot_at_once_exactly_one_gets_it(tmp_path):
    rounds, people = 40, 6
    async with served(WALKERS, tmp_path, THREE, tick_rate=200.0) as server:
        trial = await started(server, "crowded")
        for _ in range(rounds):
            seats = [Seat(f"person-{number}") for number in range(people)]
            outcomes = await asyncio.gather(
                *(seat.take_over(server, trial, "red_1") for seat in seats), return_exceptions=True
            )
            (winner,) = [one for one in outcomes if isinstance(one, Seat)]
            assert sum(isinstance(one, ActorTaken) for one in outcomes) == people - 1
            assert [one.inits for one in seats] == [one is winner for one in seats]
            winner.hand_back()
        await server.trials.terminate([trial], is_hard=False)
        await until_ended(server, trial)
    entries, _ = logs(tmp_path)["crowded"]
    events = [note for kind, *_, note, _ in entries if kind == "event" and "red_1" in note]

    assert len(events) == 2 * rounds
    assert all("was taken over" in note for note in events[::2])
    assert all("was handed back" in note for note in events[1::2])


async def test_a_connection_that_is_lost_in_the_midst_of_a_tick_leaves_it_to_the_stand_in(tmp_path):
    """A person with an observation acts and is gone, before the tick ends or in its place."""
    async with served(WALKERS, tmp_path, THREE, tick_rate=0.0, stand_ins=steering()) as server:
        trial = await started(server, "left", clients=["red_0"])
        seats = []

        def drop(_):
            seats[-1].drop()

        client = Seat("eve", lambda _: [0.25])
        await client.join(server, trial, "red_0")
        for number in range(20):
            seats.append(Seat(f"person-{number}", drop))
            await seats[-1].take_over(server, trial, "red_2")
            await seats[-1].until(lambda one: one.is_closed)
        reached = await until_tick(server, trial, 50)
        await server.trials.terminate([trial], is_hard=False)
        await until_ended(server, trial)
    entries, reason = logs(tmp_path)["left"]
    actions = [(name, note) for kind, _, name, _, _, note, _ in entries if kind == "action"]

    assert reason == ""
    assert reached.tick_id >= 50
    assert {note for name, note in actions if name == "red_2"} == {"stand-in"}
    assert {note for name, note in actions if name == "red_0"} == {"given"}
    assert (client.inits, client.is_closed) == (1, True)
    assert sorted(client.observations) == [*range(max(client.observations) + 1)]


async def test_a_policy_that_does_not_fit_is_refused_with_its_name_before_any_trial():
    misfit = StandIns([StandInFile("wide.onnx", linear(np.ones((7, 1))))])

    with pytest.raises(ModelRejected, match=r"wide\.onnx cannot act for class 'red'"):
        async with served(WALKERS, None, THREE, stand_ins=misfit):
            raise AssertionError("it was not refused")
    assert not [one for one in threading.enumerate() if one.name.startswith("arkml-guest")]


async def test_a_policy_that_fails_in_the_midst_leaves_ticks_to_the_default_action(
    tmp_path, caplog
):
    """The square root of where an agent is, or of how long it was there, may not be a number."""
    root = model(
        [node("MatMul", "obs w", "sum"), node("Sqrt", "sum", "actions")],
        [port("obs", "N", 2)],
        [port("actions", "N", 1)],
        [weight("w", [[1.0], [0.0]])],
    )
    stand_ins = StandIns([StandInFile("root.onnx", root)])
    async with served(
        WALKERS, tmp_path, THREE, tick_rate=0.0, stand_ins=stand_ins, seed=2
    ) as server:
        names = [await started(server, f"t{number}", max_steps=30) for number in range(8)]
        await until_ended(server, *names)
    written = logs(tmp_path)
    notes = {entry[5] for one, _ in written.values() for entry in one if entry[0] == "action"}

    assert {reason for _, reason in written.values()} == {""}
    assert notes == {"stand-in", "default"}
    assert caplog.text.count("root.onnx: the policy gave actions that are not finite") == 1


OF_TRIALS = ("Trial", "TrialTask", "GuestEnvironment", "TrialGuest", "EnvInstance", "Seat")


def objects_of_trials():
    """The objects that only live trials have."""
    gc.collect()
    return [one for one in gc.get_objects() if type(one).__name__ in OF_TRIALS]


async def remains(server, others):
    """Count threads, files and tasks, once the workers have freed the guests; not other tests'."""
    server.orchestrator._ended.clear()
    known = set(map(id, others))
    async with asyncio.timeout(PATIENCE):
        while any(id(one) not in known for one in objects_of_trials()):
            await asyncio.sleep(0.01)
    return {
        "threads": threading.active_count(),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "tasks": len(asyncio.all_tasks()),
        "guests": [(one.guests, len(one._live)) for one in server.orchestrator._hosting._workers],
    }


async def one_of_many(server, number):
    """Begin a trial, take it over in some way or none, and end it in one of several ways."""
    faults = [NONE, NONE, TRAP, NONE, STALL]
    fault = faults[number % 5]
    clients = ["red_1"] if number % 4 == 1 else []
    numbers = (3, SAME_SUBMIT, 1, fault, 4)
    steps = 12 if number % 7 == 0 else 0
    trial = await started(server, clients=clients, configure_numbers=numbers, max_steps=steps)
    seats = []
    if clients:
        seats.append(await Seat("eve", lambda _: [0.5]).join(server, trial, "red_1"))
    if number % 3:
        with suppress(TrialError):  # a guest may have failed by now
            seats.append(await Seat("ann", lambda _: [1.0]).take_over(server, trial, "red_0"))
    if number % 6 == 1 and seats and not seats[-1].is_closed:
        seats[-1].hand_back()
    if number % 6 == 2 and seats and not seats[-1].is_closed:
        seats[-1].drop()
    if fault == NONE and not steps:
        await until_tick(server, trial, number % 4)
        await server.trials.terminate([trial], is_hard=number % 2 == 0)
    await until_ended(server, trial)
    assert all(one.is_closed for one in seats)


async def test_two_hundred_trials_that_began_and_ended_in_any_way_leave_nothing_behind(tmp_path):
    others = objects_of_trials()
    async with served(WALKERS, tmp_path, THREE, tick_rate=0.0, stand_ins=steering()) as server:
        for number in range(20):
            await one_of_many(server, number)
        before = await remains(server, others)
        for first in range(20, 220, 10):
            await asyncio.gather(*(one_of_many(server, first + number) for number in range(10)))
        after = await remains(server, others)

    assert after.pop("threads") <= before.pop("threads")  # grpc ends some of its own meanwhile
    assert after == before
    assert set(after["guests"]) == {(0, 0)}
    assert not [one for one in threading.enumerate() if one.name.startswith("arkml-guest")]


@pytest.mark.parametrize("stand_ins", [lambda: None, steering, noisy])
async def test_servers_with_one_seed_log_the_same_whatever_the_order_of_their_threads(
    tmp_path, stand_ins
):
    outcomes = []
    for workers in (1, 3):
        data = tmp_path / str(workers)
        options = {"stand_ins": stand_ins(), "seed": 7, "workers": workers, "tick_rate": 0.0}
        async with served(WALKERS, data, THREE, **options) as server:
            names = [await started(server, f"t{number}", max_steps=40) for number in range(8)]
            await until_ended(server, *names)
        outcomes.append(logs(data))

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("stand_ins", [lambda: None, steering])
async def test_trials_with_one_seed_and_the_same_actions_give_the_same_observations(
    tmp_path, stand_ins
):
    options = {"stand_ins": stand_ins(), "seed": 7, "tick_rate": 0.0}
    async with served(WALKERS, tmp_path, THREE, **options) as server:
        for name in ("one", "two"):
            trial = await started(server, name, clients=["red_0"], seed=3, max_steps=40)
            seat = Seat(respond=lambda seen: [-seen.values[0]])
            await seat.join(server, trial, "red_0")
            await until_ended(server, trial)
    one, two = logs(tmp_path).values()

    assert one == two
    assert len({entry[4] for entry in one[0] if entry[0] == "observations"}) > 40


async def test_the_end_of_a_guest_reaches_its_player_with_the_reason():
    async with served(WALKERS, None, THREE, tick_rate=0.0) as server:
        trial = await started(
            server, clients=["red_0"], configure_numbers=(3, SAME_SUBMIT, 1, TRAP, 5)
        )
        seat = await Seat(respond=lambda _: [1.0]).join(server, trial, "red_0")
        await seat.until(lambda one: one.is_closed)
        reason = server.orchestrator._ended[trial].reason

    assert seat.states == [END]
    assert sorted(seat.observations) == [*range(5)]
    assert "panicked: late enough" in reason
