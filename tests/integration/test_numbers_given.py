"""Numbers that embedders give: one rule at every door, for those of Python and of numpy."""

import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.integration.command_line import GUESTS

import arkml
from arkml import GuestEnv, Host, Limits
from arkml.arrays import real, real_array
from arkml.async_trainer.adaptors.guest_env import GuestsConfig
from arkml.async_trainer.adaptors.sac_rows import _numbers
from arkml.async_trainer.core.simple_replay_buffer import (
    SimpleReplayBuffer,
    SimpleReplayBufferConfig,
)
from arkml.async_trainer.core.transition_batches import ArrayBatch
from arkml.envs.core.coercion import floats_of
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.llapi.actions import ActionTuple
from arkml.envs.llapi.exception import UnityActionException
from arkml.envs.relayrl.checks import count
from arkml.errors import ArkmlError, InvalidActions, PolicyFailed, UsageError
from arkml.guest_trials.guest_trials_options import GuestTrialsOptions
from arkml.hive.protocol.settings import Settings
from arkml.limits import budget_seconds, call_limits
from arkml.training.training_options import Goal, TrainingOptions

APPLET = GUESTS / "c_applet.wasm"
PENDULUM = GUESTS / "c_pendulum.wasm"
PLAIN = GUESTS / "c_pendulum_plain.wasm"
ONE = {"configure": (1, "{seed}")}


def zeros(rows):
    return np.zeros((len(rows), 1), np.float32)


def played(path, **options):
    given = {"episodes": 1, "max_episode_steps": 5, **options}
    arkml.evaluate(PLAIN, zeros, **given)
    arkml.record(PLAIN, zeros, path / "rows.npz", **given)


def trained(path, **options):
    TrainingOptions(name="a.wasm", directory=path, **options)


def made(kind, *arguments, seed=None, **options):
    with closing(kind(*arguments, **options)) as env:
        env.reset(seed=seed)


def fleet(number=3, *, only=0, seed=None):
    with Host() as host, host.fleet(APPLET, number) as guests:
        guests.call("ark_applet_update", only=[only])
        guests.replace(guests.guests[0], seed=seed)


