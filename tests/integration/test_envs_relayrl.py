"""Guests as RelayRL environments, and the contract that others can run on theirs."""

import threading
from functools import partial
from itertools import repeat
from uuid import UUID, uuid4

import numpy as np
import pytest
from tests.integration.command_line import GUESTS
from tests.integration.test_environment import INITIAL, RUNNING, TERMINAL, scripted

from arkml.envs import relayrl
from arkml.envs.relayrl import traits
from arkml.envs.relayrl.flat import FlatScalar, FlatVector
from arkml.testing.relayrl import check_scalar, check_vector

PENDULUM, CARTPOLE = GUESTS / "c_pendulum.wasm", GUESTS / "c_cartpole.wasm"
CHOOSERS = GUESTS / "c_choosers.wasm"
ONE = {"configure": (1, "{seed}")}
STILL = np.zeros(1, np.float32)
RAISED = np.float32([0, 1])


@pytest.fixture
def made():
    """Makes environments, and closes them at the end."""
    found = []

    def make(kind, module, **options):
        found.append(kind(module, **options))
        return found[-1]

    yield make
    for environment in found:
        environment.close()


@pytest.fixture
def scalar(made):
    return made(relayrl.GuestScalarEnvironment, CARTPOLE, **ONE)


@pytest.fixture
def vector(made):
    return made(relayrl.GuestVectorEnvironment, CARTPOLE, **ONE)


def test_guests_keep_the_contract(made):
    check_scalar(lambda: made(relayrl.GuestScalarEnvironment, CARTPOLE, **ONE), action=STILL)
    check_vector(lambda: made(relayrl.GuestVectorEnvironment, CARTPOLE, **ONE), action=STILL)


def test_the_names_of_the_traits_are_there_with_their_texts():
    f32, bf16 = relayrl.EnvNdArrayDType.F32, relayrl.EnvTchDType.Bf16
    kinds = relayrl.EnvironmentKind
    errors = [
        relayrl.EnvironmentError.EnvironmentError("x"),
        relayrl.EnvironmentError.ObservationBuildingError("x"),
        relayrl.EnvironmentError.TrainingPerformanceReturnError("x"),
    ]

    assert str(relayrl.EnvDType.NdArray(f32)) == "NdArray(F32)"
    assert str(relayrl.EnvDType.Tch(bf16)) == "Tch(Bf16)"
    assert relayrl.EnvDType.NdArray(f32) == relayrl.EnvDType.NdArray(f32)
    assert relayrl.EnvDType.NdArray(f32) != relayrl.EnvDType.Tch(relayrl.EnvTchDType.F32)
    assert " ".join(map(str, relayrl.EnvNdArrayDType)) == "F16 F32 F64 I8 I16 I32 I64 Bool"
    assert " ".join(map(str, relayrl.EnvTchDType)) == "F16 Bf16 F32 F64 I8 I16 I32 I64 U8 Bool"
    assert len({kinds.Scalar, kinds.Vector, kinds.Unknown, kinds.Other("a"), kinds.Other("a")}) == 4
    assert kinds.Other("a") != kinds.Other("b")
    assert [str(error) for error in errors] == [
        "Environment error: x",
        "Observation building error: x",
        "Training performance return error: x",
    ]
    assert all(isinstance(error, relayrl.EnvironmentError) for error in errors)
    assert not any(isinstance(error, OSError) for error in errors)
    assert relayrl.EnvironmentUuid is UUID
    assert relayrl.Uuid is UUID
    for name in ("EnvironmentError", "EnvTchDType", "EnvNdArrayDType", *traits.__all__):
        assert getattr(traits, name) is getattr(relayrl, name)
    assert issubclass(relayrl.EnvironmentError, relayrl.Error)
    assert not issubclass(OSError, relayrl.Error)


