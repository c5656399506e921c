"""Many guests stepped together are what each is by itself."""

import logging
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
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

from arkml import WasiGrant
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.core.world import ORIGIN
from arkml.envs.gym import NAME
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.errors import GuestBusy, InvalidActions, InvalidSpec, UsageError

CARTPOLE, WALKERS = GUESTS / "c_cartpole.wasm", GUESTS / "c_walkers.wasm"
CHOOSERS, DRIFT = GUESTS / "c_choosers.wasm", GUESTS / "c_drift.wasm"
ONE = {"configure": (1, "{seed}")}
SAME, NEXT, THREE, NEVER = 1, 2, 3, 4  # when a walker is replaced
TRAP, LEAVE, ONE_MORE, OTHER = 2, 3, 5, 7  # faults of a walker
SEEDED = """(global $seed (mut i64) (i64.const 0))
  (func (export "arkml_seed") (param i64) (global.set $seed (local.get 0)))"""
# the guest with seed 2 fails in its third frame
FRAGILE = scripted(
    [(1, INITIAL, 0)], [(1, RUNNING, 1)],
    *([(1, RUNNING, 1)] for _ in range(20)),
    exports=SEEDED, each="(if (i32.and (i32.eq (global.get $turn) (i32.const 2))"
    " (i64.eq (global.get $seed) (i64.const 2))) (then unreachable))",
)  # fmt: skip
# reads the clock in every seventh frame
CLOCK = scripted(
    [(1, INITIAL, 0)], *([(1, RUNNING, 1)] for _ in range(20)),
    by={**BY_V1, "imports": BY_V1["imports"] + UTC},
    each="(if (i32.eq (i32.rem_u (global.get $turn) (i32.const 7)) (i32.const 6))"
    " (then (call $utc (i32.const 1024))))",
)  # fmt: skip
NEXT_SEED = int(np.random.default_rng(1).integers(1 << 31))  # drawn after a reset with seed 1
# the guest with seed 2 fails in its third frame, and the one made in its place before its first
STILLBORN = scripted(
    [(1, INITIAL, 0)], *([(1, RUNNING, 1)] for _ in range(20)),
    exports=SEEDED, each=f"(if (i32.or (i64.eq (global.get $seed) (i64.const {NEXT_SEED}))"
    " (i32.and (i32.eq (global.get $turn) (i32.const 2))"
    " (i64.eq (global.get $seed) (i64.const 2)))) (then unreachable))",
)  # fmt: skip
# says something in every frame
TALKER = scripted(
    [(1, INITIAL, 0)], *([(1, RUNNING, 1)] for _ in range(20)),
    each="(drop (call $log (i32.const 0) (i32.const 64) (i32.const 6)))",
    by={**BY_V1, "imports": BY_V1["imports"] + LOG},
)  # fmt: skip
# reads the clock after every third submit, in milliseconds, and earns what it says
LATE_CLOCK = f"""(module {LAUNCH.format(**{**BY_V1, "imports": BY_V1["imports"] + UTC})}
  (global $time (mut f32) (f32.const 0))
  (func (export "ark_applet_update")
    (call $row (i64.const 1) (select (i32.const {RUNNING}) (i32.const {INITIAL}) (global.get $turn))
      (global.get $time))
    (call $answer (i32.const 1))
    (global.set $turn (i32.add (global.get $turn) (i32.const 1)))
    (if (i32.eqz (i32.rem_u (global.get $turn) (i32.const 3))) (then (call $utc (i32.const 1024))
      (global.set $time (f32.convert_i64_u (i64.div_u
        (i64.sub (i64.load (i32.const 1024)) (i64.const {ORIGIN})) (i64.const 1000000))))))))
""".encode()
LOOP = f"""(module {LAUNCH.format(**BY_V1)}
  (func (export "ark_cmdlet_run") (param i32 i32) (result i32)
    (call $row (i64.const 1) (i32.const {INITIAL}) (f32.const 0)) (call $answer (i32.const 1))
    (loop $on
      (call $row (i64.const 1) (i32.const {RUNNING}) (f32.const 1)) (call $answer (i32.const 1))
      (global.set $turn (i32.add (global.get $turn) (i32.const 1)))
      (br_if $on (i32.lt_u (global.get $turn) (i32.const 5))))
    (i32.const 0)))""".encode()


