"""Guests as Gymnasium environments, one agent or many."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import stable_baselines3.common.env_checker
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from tests.integration.command_line import GUESTS
from tests.integration.test_environment import INITIAL, INTERRUPTED, RUNNING, TERMINAL, scripted

from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.step_arrays import StepArrays
from arkml.errors import GuestStalled, GuestTrap, InvalidActions, UsageError

PENDULUM, CARTPOLE = GUESTS / "c_pendulum.wasm", GUESTS / "c_cartpole.wasm"
WALKERS = GUESTS / "c_walkers.wasm"
SAME, NEXT = 1, 2  # when a walker is replaced
ONE = {"configure": (1, "{seed}")}


@pytest.fixture
def single():
    env = GuestGymEnv(PENDULUM, **ONE)
    yield env
    env.close()


@pytest.fixture
def make():
    made = []

    def env(kind, module, **options):
        made.append(kind(module, **options))
        return made[-1]

    yield env
    for found in made:
        found.close()


def test_gymnasium_finds_it_by_its_name():
    script = f"""
import gymnasium
module = {str(PENDULUM)!r}
with gymnasium.make("arkml.envs.gym:arkml/Guest-v0", module=module, configure=(1, 2)) as env:
    print(env.reset(seed=1)[0].shape)
envs = gymnasium.make_vec("arkml/Guest-v0", module=module, configure=(8, 2),
                          vectorization_mode="vector_entry_point")
print(envs.reset()[0].shape)
envs.close()
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout.split("\n")[:2] == ["(3,)", "(8, 3)"]


@pytest.mark.filterwarnings("ignore:.*Box observation space m:UserWarning")
def test_the_checkers_of_gymnasium_and_stable_baselines3_pass(single):
    check_env(single, skip_render_check=True)
    stable_baselines3.common.env_checker.check_env(single)


def test_an_episode_ends_as_the_guest_says_and_the_next_one_goes_on_in_the_same_instance(single):
    single.reset(seed=3)
    instance = single.guest_env.guest
    outcomes = [single.step(np.zeros(1, "f4")) for _ in range(200)]
    with pytest.raises(gymnasium.error.ResetNeeded, match="the episode has ended: reset"):
        single.step(np.zeros(1, "f4"))
    observation, _ = single.reset()

    assert [truncated for _, _, _, truncated, _ in outcomes] == [False] * 199 + [True]
    assert not any(terminated for _, _, terminated, _, _ in outcomes)
    assert outcomes[-1][4]["angle"] >= 0  # what the guest says of it
    assert single.guest_env.guest is instance
    assert single.observation_space.contains(observation)


def test_episodes_that_end_with_their_first_rows_are_passed_over():
    turns = [
        [(1, TERMINAL, 5)], [(2, INITIAL, 0)], [(2, TERMINAL, 1)], [(3, INTERRUPTED, 7)],
        [(4, INITIAL, 0)], [(4, RUNNING, 2)],
    ]  # fmt: skip
    with GuestGymEnv(scripted(*turns)) as env:
        assert env.reset()[0].tolist() == [1]
        assert env.step([0.0])[1:3] == (1.0, True)
        assert env.reset()[0].tolist() == [4]
        assert env.step([0.0])[1:3] == (2.0, False)
        assert env.reset(seed=1)[0].tolist() == [1]


def test_a_guest_whose_agents_never_act_is_refused():
    with pytest.raises(GuestTrap):
        GuestGymEnv(scripted([(1, TERMINAL, 5)], after="unreachable"))
    with pytest.raises(GuestStalled):
        GuestGymEnv(scripted([(1, TERMINAL, 5)]), idle_calls=2)


def test_a_guest_that_ends_each_episode_with_its_first_row_has_stalled_after_a_while():
    ends = [[(1, TERMINAL, 5)]] * 5
    with pytest.raises(GuestStalled, match="submitted 3 times without an agent that acts"):
        GuestGymEnv(scripted(*ends), idle_calls=3)
    with GuestGymEnv(scripted([(1, INITIAL, 0)], *ends), idle_calls=3) as env:
        env.reset()
        env.step([0.0])
        with pytest.raises(GuestStalled, match="submitted 3 times without an agent that acts"):
            env.reset()

        assert env.reset()[0].tolist() == [0]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param(GuestGymEnv, {}, id="one agent"),
        *(pytest.param(GuestVectorEnv, {"autoreset_mode": mode}, id=f"agents {mode.value}")
          for mode in list(AutoresetMode)[:2]),
        *(pytest.param(GuestFleetVectorEnv, {"autoreset_mode": mode, "num_envs": 1}, id=mode.value)
          for mode in AutoresetMode),
    ],
)  # fmt: skip
@pytest.mark.parametrize("steps", [None, 0, 3])
def test_what_is_closed_says_so_whether_an_episode_has_begun_or_ended(make, kind, options, steps):
    env = make(kind, WALKERS, configure=(1, SAME, 1, 0, 0), **options)
    action = np.zeros(env.action_space.shape, "f4")
    if steps is not None:
        env.reset()
        for _ in range(steps):
            env.step(action)
    env.close()

    with pytest.raises(UsageError, match="the environment is closed"):
        env.step(action)


