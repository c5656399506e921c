"""Soft actor-critic as a learner: its turns, its state, its exports."""

import json
import resource
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import jax
import jax.monitoring
import numpy as np
import pytest

from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Diverged, State
from arkml.learning.checkpoint_files import CheckpointDamaged
from arkml.learning.normalizer import Normalizer
from arkml.learning.policy_graph import PolicyTemplate, to_onnx
from arkml.learning.sac import Sac

SETTINGS = {"hidden": 8, "batch_size": 16, "memory_min_size": 10, "memory_max_size": 1_000}


@pytest.fixture
def programs():
    """The programs that JAX compiles or finds in its cache, on any thread."""
    for thread in threading.enumerate():
        if thread.name == "arkml-compile":  # of a test before this one
            thread.join()
    compiled = []

    def count(event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(count)
    yield compiled
    jax.monitoring.unregister_event_duration_listener(count)


def sac(count=200, agents=4, **changes):
    normalizer = Normalizer(3, active=True)
    made = Sac(Settings(3, 2, gamma=0.9, **(SETTINGS | changes)), normalizer)
    random = np.random.default_rng(0)
    rows = RowColumns.empty(count, 3, 2)
    rows.agent[:] = np.arange(count) % agents
    rows.step[:] = np.arange(count) // agents
    rows.state[:agents] = 3
    rows.features[:] = random.standard_normal((count, 3))
    rows.features[:, 2] = 5.0
    rows.reward[:] = 30 * random.standard_normal(count)
    rows.action[:] = random.uniform(-1, 1, (count, 2))
    added = made.buffer.add(0, RowKind.TRAINING, rows)
    normalizer.observe(rows.features, added.returns)
    return made, normalizer


def flat(algorithm):
    return b"".join(tensor.tobytes() for tensor in algorithm.state().tensors.values())


def test_the_losses_have_the_tags_of_stable_baselines3():
    made, _ = sac()
    losses = made.train(2)

    assert set(losses) == {
        "train/actor_loss",
        "train/critic_loss",
        "train/ent_coef",
        "train/ent_coef_loss",
        "train/entropy",
        "train/learning_rate",
        "train/n_updates",
    }
    assert losses["train/n_updates"] == made.n_opts == 2


def test_figures_of_updates_and_rows_are_made_when_they_are_asked_for():
    made, normalizer = sac()
    assert set(made.metrics()) == {"replay/fill", "replay/demonstration_share"}
    normalizer.adopt()
    made.train(3)
    figures = made.metrics()

    assert set(figures) - {"replay/fill", "replay/demonstration_share"} == {
        "train/q_mean", "train/q_min", "train/q_max", "train/td_error",
        "train/actor_gradient_norm", "train/critic_gradient_norm",
    }  # fmt: skip
    assert figures["train/q_min"] < figures["train/q_mean"] < figures["train/q_max"]
    assert figures["train/td_error"] > 0.0
    assert figures["train/critic_gradient_norm"] > figures["train/actor_gradient_norm"] > 0.0
    assert figures["replay/fill"] == 200 / 1_000
    assert figures["replay/demonstration_share"] == 0.0


def test_returns_are_in_units_of_plain_rewards():
    made, normalizer = sac()
    normalizer.current = replace(normalizer.current, reward=2.0)
    made.train(1)
    once = made.metrics()
    normalizer.current = replace(normalizer.current, reward=20.0)

    assert made.metrics()["train/q_max"] == pytest.approx(10 * once["train/q_max"])


def test_the_share_of_demonstrations_is_that_of_the_rows_held():
    made, _ = sac(60)
    shown = RowColumns.empty(20, 3, 2)
    shown.step[:] = np.arange(20)
    made.buffer.add(1, RowKind.DEMONSTRATION, shown)

    assert made.metrics()["replay/demonstration_share"] == 0.25


def test_the_learning_rate_goes_down_with_the_updates():
    made, _ = sac(learning_rate_init=1e-2, learning_rate_end=1e-3, learning_rate_steps=4)
    rates = [made.train(1)["train/learning_rate"] for _ in range(6)]

    assert rates == pytest.approx([1e-2, 7.75e-3, 5.5e-3, 3.25e-3, 1e-3, 1e-3])


def test_the_learning_rate_of_each_update_is_its_own():
    one, _ = sac(learning_rate_init=1e-2, learning_rate_end=0.0, learning_rate_steps=1)
    one.train(1)
    after = flat_networks(one)
    one.train(5)

    assert flat_networks(one) == after


def test_a_temperature_that_is_a_number_stays():
    made, _ = sac(alpha=0.5)
    losses = made.train(2)

    assert losses["train/ent_coef"] == 0.5
    assert "train/ent_coef_loss" not in losses


def test_a_temperature_of_zero_is_possible():
    made, _ = sac(alpha=0.0)

    assert made.train(3)["train/ent_coef"] == 0.0


def test_a_learned_temperature_begins_at_one():
    made, _ = sac()

    assert made.train(1)["train/ent_coef"] == 1.0


def test_an_export_answers_as_the_weights_before_and_after_updates_and_statistics():
    made, normalizer = sac()
    for _ in range(3):
        weights = made.weights()
        weights.check(to_onnx(weights))
        assert made.policy().model == to_onnx(weights)
        normalizer.adopt()
        made.train(5)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_exports_keep_no_weights_of_earlier_ones():
    made, _ = sac(hidden=256)
    weights = made.weights()
    template, tensors = PolicyTemplate(weights), weights.tensors()
    before, size = resident(), len(template.filled(tensors))
    for _ in range(400):
        template.filled(tensors)

    assert resident() - before < 40 * size


def resident():
    """The bytes of memory that this process takes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_weights_are_a_copy():
    made, _ = sac()
    before = made.weights()
    kept = before.actor[0].weight.copy()
    made.train(3)

    assert before.actor[0].weight.tolist() == kept.tolist()


def test_the_same_seed_makes_the_same_weights_bit_for_bit():
    states = []
    for seed in (2**60 + 1, 2**60 + 1, 5):
        made, _ = sac(seed=seed)
        made.train(10)
        states.append(flat(made))

    assert states[0] == states[1] != states[2]


def test_a_turn_makes_the_updates_asked_for_in_as_many_calls_as_they_take():
    once, _ = sac()
    once.train(70)  # more than one call of the compiled code
    many, _ = sac()
    for _ in range(35):
        many.train(2)

    assert once.n_opts == many.n_opts == 70
    assert not np.array_equal(once.weights().actor[0].weight, sac()[0].weights().actor[0].weight)


def test_a_restored_learner_continues_bit_for_bit():
    made, _ = sac()
    made.train(5)
    state = made.state()
    plain = json.loads(json.dumps(state.plain))
    made.train(5)
    again, _ = sac(seed=9)
    again._key = made._key  # the seed of the run, which a restart does not change
    again.restore(State(state.tensors, plain))
    again.train(5)

    assert again.n_opts == made.n_opts == 10
    assert flat(again) == flat(made)


def test_a_state_of_another_network_does_not_fit():
    other, _ = sac(hidden=16)
    made, _ = sac()

    with pytest.raises(CheckpointDamaged, match=r"actor/0/weight is float32, \[3, 16\]"):
        made.restore(other.state())


@pytest.mark.parametrize("damage", ["missing", "unknown", "dtype"])
def test_a_damaged_state_is_refused_and_changes_nothing(damage):
    made, _ = sac()
    made.train(1)
    before = flat(made)
    tensors = dict(made.state().tensors)
    if damage == "missing":
        del tensors["log_alpha"]
    elif damage == "unknown":
        tensors["more"] = np.zeros(1, np.float32)
    else:
        tensors["log_alpha"] = tensors["log_alpha"].astype(np.float64)

    with pytest.raises(CheckpointDamaged):
        made.restore(State(tensors, made.state().plain))
    assert flat(made) == before


def test_updates_that_are_not_finite_are_not_applied():
    made, _ = sac()
    made.train(3)
    before = flat(made)
    made.buffer._steps["reward"][:] = np.nan

    with pytest.raises(Diverged, match="not finite after update 3"):
        made.train(4)
    assert flat(made) == before


def test_batches_may_be_overwritten_as_soon_as_train_returns():
    left_alone, _ = sac()
    overwritten, _ = sac()
    for _ in range(5):
        left_alone.train(3)
        overwritten.train(3)
        for column in overwritten._block:
            column[:] = np.nan if column.dtype == np.float32 else 255

    assert flat(left_alone) == flat(overwritten)


def test_one_program_serves_every_number_of_updates_and_every_rate(programs):
    made, normalizer = sac(hidden=9)
    for updates in (1, 2, 7, 64, 65):
        made.train(updates)
        normalizer.adopt()
    made._settings = Settings(
        3, 2, gamma=0.5, tau=0.5, alpha=0.1, learning_rate_init=0.1, **SETTINGS
    )
    made.train(3)
    made.policy()
    made.restore(made.state())
    made.train(2)

    assert len(programs) == 1


def test_wide_rows_are_gathered_in_as_many_bytes_as_they_may_take():
    settings = Settings(7_056, 1, hidden=8, batch_size=256, memory_max_size=1_000)
    made = Sac(settings, Normalizer(7_056, active=False))

    assert 1 <= len(made._block.features) <= 4


def flat_networks(algorithm):
    tensors = algorithm.state().tensors
    names = [name for name in tensors if name.startswith(("actor/", "critics/"))]
    return b"".join(tensors[name].tobytes() for name in names)


BUSY = """
import time
from arkml.learning.jax_engine import limit_threads
limit_threads(1)
import numpy as np
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import Normalizer
from arkml.learning.sac import Sac
made = Sac(Settings(8, 2, hidden=256), Normalizer(8, active=False))
rows = RowColumns.empty(2_000, 8, 2)
rows.step[:] = np.arange(2_000)
made.buffer.add(0, RowKind.TRAINING, rows)
made.train(1)
wall, cpu = time.perf_counter(), time.process_time()
made.train(64)
print((time.process_time() - cpu) / (time.perf_counter() - wall))
"""


def test_updates_keep_one_core_busy_and_no_other():
    ratio = float(
        subprocess.run([sys.executable, "-c", BUSY], capture_output=True, check=True).stdout
    )

    assert ratio < 1.2