@pytest.fixture
def make():
    made = []

    def env(kind, module, *arguments, **options):
        made.append(kind(module, *arguments, **options))
        return made[-1]

    yield env
    for found in made:
        found.close()


def by_itself(env, seed, actions):
    """What a Gymnasium environment shows, step by step, when it is reset in the next step."""
    observation, info = env.reset(seed=seed)
    rows = [(observation.tolist(), 0.0, False, False)]
    is_over = False
    for action in actions:
        if is_over:
            observation, info = env.reset()
            rows.append((observation.tolist(), 0.0, False, False))
            is_over = False
            continue
        observation, reward, terminated, truncated, info = env.step(action)
        rows.append((observation.tolist(), reward, terminated, truncated))
        is_over = terminated or truncated
        if "error" in info:
            break
    return rows


def together(envs, seed, actions):
    """The same of each place of a vector environment."""
    observations, info = envs.reset(seed=seed)
    no = np.zeros(envs.num_envs, bool)
    steps = [(observations, np.zeros(envs.num_envs), no, no)]
    for action in actions:
        *step, info = envs.step(action)
        assert info["present"].all()
        steps.append(step)
    return [
        [
            (seen[k].tolist(), float(reward[k]), bool(terminated[k]), bool(truncated[k]))
            for seen, reward, terminated, truncated in steps
        ]
        for k in range(envs.num_envs)
    ]


@pytest.mark.parametrize("module", [CARTPOLE, GUESTS / "c_pendulum.wasm"])
def test_each_guest_of_a_fleet_shows_what_it_shows_by_itself(make, module):
    guests, steps = 5, 450
    actions = np.random.default_rng(1).uniform(-1, 1, (steps, guests, 1)).astype("f4")
    found = together(make(GuestFleetVectorEnv, module, num_envs=guests, **ONE), 7, actions)

    assert sum(row[2] or row[3] for row in found[0]) >= 2
    for guest in range(guests):
        alone = make(GuestGymEnv, module, **ONE)
        assert found[guest] == by_itself(alone, 7 + guest, actions[:, guest])


@pytest.mark.parametrize("refill", [SAME, NEXT, THREE])
@pytest.mark.parametrize("mode", list(AutoresetMode)[:2])
def test_both_modes_fit_whenever_an_agent_is_replaced(make, refill, mode):
    setting = {"configure": (1, refill, 1, 0, 0), "autoreset_mode": mode}
    envs = make(GuestFleetVectorEnv, WALKERS, num_envs=3, **setting)
    first, _ = envs.reset()
    actions = np.full((3, 1), 0.5, "f4")
    rows = []
    for _ in range(12):
        *row, info = envs.step(actions)
        rows.append(row)
        assert info["present"].all()
        if mode is AutoresetMode.SAME_STEP and row[2].any():
            assert np.isfinite(info["final_obs"][0]).all()
            assert info["_final_obs"].all()

    ends = [at for at, row in enumerate(rows) if (row[2] | row[3]).all()]
    assert ends[1] - ends[0] == (3 if mode is AutoresetMode.SAME_STEP else 4)
    begins = ends[0] + (mode is AutoresetMode.NEXT_STEP)
    assert not rows[begins][1].any() or mode is AutoresetMode.SAME_STEP
    assert first.shape == (3, 2)


def test_a_guest_that_fails_is_truncated_with_its_error_and_the_rest_go_on(make):
    envs = make(GuestFleetVectorEnv, FRAGILE, num_envs=4)
    envs.reset(seed=1)
    zeros = np.zeros((4, 1), "f4")
    envs.step(zeros)
    seen, _, terminated, truncated, info = envs.step(zeros)

    assert truncated.tolist() == [False, True, False, False]
    assert not terminated.any()
    assert "unreachable" in info["error"][1]
    assert info["_error"].tolist() == [False, True, False, False]
    assert seen.tolist() == [[2], [1], [2], [2]]  # the turn; of the one that failed, its last
    _, rewards, terminated, truncated, info = envs.step(zeros)
    assert info["present"].tolist() == [True, False, True, True]
    assert rewards.tolist() == [1, 0, 1, 1]
    assert not (terminated | truncated).any()
    assert "error" not in info