def test_a_dtype_names_its_backend_and_its_kind_of_tensor():
    f32 = relayrl.EnvDType.NdArray(relayrl.EnvNdArrayDType.F32)
    kinds = {
        str(dtype): str(relayrl.EnvDType.Tch(dtype).tensor_kind) for dtype in relayrl.EnvTchDType
    }

    assert f32.backend is relayrl.Backend.NdArray
    assert relayrl.EnvDType.Tch(relayrl.EnvTchDType.U8).backend is relayrl.Backend.Tch
    assert f32.tensor_kind is relayrl.TensorKind.Float
    assert kinds == {
        "F16": "Float", "Bf16": "Float", "F32": "Float", "F64": "Float", "I8": "Int",
        "I16": "Int", "I32": "Int", "I64": "Int", "U8": "Int", "Bool": "Bool",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "kind", "named"),
    [("f4", "Float", "F32"), ("i8", "Int", "I64"), ("?", "Bool", "Bool")],
)
def test_an_array_is_a_tensor_of_a_backend_and_a_kind(dtype, kind, named):
    tensor: relayrl.Tensor = np.zeros(2, dtype)
    found = relayrl.EnvDType.of(tensor)

    assert str(found) == f"NdArray({named})"
    assert found.tensor_kind is relayrl.TensorKind[kind]
    with pytest.raises(relayrl.EnvironmentError, match="complex128"):
        relayrl.EnvDType.of(np.zeros(1, complex))


def test_the_names_of_the_crate_are_at_the_root():
    names = [
        "Tensor", "TensorKind", "Backend", "Error", "Uuid", "EnvironmentError", "EnvironmentKind",
        "EnvDType", "EnvTchDType", "EnvNdArrayDType", "EnvironmentUuid", "EnvInfo",
        "ScalarEnvReset", "ScalarEnvStep", "VectorEnvReset", "VectorEnvStep", "DynVectorEnv",
        "DynScalarEnvironment", "EnvironmentHandle", "ScalarEnvironment", "VectorEnvironment",
        "Environment", "TrainingPerformanceReturnFn",
    ]  # fmt: skip

    assert set(names) <= set(relayrl.__all__)
    assert all(hasattr(relayrl, name) for name in names)


def test_the_traits_are_told_apart_at_run_time(scalar, vector):
    assert isinstance(scalar, relayrl.Environment)
    assert isinstance(scalar, relayrl.DynScalarEnvironment)
    assert isinstance(scalar, relayrl.TrainingPerformanceReturnFn)
    assert isinstance(vector, relayrl.VectorEnvironment)
    assert isinstance(vector, relayrl.DynVectorEnv)
    assert not isinstance(object(), relayrl.Environment)
    assert not isinstance(vector, relayrl.DynScalarEnvironment)


def words(call):
    """The text of the error that a call ends with."""
    with pytest.raises(relayrl.EnvironmentError) as caught:
        call()
    return str(caught.value)


def test_each_misuse_of_one_environment_has_its_words(scalar):
    before = words(lambda: scalar.step(STILL))
    unseen, unrated = words(scalar.build_observation), words(scalar.calculate_performance_return)
    scalar.reset()
    ended = False
    while not ended:
        ended = scalar.step(STILL).terminated

    assert before == "Environment error: reset the environment before its first step"
    assert unseen == "Observation building error: the environment was not reset yet"
    assert unrated == "Training performance return error: no episode has ended yet"
    assert words(lambda: scalar.step(STILL)) == (
        "Environment error: the episode has ended: reset the environment"
    )
    assert words(lambda: scalar.step(np.zeros(2))) == (
        "Environment error: an action has shape (1,), not (2,)"
    )
    assert words(lambda: scalar.step(np.zeros((1, 1)))) == (
        "Environment error: an action has rank 1, not 2"
    )
    assert words(lambda: scalar.step([np.nan])) == (
        "Environment error: a RelayRL environment takes actions from -1 to 1, not nan"
    )
    assert words(scalar.run_environment) == (
        "Environment error: run_environment needs a policy: give one when it is made"
    )
    assert scalar.calculate_performance_return().shape == (1,)


