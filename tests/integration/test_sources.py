"""Modules, policies and messages are paths, or any kind of bytes."""

import pickle
from functools import partial

import numpy as np
import pytest
import wasmtime
from gymnasium.vector import AutoresetMode
from tests.integration.guest_text import GUESTS, POINTMASS

import arkml
from arkml import GuestEnv, Host
from arkml.async_trainer.adaptors.guest_env import GuestsConfig
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.pettingzoo_env import parallel_env
from arkml.envs.vector_env import vector_env
from arkml.errors import ArkmlError, InvalidActions, InvalidArguments, ModuleError, UsageError
from arkml.workers.placement_choice import make_placement

KINDS = [bytearray, memoryview]
APPLET, PENDULUM = (
    (GUESTS / "c_applet.wasm").read_bytes(),
    (GUESTS / "c_pendulum.wasm").read_bytes(),
)
ONE = {"configure": (1, 1)}


def test_what_wat2wasm_returns_is_loaded(host):
    wasm = wasmtime.wat2wasm('(module (func (export "f") (result i32) (i32.const 5)))')

    assert isinstance(wasm, bytearray)
    assert host.load(wasm).call("f") == 5


@pytest.mark.parametrize("kind", KINDS)
def test_hosts_take_modules_and_policies_of_any_kind_of_bytes(kind):
    with Host(policy=kind(POINTMASS)) as host:
        module = host.compile(kind(APPLET))
        host.load(kind(APPLET)).update()
        host.fleet(kind(APPLET), 2).update()

        assert module.digest == host.compile(APPLET).digest
        assert host.compile(kind(b'(module (func (export "f")))')).functions.keys() == {"f"}


@pytest.mark.parametrize("kind", KINDS)
def test_environments_take_modules_of_any_kind_of_bytes(kind):
    module = kind(PENDULUM)
    with GuestEnv(module, snapshot=kind(POINTMASS), **ONE) as env:
        copy = pickle.loads(pickle.dumps(env))
        copy.close()
    envs = vector_env(module, num_envs=2, per="guest", **ONE)
    envs.reset(seed=1)
    envs.close()
    game = parallel_env(module, **ONE)
    game.reset(seed=1)
    game.close()

    assert GuestsConfig(module).module == PENDULUM
    assert copy.module.digest == env.module.digest


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_takes_any_kind_of_bytes(kind):
    result = arkml.evaluate(
        kind((GUESTS / "c_point_mass.wasm").read_bytes()), lambda rows: np.zeros((len(rows), 2)),
        episodes=1,
    )  # fmt: skip

    assert len(result.returns) >= 1


def test_bytes_that_change_later_change_nothing(host):
    module = bytearray(PENDULUM)
    env = GuestEnv(module, host=host, **ONE)
    module[:4] = b"gone"
    first = env.reset(seed=1)
    env.close()

    assert len(first.decisions) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_guests_take_input_and_state_of_any_kind_of_bytes(host, kind):
    guest = host.load(GUESTS / "c_servlet.wasm")
    state = guest.persist()

    assert guest.request(kind(b"abc")) == b"ABC"
    assert guest.invoke("ark_servlet_request", kind(b"abc")).data == b"ABC"
    guest.restore(kind(state))


@pytest.mark.parametrize("source", [None, 5, ["a"], object()])
def test_what_is_neither_a_path_nor_bytes_is_refused(host, source):
    name = type(source).__name__
    for take in (host.load, host.compile, GuestEnv, lambda it: host.fleet(it, 2), arkml.train):
        with pytest.raises(UsageError, match=f"module is of type {name}: it takes a path or bytes"):
            take(source)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5_000])
def test_a_path_that_no_file_can_have_is_one_that_cannot_be_read(host, name):
    for take in (host.load, GuestEnv, arkml.train):
        with pytest.raises(ModuleError, match="cannot be read: "):
            take(name)
    with pytest.raises(UsageError, match="cannot be read: "):
        arkml.Host(policy=name)


