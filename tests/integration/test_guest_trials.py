"""Guests as environments of hosted trials: ticks, slots, ends, faults."""

import asyncio
import hashlib
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.integration.rebuilt_modules import BROKEN, with_a_note, with_a_trap, with_other_data
from tests.integration.test_environment import INITIAL, RUNNING, TERMINAL, scripted
from tests.recorded_trial import END, LAST, LAST_ACK, RecordedTrial, action

from arkml import Limits, Replay
from arkml.envs.core.guest_env import GuestEnv
from arkml.errors import GuestStalled, GuestTrap, ModuleRejected, PolicyFailed, UsageError
from arkml.guest_trials.guest_hosting import GuestHosting
from arkml.guest_trials.guest_trials_options import GuestTrialsOptions, StandInActions
from arkml.guest_trials.trial_guest import TickResult
from arkml.runtime.deadline import TICK
from arkml.trials.core.error import TrialError
from arkml.trials.core.hosting import STAND_IN
from arkml.trials.wire.common_pb2 import TrialParams
from arkml.trials.wire.guest_pb2 import RUNS_ON, TERMINATED, TRUNCATED, Metadata

GUESTS = Path("fixtures/guests")
WALKERS, CHOOSERS = GUESTS / "c_walkers_seeded.wasm", GUESTS / "c_choosers.wasm"
SORTER = GUESTS / "c_sorter.wasm"
LISTENER = GUESTS / "c_listener.wasm"
FIXED, SAME_SUBMIT, NEXT_SUBMIT, AFTER_THREE, NEVER = range(5)
NONE, STALL, TRAP, LEAVE, DESERT, JOIN, SKIP, SECOND, GROW, HANG = range(10)


@pytest.fixture
async def host():
    """A factory of hostings, which are closed at the end."""
    made = []

    def make(module, environment=None, **options):
        options = GuestTrialsOptions(module=module, environment=environment or {}, **options)
        made.append(GuestHosting(options))
        return made[-1]

    yield make
    for hosting in made:
        hosting.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("arkml-guest")]


def walkers(
    host, *, agents=2, refill=FIXED, teams=1, fault=NONE, late=0, module=WALKERS, **options
):
    return host(module, {"configure": (agents, refill, teams, fault, late)}, **options)


async def test_a_trial_has_all_slots_of_the_guest_and_its_ticks_are_those_of_its_environment(host):
    hosting = walkers(host, agents=3)
    trial = RecordedTrial(hosting, config={"seed": 5})
    await trial.tick(0)
    await trial.act(red_1=action(0.5))

    assert trial.actors == [("red_0", "red"), ("red_1", "red"), ("red_2", "red")]
    with GuestEnv(WALKERS, configure=(3, FIXED, 1, NONE, 0)) as env:
        first = env.reset(seed=5).decisions[0].observations.tolist()
        second = env.step(np.float32([[0], [0.5], [0]])).decisions[0].observations.tolist()
    ticks = [[list(one.values) for one in tick.values()] for tick in trial.ticks]
    assert ticks == [first, second]
    assert [one.present for one in trial.ticks[1].values()] == [True] * 3


async def test_actors_in_another_order_get_the_observations_of_their_slots(host):
    hosting = walkers(host, agents=3)
    straight = RecordedTrial(hosting, config={"seed": 5})
    turned = RecordedTrial(hosting, config={"seed": 5}, order=[2, 0, 1])
    for trial in (straight, turned):
        await trial.tick(0)
        await trial.act(red_2=action(1.0))

    assert turned.values == straight.values


async def test_rewards_come_before_the_observations_of_their_tick(host):
    trial = RecordedTrial(walkers(host, agents=2), config={"seed": 1})
    await trial.tick(0)
    await trial.act(red_0=action(1.0))

    assert trial.rewards[0] == []
    expected = [(name, -abs(values[0])) for name, values in trial.values.items()]
    assert [reward[:2] for reward in trial.rewards[1]] == expected


async def test_metadata_are_the_user_data_of_the_reward(host):
    trial = RecordedTrial(walkers(host, agents=1, refill=NEXT_SUBMIT))
    await trial.tick(0)
    await trial.play(3)

    ((_, _, data),) = trial.rewards[3]
    items = Metadata()
    assert data.Unpack(items)
    assert [(item.name, item.value) for item in items.items] == [("moves", 3.0)]
    assert not trial.rewards[2][0][2].type_url