def test_each_misuse_of_many_environments_has_its_words(vector):
    unknown = uuid4()
    early = words(lambda: vector.step([(unknown, STILL)]))
    none, many = (words(partial(vector.init_num_envs, each)) for each in (0, 1 << 40))
    first, second = vector.init_num_envs(2)
    vector.reset([first, second])

    assert early == "Environment error: there are no environments yet: call init_num_envs first"
    assert none == "Environment error: 0 environments cannot be made: 1 at least"
    assert many == "Environment error: 1099511627776 environments cannot be made: 65,536 at most"
    assert words(lambda: vector.reset(repeat(first))) == (
        "Environment error: more than 65,536 environments are named"
    )
    assert words(lambda: vector.step([(unknown, STILL)])) == (
        f"Environment error: there is no environment {unknown}"
    )
    assert words(lambda: vector.reset([first, first])) == (
        f"Environment error: environment {first} is named twice"
    )


def test_a_guest_with_more_agents_is_refused_and_pointed_elsewhere(made):
    crowd = made(relayrl.GuestScalarEnvironment, PENDULUM, configure=(2, 1))

    assert "make_vec" in words(crowd.reset)


def test_an_episode_is_run_with_the_policy_and_its_return_kept(made):
    env = made(
        relayrl.GuestScalarEnvironment, PENDULUM, policy=lambda seen: [-seen[1]], seed=3, **ONE
    )
    env.run_environment()
    env.run_environment()

    assert env.calculate_performance_return().shape == (2,)
    assert (env.calculate_performance_return() < 0).all()
    assert env.build_observation().dtype == np.float32


def test_a_policy_that_knows_no_masks_plays_the_lowest_choice_that_is_allowed(made, caplog):
    """Pickers earn minus a distance of at most 4, and 8 less for each masked choice."""
    asked = []

    def policy(seen):
        asked.append(seen)
        return RAISED

    env = made(relayrl.GuestScalarEnvironment, CHOOSERS, policy=policy, seed=1, **PICKERS)
    env.run_environment()
    env.run_environment()

    assert env.calculate_performance_return().sum() > -4.5 * len(asked)
    assert RAISED.tolist() == [0, 1]
    assert caplog.text.count("the policy chose what the guest masks") == 1


def test_an_episode_that_a_failing_guest_cuts_off_is_told(made, caplog):
    failing = scripted([(1, INITIAL, 0)], [(1, RUNNING, 1)], after="unreachable")
    env = made(relayrl.GuestScalarEnvironment, failing, policy=lambda _: STILL)
    env.run_environment()

    assert "an episode is cut off, because the guest failed: " in caplog.text
    assert "unreachable" in caplog.text


def test_a_policy_that_is_no_function_is_refused_when_it_is_given(made):
    refused = words(lambda: made(relayrl.GuestScalarEnvironment, PENDULUM, policy="walk.onnx"))

    assert "policy is 'walk.onnx': it is a function from an observation to an action" in refused


def test_a_clone_begins_anew_and_a_handle_takes_everything_along(made):
    env = made(relayrl.GuestScalarEnvironment, PENDULUM, seed=5, **ONE)
    first = env.reset().observation
    env.step(STILL)
    seen = env.build_observation()
    clone = env.clone_box()
    begun = clone.reset().observation
    clone.close()
    handle = env.into_handle()

    assert np.array_equal(begun, first)
    assert handle.kind == relayrl.EnvironmentKind.Scalar
    assert np.array_equal(handle.environment.build_observation(), seen)
    assert words(env.reset) == "Environment error: the environment was turned into a handle"
    handle.environment.close()


def test_a_guest_of_many_that_fails_is_truncated_and_the_others_go_on(made):
    env = made(
        relayrl.GuestVectorEnvironment,
        scripted([(1, INITIAL, 0)], [(1, RUNNING, 1)], after="unreachable"),
    )
    first, second = env.init_num_envs(2)
    env.reset([first, second])
    env.step([(first, STILL)])
    broken, whole = env.step([(first, STILL), (second, STILL)])
    again = env.reset([first])

    assert broken.truncated
    assert "unreachable" in dict(broken.info)["error"]
    assert (whole.truncated, whole.reward) == (False, 1.0)
    assert again[0].observation.tolist() == [0.0]