class Elsewhere:
    """A path of another kind than pathlib's."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


def test_a_path_of_any_kind_is_taken_unless_it_is_one_of_bytes(host, tmp_path):
    module = GUESTS / "c_applet.wasm"
    text, odd = Elsewhere(str(module)), Elsewhere(bytes(module))
    doors = {
        "module": [
            host.load, host.compile, GuestEnv, lambda it: host.fleet(it, 2), arkml.train,
            lambda it: arkml.evaluate(it, np.zeros),
        ],
        "policy": [lambda it: Host(policy=it)],
        "spec": [lambda it: GuestEnv(module, spec=it)],
        "path": [lambda it: arkml.record(module, np.zeros, it)],
        "directory": [lambda it: arkml.train(module, directory=it)],
        "demonstrations": [
            lambda it: arkml.train(
                GUESTS / "c_reach.wasm", directory=tmp_path / "t", demonstrations=it
            )
        ],
        "checkpoint": [lambda it: arkml.train(module, directory=tmp_path, checkpoint=it)],
        "data": [lambda it: arkml.HiveGrant(data=it)],
        "host": [lambda it: arkml.Directory(it, "/")],
    }  # fmt: skip

    assert host.load(text).name == "c_applet.wasm"
    for what, takes in doors.items():
        for take in takes:
            with pytest.raises(UsageError, match=f"{what} is of type Elsewhere, whose path is not"):
                take(odd)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"deterministic": "yes"}, "deterministic is 'yes': it takes True or False"),
        ({"stub_missing": 1}, "stub_missing is 1: it takes True or False"),
        ({"wasi": True}, "wasi is True: it takes arkml.WasiGrant"),
        ({"hive": "x"}, "hive is 'x': it takes arkml.HiveGrant"),
    ],
)
def test_an_option_of_a_host_of_another_kind_is_refused_with_what_it_takes(option, expected):
    with pytest.raises(UsageError) as refused:
        Host(**option)

    assert str(refused.value) == expected


def test_numbers_of_any_length_are_refused_in_a_sentence(host):
    guest = host.load(b'(module (func (export "f") (param i32)))')

    for number in (10**400, 10**5_000):
        with pytest.raises(UsageError, match="does not fit an i32"):
            guest.call("f", number)
        for take in (guest.read_memory, lambda at, _: guest.write_memory(at, b"x")):
            with pytest.raises(InvalidArguments, match="does not fit 32 bits"):
                take(number, 1)
        with pytest.raises(UsageError, match=r"Limits\.rows is"):
            arkml.Limits(rows=number)


@pytest.mark.parametrize("text", ["1", b"1", bytearray(b"1"), np.str_("nan")])
def test_a_text_is_no_number(host, text):
    fleet = host.fleet(b'(module (func (export "f") (param f32)))', 2)

    for call in (fleet.call, fleet.guests[0].call):
        with pytest.raises(UsageError, match="does not fit an f32"):
            call("f", text)


HUGE = 10**5_000  # with more digits than Python writes


def test_numbers_that_cannot_be_written_are_refused_by_guests_and_fleets(host):
    fleet = host.fleet(APPLET, 2)
    guest = fleet.guests[0]
    takes = [
        partial(guest.read_memory, 0),
        guest.run_cmdlet,
        lambda number: guest.run_cmdlet([number]),
        partial(host.fleet, APPLET),
        fleet.remove,
        fleet.replace,
        fleet.join,
    ]

    for take in takes:
        with pytest.raises(ArkmlError, match="a number of 16,610 bits"):
            take(HUGE)


@pytest.mark.parametrize(
    "take",
    [
        lambda number: arkml.WasiGrant(stdin=number),
        lambda number: arkml.WasiGrant(stdout=number),
        lambda number: GuestEnv(PENDULUM, entry=number),
        lambda number: GuestEnv(PENDULUM, configure=([number], 1)),
        lambda number: arkml.train(PENDULUM, runner=number),
        lambda number: arkml.train(PENDULUM, ray_address=number),
        lambda number: arkml.train(PENDULUM, seed=number),
        lambda number: make_placement("processes", address=number),
    ],
)
def test_options_that_cannot_be_written_are_refused_in_a_sentence(take, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArkmlError, match="a number of 16,610 bits"):
        take(HUGE)


def test_actions_that_cannot_be_written_are_refused_by_environments():
    with GuestEnv(PENDULUM, **ONE) as env:
        env.reset()
        with pytest.raises(InvalidActions, match="a number of 16,610 bits"):
            env.step(HUGE)
    plain = GuestGymEnv(PENDULUM, **ONE)
    plain.reset()
    with pytest.raises(InvalidActions, match="a number of 16,610 bits"):
        plain.step([HUGE])
    plain.close()
    by_hand = AutoresetMode.DISABLED
    vector = vector_env(PENDULUM, num_envs=2, per="guest", autoreset_mode=by_hand, **ONE)
    vector.reset()
    with pytest.raises(UsageError, match="a number of 16,610 bits"):
        vector.set_attr("spec", [HUGE, 1])
    with pytest.raises(UsageError, match="a number of 16,610 bits"):
        vector.reset(options={"reset_mask": [HUGE, 1]})
    vector.close()
    parallel = parallel_env(PENDULUM, **ONE)
    parallel.reset()
    with pytest.raises(UsageError, match="a number of 16,610 bits"):
        parallel.step({HUGE: 1})
    with pytest.raises(InvalidActions, match="a number of 16,610 bits"):
        parallel.step(HUGE)
    parallel.close()


def test_a_text_is_no_input(host):
    guest = host.load(GUESTS / "c_servlet.wasm")

    with pytest.raises(InvalidArguments, match="a str is not bytes"):
        guest.request("abc")
