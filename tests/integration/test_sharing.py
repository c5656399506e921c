"""What docs/stability.md says of copies, pickles, forks and threads."""

import copy
import inspect
import pickle
import threading
from pathlib import PurePath

import numpy as np
import pytest
from tests.integration.guest_text import ACTION, ACTOR, GUESTS, python

import arkml
from arkml import errors

PENDULUM = GUESTS / "c_pendulum.wasm"


@pytest.fixture
def made(host):
    program = host.compile(ACTOR)
    fleet = host.fleet(program, 2)
    return {
        "Host": host, "CompiledModule": program, "Guest": host.load(program), "Fleet": fleet,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["Host", "CompiledModule", "Guest", "Fleet"])
@pytest.mark.parametrize(
    "copied", [pickle.dumps, copy.copy, copy.deepcopy], ids=lambda f: f.__name__
)
def test_what_holds_memory_cannot_be_copied_or_pickled(made, name, copied):
    with pytest.raises(TypeError, match=f"a {name} cannot be copied or pickled"):
        copied(made[name])


def test_an_environment_is_copied_as_what_it_was_made_with():
    with arkml.GuestEnv(PENDULUM, configure=(2, "{seed}")) as env:
        first = env.reset(seed=1).decisions[0].observations
        with copy.copy(env) as other, pickle.loads(pickle.dumps(env)) as third:
            assert other.guest is None
            assert np.array_equal(other.reset(seed=1).decisions[0].observations, first)
            assert np.array_equal(third.reset(seed=1).decisions[0].observations, first)


VALUES = [
    arkml.Limits(rows=3),
    arkml.WasiGrant(arguments=("a",)),
    arkml.HiveGrant(hive="hive1:12356"),
    arkml.Directory("here", "/there"),
    arkml.Statistics(submits=3),
    arkml.Reply(0, b"x"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_can_be_copied_and_pickled(value):
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value


KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.ArkmlError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_can_be_pickled(kind):
    more = {"status": 3} if "status" in inspect.signature(kind.__init__).parameters else {}
    error = kind("why", **more)
    again = pickle.loads(pickle.dumps(error))

    assert type(again) is kind
    assert (str(again), vars(again)) == ("why", vars(error))


def test_a_forked_process_makes_its_own_host_and_may_close_what_it_inherited():
    script = f"""
import os, sys
import arkml
host = arkml.Host()
guest = host.load({str(GUESTS / "c_applet.wasm")!r})
guest.update()
child = os.fork()
if not child:
    with arkml.Host() as own, own.load({str(GUESTS / "c_applet.wasm")!r}) as other:
        other.update()
        print("child", other.statistics.submits, flush=True)
    host.close()
    os._exit(0)
print("status", os.waitpid(child, 0)[1], flush=True)
guest.update()
print("parent", guest.statistics.submits)
host.close()
"""
    run = python(script)

    assert run.stdout.splitlines() == ["child 1", "status 0", "parent 2"], run.stderr


def test_threads_may_compile_with_one_host_and_load_one_module(host, on_thread):
    program = host.compile(ACTOR)

    def play():
        with host.load(host.compile(ACTOR)) as one, host.load(program) as other:
            return one.call("answer") + other.call("answer")

    assert [on_thread(play).result() for _ in range(3)] == [84] * 3


def test_an_environment_is_stepped_by_any_thread(on_thread):
    with arkml.GuestEnv(PENDULUM, configure=(1, "{seed}")) as env:
        env.reset(seed=1)
        ran = on_thread(lambda: (threading.get_ident(), env.step(np.zeros((1, 1)))))
        ident, step = ran.result()

        assert ident != threading.get_ident()
        assert len(step.decisions[0]) == 1


class Somewhere:
    """A path that is neither a string nor a pathlib one."""

    def __init__(self, path):
        self.path = PurePath(path)

    def __fspath__(self):
        return str(self.path)


def test_a_path_may_be_any_path(make_host, tmp_path):
    (tmp_path / "spec.json").write_text("{}")
    host = make_host(
        policy=Somewhere(GUESTS / "policies" / "pointmass.onnx"),
        wasi=arkml.WasiGrant(directories=[arkml.Directory(Somewhere(tmp_path), "/data")]),
        hive=arkml.HiveGrant(data=Somewhere(tmp_path / "runs")),
    )
    with host.load(Somewhere(GUESTS / "c_applet.wasm")) as guest:
        guest.update()
    with arkml.GuestEnv(
        Somewhere(PENDULUM), configure=(1, "{seed}"), spec=Somewhere(tmp_path / "spec.json")
    ) as env:
        env.reset(seed=1)
        pickle.loads(pickle.dumps(env)).close()
    actor = host.load(ACTOR)
    actor.call("open")
    actor.call("step", 1)

    assert actor.call("action", 0) == ACTION
    assert guest.statistics.submits == 1