@pytest.mark.parametrize("mode", list(AutoresetMode)[:2])
def test_a_guest_that_fails_starts_over_when_asked(make, mode):
    envs = make(GuestFleetVectorEnv, FRAGILE, num_envs=3, restart="on-failure", autoreset_mode=mode)
    envs.reset(seed=1)
    zeros = np.zeros((3, 1), "f4")
    envs.step(zeros)
    _, _, _, truncated, info = envs.step(zeros)
    _, rewards, _, again, later = envs.step(zeros)

    assert truncated.tolist() == [False, True, False]
    assert "unreachable" in info["error"][1]
    assert later["present"].all()
    assert not again.any()
    assert rewards[1] == (0 if mode is AutoresetMode.NEXT_STEP else 1)


@pytest.mark.parametrize("mode", list(AutoresetMode)[:2])
def test_a_guest_that_cannot_start_over_costs_the_rest_nothing(make, mode):
    envs = make(
        GuestFleetVectorEnv, STILLBORN, num_envs=2, restart="on-failure", autoreset_mode=mode
    )
    envs.reset(seed=1)
    zeros = np.zeros((2, 1), "f4")
    steps = [envs.step(zeros) for _ in range(5)]
    is_next = mode is AutoresetMode.NEXT_STEP

    assert [step[0][0].tolist() for step in steps] == [[turn] for turn in range(1, 6)]
    assert [step[1][0] for step in steps] == [1] * 5
    assert [step[3].tolist() for step in steps] == [[False, at == 1] for at in range(5)]
    assert [step[4]["present"].tolist() for step in steps] == [
        [True, at != 2 or not is_next] for at in range(5)
    ]
    assert ["error" in step[4] for step in steps] == [
        at == 1 or (at == 2 and is_next) for at in range(5)
    ]
    assert [step[0][1].tolist() for step in steps[3:]] == ([[0], [1]] if is_next else [[1], [2]])


@pytest.mark.parametrize("kind", [FleetEnv, GuestEnv])
def test_a_call_in_the_middle_of_another_is_refused_and_harms_nobody(make, kind):
    env = make(kind, TALKER, *((2,) if kind is FleetEnv else ()))
    zeros = np.zeros((2, 1), "f4") if kind is FleetEnv else [[0]]
    more = (np.zeros((2, 1), "f4"),) if kind is FleetEnv else ()
    refused = []

    class Meddler(logging.Handler):
        def emit(self, record):
            assert "script" in record.getMessage()
            for call in (lambda: env.step(zeros, *more), env.reset, env.close):
                with pytest.raises(GuestBusy, match="one call at a time") as found:
                    call()
                refused.append(found)

    env.reset()
    meddler = Meddler()
    log = logging.getLogger("arkml.guest")
    log.addHandler(meddler)
    try:
        for _ in range(3):
            step = env.step(zeros, *more)
    finally:
        log.removeHandler(meddler)

    assert len(refused) >= 9
    found = step if kind is FleetEnv else step.decisions[0]
    assert (found.observations == 3).all()


def test_a_fleet_without_a_guest_left_wants_a_reset(make):
    envs = make(GuestFleetVectorEnv, WALKERS, num_envs=2, configure=(1, NEXT, 1, TRAP, 3))
    envs.reset()
    zeros = np.zeros((2, 1), "f4")
    for _ in range(10):
        _, _, _, truncated, info = envs.step(zeros)
        if "error" in info:
            break

    assert truncated.all()
    with pytest.raises(gymnasium.error.ResetNeeded, match="every guest has failed"):
        envs.step(zeros)
    assert envs.reset()[1]["present"].all()


def test_guests_that_finish_start_over(make):
    envs = make(GuestFleetVectorEnv, WALKERS, num_envs=2, configure=(1, NEXT, 1, LEAVE, 4))
    envs.reset()
    zeros = np.zeros((2, 1), "f4")
    infos = [envs.step(zeros)[4] for _ in range(12)]

    done = [at for at, info in enumerate(infos) if "guest_done" in info]
    assert len(done) >= 2
    assert infos[done[0]]["guest_done"].all()
    assert infos[done[0] + 1]["present"].all()