DOORS = {
    "Host(seed)": lambda number, _: Host(seed=number).close(),
    "Limits": lambda number, _: Limits(rows=number),
    "Host.fleet": lambda number, _: fleet(number),
    "Fleet.call": lambda number, _: fleet(only=number),
    "Fleet.replace": lambda number, _: fleet(seed=number),
    "GuestEnv.reset": lambda number, _: made(GuestEnv, PENDULUM, seed=number, **ONE),
    "reset of a fleet": lambda number, _: made(
        GuestFleetVectorEnv, PENDULUM, num_envs=2, seed=number, **ONE
    ),
    "configure": lambda number, _: made(GuestEnv, PENDULUM, configure=(number, "{seed}")),
    "num_envs": lambda number, _: made(GuestVectorEnv, PENDULUM, num_envs=number, **ONE),
    "num_envs of a fleet": lambda number, _: made(
        GuestFleetVectorEnv, PENDULUM, num_envs=number, **ONE
    ),
    "idle_calls": lambda number, _: GuestEnv(PENDULUM, idle_calls=number, **ONE).close(),
    "max_episode_steps": lambda number, _: made(
        GuestEnv, PENDULUM, max_episode_steps=number, **ONE
    ),
    "episodes": lambda number, path: played(path, episodes=number),
    "episode steps": lambda number, path: played(path, max_episode_steps=number),
    "noise": lambda number, path: played(path, seed=number),
    "Goal": lambda number, _: Goal(frames=number),
    "train(seed)": lambda number, path: trained(path, seed=number),
    "train(instances)": lambda number, path: trained(path, instances=number),
    "train(eval_every)": lambda number, path: trained(path, eval_every=number),
    "train(page)": lambda number, path: trained(path, page=number),
    "seed of an actor's guests": lambda number, _: GuestsConfig(PENDULUM, seed=number),
    "GuestTrialsOptions(seed)": lambda number, _: GuestTrialsOptions(module=PENDULUM, seed=number),
    "GuestTrialsOptions(workers)": lambda number, _: GuestTrialsOptions(
        module=PENDULUM, workers=number
    ),
    "RelayRL": lambda number, _: count(number),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_whole_number_of_python_or_numpy_is_taken(tmp_path, door):
    for number in (2, np.int64(2), np.uint8(2), np.array(2)):
        DOORS[door](number, tmp_path)


@pytest.mark.parametrize("number", [True, np.True_, 1.0, np.float32(1), "1", [1]], ids=repr)
@pytest.mark.parametrize("door", DOORS)
def test_a_bool_and_what_is_no_whole_number_are_refused_with_a_sentence(tmp_path, door, number):
    with pytest.raises(ArkmlError, match=r"whole number|indices|1 at least|port|1 seeds"):
        DOORS[door](number, tmp_path)


COUNTS = {
    "Host.fleet": lambda number: fleet(number),
    "num_envs": lambda number: made(GuestVectorEnv, PENDULUM, num_envs=number, **ONE),
    "num_envs of a fleet": lambda number: made(
        GuestFleetVectorEnv, PENDULUM, num_envs=number, **ONE
    ),
    "threads": lambda number: Host(threads=number).close(),
    "train(actors)": lambda number: trained(Path("here"), actors=number),
    "train(evaluate_episodes)": lambda number: trained(Path("here"), evaluate_episodes=number),
    "GuestTrialsOptions(workers)": lambda number: GuestTrialsOptions(
        module=PENDULUM, workers=number
    ),
    "RelayRL": lambda number: count(number),
    "memory_max_size": lambda number: Settings(3, 1).changed({"memory_max_size": number}),
    "batch_size": lambda number: Settings(3, 1).changed({"batch_size": number}),
    "capacity": lambda number: SimpleReplayBufferConfig(capacity=number),
}


@pytest.mark.parametrize("number", [1 << 40, 1 << 62, 1 << 70])
@pytest.mark.parametrize("door", COUNTS)
def test_a_count_for_which_there_is_never_room_is_refused_with_the_most(door, number):
    with pytest.raises(ArkmlError, match=rf"{number}.*((to|of) \d+|\d at most)"):
        COUNTS[door](number)


def test_a_replay_buffer_for_which_there_is_no_memory_says_so(monkeypatch):
    def full(*_):
        raise MemoryError

    config, rows = SimpleReplayBufferConfig(capacity=1 << 31), ArrayBatch(np.ones((1, 3)))
    store = ArrayBatch.new(7)
    with monkeypatch.context() as numpy:
        numpy.setattr(np, "zeros", full)
        with pytest.raises(UsageError, match="capacity is 2147483648: there is no memory for so"):
            SimpleReplayBuffer.build(config)
        with pytest.raises(UsageError, match=r"capacity is 7: .* so many rows of 24 bytes"):
            store.push(0, rows)


@pytest.mark.parametrize("number", [True, np.timedelta64(3), np.complex64(1), "1", np.nan])
@pytest.mark.parametrize(
    "door",
    [
        lambda number: Limits(run_seconds=number),
        lambda number: Limits.game(fps=number),
        lambda number: Goal(minutes=number),
        lambda number: Goal(mean_return=number),
        lambda number: TrainingOptions(name="a.wasm", directory=Path("here"), fps=number),
        lambda number: call_limits(Limits(), number),
    ],
)
def test_what_is_no_real_number_is_refused_with_a_sentence(door, number):
    with pytest.raises(UsageError, match=r"number|seconds"):
        door(number)


def test_numbers_are_kept_as_those_of_python():
    limits = Limits(rows=np.int64(3), run_seconds=np.float32(0.5), call_seconds=np.int32(4))
    kept = [limits.rows, limits.run_seconds, limits.call_seconds, Goal(frames=np.int64(9)).frames]

    assert [(type(number), number) for number in kept] == [
        (int, 3), (float, 0.5), (int, 4), (int, 9),
    ]  # fmt: skip


@pytest.mark.parametrize("seconds", [2, 2.0, np.int64(2), np.float32(2)], ids=repr)
def test_a_budget_is_any_number_of_seconds(seconds):
    with Host() as host:
        host.load(APPLET).call("ark_applet_update", budget=seconds)
        host.fleet(APPLET, 2).update(budget=seconds)

    assert call_limits(Limits(), seconds) == (2, 30)


@pytest.mark.parametrize(
    "seconds", [10**400, True, np.True_, "1", [1], float("nan"), -1, 1j, np.ones(1)], ids=type
)
def test_a_budget_that_is_no_number_of_seconds_is_refused(seconds):
    with pytest.raises(UsageError, match=r"budget is .*: it takes a number of seconds from 0"):
        budget_seconds(seconds)
    with pytest.raises(UsageError, match=r"Limits\.run_seconds is "):
        Limits(run_seconds=seconds)


FUNCTION = b"""
(module (memory (export "memory") 1) (global (export "state") i32 (i32.const 16))
  (func (export "f") (param f32)))
"""

ODD = {
    "complex": np.complex64(1 + 2j),
    "a text": np.array("1"),
    "bytes": np.array(b"1"),
    "an object": np.array("2", object),
    "a time": np.timedelta64(3),
    "masked": np.ma.masked,
    "with a mask": np.ma.array(1.5, mask=False),
    "a record": np.zeros((), [("a", "f4")]),
}
"""Scalars; the first six became floats."""


@pytest.fixture(params=ODD)
def odd(request):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield ODD[request.param]


def test_it_is_neither_a_number_nor_an_array_of_numbers(odd):
    for take in (real, real_array, floats_of):
        with pytest.raises(TypeError):
            take(odd)


@pytest.mark.parametrize("number", [1, 1.5, True, np.float16(1.5), np.int8(1), np.array(1.5)])
def test_any_real_number_is_one(number):
    assert real(number) == float(number)
    assert real_array(number) == number


@pytest.mark.parametrize("values", [["1"], [None], [1j], [b"1"], [object()], [[1], [1, 2]]])
def test_a_list_of_others_is_no_array_of_numbers(values):
    with pytest.raises((TypeError, ValueError)):
        real_array(values)


_ROW = np.ma.array([1.0, 2.0], mask=[True, False])


@pytest.mark.parametrize("values", [[_ROW, _ROW], ([1.0, 2.0], _ROW), [[_ROW], [_ROW]]])
def test_a_list_of_arrays_with_a_mask_is_none_either(values):
    with pytest.raises(TypeError, match="fill it first"):
        real_array(values)
    with pytest.raises(PolicyFailed, match="an array with a mask"):
        arkml.evaluate(PLAIN, lambda _: values, episodes=1, max_episode_steps=2)


def test_calls_refuse_it(odd):
    with Host() as host, host.fleet(FUNCTION, 2) as fleet:
        for call in (fleet.call, fleet.guests[0].call):
            with pytest.raises(UsageError, match="does not fit an f32"):
                call("f", odd)
        for several in (np.full(2, 1 + 2j), np.ma.array([1.0, 2.0], mask=[True, False])):
            with pytest.raises(UsageError, match=r"argument 1 of f"):
                fleet.call("f", several)
        with pytest.raises(UsageError, match="an array with a mask"):
            fleet.write("state", np.ma.array([1.0, 2.0], mask=[True, False]))


def test_a_policy_that_answers_it_has_failed(odd):
    answer = np.full_like(np.asanyarray(odd), odd, shape=(1, 1), subok=True)

    with pytest.raises(PolicyFailed, match="returned a"):
        arkml.evaluate(PLAIN, lambda _: answer, episodes=1, max_episode_steps=2)


def test_environments_refuse_it_as_an_action(odd):
    action = np.full_like(np.asanyarray(odd), odd, shape=(1,), subok=True)
    env = GuestEnv(PLAIN)
    env.reset(seed=1)
    with pytest.raises(InvalidActions):
        env.step(action)
    env.close()


def test_players_refuse_it_as_actions():
    for values in (np.ma.array([[1.0]], mask=[[True]]), np.full((1, 1), 1 + 2j)):
        with pytest.raises(UnityActionException, match="arrays of numbers"):
            ActionTuple(values)


def test_the_async_trainer_refuses_it(odd):
    with pytest.raises(UsageError, match="SAC takes numbers"):
        _numbers("features", odd)