def test_a_reset_in_mid_episode_or_with_a_seed_is_a_new_instance(single):
    first, _ = single.reset(seed=3)
    instance = single.guest_env.guest
    single.step(np.ones(1, "f4"))
    single.reset()
    other = single.guest_env.guest
    again, _ = single.reset(seed=3)

    assert other is not instance
    assert single.guest_env.guest is not other
    assert np.array_equal(first, again)


@pytest.mark.parametrize("action", [[2.0], [np.nan], [0.0, 0.0], 0.0, ["left"]])
def test_wrong_actions_are_refused(single, action):
    single.reset()
    with pytest.raises(InvalidActions):
        single.step(action)

    assert len(single.step([0.0])) == 5


def test_an_action_just_outside_is_told_with_the_digits_in_which_it_differs(single):
    with pytest.raises(gymnasium.error.ResetNeeded, match="before its first step"):
        single.step([0.0])
    single.reset()

    with pytest.raises(InvalidActions, match=r"from -1 to 1, not 1\.0000001$"):
        single.step(np.nextafter(np.ones(1, "f4"), 2))


def test_a_guest_may_be_stepped_beside_its_environment(make):
    env, other = (make(GuestGymEnv, PENDULUM, configure=(1, "{seed}")) for _ in range(2))
    for one in (env, other):
        one.reset(seed=1)
        one.step([0.5])
    env.guest_env.step([[0.5]])
    other.step([0.5])
    (seen, *outcome), (expected, *others) = env.step([0.5]), other.step([0.5])

    assert np.array_equal(seen, expected)
    assert outcome == others


def test_an_agent_that_ended_beside_its_environment_takes_no_action(make):
    env = make(GuestGymEnv, scripted([(1, INITIAL, 0)], [(1, RUNNING, 1)], [(1, TERMINAL, 1)]))
    env.reset()
    env.step([0.0])
    env.guest_env.step([[0.0]])

    with pytest.raises(InvalidActions, match=r"takes \(0, 1\)"):
        env.step([0.0])


def test_a_guest_with_more_agents_is_refused_and_pointed_elsewhere(make):
    with pytest.raises(UsageError, match="make_vec"):
        make(GuestGymEnv, PENDULUM, configure=(2, 1))


def test_a_guest_that_fails_truncates_and_starts_over(make):
    env = make(GuestGymEnv, scripted([(1, INITIAL, 0)], [(1, RUNNING, 1)], after="unreachable"))
    env.reset()
    env.step([0.0])
    _, _, terminated, truncated, info = env.step([0.0])
    observation, _ = env.reset()

    assert (terminated, truncated) == (False, True)
    assert "unreachable" in info["error"]
    assert observation.tolist() == [0.0]


def test_a_replacement_in_the_same_submit_is_the_next_episode(make):
    env = make(GuestGymEnv, scripted(
        [(1, INITIAL, 0)], [(1, TERMINAL, 2), (2, INITIAL, 7)], [(2, RUNNING, 1)]
    ))  # fmt: skip
    env.reset()
    ended = env.step([0.0])
    observation, info = env.reset()
    after = env.step([0.0])

    assert ended[1:3] == (2.0, True)
    assert observation.tolist() == [1.0]
    assert info == {"reward": 7.0}
    assert after[0].tolist() == [2.0]


def test_all_agents_of_a_guest_are_stepped_together(make):
    envs = make(GuestVectorEnv, PENDULUM, configure=(64, "{seed}"))
    first, info = envs.reset(seed=1)
    ends = 0
    for _ in range(450):
        observations, rewards, terminated, truncated, info = envs.step(np.zeros((64, 1), "f4"))
        ends += int(truncated.sum())

    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert first.shape == observations.shape == (64, 3)
    assert rewards.dtype == np.float32
    assert ends == 2 * 64
    assert not terminated.any()
    assert info["present"].all()