async def test_a_slot_is_empty_for_a_while_after_its_episode_and_then_has_the_next_one(host):
    trial = RecordedTrial(walkers(host, agents=2, refill=AFTER_THREE))
    await trial.tick(0)
    await trial.play(8)

    seen = [(one["red_0"].present, one["red_0"].end, one["red_0"].episode) for one in trial.ticks]
    assert seen[2:5] == [(True, RUNS_ON, 0), (True, TERMINATED, 0), (False, RUNS_ON, 0)]
    assert seen[7] == (True, RUNS_ON, 1)
    assert trial.ticks[4]["red_0"].values == trial.ticks[3]["red_0"].values


async def test_a_replacement_in_the_same_submit_shows_both(host):
    trial = RecordedTrial(walkers(host, agents=1, refill=SAME_SUBMIT))
    await trial.tick(0)
    await trial.play(3)

    shown = trial.ticks[3]["red_0"]
    assert (shown.episode, shown.agent, shown.end, shown.final_end) == (1, 1, RUNS_ON, TERMINATED)
    assert list(shown.final_values) == [trial.ticks[2]["red_0"].values[0], 3 / 8]


async def test_behaviors_that_submit_in_turn_are_absent_in_turn(host):
    trial = RecordedTrial(walkers(host, agents=1, teams=2))
    await trial.tick(0)
    await trial.play(3)

    assert [name for name, _ in trial.actors] == ["red_0", "blue_0"]
    present = [[one.present for one in tick.values()] for tick in trial.ticks]
    assert present == [[True, False], [False, True]] * 2
    assert list(trial.ticks[2]["blue_0"].values) == list(trial.ticks[1]["blue_0"].values)


async def test_masked_choices_are_named_and_never_made(host):
    trial = RecordedTrial(host(CHOOSERS, {"configure": (2, 3)}), config={"seed": 3})
    await trial.tick(0)
    for _ in range(60):
        hostile = action(9.0, -9.0, choices=(2, 1, 7))
        names = [name for name, one in trial.ticks[-1].items() if one.present]
        await trial.act(**dict.fromkeys(names, hostile))

    masked = [list(one.allowed) for tick in trial.ticks for one in tick.values() if one.allowed]
    values = [value for rewards in trial.rewards for _, value, _ in rewards]
    assert {len(mask) for mask in masked} == {5, 3}
    assert min(values) > -8  # what a masked choice costs


async def test_the_guest_that_ends_is_the_end_of_the_trial_with_the_last_observations(host):
    trial = RecordedTrial(walkers(host, agents=1, refill=NEVER))
    await trial.tick(0)
    await trial.play(9)

    assert trial.states == [(LAST, ""), (LAST_ACK, "")]
    assert trial.ticks[-2]["red_0"].end == TERMINATED
    assert not trial.ticks[-1]["red_0"].present


async def test_agents_that_live_when_the_guest_ends_are_truncated_with_their_last_values(host):
    trial = RecordedTrial(walkers(host, agents=1, fault=LEAVE, late=2))
    await trial.tick(0)
    await trial.play(2)

    shown = trial.ticks[2]["red_0"]
    assert trial.states == [(LAST, ""), (LAST_ACK, "")]
    assert (shown.present, shown.end) == (True, TRUNCATED)
    assert shown.values == trial.ticks[1]["red_0"].values


@pytest.mark.parametrize(("end_on", "ticks"), [("first", 4), ("all", 6)])
async def test_a_trial_may_end_with_episodes(host, end_on, ticks):
    trial = RecordedTrial(walkers(host, agents=3, refill=SAME_SUBMIT, end_on=end_on))
    await trial.tick(0)
    await trial.play(9)

    assert trial.states == [(LAST, ""), (LAST_ACK, "")]
    assert len(trial.ticks) == ticks