# An episode of three steps, again and again; an instance with the seed FATAL traps at its start.
FATAL = """
  (global $seed (mut i64) (i64.const -1))
  (global $fatal (mut i64) (i64.const -2))
  (func (export "arkml_seed") (param i64) (global.set $seed (local.get 0)))
  (func (export "configure") (param i64) (global.set $fatal (local.get 0)))
"""
EPISODES = scripted(
    [(1, INITIAL, 0)], [(1, RUNNING, 1)], [(1, RUNNING, 1)], [(1, TERMINAL, 1)],
    [(2, INITIAL, 0)], [(2, RUNNING, 1)], [(2, TERMINAL, 1)], [(3, INITIAL, 0)],
    exports=FATAL,
    each="(if (i64.eq (global.get $seed) (global.get $fatal)) (then unreachable))",
)  # fmt: skip


def second_seed(first):
    """The seed of the instance after the one with the seed `first`."""
    return int(np.random.default_rng(first).integers(1 << 31))


def many(made, *, fatal, **options):
    """Three environments with the seeds 10 to 12."""
    kind = relayrl.GuestVectorEnvironment
    env = made(kind, EPISODES, seed=10, configure=(fatal,), **options)
    return env, env.init_num_envs(3)


def test_a_first_reset_that_fails_later_has_begun_nothing(made):
    env, ids = many(made, fatal=12)
    failed = words(lambda: env.reset(ids))
    before = words(lambda: env.step([(ids[0], STILL)]))
    unseen = words(env.build_observation)
    (begun,) = env.reset(ids[:1])

    assert "the guest begins no episode" in failed
    assert before == "Environment error: reset the environment before its first step"
    assert unseen == "Observation building error: some environments were not reset yet"
    assert begun.observation.tolist() == [0.0]


def test_a_reset_in_mid_episode_that_fails_later_leaves_the_episodes_as_they_are(made):
    env, ids = many(made, fatal=second_seed(12))
    env.reset(ids)
    env.step([(env_id, STILL) for env_id in ids[:2]])
    before = env.build_observation()
    failed = words(lambda: env.reset(ids))
    after = env.build_observation()
    steps = env.step([(env_id, STILL) for env_id in ids])
    again = env.reset(ids)

    assert "the guest begins no episode" in failed
    assert before.tolist() == after.tolist() == [[1.0], [1.0], [0.0]]
    assert [step.observation.tolist() for step in steps] == [[2.0], [2.0], [1.0]]
    assert [found.observation.tolist() for found in again] == [[0.0]] * 3


def test_an_episode_that_has_ended_is_over_after_a_reset_that_fails_later(made):
    env, ids = many(made, fatal=second_seed(12))
    env.reset(ids)
    for _ in range(3):
        (ended,) = env.step([(ids[0], STILL)])
    words(lambda: env.reset(ids))
    after = words(lambda: env.step([(ids[0], STILL)]))
    seen = env.build_observation()
    (begun,) = env.reset(ids[:1])

    assert ended.terminated
    assert after == "Environment error: the episode has ended: reset the environment"
    assert seen.tolist() == [[3.0], [0.0], [0.0]]
    assert begun.observation.tolist() == [4.0]  # of the same instance


def test_a_reset_of_one_environment_that_fails_leaves_its_episode_as_it_is(made):
    kind = relayrl.GuestScalarEnvironment
    env = made(kind, EPISODES, seed=12, configure=(second_seed(12),))
    env.reset()
    env.step(STILL)
    failed = words(env.reset)

    assert "the guest begins no episode" in failed
    assert env.build_observation().tolist() == [1.0]
    assert env.step(STILL).observation.tolist() == [2.0]