def test_what_ends_in_one_step_begins_in_the_next(make):
    envs = make(GuestVectorEnv, scripted(
        [(1, INITIAL, 0), (2, INITIAL, 0)],
        [(1, TERMINAL, 5), (2, RUNNING, 1)],
        [(3, INITIAL, 0), (2, RUNNING, 1)],
        [(3, RUNNING, 2), (2, INTERRUPTED, 1)],
        [(3, RUNNING, 2)],
        [(3, RUNNING, 2), (4, INITIAL, 0)],
    ))  # fmt: skip
    envs.reset()
    found = [envs.step(np.full((2, 1), 0.5, "f4")) for _ in range(5)]

    assert [step[0][:, 0].tolist() for step in found] == [[1, 1], [2, 2], [3, 3], [4, 0], [5, 5]]
    assert [step[1].tolist() for step in found] == [[5, 1], [0, 1], [2, 1], [2, 0], [2, 0]]
    assert found[0][2].tolist() == [True, False]
    assert found[2][3].tolist() == [False, True]
    assert found[3][4]["present"].tolist() == [True, False]
    assert found[4][4]["present"].all()


def replaced_at_once():
    return scripted(
        [(1, INITIAL, 0)], [(1, TERMINAL, 5), (2, INITIAL, 0)], [(2, RUNNING, 3)], [(2, RUNNING, 4)]
    )


def test_a_replacement_in_the_same_submit_takes_zeros_once_with_next_step(make, caplog):
    envs = make(GuestVectorEnv, replaced_at_once())
    envs.reset()
    ended = envs.step([[0.5]])
    envs.step([[0.5]])
    answered = envs.guest_env.guest.read_memory(256, 4)
    last = envs.step([[0.25]])

    assert ended[4]["auto_answered"].tolist() == [1]
    assert ended[4]["_auto_answered"].tolist() == [True]
    assert ended[2].all()
    assert np.frombuffer(answered, "f4")[0] == 0.0
    assert last[0].tolist() == [[3.0]]
    (warning,) = caplog.messages
    assert "their episodes begin with an action of zeros" in warning
    assert "take 'SameStep'" in warning


def test_same_step_shows_the_new_episode_with_the_end_of_the_old_one(make):
    envs = make(GuestVectorEnv, replaced_at_once(), autoreset_mode="SameStep")
    envs.reset()
    observations, rewards, terminated, _, info = envs.step([[0.5]])
    after = envs.step([[0.5]])

    assert observations.tolist() == [[1.0]]
    assert rewards.tolist() == [5.0]
    assert terminated.all()
    assert info["final_obs"][0].tolist() == [1.0]
    assert info["_final_obs"].tolist() == [True]
    assert after[1].tolist() == [3.0]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_the_reward_of_a_first_row_is_in_the_infos(make, mode):
    envs = make(GuestVectorEnv, scripted(
        [(1, INITIAL, 0.5), (2, INITIAL, 0)], [(1, RUNNING, 1), (2, RUNNING, 0)]
    ), autoreset_mode=mode)  # fmt: skip
    _, info = envs.reset()
    _, rewards, _, _, later = envs.step(np.zeros((2, 1), "f4"))

    assert info["reward"][0] == 0.5
    assert info["_reward"].tolist() == [True, False]
    assert rewards.tolist() == [1.0, 0.0]
    assert not later["_reward"].any()
    assert np.isnan(later["reward"]).all()
    assert np.isnan(info["reward"][1])


def test_what_a_guest_says_is_in_the_infos_by_name(make):
    envs = make(GuestVectorEnv, PENDULUM, configure=(2, 1))
    envs.reset()
    infos = [envs.step(np.zeros((2, 1), "f4"))[4] for _ in range(200)]

    assert not any("angle" in info for info in infos[:-1])
    assert (infos[-1]["angle"] > 0).all()
    assert infos[-1]["_angle"].all()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("kind", [GuestVectorEnv, GuestFleetVectorEnv])
def test_a_name_that_was_said_once_is_in_every_later_info(make, kind, mode):
    count = {"configure": (4, 1)} if kind is GuestVectorEnv else {"num_envs": 4, **ONE}
    module = CARTPOLE if (kind, mode) != (GuestVectorEnv, "SameStep") else WALKERS
    if module is WALKERS:
        count = {"configure": (4, SAME, 1, 0, 0)}
    envs = make(kind, module, autoreset_mode=mode, **count)
    envs.reset(seed=1)
    infos = [envs.step(np.ones((4, 1), "f4"))[4] for _ in range(60)]
    if mode == "SameStep":
        infos = [info["final_info"] for info in infos if "final_info" in info]
    (name,) = {name for info in infos for name in info} & {"angle", "moves"}
    first = next(at for at, info in enumerate(infos) if name in info)

    assert len(infos) - first > 2
    for info in infos[first:]:
        assert info[name].shape == info[f"_{name}"].shape == (4,)
        assert np.array_equal(np.isnan(info[name]), ~info[f"_{name}"])
    assert any(info[f"_{name}"].any() and not info[f"_{name}"].all() for info in infos[first:])