def test_guests_that_play_in_one_call_are_a_fleet_too(make):
    envs = make(GuestFleetVectorEnv, LOOP, num_envs=3, args="")
    envs.reset()
    steps = [envs.step(np.zeros((3, 1), "f4")) for _ in range(9)]

    assert [step[1].tolist() for step in steps[:5]] == [[1.0] * 3] * 5
    assert [at for at, step in enumerate(steps) if "guest_done" in step[4]] == [5]
    assert steps[5][3].all()
    assert [step[1].tolist() for step in steps[6:]] == [[0.0] * 3, [1.0] * 3, [1.0] * 3]


def test_a_guest_with_several_agents_is_refused(make):
    with pytest.raises(UsageError, match="one agent a guest, and this guest has several"):
        make(GuestFleetVectorEnv, WALKERS, num_envs=2, configure=(2, NEXT, 1, 0, 0))


@pytest.mark.parametrize(
    ("fault", "message"),
    [(ONE_MORE, "one agent a guest, and this guest has several"), (OTHER, "one behavior, red")],
)
def test_a_guest_that_becomes_another_fails_as_one_that_traps(make, fault, message):
    setting = {"configure": (1, NEXT, 2 if fault == OTHER else 1, fault, 3)}
    envs = make(GuestFleetVectorEnv, WALKERS, num_envs=2, **setting)
    envs.reset()
    for _ in range(6):
        seen, *_, truncated, info = envs.step(np.zeros((2, 1), "f4"))
        if "error" in info:
            break

    assert truncated.all()
    assert message in info["error"][0]
    assert seen.any()


def test_choices_and_masks_of_all_guests_are_batched(make):
    envs = make(GuestFleetVectorEnv, CHOOSERS, num_envs=4, configure=(1, 1))
    envs.action_space.seed(1)
    observations, info = envs.reset(seed=3)
    masks = [info.get("action_mask")]
    for _ in range(10):
        assert observations in envs.observation_space
        observations, *_, info = envs.step(envs.action_space.sample())
        masks.append(info.get("action_mask"))

    found = [mask for mask in masks if mask is not None]
    assert found
    assert [branch.shape for branch in found[0]] == [(4, 3), (4, 2)]


def test_the_clock_of_each_guest_counts_the_frames_that_it_was_in_with_others(make):
    envs = make(GuestFleetVectorEnv, CLOCK, num_envs=3)
    envs.reset()
    for _ in range(7):
        envs.step(np.zeros((3, 1), "f4"))
    times = [
        np.frombuffer(envs.fleet_env.instance(guest).guest.read_memory(1024, 8), "<u8")[0]
        for guest in range(3)
    ]

    # ark_initialize is the first frame; the seventh update reads the clock
    assert times == [ORIGIN + 8 * round(1e9 / 60)] * 3


@pytest.mark.parametrize("mode", list(AutoresetMode)[:2])
def test_what_a_guest_says_and_masks_comes_with_the_episode_it_is_about(make, mode):
    envs = make(GuestFleetVectorEnv, CHOOSERS, num_envs=2, configure=(1, 1), autoreset_mode=mode)
    observations, info = envs.reset(seed=1)
    allowed = [np.array([2, 0]), np.array([0, 0])]  # to the right, or to the left
    live = np.ones(2, bool)
    for _ in range(40):
        masked = info.get("action_mask", (np.ones((2, 3), np.int8), None))[0]
        at_left, at_right = observations["cell"][:, 0] == 0, observations["cell"][:, 0] == 1
        assert (masked[:, 0] == 0).tolist() == (at_left & live).tolist()
        assert (masked[:, 2] == 0).tolist() == (at_right & live).tolist()
        way = np.where(observations["cell"] < observations["target"], allowed[0], allowed[1])
        observations, _, terminated, truncated, info = envs.step(way)
        live = ~(terminated | truncated) | (mode is AutoresetMode.SAME_STEP)