def test_a_run_that_a_policy_ends_early_has_moved_nothing(made):
    asked = []

    def policy(seen):
        asked.append(float(seen[0]))
        return STILL if len(asked) < 5 else [2.0]

    env, ids = many(made, fatal=-1, policy=policy)
    env.reset(ids[:2])
    env.step([(ids[0], STILL)])
    failed = words(env.run_environment)
    unrated = words(env.calculate_performance_return)
    (step,) = env.step([(ids[0], STILL)])
    third = words(lambda: env.step([(ids[2], STILL)]))
    env.reset(ids)

    assert asked == [0.0, 1.0, 2.0, 0.0, 1.0]
    assert failed == ("Environment error: a RelayRL environment takes actions from -1 to 1, not 2")
    assert unrated == "Training performance return error: no episode has ended yet"
    assert step.observation.tolist() == [2.0]
    assert third == "Environment error: reset the environment before its first step"
    assert env.build_observation().tolist() == [[0.0]] * 3


def test_what_a_policy_raises_comes_through_and_nothing_has_moved(made):
    def policy(_):
        raise LookupError("no action")

    env, ids = many(made, fatal=-1, policy=policy)
    env.reset(ids)
    with pytest.raises(LookupError, match="no action"):
        env.run_environment()

    assert env.step([(ids[1], STILL)])[0].observation.tolist() == [1.0]


def test_an_infinite_action_moves_nothing_where_there_are_no_bounds(made):
    free = {"actions": {"low": -np.inf, "high": np.inf}}
    env, ids = many(made, fatal=-1, spec=free)
    env.reset(ids)
    refused = words(lambda: env.step([(ids[0], [5.0]), (ids[1], [np.inf])]))

    assert "not inf" in refused
    assert env.build_observation().tolist() == [[0.0]] * 3


def test_observations_that_were_given_out_are_the_callers(made):
    env = made(relayrl.GuestScalarEnvironment, EPISODES)
    begun = env.reset().observation
    begun += 9
    seen = env.build_observation()
    seen += 9

    assert env.build_observation().tolist() == [0.0]


def test_it_may_be_used_by_many_threads(vector):
    ids = vector.init_num_envs(4)
    vector.reset(ids)
    failures = []

    def work(env_id):
        for _ in range(50):
            try:
                (found,) = vector.step([(env_id, STILL)])
                if found.terminated:
                    vector.reset([env_id])
            except BaseException as error:  # noqa: BLE001  asserted below
                failures.append(error)

    threads = [threading.Thread(target=work, args=(env_id,)) for env_id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)

    assert failures == []


def test_the_flat_view_of_one_environment(scalar):
    flat = FlatScalar(scalar)
    before = flat.step_bytes(STILL.tobytes())
    empty = flat.flat_observation_bytes()
    first = flat.reset()
    observation, mask, reward, done, truncated = flat.step_bytes(STILL.tobytes())

    assert (before, empty) == (None, b"")
    assert len(first) == len(observation) == 4 * flat.observation_dim() == 16
    assert observation == flat.flat_observation_bytes()
    assert (mask, reward, done, truncated) == (None, 1.0, False, False)
    assert (flat.action_dim(), flat.action_is_discrete(), flat.flat_mask_bytes()) == (
        1,
        False,
        None,
    )
    assert flat.step_bytes(b"abc") is None
    assert flat.step_bytes([0, 0, 0, 0]) is None
    assert flat.step_bytes(STILL) is not None


PICKERS, DRIVERS = {"configure": (1, 1)}, {"configure": (1, 2)}
LEVER = {"spec": {"actions": {"discrete": [3]}}}