async def test_a_requested_end_steps_the_last_actions_and_sends_the_final_observations(host):
    trial = RecordedTrial(walkers(host, agents=1), config={"seed": 1})
    await trial.tick(0)
    trial.last()
    await trial.act(red_0=action(1.0))

    before, after = (tick["red_0"].values[0] for tick in trial.ticks)
    assert trial.states == [(LAST_ACK, "")]
    assert after == before + 0.125


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (TRAP, "late enough"),
        (STALL, "submitted nothing in 1000 calls"),
        (HANG, "over its budget of 1 s"),
        (JOIN, "2 agents at once, where a trial has 1 slots"),
        (SECOND, "'blue', which it did not when its slots were counted"),
    ],
)
async def test_a_guest_that_fails_ends_its_own_trial_only(host, fault, reason):
    config = {"configure_numbers": (1, FIXED, 1, fault, 3)}
    hosting = walkers(host, agents=1)
    broken = RecordedTrial(hosting, "broken", config)
    whole = RecordedTrial(hosting, "whole")
    for trial in (broken, whole):
        await trial.tick(0)
    await broken.play(9)
    await whole.play(9)

    (state, details), *_ = broken.states
    assert state == END
    assert reason in details
    assert broken.is_closed
    assert (len(whole.ticks), whole.states) == (10, [])


async def test_a_guest_that_runs_on_never_blocks_the_event_loop(host):
    hosting = host(
        WALKERS,
        {"configure": (1, FIXED, 1, NONE, 0), "limits": Limits(run_seconds=30)},
        workers=1,
    )
    trial = RecordedTrial(hosting, config={"configure_numbers": (1, FIXED, 1, HANG, 1)})
    await trial.tick(0)
    acting = asyncio.create_task(trial.act())
    for _ in range(100):
        await asyncio.sleep(0)
    hosting.close()  # does not wait for the budget
    acting.cancel()

    assert len(trial.ticks) == 1


async def test_a_guest_that_runs_on_takes_turns_with_the_others_of_its_worker(host):
    hosting = host(
        WALKERS,
        {"configure": (1, FIXED, 1, NONE, 0), "limits": Limits(run_seconds=30)},
        workers=1,
    )
    hanging = RecordedTrial(hosting, config={"configure_numbers": (1, FIXED, 1, HANG, 1)})
    whole = RecordedTrial(hosting)
    for trial in (hanging, whole):
        await trial.tick(0)
    acting = asyncio.create_task(hanging.act())
    await whole.play(50)
    is_hanging = not acting.done()
    acting.cancel()

    assert len(whole.ticks) == 51
    assert is_hanging


async def test_a_guest_that_gives_way_has_its_budget_for_all_its_turns(host):
    hosting = host(
        WALKERS,
        {"configure": (1, FIXED, 1, NONE, 0), "limits": Limits(run_seconds=0.2)},
        workers=1,
    )
    hanging = RecordedTrial(hosting, config={"configure_numbers": (1, FIXED, 1, HANG, 1)})
    whole = RecordedTrial(hosting)
    for trial in (hanging, whole):
        await trial.tick(0)
    acting = asyncio.create_task(hanging.act())
    while not hanging.states:
        await whole.act()
    await acting

    (state, details), *_ = hanging.states
    assert state == END
    assert "over its budget of 0.2 s" in details
    await whole.act()
    assert not whole.states


async def test_a_guest_that_rested_for_many_turns_still_has_a_whole_one(host):
    hosting = walkers(host, workers=1)
    trials = [RecordedTrial(hosting), RecordedTrial(hosting)]
    for trial in trials:
        await trial.tick(0)
    turns, guest = [], trials[1].environment._guest
    run_on = guest.run_on
    guest.run_on = lambda: (turns.append("second"), run_on())[1]
    for _ in range(20):
        await trials[0].act()  # the clock of all guests goes on
        await asyncio.sleep(2 * TICK)
        await trials[1].act()

    assert len(turns) < 5  # a busy machine may take one from it, and rests would take all 20


async def test_steps_that_are_awaited_do_not_wait_for_those_of_other_trials(host):
    hosting = walkers(host, workers=1)
    trial = RecordedTrial(hosting)
    await trial.tick(0)
    (worker,), guest = hosting._workers, trial.environment._guest
    order, has_begun, is_free = [], threading.Event(), threading.Event()
    delivered = asyncio.Queue()

    def held():
        has_begun.set()
        assert is_free.wait(300)
        return TickResult(error="none")

    def step(name, *, is_awaited):
        def run():
            order.append(name)
            return TickResult(error="none")

        worker.step(guest, run, delivered.put_nowait, is_awaited=is_awaited)

    worker.step(guest, held, delivered.put_nowait)
    assert await asyncio.to_thread(has_begun.wait, 30)
    step("other 1", is_awaited=False)
    step("awaited 1", is_awaited=True)
    step("other 2", is_awaited=False)
    step("awaited 2", is_awaited=True)
    is_free.set()
    for _ in range(5):
        await asyncio.wait_for(delivered.get(), 300)

    assert order == ["awaited 1", "awaited 2", "other 1", "other 2"]