@pytest.mark.parametrize("mode", list(AutoresetMode)[:2])
def test_metadata_and_first_rewards_are_in_the_infos(make, mode):
    envs = make(
        GuestFleetVectorEnv, WALKERS, num_envs=2, configure=(1, SAME, 1, 0, 0), autoreset_mode=mode
    )
    envs.reset()
    found = [envs.step(np.zeros((2, 1), "f4"))[4] for _ in range(4)]
    final = found[2]["final_info"] if mode is AutoresetMode.SAME_STEP else found[2]

    assert final["moves"].tolist() == [3, 3]
    assert final["_moves"].all()


def test_the_clock_goes_on_where_a_guest_is_looked_at_in_the_middle_of_a_frame(make):
    actions = np.zeros((15, 2, 1), "f4")
    found = together(make(GuestFleetVectorEnv, LATE_CLOCK, num_envs=2), 1, actions)
    alone = by_itself(make(GuestGymEnv, LATE_CLOCK), 1, actions[:, 0])

    assert found == [alone, alone]


def test_chance_follows_from_the_seed_of_each_guest(make):
    setting = {"configure": (1, 0), "wasi": WasiGrant()}
    actions = np.zeros((30, 3, 1), "f4")
    found = together(make(GuestFleetVectorEnv, DRIFT, num_envs=3, **setting), 5, actions)

    for guest in range(3):
        alone = make(GuestGymEnv, DRIFT, **setting)
        assert found[guest] == by_itself(alone, 5 + guest, actions[:, guest])


def test_a_decision_period_holds_for_each_guest(make):
    walk = scripted(
        [(1, INITIAL, 0)], *([(1, RUNNING, reward)] for reward in (1, 2, 4, 8, 16)),
        [(1, INTERRUPTED, 32)], [(1, INITIAL, 0)], [(1, TERMINAL, 1)],
    )  # fmt: skip
    envs = make(GuestFleetVectorEnv, walk, num_envs=2, spec={"decision_period": 3})
    envs.reset()
    rewards = [envs.step(np.zeros((2, 1), "f4"))[1].tolist() for _ in range(2)]

    assert rewards == [[7, 7], [56, 56]]


def test_a_fleet_is_made_again_from_a_pickle(make):
    envs = make(GuestFleetVectorEnv, CARTPOLE, num_envs=3, restart="on-failure", **ONE)
    again = pickle.loads(pickle.dumps(envs))
    seen = again.reset(seed=4)[0]
    again.close()

    assert np.array_equal(seen, envs.reset(seed=4)[0])


def test_what_a_fleet_cannot_be_is_said(make):
    with pytest.raises(UsageError, match="a fleet of 0 guests"):
        make(FleetEnv, CARTPOLE, 0)
    with pytest.raises(InvalidSpec, match="observations of 2 features"):
        make(GuestFleetVectorEnv, CARTPOLE, num_envs=2, spec={"observations": [{"shape": [2]}]})
    envs = make(GuestFleetVectorEnv, CARTPOLE, num_envs=2, **ONE)
    with pytest.raises(gymnasium.error.ResetNeeded, match="before its first step"):
        envs.step(np.zeros((2, 1), "f4"))
    with pytest.raises(UsageError, match="3 seeds for 2 guests"):
        envs.reset(seed=[1, 2, 3])
    envs.reset(seed=[1, None])
    before = envs.step(np.zeros((2, 1), "f4"))[0].copy()
    for wrong in ([[0.0]], [[0.0], [2.0]], [[0.0], [np.nan]], "no"):
        with pytest.raises(InvalidActions):
            envs.step(wrong)
    assert not np.array_equal(envs.step(np.zeros((2, 1), "f4"))[0], before)


def test_gymnasium_makes_fleets_by_name():
    how = {"vectorization_mode": "vector_entry_point", "module": CARTPOLE, "num_envs": 3}
    envs = gymnasium.make_vec(NAME, per="guest", configure=(1, "{seed}"), **how)
    shape = envs.reset(seed=1)[0].shape
    envs.close()

    assert shape == (3, 4)
    with pytest.raises(UsageError, match="per is 'team': it takes 'agent' or 'guest'"):
        gymnasium.make_vec(NAME, per="team", **how)