def test_the_flat_view_of_a_guest_with_one_branch_has_its_choices(made):
    flat = FlatScalar(made(relayrl.GuestScalarEnvironment, EPISODES, **LEVER))
    widths = flat.observation_dim(), flat.action_dim(), flat.action_is_discrete()
    early = flat.flat_mask_bytes()
    flat.reset()
    by_byte = flat.step_bytes(b"\x02")
    by_float = flat.step_bytes(np.array([1], "<f4").tobytes())

    assert widths == (1, 3, True)
    assert early == flat.flat_mask_bytes() == by_byte[1] == b"\x01\x01\x01"
    assert [np.frombuffer(found[0], "<f4").tolist() for found in (by_byte, by_float)] == [[1], [2]]
    assert flat.build_mask().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "action", [b"", b"\x03", b"\x00\x00", b"\xff", np.array([1.5], "<f4").tobytes(),
               np.array([3], "<f4").tobytes(), np.array([0, 0], "<f4").tobytes()],
)  # fmt: skip
def test_bytes_that_are_no_choice_move_nothing(made, action):
    flat = FlatScalar(made(relayrl.GuestScalarEnvironment, EPISODES, **LEVER))
    first = flat.reset()

    assert flat.step_bytes(action) is None
    assert flat.flat_observation_bytes() == first


def test_the_flat_view_of_several_branches_counts_their_choices_together(made):
    environment = made(relayrl.GuestScalarEnvironment, CHOOSERS, seed=1, **PICKERS)
    flat = FlatScalar(environment)
    info = environment.reset().info
    seen = []
    for number in range(40):
        flags = np.ones((3, 2), np.uint8)
        for branch, choice in (name.split("/")[1:] for name, _ in info or () if "mask/" in name):
            flags[(slice(None),) * int(branch) + (int(choice),)] = 0
        seen.append(flat.flat_mask_bytes())
        assert seen[-1] == flags.tobytes() == flat.build_mask().tobytes()
        chosen = np.argwhere(flags)[number % int(flags.sum())]
        step = environment.step(chosen)
        info = step.info
        if step.terminated or step.truncated:
            info = environment.reset().info

    assert (flat.action_dim(), flat.action_is_discrete()) == (6, True)
    assert len(set(seen)) > 1


def test_the_choices_of_several_branches_reach_the_guest_each_in_its_own(made):
    flat, other = (
        made(relayrl.GuestScalarEnvironment, CHOOSERS, seed=1, **PICKERS) for _ in range(2)
    )
    flat = FlatScalar(flat)
    flat.reset()
    other.reset()
    for number, choices in enumerate([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]):
        seen = flat.step_bytes(bytes([number]))
        expected = other.step(choices)

        assert seen[0] == expected.observation.astype("<f4").tobytes()
        assert seen[2] == expected.reward
        if expected.terminated or expected.truncated:
            flat.reset()
            other.reset()


def test_the_flat_view_of_floats_and_branches_takes_floats_and_has_masks(made):
    flat = FlatScalar(made(relayrl.GuestScalarEnvironment, CHOOSERS, **DRIVERS))
    flat.reset()
    step = flat.step_bytes(np.array([0.5, 0, 2], "<f4").tobytes())

    assert (flat.action_dim(), flat.action_is_discrete()) == (3, False)
    assert len(step[1]) == len(flat.flat_mask_bytes()) == 3


def test_choices_that_a_byte_cannot_count_are_refused(made):
    flat = FlatScalar(
        made(relayrl.GuestScalarEnvironment, EPISODES, spec={"actions": {"discrete": [257]}})
    )
    flat.reset()

    assert "at most 256 choices" in words(flat.action_dim)
    assert "at most 256 choices" in words(flat.flat_mask_bytes)
    assert flat.step_bytes(b"\x00") is None


def test_the_flat_view_is_of_environments_that_there_were_before(made):
    environment = made(relayrl.GuestVectorEnvironment, EPISODES, **LEVER)
    early = words(FlatVector(environment).observation_dim)
    ids = environment.init_num_envs(2)
    flat = FlatVector(environment)
    before = flat.n_envs(), flat.observation_dim(), flat.action_dim(), flat.flat_mask_bytes()
    flat.reset(ids)
    step = flat.step_bytes(b"\x00\x02")
    environment.init_num_envs(3)

    assert early == "Environment error: there are no environments yet: call init_num_envs first"
    assert before == (2, 1, 3, b"\x01" * 6)
    assert step[1] == flat.flat_mask_bytes()[:6] == b"\x01" * 6
    assert step[2] == [1.0, 1.0]
    assert flat.n_envs() == 3
    assert flat.build_mask().shape == (3, 3)


