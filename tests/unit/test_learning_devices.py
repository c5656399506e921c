"""Where updates are made: devices that JAX finds, and a GPU that is tried beside a processor."""

import json
import subprocess
import sys
from functools import cache

import pytest
from tests.integration.test_learner import write_run

from arkml.errors import InvalidSettings
from arkml.hive.protocol.settings import Settings
from arkml.learning import compiled_algorithm, jax_engine
from arkml.learning.learner import Learner


class FakeJax:
    """JAX on a machine with, or without, a GPU."""

    def __init__(self, *, has_gpu):
        self.has_gpu = has_gpu
        self.asked = []

    def devices(self, kind):
        self.asked.append(kind)
        if not self.has_gpu:
            raise RuntimeError("Unknown backend cuda. Available backends are ['cpu']")
        return ["gpu 0"]


def test_a_device_that_is_not_there_is_refused_with_the_reason_of_jax(monkeypatch):
    monkeypatch.setattr(jax_engine, "_jax", lambda: FakeJax(has_gpu=False))
    monkeypatch.setattr(jax_engine, "_has_plugins", lambda: True)

    with pytest.raises(InvalidSettings, match=r"'cuda', and JAX finds none here .*Available back"):
        jax_engine.find_devices("cuda")
    assert jax_engine.find_devices("auto") == ("cpu",)


@pytest.mark.parametrize("plugin", ["xla_cuda12", "xla_cuda13"])
def test_a_gpu_is_found_by_any_plug_in_of_jax(monkeypatch, tmp_path, plugin):
    (tmp_path / "jax_plugins" / plugin).mkdir(parents=True)
    (tmp_path / "jax_plugins" / plugin / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(jax_engine, "_jax", lambda: FakeJax(has_gpu=True))

    assert jax_engine.find_devices("auto") == ("cpu", "cuda")
    assert jax_engine.find_devices("cuda") == ("cuda",)
    assert jax_engine.find_devices("cpu") == ("cpu",)


def test_jax_is_not_imported_for_its_devices_where_it_has_no_plug_in(monkeypatch):
    jax = FakeJax(has_gpu=True)
    monkeypatch.setattr(jax_engine, "_jax", lambda: jax)
    monkeypatch.setattr(jax_engine, "_has_plugins", lambda: False)

    assert jax_engine.find_devices("auto") == ("cpu",)
    assert jax.asked == []


PROGRAM = """
import json, logging, os, sys, time
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
from arkml.learning import compiled_algorithm, jax_engine
jax_engine.limit_threads(1)
jax_engine.widen(2)
import jax, numpy as np
from arkml.abi.codes import EpisodeState
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import Normalizer

name, devices, seconds, broken, sync = json.loads(sys.argv[1])
ON, COMPILE, LINES, USED = jax_engine.CompiledAhead.on, jax_engine._compile, [], []

def on(self, device, *arguments):
    USED.append(device)
    time.sleep(seconds.get(device, 0.0))
    if broken == "silence" and device == "cuda":
        time.sleep(600)
    if broken.startswith("rows: ") and not arguments:
        raise RuntimeError(broken.removeprefix("rows: "))
    if broken == "call" and device == "cuda":
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS\\nand more")
    return ON(self, device, *arguments)

def compile_(program, device, is_alone):
    if broken == "compilation" and device == "cuda" and program.load.args[0] != "make_updates":
        raise RuntimeError("no libdevice")
    return COMPILE(program, device, is_alone)

class Lines(logging.Handler):
    def emit(self, record):
        LINES.append(record.getMessage())

logging.getLogger("arkml").addHandler(Lines())
logging.getLogger("arkml").setLevel("INFO")
jax_engine.CompiledAhead.on, jax_engine._compile = on, compile_
if broken == "silence":
    jax_engine.PATIENCE = 0.5
jax_engine._device = lambda name: jax.devices("cpu")[int(name == "cuda")]
compiled_algorithm.find_devices = lambda device: tuple(devices)

if name == "sac":
    from arkml.learning.sac import Sac
    settings = Settings(3, 2, hidden=8, batch_size=16, memory_min_size=10, sync=sync)
    made = Sac(settings, Normalizer(3, active=False))
else:
    from arkml.learning.ppo import Ppo
    settings = Settings(3, 2, algorithm="ppo", hidden=8, batch_size=16, rollout_rows=64, epochs=2,
                        pace="throughput" if name == "wide ppo" else "efficient", sync=sync)
    made = Ppo(settings, Normalizer(3, active=False))
    made.policy()
    made.published(1)

def add(number, version):
    random = np.random.default_rng(number)
    rows = RowColumns.empty(200, 3, 2)
    rows.step[:] = np.arange(200 * number, 200 * number + 200)
    rows.version[:] = version
    rows.state[:] = EpisodeState.RUNNING
    rows.features[:], rows.action[:] = random.normal(size=(200, 3)), random.uniform(-1, 1, (200, 2))
    rows.reward[:] = random.normal(size=200)
    made.buffer.add(0, RowKind.TRAINING, rows)

for number in range(9):
    add(number, number + 1)
    made.train(3)
    if name != "sac":
        made.policy()
        made.published(number + 2)
    if made._rival:  # the programs of the other device take how long they take
        until = time.monotonic() + 60
        while not all(one.is_compiled("cuda") for one in made._compiled):
            assert time.monotonic() < until
            time.sleep(0.01)
    while getattr(made, "_there", None) and not made._there.is_ready:
        time.sleep(0.01)
tensors = {name: one.tolist() for name, one in made.state().tensors.items()}
places = {one.id for leaf in jax.tree.leaves(made._state) if hasattr(leaf, "devices")
          for one in leaf.devices()}
last, metrics = USED[-1], made.metrics()
if name == "ppo":
    made._size(made._settings)  # as where more agents come
print(json.dumps([made.device, tensors, LINES, last, sorted(places), metrics, made._rival]))
sys.stdout.flush()
os._exit(0)  # without waiting for a device that is silent
"""
SLOW_CPU, SLOW_GPU = {"cpu": 0.05}, {"cuda": 0.05}
BOTH = ("cpu", "cuda")


def trained(name, devices, seconds, broken="", *, sync=False):
    """Device, tensors, log, devices of the last call and of the state, metrics, what is tried."""
    given = json.dumps([name, devices, seconds, broken, sync])
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, given], stdout=subprocess.PIPE, check=True
    )
    return json.loads(ended.stdout)