async def test_ticks_that_a_guest_plays_ahead_are_those_of_one_after_another(host):
    hosting = walkers(host, agents=3, stand_ins=Constant(0.5))
    ahead, other = (RecordedTrial(hosting, name, config={"seed": 4}) for name in ("a", "b"))
    for trial in (ahead, other):
        await trial.tick(0)
    while len(ahead.ticks) < 30:
        await ahead.act(most_ahead=4)
    await other.play(len(ahead.ticks) - 1)

    assert ahead.ticks == other.ticks
    assert ahead.rewards == other.rewards
    assert ahead.deliveries < other.deliveries == len(other.ticks)


async def test_a_guest_does_not_play_ahead_of_its_own_end_or_of_an_answer(host):
    ending = RecordedTrial(walkers(host, agents=1, refill=NEVER))
    await ending.tick(0)
    while not ending.states:
        await ending.act(most_ahead=7)
    listening = RecordedTrial(host(LISTENER))
    await listening.tick(0)
    listening.tell(b"hello")
    before = len(listening.ticks)
    await listening.act(most_ahead=3)

    assert [state for state, _ in ending.states] == [LAST, LAST_ACK]
    assert listening.heard
    assert len(listening.ticks) == before + 1


async def test_a_policy_stands_in_for_all_trials_of_a_drain_at_once(host):
    source = Constant(0.5)
    hosting = walkers(host, agents=2, stand_ins=source, workers=1)
    trials = [RecordedTrial(hosting, str(number), config={"seed": 1}) for number in range(3)]
    for trial in trials:
        await trial.tick(0)
        await trial.play(3)

    (policy,) = source.opened
    assert [one.origin for one in trials[0].offered] == ["constant@1"] * 2
    start, stop = trials[0].ticks[0]["red_0"].values[0], trials[0].values["red_0"][0]
    assert stop == start + 3 * 0.5 * 0.125
    keys = {key for rows in policy.asked for key in rows.keys.tolist()}
    assert len(keys) == 6
    assert policy.asked[0].states.tolist()[:2] == [INITIAL] * 2
    assert policy.asked[-1].states.tolist() == [RUNNING] * 2
    assert policy.asked[-1].observations.shape == (2, 2)


async def test_the_default_action_stands_in_where_a_policy_fails(host, caplog):
    hosting = walkers(host, agents=1, stand_ins=Constant(None))
    trial = RecordedTrial(hosting, config={"seed": 1})
    await trial.tick(0)
    await trial.play(2)

    assert trial.values["red_0"][0] == trial.ticks[0]["red_0"].values[0]
    assert caplog.text.count("policies failed: default actions stand in") == 1


async def test_recurrent_states_are_forgotten_with_the_trial(host):
    source = Constant(0.0)
    trial = RecordedTrial(walkers(host, agents=2, stand_ins=source, workers=1))
    await trial.tick(0)
    trial.environment.lose("the trial ended")
    (source_policy,) = source.opened
    await asyncio.to_thread(source_policy.forgot.wait, 30)

    assert source_policy.forgotten == [0, 1]


class Constant:
    """Policies that give one action, or fail; it implements StandInSource and StandInPolicies."""

    def __init__(self, value):
        self.names = {"red": "constant"}
        self.value = value
        self.opened, self.asked, self.forgotten = [], [], []
        self.forgot = threading.Event()

    def open(self, classes):
        assert [one.name for one in classes] == ["red"]
        self.opened.append(Constant(self.value))
        return self.opened[-1]

    def act(self, rows):
        if self.value is None:
            raise PolicyFailed("it has no value")
        self.asked += rows
        return [
            StandInActions(
                np.full((len(one.keys), 1), self.value, np.float32),
                ["constant@1"] * len(one.keys),
            )
            for one in rows
        ]

    def forget(self, keys):
        self.forgotten += keys
        self.forgot.set()

    def close(self):
        pass