def test_the_flat_view_of_many_environments(vector):
    flat = FlatVector(vector)
    ids = flat.init_num_envs(3)
    flat.reset(ids)
    observations, mask, rewards, dones, truncateds = flat.step_bytes(np.zeros(3, "<f4").tobytes())

    assert flat.n_envs() == 3
    assert len(observations) == 3 * 4 * flat.observation_dim()
    assert (mask, rewards, dones, truncateds) == (None, [1.0] * 3, [False] * 3, [False] * 3)
    assert flat.step_bytes(np.zeros(2, "<f4").tobytes()) is None


class Counter:
    """An environment of somebody else, in plain numpy: it counts to five."""

    def __init__(self):
        self.at = None
        self.gone = False

    def kind(self):
        return relayrl.EnvironmentKind.Scalar

    def observation_dtype(self):
        return relayrl.EnvDType.NdArray(relayrl.EnvNdArrayDType.F32)

    action_dtype = observation_dtype

    def run_environment(self):
        self.reset()

    def build_observation(self):
        if self.at is None:
            raise relayrl.EnvironmentError.ObservationBuildingError("not yet")
        return np.array([self.at], np.float32)

    def into_handle(self):
        other = type(self)()
        self.gone = True
        return relayrl.EnvironmentHandle.Scalar(other)

    def reset(self):
        if self.gone:
            raise relayrl.EnvironmentError.EnvironmentError("gone")
        self.at = 0
        return relayrl.ScalarEnvReset(self.build_observation())

    def step(self, action):
        if self.at is None or self.at >= 5 or np.shape(action) != (1,):
            raise relayrl.EnvironmentError.EnvironmentError("no")
        self.at += 1
        return relayrl.ScalarEnvStep(self.build_observation(), 1.0, self.at == 5, False)


def flat_reset(self):
    Counter.reset(self)
    return relayrl.ScalarEnvReset(np.zeros((1, 1), np.float32))


def broken(**methods):
    return type("Broken", (Counter,), methods)


def test_the_contract_holds_for_others_too():
    check_scalar(Counter, action=STILL)


@pytest.mark.parametrize(
    ("methods", "named"),
    [
        ({"kind": lambda _: relayrl.EnvironmentKind.Unknown}, "kind"),
        ({"action_dtype": lambda _: "F32"}, "not an EnvDType"),
        ({"build_observation": lambda self: np.array([self.at or 0], "f4")}, "before the first"),
        (
            {"step": lambda self, _: Counter.step(self, STILL)},
            r"an action of shape \(1, 1\) raises no",
        ),
        ({"reset": flat_reset}, "rank 2"),
        ({"into_handle": lambda self: relayrl.EnvironmentHandle.Vector(self)}, "Handle.Scalar"),
        ({"into_handle": lambda self: relayrl.EnvironmentHandle.Scalar(self)}, "turned into"),
        ({"step": None}, "reset|no|NoneType"),
    ],
)  # fmt: skip
def test_the_contract_finds_what_is_broken(methods, named):
    with pytest.raises((AssertionError, TypeError), match=named):
        check_scalar(broken(**methods), action=STILL)


def test_a_replacement_at_once_is_the_next_episode_here_too(made):
    env = made(relayrl.GuestScalarEnvironment, scripted(
        [(1, INITIAL, 0)], [(1, TERMINAL, 2), (2, INITIAL, 7)], [(2, RUNNING, 1)]
    ))  # fmt: skip
    env.reset()
    ended = env.step(STILL)
    begun = env.reset()

    assert (ended.reward, ended.terminated) == (2.0, True)
    assert begun.info == [("reward", "7.0")]
    assert env.step(STILL).observation.tolist() == [2.0]
