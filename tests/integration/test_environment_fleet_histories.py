"""Fleets over random histories of one agent: what is stepped together is what a guest is alone."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.integration.command_line import GUESTS
from tests.integration.test_environment import (
    BY_V1,
    INITIAL,
    INTERRUPTED,
    LAUNCH,
    LOG,
    RUNNING,
    TERMINAL,
    scripted,
)
from tests.integration.test_environment_world import UTC

from arkml.abi.codes import ErrorCode
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.core.fleet_step import FleetStep
from arkml.envs.core.guest_env import GuestEnv, core_of
from arkml.envs.core.world import ORIGIN
from arkml.errors import GuestStalled, UsageError
from arkml.limits import Limits

CARTPOLE, WALKERS = GUESTS / "c_cartpole.wasm", GUESTS / "c_walkers.wasm"
NEXT = 2  # when a walker is replaced
BESIDE = {"configure": (1, NEXT, 2, 0, 0), "behaviors": {"red"}}  # of two teams
IDS, REWARDS = st.sampled_from([1, 1, 1, 2, 1 << 63]), st.integers(-4, 4)
ANY_ROW = st.tuples(IDS, st.sampled_from([RUNNING, INITIAL, TERMINAL, INTERRUPTED]), REWARDS)
ODD_TURN = st.one_of(
    ANY_ROW.map(lambda row: [row]),
    ANY_ROW.map(lambda row: [(1, TERMINAL, 1), (2, INITIAL, row[2])]),
    st.just([]),
)


@st.composite
def episodes(draw):
    """The turns of an episode: one row each, mostly as guests push them."""
    agent = draw(IDS)
    states = [
        draw(st.sampled_from([INITIAL, INITIAL, RUNNING])),
        *[RUNNING] * draw(st.integers(0, 2)),
        *draw(st.sampled_from([[TERMINAL], [INTERRUPTED], [TERMINAL], []])),
    ]
    odd = [draw(ODD_TURN)] if draw(st.integers(0, 5)) == 0 else []
    return [[(agent, state, draw(REWARDS))] for state in states] + odd


ACTION, ACTIONS = np.zeros((1, 1), np.float32), np.zeros((3, 1), np.float32)
GUEST_COUNT = 3


def shown(step, guest):
    """What a step of a fleet has of a guest."""
    columns = (
        step.observations, step.rewards, step.started, step.terminated, step.truncated,
        step.present, step.replaced, step.next_observations,
    )  # fmt: skip
    return [column[guest].tolist() for column in columns]


def alone(module, steps):
    """What a guest by itself shows, step by step, until it cannot be in a fleet or is over."""
    with GuestEnv(module) as env:
        step = env.reset(seed=1)
        before = np.zeros(1, np.float32)
        behavior = step.decisions[0].behavior
        for _ in range(steps):
            found = FleetStep.empty(1, 1)
            try:
                found.take(0, step, behavior, before)
            except UsageError:
                found.fail(0, None, before)
                yield shown(found, 0)
                return
            yield shown(found, 0)
            before = found.observations[0]
            if step.has_ended:
                return
            step = env.step(np.zeros((len(env.decision.acting_agents), 1)))


SAYS = "(drop (call $log (i32.const 0) (i32.const 64) (i32.const 6)))"
SAYING = {
    "nothing": {},
    "something in each frame": {"each": SAYS, "by": {**BY_V1, "imports": BY_V1["imports"] + LOG}},
    "something in each third frame": {
        "each": f"(if (i32.eqz (i32.rem_u (global.get $turn) (i32.const 3))) (then {SAYS}))",
        "by": {**BY_V1, "imports": BY_V1["imports"] + LOG},
    },
}
LEFT = [[(1, INITIAL, 0)], [(1, INTERRUPTED, 0)], [(2, RUNNING, 0)]]
"""An agent that is away while another one has an episode, twice."""


@given(st.lists(episodes(), min_size=2, max_size=5), st.sampled_from(sorted(SAYING)))
@example([LEFT, LEFT], "nothing")
@settings(deadline=None, max_examples=60)
def test_random_histories_are_shown_in_lockstep_as_a_guest_alone_shows_them(histories, saying):
    turns = [[(1, INITIAL, 0)], *(turn for episode in histories for turn in episode)]
    module = scripted(*turns, after="unreachable", **SAYING[saying])
    expected = list(alone(module, len(turns) + 1))
    with FleetEnv(module, GUEST_COUNT) as fleet:
        step = fleet.reset(seed=1)
        found = [step]
        while fleet.alive.any():
            step = fleet.step(ACTIONS, step.observations)
            found.append(step)

    for guest in range(GUEST_COUNT):
        assert [shown(step, guest) for step in found] == expected


ONE, OTHER = (1, RUNNING, 1), (2, RUNNING, 1)


@pytest.mark.parametrize(
    ("turns", "is_told"),
    [
        pytest.param([[ONE], [OTHER], [OTHER]], True, id="in lockstep"),
        pytest.param([[ONE], [ONE, OTHER], [OTHER]], False, id="several agents are an error"),
        pytest.param([[ONE], [(2, TERMINAL, 1)], [(3, INITIAL, 0)]], True, id="for one row"),
        pytest.param([[(1, TERMINAL, 1)], [OTHER], [OTHER]], False, id="after its end"),
        pytest.param([[ONE], [(1, INITIAL, 1)], [ONE]], False, id="the same agent anew"),
    ],
)
def test_an_agent_that_acts_before_the_end_of_another_is_told_of(turns, is_told, caplog):
    with FleetEnv(scripted([(1, INITIAL, 0)], *turns), GUEST_COUNT) as fleet:
        step = fleet.reset(seed=1)
        for _ in turns:
            step = fleet.step(ACTIONS, step.observations)

    told = [message for message in caplog.messages if "has not ended" in message]
    assert len(told) == is_told


def test_a_run_has_what_its_guest_said_in_lockstep_once_the_guest_asks_for_more_than_a_submit(
    caplog,
):
    caplog.set_level("INFO", "arkml.guest")  # lines of a level that is off are not asked for
    with FleetEnv(CARTPOLE, 1, configure=(1, "{seed}")) as fleet:
        step = fleet.reset(seed=1)
        (run,) = fleet.instance(0).experiments.started.values()
        while not run.metric_values:  # the room for metadata is made with the first
            step = fleet.step(ACTION, step.observations)
        first, said = dict(run.metric_values), []
        while run.metric_values == first:  # it logs a line after 100 episodes
            step = fleet.step(ACTION, step.observations)
            said += [] if step.events is None else [item.value for item in step.events.metadata]

    assert len(said) >= 90
    assert run.metric_values["angle"] in said[-2:]


@pytest.mark.parametrize(
    ("module", "options"),
    [
        pytest.param(
            scripted([(1, INITIAL, 0)], *([(1, RUNNING, 1)] for _ in range(12)), **one), {}, id=name
        )
        for name, one in SAYING.items()
    ]
    + [pytest.param(WALKERS, BESIDE, id="another session beside the one that is stepped")],
)
def test_guests_that_ask_the_host_for_something_stay_in_lockstep(module, options):
    with FleetEnv(module, 2, **options) as fleet, GuestEnv(module, **options) as env:
        step, alone = fleet.reset(seed=1), env.reset(seed=1)
        for _ in range(12):
            step = fleet.step(np.zeros((2, 1), np.float32), step.observations)
            alone = env.step(np.zeros((len(env.decision.acting_agents), 1)))
            (decision,) = alone.decisions

            assert step.steps == {}
            assert step.rewards.tolist() == [decision.rewards[0]] * 2
            assert step.terminated.tolist() == [decision.terminated[0]] * 2


# submits first, then where its seed divides the frame; earns the time that it reads at each third
SKIPPING = f"""(module {LAUNCH.format(**{**BY_V1, "imports": BY_V1["imports"] + UTC})}
  (global $seed (mut i32) (i32.const 0))
  (global $submits (mut i32) (i32.const 0))
  (global $time (mut f32) (f32.const 0))
  (func (export "arkml_seed") (param i64) (global.set $seed (i32.wrap_i64 (local.get 0))))
  (func (export "ark_applet_update") (local $left i64)
    (global.set $turn (i32.add (global.get $turn) (i32.const 1)))
    (if (i32.and (i32.ne (global.get $submits) (i32.const 0))
      (i32.ne (i32.rem_u (global.get $turn) (global.get $seed)) (i32.const 0))) (then (return)))
    (call $row (i64.const 1)
      (select (i32.const {RUNNING}) (i32.const {INITIAL}) (global.get $submits)) (global.get $time))
    (call $answer (i32.const 1))
    (global.set $submits (i32.add (global.get $submits) (i32.const 1)))
    (if (i32.eqz (i32.rem_u (global.get $submits) (i32.const 3))) (then (call $utc (i32.const 1024))
      (global.set $time (f32.convert_i64_u (i64.div_u
        (i64.sub (i64.load (i32.const 1024)) (i64.const {ORIGIN})) (i64.const 1000000))))))
    {{then}}))"""
SKIPS = SKIPPING.format(then="").encode()
AFTER_SUBMITS = {
    "nothing": "",
    "asks": "(call $utc (i32.const 1024))",
    "works longer than a turn": """(if (i32.eq (global.get $submits) (i32.const 2)) (then
      (local.set $left (i64.const 300_000_000))
      (loop $on (br_if $on (i64.ne (i64.const 0)
        (local.tee $left (i64.sub (local.get $left) (i64.const 1))))))))""",
}
"""What a guest that skips frames does after each submit, in the same frame."""


@pytest.mark.parametrize(
    ("every", "idle", "after"),
    [
        *product([1, 2, 3, 4, 5, 6, 16, 17, 18, 20, 21, 36, 40], [5, 20, 1_000], ["nothing"]),
        *product([20, 21], [20], ["asks", "works longer than a turn"]),
    ],
)
def test_guests_that_submit_in_some_frames_alone_are_stepped_as_by_themselves(every, idle, after):
    module = SKIPPING.format(then=AFTER_SUBMITS[after]).encode()
    with FleetEnv(module, 3, idle_calls=idle) as fleet, GuestEnv(module, idle_calls=idle) as env:
        step, alone = fleet.reset(seed=[every] * 3), env.reset(seed=every)
        for _ in range(8):
            step, alone = fleet.step(ACTIONS, step.observations), env.step(ACTION)
            if alone.error is not None:
                assert [type(one.error) for one in step.steps.values()] == [GuestStalled] * 3
                break
            assert step.rewards.tolist() == alone.decisions[0].rewards.tolist() * 3
            assert step.steps == {}

    assert (alone.error is None) == (every <= idle)
    assert alone.error or alone.decisions[0].rewards[0] > 0


@pytest.mark.parametrize(
    ("seconds", "scales"),
    [
        pytest.param(1 / 60, (0, 0, 2, 0, 0, 1, 1, 1), id="some frames stand still"),
        pytest.param(1e9, (1e-9, 1e-9, 1, 1e9, 1e9), id="more than 64 bits of nanoseconds"),
    ],
)
def test_the_clock_follows_a_pace_that_changes(seconds, scales):
    options = {"frame_seconds": seconds}
    with FleetEnv(SKIPS, 3, **options) as fleet, GuestEnv(SKIPS, **options) as env:
        step, alone = fleet.reset(seed=[3] * 3), env.reset(seed=3)
        for scale in scales:
            core_of(fleet.template).factory.pace.time_scale = scale
            core_of(env).factory.pace.time_scale = scale
            step, alone = fleet.step(ACTIONS, step.observations), env.step(ACTION)
            assert step.rewards.tolist() == alone.decisions[0].rewards.tolist() * 3

    assert alone.decisions[0].rewards[0] > 0


# earns the time that it reads before each fourth submit
ONE_CALL = f"""(module {LAUNCH.format(**{**BY_V1, "imports": BY_V1["imports"] + UTC})}
  (global $time (mut f32) (f32.const 0))
  (func (export "ark_cmdlet_run") (param i32 i32) (result i32)
    (call $row (i64.const 1) (i32.const {INITIAL}) (f32.const 0)) (call $answer (i32.const 1))
    (loop $on
      (global.set $turn (i32.add (global.get $turn) (i32.const 1)))
      (if (i32.eqz (i32.rem_u (global.get $turn) (i32.const 4))) (then (call $utc (i32.const 1024))
        (global.set $time (f32.convert_i64_u (i64.div_u
          (i64.sub (i64.load (i32.const 1024)) (i64.const {ORIGIN})) (i64.const 1000000))))))
      (call $row (i64.const 1) (i32.const {RUNNING}) (global.get $time))
      (call $answer (i32.const 1))
      (br $on))
    (unreachable)))""".encode()


def test_the_clock_of_guests_that_play_in_one_call_advances_with_each_submit():
    with FleetEnv(ONE_CALL, 3, args="") as fleet, GuestEnv(ONE_CALL, args="") as env:
        step, alone = fleet.reset(seed=1), env.reset(seed=1)
        for _ in range(10):
            step, alone = fleet.step(ACTIONS, step.observations), env.step(ACTION)
            assert step.rewards.tolist() == alone.decisions[0].rewards.tolist() * 3

    assert alone.decisions[0].rewards[0] > 100


# opens a second session in its third frame, and in its fifth one that its limits refuse
OPENS = scripted(
    [(1, INITIAL, 0)], *([(1, RUNNING, 1)] for _ in range(12)),
    exports="""(data (i32.const 72) "others")
  (func $open (param $name i32) (param $features i32)
    (drop (call $start (i32.const 64) (i32.const 0) (i32.const 0) (i32.const 64) (i32.const 6)
      (local.get $name) (i32.const 5) (local.get $features) (i32.const 1) (i32.const 16)))
    (i32.store (i32.const 40) (call $take (i64.load (i32.const 16)) (i32.const 24))))""",
    each="(if (i32.eq (global.get $turn) (i32.const 2))"
    " (then (call $open (i32.const 72) (i32.const 1))))"
    "(if (i32.eq (global.get $turn) (i32.const 4))"
    " (then (call $open (i32.const 73) (i32.const 60000))))",
)  # fmt: skip


def test_guests_stay_in_lockstep_after_a_session_that_could_not_be_opened():
    options = {"behaviors": {"script"}, "limits": Limits(column_bytes=100_000)}
    with FleetEnv(OPENS, 2, **options) as fleet:
        step = fleet.reset(seed=1)
        for _ in range(6):
            step = fleet.step(ACTIONS[:2], step.observations)
        refusal = fleet.instance(0).guest.read_memory(40, 4)
        step = fleet.step(ACTIONS[:2], step.observations)

        assert int.from_bytes(refusal, "little") == ErrorCode.UNAVAILABLE
        assert step.rewards.tolist() == [1.0, 1.0]
        assert step.steps == {}


@pytest.mark.parametrize("idle", [3, 16])
def test_a_guest_that_stops_to_submit_has_stalled_in_a_fleet_too(idle):
    with FleetEnv(SKIPS, 3, idle_calls=idle) as fleet:
        step = fleet.reset(seed=[2, 1_000, 2])
        step = fleet.step(ACTIONS, step.observations)

    assert list(step.steps) == [1]
    assert isinstance(step.steps[1].error, GuestStalled)
    assert step.truncated.tolist() == [False, True, False]


# its episode ends in the frame that its seed names, with the first row of the next one
GROWS = f"""(module {LAUNCH.format(**BY_V1)}
  (global $seed (mut i32) (i32.const 0))
  (func (export "arkml_seed") (param i64) (global.set $seed (i32.wrap_i64 (local.get 0))))
  (func (export "ark_applet_update")
    (if (i32.eq (global.get $turn) (global.get $seed))
      (then
        (call $row (i64.const 1) (i32.const {TERMINAL}) (f32.const -1))
        (call $row (i64.const 1) (i32.const {INITIAL}) (f32.const 0))
        (call $answer (i32.const 2)))
      (else
        (call $row (i64.const 1)
          (select (i32.const {RUNNING}) (i32.const {INITIAL}) (global.get $turn))
          (f32.convert_i32_u (global.get $turn)))
        (call $answer (i32.const 1))))
    (global.set $turn (i32.add (global.get $turn) (i32.const 1)))))""".encode()


@pytest.mark.parametrize("seeds", [(1, 2, 3), (3, 2, 1), (2, 1, 4), (2, 2, 2)])
def test_rewards_are_of_the_step_once_the_queues_have_grown_in_any_order(seeds):
    with FleetEnv(GROWS, len(seeds)) as fleet:
        step = fleet.reset(seed=seeds)
        for turn in range(1, 9):
            step = fleet.step(np.zeros((len(seeds), 1), np.float32), step.observations)

            expected = [-1.0 if turn == seed else turn for seed in seeds]
            assert step.rewards.tolist() == expected
            assert step.observations[:, 0].tolist() == [turn] * len(seeds)


LATE_CLOCK = """(func $clock (call $utc (i32.const 1024))
  (call $row (i64.const 1) (i32.const 0)
    (f32.convert_i64_u (i64.sub (i64.load (i32.const 1024)) (i64.const 946684800000000000))))
  (call $answer (i32.const 1)))"""
"""A row whose reward is the time since `ORIGIN`, in nanoseconds."""


def test_the_clock_of_a_guest_that_takes_the_place_of_another_starts_over():
    by = {**BY_V1, "imports": BY_V1["imports"] + UTC}
    turns = [[(1, INITIAL, 0)], [(1, RUNNING, 0)], [(1, RUNNING, 0)]]
    module = scripted(*turns, after="(call $clock)", exports=LATE_CLOCK, by=by)
    with GuestEnv(module) as env:
        env.reset(seed=1)
        alone = [env.step(ACTION).decisions[0].rewards[0] for _ in range(4)]
    with FleetEnv(module, 2) as fleet:
        step = fleet.reset(seed=1)
        for _ in range(2):
            step = fleet.step(np.zeros((2, 1), np.float32), step.observations)
        fleet.renew([0])
        renewed = []
        for _ in range(4):
            step = fleet.step(np.zeros((2, 1), np.float32), step.observations)
            renewed.append(step.rewards[0])

    assert alone[2] > 0
    assert renewed == alone