async def test_messages_reach_the_guest_and_its_answers_their_senders(host):
    trial = RecordedTrial(host(LISTENER))
    await trial.tick(0)
    trial.tell(b"hello", "ann")
    trial.tell(b"", "bob")
    trial.tell(b"again", "bob")
    await trial.act()

    assert trial.heard == [("ann", b"\x01HELLO"), ("bob", b"\x03AGAIN")]
    assert trial.values["listener_0"][1] == 3


async def test_a_message_that_a_guest_does_not_survive_ends_its_trial(host):
    trial = RecordedTrial(host(LISTENER))
    await trial.tick(0)
    trial.tell(b"!")
    await trial.act()

    assert trial.states[0][0] == END
    assert "heard too much" in trial.states[0][1]


async def test_messages_for_a_guest_that_takes_none_are_one_line_of_the_log(host, caplog):
    trial = RecordedTrial(walkers(host))
    await trial.tick(0)
    for _ in range(3):
        trial.tell(b"hello")
    await trial.act()

    assert trial.heard == []
    assert caplog.text.count("it exports no arkml_side_channel") == 1


async def test_a_flood_of_messages_is_cut_off(host, caplog):
    trial = RecordedTrial(host(LISTENER))
    await trial.tick(0)
    for _ in range(1_100):
        trial.tell(b"")
    await trial.act()

    assert trial.values["listener_0"][1] == 1_000
    assert caplog.text.count("more than 1000 messages") == 1


async def test_large_messages_are_cut_off_before_there_are_many(host, caplog):
    trial = RecordedTrial(host(LISTENER))
    await trial.tick(0)
    for _ in range(20):
        trial.tell(bytes(1 << 20))
    await trial.act()

    assert caplog.text.count(f"more than {16 << 20} bytes of them came in one tick") == 1


async def test_the_configuration_of_a_trial_overrides_the_options(host):
    trial = RecordedTrial(
        walkers(host, agents=3), config={"configure_numbers": (2, FIXED, 1, NONE, 0), "seed": 2}
    )
    await trial.tick(0)

    assert [one.present for one in trial.ticks[0].values()] == [True, True, False]


async def test_trials_without_a_seed_differ_and_follow_from_the_seed_of_the_options(host):
    values = []
    for _ in range(2):
        hosting = walkers(host, agents=1, seed=4)
        trials = [RecordedTrial(hosting, str(number)) for number in range(2)]
        for trial in trials:
            await trial.tick(0)
        values.append([trial.values["red_0"] for trial in trials])

    assert values[0] == values[1]
    assert values[0][0] != values[0][1]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"seed": 1 << 63}, "seed is"),
        ({"configure": "1", "configure_numbers": (1,)}, "configure and configure_numbers"),
    ],
)
async def test_configurations_that_the_guest_cannot_have_are_refused(host, config, reason):
    hosting = walkers(host)

    with pytest.raises(TrialError, match=reason):
        RecordedTrial(hosting, config=config)


async def test_a_text_for_a_guest_without_configure_is_refused(host):
    with pytest.raises(TrialError, match="exports no function 'configure'"):
        RecordedTrial(host(LISTENER), config={"configure": "hard"})


async def test_a_configuration_of_another_type_is_refused(host):
    params = TrialParams()
    params.trial_config.content = b"\xff\xff"

    with pytest.raises(TrialError, match=r"not an arkmlTrials\.GuestConfig"):
        walkers(host).completed(params)


@pytest.mark.parametrize(
    ("name", "actor_class", "reason"),
    [
        ("red_2", "red", "'red_2' is not a slot of c_walkers_seeded.wasm: red_0, red_1"),
        ("ann", "red", "'ann' is not a slot"),
        ("red_0", "blue", "has the class red, not 'blue'"),
    ],
)
async def test_actors_that_are_not_slots_are_refused(host, name, actor_class, reason):
    params = TrialParams()
    params.actors.add(name=name, actor_class=actor_class, endpoint="cogment://client")

    with pytest.raises(TrialError, match=reason):
        walkers(host).completed(params)


