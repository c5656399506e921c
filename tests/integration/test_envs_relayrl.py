"""Guests as RelayRL environments, and the contract that others can run on theirs."""

import threading
from uuid import UUID, uuid4

import numpy as np
import pytest
from tests.integration.command_line import GUESTS
from tests.integration.test_environment import INITIAL, RUNNING, TERMINAL, scripted

from arkml.envs import relayrl
from arkml.envs.relayrl.flat import FlatScalar, FlatVector
from arkml.testing.relayrl import check_scalar, check_vector

PENDULUM, CARTPOLE = GUESTS / "c_pendulum.wasm", GUESTS / "c_cartpole.wasm"
ONE = {"configure": (1, "{seed}")}
STILL = np.zeros(1, np.float32)


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
    none = words(lambda: vector.init_num_envs(0))
    first, second = vector.init_num_envs(2)
    vector.reset([first, second])

    assert early == "Environment error: there are no environments yet: call init_num_envs first"
    assert none == "Environment error: 0 environments cannot be had: 1 at least"
    assert words(lambda: vector.step([(unknown, STILL)])) == (
        f"Environment error: there is no environment {unknown}"
    )
    assert words(lambda: vector.reset([first, first])) == (
        f"Environment error: environment {first} is there twice"
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
        thread.join(60)

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
        ({"action_dtype": lambda _: "F32"}, "no EnvDType"),
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