@cache
def alone_on_a_processor(name):
    return trained(name, ["cpu"], {})


@pytest.mark.parametrize("name", ["sac", "ppo", "wide ppo"])
def test_updates_move_to_a_gpu_that_is_faster_and_go_on_there_as_before(name):
    device, tensors, lines, last, places, metrics, rival = trained(name, BOTH, SLOW_CPU)
    alone = alone_on_a_processor(name)

    assert (device, last) == ("cuda", "cuda")
    assert tensors == alone[1]
    assert places == [1]
    (line,) = [line for line in lines if "updates are made on" in line]
    assert line.startswith("updates are made on cuda from now on: ")
    assert metrics["train/on_gpu"] == 1.0
    assert rival == ""
    assert alone[0] == "cpu"
    assert "train/on_gpu" not in alone[5]


def test_rows_lie_on_the_gpu_that_learns_from_them_and_nothing_else_changes():
    *_, metrics, _ = trained("sac", BOTH, SLOW_CPU)
    _, tensors, lines, *_, given, _ = trained("sac", ["cuda"], {})

    assert metrics["replay/on_gpu"] == given["replay/on_gpu"] == 1.0
    assert (tensors, lines) == (alone_on_a_processor("sac")[1], [])
    assert "replay/on_gpu" not in alone_on_a_processor("sac")[5]


@pytest.mark.parametrize(
    ("reason", "does"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory allocating 24000000 bytes", "has no room for"),
        ("INTERNAL: CUDA_ERROR_LAUNCH_FAILED", "cannot work on"),
    ],
)
def test_a_gpu_that_refuses_the_rows_is_sent_batches_of_them(reason, does):
    device, tensors, lines, last, _, metrics, _ = trained("sac", ["cuda"], {}, f"rows: {reason}")

    assert (device, last, metrics["replay/on_gpu"]) == ("cuda", "cuda", 0.0)
    assert len(tensors) == len(alone_on_a_processor("sac")[1])
    assert lines == [
        "rows are kept in the memory of this machine, and batches of them sent to cuda, which"
        f" {does} 1,000,000 rows ({reason})"
    ]


@pytest.mark.parametrize("name", ["sac", "ppo"])
def test_updates_stay_on_a_processor_that_is_faster(name):
    device, tensors, lines, last, places, metrics, rival = trained(name, BOTH, SLOW_GPU)

    assert (device, last, places) == ("cpu", "cpu", [0])
    assert tensors == alone_on_a_processor(name)[1]
    assert [line for line in lines if line.startswith("updates are made on cpu from now on: ")]
    assert metrics["train/on_gpu"] == 0.0
    assert rival == ("cuda" if name == "ppo" else "")  # for other shapes it is tried anew


@pytest.mark.parametrize(
    ("name", "broken", "reason"),
    [
        ("sac", "call", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("ppo", "compilation", "no libdevice"),  # of one of its functions
        ("sac", "silence", "it has not answered for 0.5 seconds"),
    ],
)
def test_a_gpu_that_fails_is_named_once_and_the_processor_goes_on(name, broken, reason):
    device, tensors, lines, *_, rival = trained(name, BOTH, SLOW_CPU, broken)

    assert (device, rival) == ("cpu", "")
    assert tensors == alone_on_a_processor(name)[1]
    assert lines == [f"updates stay on cpu: cuda fails ({reason})"]


def test_a_run_whose_learner_fails_on_a_gpu_stays_on_the_processor(tmp_path, monkeypatch):
    asked = []

    def find(device):
        asked.append(device)
        return ("cpu",)

    monkeypatch.setattr(compiled_algorithm, "find_devices", find)
    run = write_run(tmp_path / "run", Settings(2, 1))
    first = Learner.open(run)
    first.leave_gpu()  # it is on none
    Learner.open(run)
    first.algorithm.device = "cuda"
    first.leave_gpu()
    Learner.open(run)

    assert asked == ["auto", "auto", "cpu"]


def test_in_lockstep_no_gpu_is_tried():
    device, _, lines, *_ = trained("sac", BOTH, SLOW_CPU, sync=True)

    assert (device, lines) == ("cpu", [])