async def test_slots_that_are_not_among_the_actors_are_added_with_stand_ins(host):
    params = TrialParams()
    params.actors.add(name="red_1", actor_class="red", endpoint="cogment://client")

    completed = walkers(host, agents=3).completed(params)

    actors = [(one.name, one.endpoint, one.implementation) for one in completed.actors]
    assert actors == [
        ("red_1", "cogment://client", ""),
        ("red_0", "local://", STAND_IN),
        ("red_2", "local://", STAND_IN),
    ]


@pytest.mark.parametrize(
    ("options", "endpoint", "rate"),
    [
        ({}, "local://", 0),
        ({}, "cogment://client", 60),
        ({}, "grpc://localhost:9000", 60),
        ({"people": True}, "local://", 60),
        ({"tick_rate": 20.0}, "local://", 20),
        ({"tick_rate": 0.0, "people": True}, "cogment://client", 0),
    ],
)
async def test_trials_that_people_may_play_keep_the_clock_of_the_guest(
    host, options, endpoint, rate
):
    params = TrialParams()
    params.actors.add(name="red_0", actor_class="red", endpoint=endpoint)

    pacing = walkers(host, away=3.0, **options).pacing(params)

    assert (pacing.rate, pacing.away) == (pytest.approx(rate), 3.0)


async def test_the_classes_are_described(host):
    description = host(CHOOSERS, {"configure": (2, 3)}).describe()

    picker, driver = description.classes
    assert description.guest == "c_choosers.wasm"
    assert (picker.name, list(picker.branches)) == ("picker", [3, 2])
    assert [part.name for part in picker.observations] == ["cell", "target", "flag"]
    assert (list(driver.low), list(driver.high), list(driver.positions)) == (
        [-1, -1],
        [1, 1],
        [0, 1],
    )


async def test_names_of_actions_and_choices_are_described(host):
    actions = {
        "continuous": 2, "discrete": [3], "names": ["east", "north", "gear"],
        "choices": [["low", "middle", "high"]],
    }  # fmt: skip
    spec = {"behaviors": {"driver": {"actions": actions}}}
    picker, driver = host(CHOOSERS, {"configure": (2, 3), "spec": spec}).describe().classes

    assert list(driver.names) == actions["names"]
    assert list(driver.choices) == ["low", "middle", "high"]
    assert (list(picker.names), list(picker.choices)) == ([], [])


async def test_the_kinds_of_parts_are_described(host):
    board = {"name": "board", "kind": "grid", "shape": [1, 1], "categories": 3}
    module = scripted([(1, INITIAL, 0)], *[[(1, RUNNING, 0)]] * 5)
    spec = {"observations": [board], "actions": {"continuous": 1}}
    (sorter,) = host(SORTER, {"configure": (1, 3)}).describe().classes
    (scripts,) = host(module, {"spec": spec}).describe().classes

    assert [(one.name, one.kind) for one in sorter.observations] == [
        ("me", "vector"), ("tiles_count", "vector"), ("tiles", "entities"),
    ]  # fmt: skip
    assert [(one.kind, one.categories) for one in scripts.observations] == [("grid", 3)]


async def test_declared_slots_are_counted_in_the_place_of_rows(host):
    module = scripted([(1, INITIAL, 0)], *[[(1, RUNNING, 0)] * 1] * 5)
    spec = {"actions": {"continuous": 1}, "slots": 3}

    hosting = host(module, {"spec": spec})

    assert [one.slots for one in hosting.classes] == [3]


async def test_a_behavior_that_never_submits_is_refused_at_start(host):
    with pytest.raises(GuestStalled):
        host(scripted())


async def test_options_that_no_hosting_can_have_are_refused():
    for options in ({"tick_rate": -1}, {"away": -1}, {"end_on": "last"}, {"workers": 0}):
        with pytest.raises(UsageError):
            GuestTrialsOptions(module=WALKERS, **options)


async def test_ended_rows_without_a_successor_wait_for_the_next_tick(host):
    module = scripted(
        [(1, INITIAL, 0)], [(1, TERMINAL, 2)], [(2, INITIAL, 0)], *[[(2, RUNNING, 1)]] * 3
    )
    trial = RecordedTrial(host(module))
    await trial.tick(0)
    await trial.play(3)

    assert [tick[trial.actors[0][0]].end for tick in trial.ticks[:3]] == [
        RUNS_ON,
        TERMINATED,
        RUNS_ON,
    ]
    assert [reward[1] for reward in trial.rewards[1]] == [2.0]