def stepped(envs, out, steps=60):
    """Copies of what an environment returns step by step."""
    actions = np.random.default_rng(1).uniform(-1, 1, (steps, envs.num_envs, 1)).astype("f4")
    found = []
    for action in actions:
        *step, info = envs.step(action) if out is None else envs.step(action, out=out)
        if out is not None:
            arrays = (*step, info["present"])
            assert all(one is other for one, other in zip(arrays, out, strict=True))
        found.append([array.tolist() for array in (*step, info["present"])])
    return found


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (GuestVectorEnv, {"configure": (5, SAME, 1, 0, 0)}),
        (GuestFleetVectorEnv, {"num_envs": 5, "configure": (1, NEXT, 1, 0, 0)}),
    ],
)
def test_arrays_of_the_caller_get_what_would_be_returned(make, kind, options, mode):
    envs = [make(kind, WALKERS, autoreset_mode=mode, **options) for _ in range(2)]
    for one in envs:
        one.reset(seed=1)
    out = StepArrays.empty(envs[0])

    assert stepped(envs[0], out) == stepped(envs[1], None)


def test_parts_of_an_observation_are_written_to_an_array_each(make):
    spec = {"observations": [{"name": "angle", "shape": [2]}, {"name": "speed", "shape": [1]}]}
    options = {"configure": (3, 1), "spec": {"behaviors": {"*": spec}}}
    envs, other = (make(GuestVectorEnv, PENDULUM, **options) for _ in range(2))
    envs.reset(seed=1)
    other.reset(seed=1)
    out = StepArrays.empty(envs)
    envs.step(np.ones((3, 1), "f4"), out=out)
    expected = other.step(np.ones((3, 1), "f4"))[0]

    assert {name: part.shape for name, part in out.observations.items()} == {
        "angle": (3, 2), "speed": (3, 1),
    }  # fmt: skip
    assert all(np.array_equal(out.observations[name], expected[name]) for name in expected)
    out.observations["speed"] = out.rewards[:, None]  # a dict may be changed
    with pytest.raises(UsageError, match=r"out\.observations\['speed'\] and out\.rewards have"):
        envs.step(np.ones((3, 1), "f4"), out=out)


def read_only(array):
    array.setflags(write=False)
    return array


@pytest.mark.parametrize("kind", [GuestVectorEnv, GuestFleetVectorEnv])
@pytest.mark.parametrize(
    ("field", "array"),
    [
        ("observations", np.zeros((2, 3))),
        ("observations", np.zeros((3, 2), "f4").T),
        ("observations", np.zeros((2, 4), "f4")),
        ("rewards", np.zeros(2, "f8")),
        ("rewards", read_only(np.zeros(2, "f4"))),
        ("rewards", [0.0, 0.0]),
        ("terminations", np.zeros(2, "u1")),
        ("truncations", np.zeros(4, bool)[::2]),
        ("present", np.zeros(3, bool)),
        ("rewards", np.zeros(9, "u1")[1:].view("f4")),
    ],
)
def test_arrays_that_do_not_fit_are_refused_before_anything_moves(make, kind, field, array):
    options = {"configure": (2, 1)} if kind is GuestVectorEnv else {"num_envs": 2, **ONE}
    envs, other = (make(kind, PENDULUM, **options) for _ in range(2))
    envs.reset(seed=1)
    other.reset(seed=1)
    actions = np.ones((2, 1), "f4")
    good = StepArrays.empty(envs)
    with pytest.raises(UsageError, match=f"out.{field}"):
        envs.step(actions, out=good._replace(**{field: array}))
    with pytest.raises(UsageError, match=r"out\.terminations and out\.present have"):
        envs.step(actions, out=good._replace(present=good.terminations))
    memory = np.zeros(8, "f4")
    shared = good._replace(observations=memory[:6].reshape(2, 3), rewards=memory[5:7])
    with pytest.raises(UsageError, match=r"out\.observations and out\.rewards have memory"):
        envs.step(actions, out=shared)
    with pytest.raises(UsageError, match="takes StepArrays, not tuple"):
        envs.step(actions, out=tuple(good))

    assert not any(np.any(array) for array in good)
    assert np.array_equal(envs.step(actions, out=good)[0], other.step(actions)[0])


