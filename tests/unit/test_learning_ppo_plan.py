"""How PPO learns from few agents, and from many: the rule, and the rollouts that follow it."""

import json
import logging
import subprocess
import sys

import numpy as np
import pytest

from arkml.abi.codes import EpisodeState
from arkml.errors import InvalidSettings
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import State
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo
from arkml.learning.ppo_plan import MANY, discount, planned
from arkml.learning.rollout_buffer import RolloutBuffer

OF = Settings(3, 1, branches=(2,))


def frame(agents, step, version=1, ended=()):
    rows = RowColumns.empty(agents, 3, 1)
    rows.agent[:], rows.step[:], rows.version[:] = np.arange(agents), step, version
    rows.state[:] = EpisodeState.RUNNING if step else EpisodeState.INITIAL
    rows.state[list(ended)] = EpisodeState.TERMINAL
    rows.features[:] = np.arange(3 * agents).reshape(-1, 3) % 7
    rows.action[:, 0] = np.arange(agents) % 2
    rows.reward[:] = np.arange(agents) % 3
    return rows


def sizes(settings):
    return settings.rollout_rows, settings.epochs, settings.batch_size


@pytest.mark.parametrize("agents", [1, 16, MANY - 1])
def test_few_agents_learn_from_few_rows(agents):
    made = planned(OF, agents)

    assert sizes(made) == (2_048, 10, 512)
    assert (made.learning_rate_init, made.entropy_coefficient) == (1e-3, 0.01)
    assert planned(Settings(3, 1), agents).entropy_coefficient == 0.0  # continuous actions


@pytest.mark.parametrize(
    ("agents", "rows"),
    [(64, 16_384), (256, 16_384), (300, 32_768), (1_024, 65_536), (4_096, 131_072),
     (65_536, 524_288), (1 << 20, 1 << 20)],
)  # fmt: skip
def test_many_agents_have_rollouts_of_64_steps_within_bounds(agents, rows):
    made = planned(OF, agents)

    assert made.rollout_rows == rows
    assert made.batch_size <= made.rollout_rows


def test_a_pace_that_is_set_does_not_ask_for_agents():
    fast = planned(OF.changed({"pace": "throughput"}), 1)

    assert fast.rollout_rows == 16_384
    assert sizes(planned(OF.changed({"pace": "efficient"}), 4_096)) == (2_048, 10, 512)
    with pytest.raises(InvalidSettings, match="pace"):
        OF.changed({"pace": "fast"})


def test_settings_that_differ_from_their_defaults_stay():
    asked = OF.changed({"epochs": 7, "batch_size": 512, "learning_rate_init": 2e-3, "gamma": 0.9})
    made = planned(asked, 1_024)

    assert (made.epochs, made.batch_size, made.learning_rate_init) == (7, 512, 2e-3)
    assert (made.rollout_rows, made.gamma) == (65_536, 0.9)


def test_rows_of_many_features_make_rollouts_that_fit_the_memory():
    wide = Settings(16_384, 1, branches=(2,))

    assert planned(wide, 1_024).rollout_rows == 4_096


@pytest.mark.parametrize(
    ("changes", "agents", "steps", "gamma"),
    [
        ({}, MANY, 0.0, 0.99),
        ({}, MANY, 20.0, 0.99),
        ({}, MANY, 200.0, 0.995),
        ({}, MANY, 5_000.0, 0.999),
        ({}, MANY - 1, 5_000.0, 0.99),
        ({"pace": "throughput"}, 1, 5_000.0, 0.999),
        ({"gamma": 0.95}, MANY, 5_000.0, 0.95),
    ],
)
def test_the_discount_follows_the_length_of_episodes(changes, agents, steps, gamma):
    assert discount(OF.changed(changes), agents, steps) == pytest.approx(gamma)