async def test_a_rebuilt_guest_goes_on_between_two_frames_with_its_state(host):
    hosting, said = walkers(host, agents=2), []
    alone = RecordedTrial(walkers(host, agents=2), config={"seed": 5})
    trial = RecordedTrial(hosting, config={"seed": 5})
    for one in (alone, trial):
        await one.tick(0)
        await one.play(3)
    code = with_a_note(WALKERS.read_bytes())
    digest = hosting.rebuild(code, said.append)
    for one in (alone, trial):
        await one.play(20)

    assert digest == hashlib.sha256(code).hexdigest()
    assert said == ["reloaded in this trial, its state was kept: only code has changed"]
    assert (trial.ticks, trial.rewards) == (alone.ticks, alone.rewards)
    assert trial.states == []


@pytest.mark.parametrize("is_handed", [False, True], ids=["kept", "handed over"])
async def test_the_trace_of_a_trial_goes_on_with_the_rebuilt_guest_in_the_next_file(
    host, tmp_path, is_handed
):
    begin, on = [(1, INITIAL, 0)], [(1, RUNNING, 1)]
    before = handing_over(begin, *[on] * 40) if is_handed else WALKERS.read_bytes()
    after = handing_over(begin, *[on] * 50) if is_handed else with_a_note(before)
    options = {"trace": tmp_path / "a.trace"}
    if not is_handed:
        options["configure"] = (2, FIXED, 1, NONE, 0)
    hosting, said = host(before, options), []
    trial = RecordedTrial(hosting)
    await trial.tick(0)
    await trial.play(5)
    hosting.rebuild(after, said.append)
    await trial.play(5)
    hosting.close()

    for name, module in (("a.trace", before), ("a-2.trace", after)):
        with Replay(tmp_path / name, module) as replay:
            assert len(list(replay)) >= 5
            assert ("the guest was reloaded" in replay.ending) is (name == "a.trace")


async def test_a_trial_whose_guest_has_other_data_now_ends_and_the_next_one_plays_it(host):
    hosting, said = walkers(host, agents=2), []
    trial = RecordedTrial(hosting)
    await trial.tick(0)
    hosting.rebuild(with_other_data(WALKERS.read_bytes()), said.append)
    await trial.act()
    await trial.until(lambda: trial.states)
    following = RecordedTrial(hosting, "following")
    await following.tick(0)
    await following.play(12)

    assert said == ["reloaded, its state begins anew in the next trial: this one ends"]
    assert (len(trial.ticks), trial.states[0][0]) == (2, LAST)
    assert (len(following.ticks), following.states) == (13, [])


def handing_over(*turns, status=0):
    """A scripted guest that hands over the number of its turn, and answers `status` to it."""
    status = f"(i32.const {status})" if isinstance(status, int) else status
    store = "(i32.store (i32.const 4000) (global.get $turn))"
    give = "(call $give (i32.const 4000) (i32.const 4) (i32.const 1))"
    exports = f"""
      (func (export "ark_alloc") (param i32 i32) (result i32) (i32.const 5000))
      (func (export "ark_free") (param i32 i32 i32))
      (func (export "ark_state_persist") (result i32) {store} {give})
      (func (export "ark_state_restore") (param i32 i32) (result i32)
        (global.set $turn (i32.load (local.get 0))) {status})"""
    text = scripted(*turns, exports=exports).decode()
    import_ = (
        '(import "ark-core-v0" "core__return_slice" (func $give (param i32 i32 i32) (result i32)))'
    )
    return text.replace("(module", f"(module {import_}", 1).encode()


async def test_a_trial_goes_on_with_a_rebuilt_guest_that_is_handed_the_state(host):
    begin, on = [(1, INITIAL, 0)], [(1, RUNNING, 1)]
    hosting, said = host(handing_over(begin, *[on] * 40)), []
    trial = RecordedTrial(hosting)
    await trial.tick(0)
    await trial.play(2)
    hosting.rebuild(handing_over(begin, *[on] * 5, *[[(1, RUNNING, 9)]] * 30), said.append)
    await trial.play(6)

    assert said == [
        "reloaded in this trial, its state was handed over by ark_state_persist, and its agents"
        " begin new episodes"
    ]
    assert trial.states == []
    name = trial.actors[0][0]
    ends = [tick[name].end for tick in trial.ticks]
    assert ends.count(TRUNCATED) == 1
    rewards = [reward[1] for tick in trial.rewards for reward in tick]
    assert (rewards[0], rewards[-1], len(trial.ticks)) == (1.0, 9.0, 9)