def arrays_of(outcome):
    return [*outcome[:4], outcome[4]["present"]]


def test_what_a_step_returned_without_arrays_is_the_callers(make):
    envs = make(GuestVectorEnv, CARTPOLE, configure=(4, 1))
    envs.reset(seed=1)
    kept, copies = [], []
    for _ in range(30):
        kept.append(arrays_of(envs.step(np.ones((4, 1), "f4"))))
        copies.append([array.copy() for array in kept[-1]])

    for step, copy in zip(kept, copies, strict=True):
        assert all(np.array_equal(one, other) for one, other in zip(step, copy, strict=True))
    for array in kept[-1]:
        array[...] = array == 0
    assert arrays_of(envs.step(np.ones((4, 1), "f4")))[4].tolist() == [True] * 4
    out = StepArrays.empty(envs)
    envs.step(np.ones((4, 1), "f4"), out=out)
    out.present[...] = False
    assert arrays_of(envs.step(np.ones((4, 1), "f4")))[4].tolist() == [True] * 4


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("with_arrays", [False, True])
def test_what_a_caller_writes_into_what_was_returned_reaches_no_later_step(make, mode, with_arrays):
    envs, other = (
        make(GuestVectorEnv, WALKERS, configure=(5, SAME, 1, 0, 0), autoreset_mode=mode)
        for _ in range(2)
    )
    out = StepArrays.empty(envs) if with_arrays else None
    written = [envs.reset(seed=1)[0]]
    other.reset(seed=1)
    for _ in range(40):
        for array in written:
            array[...] = 1 - array
        written = arrays_of(envs.step(np.ones((5, 1), "f4"), out=out))
        expected = arrays_of(other.step(np.ones((5, 1), "f4")))

        assert all(map(np.array_equal, written, expected))


def test_a_mode_that_does_not_fit_is_said_to(make):
    envs = make(GuestVectorEnv, PENDULUM, configure=(2, 1), autoreset_mode="SameStep")
    envs.reset()
    for _ in range(199):
        envs.step(np.zeros((2, 1), "f4"))
    with pytest.raises(UsageError, match="NEXT_STEP"):
        envs.step(np.zeros((2, 1), "f4"))


def test_more_agents_than_places_is_an_error(make):
    envs = make(GuestVectorEnv, scripted(
        [(1, INITIAL, 0)], [(1, RUNNING, 0), (2, INITIAL, 0), (3, INITIAL, 0)]
    ))  # fmt: skip
    envs.reset()
    with pytest.raises(UsageError, match="num_envs"):
        envs.step([[0.0]])


def test_places_may_be_declared(make):
    envs = make(GuestVectorEnv, CARTPOLE, configure=(3, 1), num_envs=5)
    observations, info = envs.reset()

    assert observations.shape == (5, 4)
    assert info["present"].tolist() == [True] * 3 + [False] * 2
    assert not observations[3:].any()
    assert envs.step(np.zeros((5, 1), "f4"))[4]["present"].sum() == 3


FAILING = scripted(
    [(1, INITIAL, 0), (2, INITIAL, 0)], [(1, RUNNING, 1), (2, RUNNING, 1)], after="unreachable"
)


def test_a_vector_whose_guest_failed_wants_a_reset_unless_it_was_to_start_over(make):
    envs = make(GuestVectorEnv, FAILING)
    envs.reset()
    envs.step(np.zeros((2, 1), "f4"))
    _, _, _, truncated, info = envs.step(np.zeros((2, 1), "f4"))

    assert truncated.all()
    assert all("unreachable" in error for error in info["error"])
    with pytest.raises(gymnasium.error.ResetNeeded, match="restart='on-failure'"):
        envs.step(np.zeros((2, 1), "f4"))
    assert envs.reset()[1]["present"].all()
    with pytest.raises(UsageError, match="restart is True: it takes None or 'on-failure'"):
        make(GuestVectorEnv, FAILING, restart=True)


def test_a_vector_whose_guest_fails_truncates_all_and_starts_over_when_asked(make):
    envs = make(GuestVectorEnv, FAILING, restart="on-failure")
    envs.reset()
    envs.step(np.zeros((2, 1), "f4"))
    _, _, _, truncated, info = envs.step(np.zeros((2, 1), "f4"))
    observations, rewards, _, again, fresh = envs.step(np.zeros((2, 1), "f4"))

    assert truncated.all()
    assert all("unreachable" in error for error in info["error"])
    assert not again.any()
    assert not rewards.any()
    assert observations.tolist() == [[0.0], [0.0]]
    assert "error" not in fresh