def test_the_discount_of_a_rollout_follows_the_episodes_before_it():
    buffer = RolloutBuffer(OF)
    buffer.published(1)
    for step in range(251):
        buffer.add(0, RowKind.TRAINING, frame(MANY, step, ended=range(MANY) if step == 250 else ()))
    before = buffer.gamma
    buffer.release()
    restored = RolloutBuffer(OF)
    restored.restore((), buffer.learned_rows, buffer.agents, buffer.episode_steps)

    assert (before, buffer.episode_steps, buffer.gamma) == (0.99, 250.0, 0.996)
    assert restored.gamma == buffer.gamma
    for each in (buffer, restored):
        each.published(1)
        for step in range(3):
            rows = frame(MANY, step)
            rows.reward[:] = 10.0 * step
            added = each.add(0, RowKind.TRAINING, rows)
        assert added.returns == pytest.approx(np.full(MANY, 10.0 * 0.996 + 20.0))
        each.add(0, RowKind.TRAINING, frame(MANY, 3, ended=range(MANY)))
        each.release()

    # A hundred episodes of 250 steps, and as many of three as there are agents.
    assert buffer.episode_steps == pytest.approx((100 * 250 + MANY * 3) / (100 + MANY))
    assert restored.episode_steps == 250.0  # a restarted learner has counted these rows before


def test_agents_are_counted_by_the_rows_that_wait_for_their_next():
    told = []
    buffer = RolloutBuffer(OF, on_plan=told.append)
    buffer.published(1)
    for step in range(20):
        buffer.add(0, RowKind.TRAINING, frame(16, step))
    few = buffer.agents
    for step in range(1, 40):  # episodes that end are no agents, however many there are
        ended = np.arange(40, 56)
        one = frame(56, step % 2 and 1, ended=ended if step % 2 else ())
        buffer.add(1, RowKind.TRAINING, one.take(ended))
    after = buffer.agents
    buffer.add(2, RowKind.TRAINING, frame(100, 0))

    assert (few, after) == (16, 32)
    assert buffer.agents == 16 + 100
    assert [sizes(settings) for settings in told] == [(2_048, 10, 512), (16_384, 2, 2_048)]
    assert buffer.settings == planned(OF, 116)


def test_a_rollout_of_many_agents_is_learned_from_when_it_is_full(caplog):
    normalizer = Normalizer(3, active=True)
    made = Ppo(OF.changed({"hidden": 8, "layers": 1}), normalizer)
    made.policy()
    made.published(1)
    with caplog.at_level(logging.INFO):
        for step in range(65):
            before = made.is_ready
            made.buffer.add(0, RowKind.TRAINING, frame(256, step))
    rows = made.buffer.transitions
    losses = made.train(made.pace.due(0, 0))

    assert rows == 16_384
    assert not before
    assert made.metrics()["replay/rollout_rows"] == 16_384.0
    assert losses["train/n_updates"] == 2 * 8
    assert [record.getMessage() for record in caplog.records if "agents" in record.msg] == [
        "256 agents: PPO learns for throughput, from rollouts of 16,384 rows, in 2 epochs and"
        " minibatches of 2,048"
    ]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_restart_goes_on_with_as_many_agents(is_known):
    made = Ppo(OF, Normalizer(3, active=False))
    made.policy()
    made.published(1)
    made.buffer.add(0, RowKind.TRAINING, frame(1_024, 0))
    plain = json.loads(json.dumps(made.state().plain))
    if not is_known:
        del plain["agents"]  # in checkpoints of earlier releases
    again = Ppo(OF, Normalizer(3, active=False))
    again.restore(State(made.state().tensors, plain))

    assert again.buffer.agents == (1_024 if is_known else 0)
    assert again.buffer.settings.rollout_rows == (65_536 if is_known else 2_048)


WIDER = """
import os
import numpy as np
from arkml.learning.jax_engine import limit_threads, widen
limit_threads(1)
widen(3)
from tests.unit.test_learning_ppo_plan import OF, Normalizer, Ppo, RowKind, frame

made = Ppo(OF, Normalizer(3, active=True))
made.policy()
made.published(1)
for step in range(140):
    made.buffer.add(0, RowKind.TRAINING, frame(16, step))
made.train(made.pace.due(0, 0))
few, count = os.environ["PJRT_NPROC"], made.n_opts
made.policy()
made.published(2)
for step in range(82):
    made.buffer.add(1, RowKind.TRAINING, frame(200, step, version=2))
made.train(made.pace.due(0, 0))
print(few, os.environ["PJRT_NPROC"], count, made.n_opts - count)
assert all(np.isfinite(tensor).all() for tensor in made.state().tensors.values())
"""


def test_updates_of_many_agents_use_the_threads_that_a_process_has_for_them():
    ran = subprocess.run([sys.executable, "-c", WIDER], capture_output=True, text=True, check=True)

    assert ran.stdout.split() == ["1", "3", "50", "16"]