@pytest.mark.parametrize("is_traced", [False, True])
async def test_the_guest_before_goes_on_in_a_trial_if_a_rebuilt_one_does_not_take_the_state(
    host, tmp_path, is_traced
):
    begin, on = [(1, INITIAL, 0)], [(1, RUNNING, 1)]
    before = handing_over(begin, *[on] * 40)
    hosting, said = host(before, {"trace": tmp_path / "a.trace"} if is_traced else {}), []
    trial = RecordedTrial(hosting)
    await trial.tick(0)
    await trial.play(2)
    after = handing_over(begin, *[[(1, RUNNING, 9)]] * 30, status=7)
    hosting.rebuild(after, said.append)
    await trial.play(6)
    following = RecordedTrial(hosting, "following")
    await following.tick(0)
    await following.play(3)
    hosting.close()

    (line,) = said
    assert line.startswith(
        "not reloaded in this trial, in which the module before goes on; the next one plays it: "
    )
    assert "ark_state_restore answered 7" in line
    assert trial.states == following.states == []
    name = trial.actors[0][0]
    assert [tick[name].end for tick in trial.ticks].count(TRUNCATED) == 1
    assert {reward[1] for tick in trial.rewards for reward in tick} == {1.0}
    assert {reward[1] for tick in following.rewards for reward in tick} == {9.0}
    if is_traced:
        with Replay(tmp_path / "a.trace", before) as replay:
            assert len(list(replay)) >= 9
            assert "the guest was reloaded" not in replay.ending


async def test_a_rebuilt_guest_that_traps_before_its_first_submit_is_not_played_any_more(host):
    begin, on = [(1, INITIAL, 0)], [(1, RUNNING, 1)]
    hosting, said = host(handing_over(begin, *[on] * 40)), []
    trial = RecordedTrial(hosting)
    await trial.tick(0)
    await trial.play(2)
    hosting.rebuild(handing_over(begin, *[on] * 30, status="unreachable"), said.append)
    await trial.play(6)
    following = RecordedTrial(hosting, "following")
    await following.tick(0)
    await following.play(3)

    (line,) = said
    assert line.startswith("not reloaded, the module before goes on: ")
    assert "unreachable" in line
    assert trial.states == following.states == []


@pytest.mark.parametrize(
    ("module", "refused", "reason"),
    [
        (lambda _: BROKEN, ModuleRejected, "version"),
        (with_a_trap, GuestTrap, "unreachable"),
    ],
)
async def test_a_rebuilt_guest_that_cannot_play_is_refused_and_trials_go_on(
    host, module, refused, reason
):
    hosting, said = walkers(host, agents=2), []
    trial = RecordedTrial(hosting)
    await trial.tick(0)
    with pytest.raises(refused, match=reason):
        hosting.rebuild(module(WALKERS.read_bytes()), said.append)
    await trial.play(5)

    assert (said, len(trial.ticks), trial.states) == ([], 6, [])


async def test_a_rebuilt_guest_with_other_actors_is_refused(host):
    hosting = walkers(host, agents=2)
    before = hosting.options.environment["configure"]
    hosting.options.environment["configure"] = (3, *before[1:])
    with pytest.raises(UsageError, match=r"now has the actors 3 red .* begun with 2 red"):
        hosting.rebuild(WALKERS, print)


async def test_a_rebuilt_guest_that_fails_in_its_first_ticks_plays_no_further_trial(host):
    hosting, said = walkers(host, agents=1), []
    hosting.rebuild(with_a_note(WALKERS.read_bytes()), said.append)
    broken = RecordedTrial(hosting, "broken", {"configure_numbers": (1, FIXED, 1, JOIN, 3)})
    await broken.tick(0)
    await broken.play(9)
    again = []
    later = RecordedTrial(hosting, "later")
    await later.tick(0)
    hosting.rebuild(WALKERS, again.append)
    await later.play(5)

    assert "failed right after a reload, the next trial plays the module before" in said[0]
    assert again == ["reloaded in this trial, its state was kept: only code has changed"]
    assert later.states == []
