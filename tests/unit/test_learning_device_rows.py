"""Rows on a device are those of the replay buffer, after any rows were added and overwritten."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml.abi.codes import EpisodeState
from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning import device_rows
from arkml.learning.device_rows import DeviceRows
from arkml.learning.replay_buffer import BatchBlock, ReplayBuffer, empty_block

PARTS = Part("seen", (1, 1, 2), "image"), Part("me", (3,))
BATCH, CAPACITY = 5, 60


def load():
    """Return updates that change nothing, and whose outcome is the batches that they see."""
    import jax

    def make_updates(state, block, count, key, rates):
        every = [
            BatchBlock(*(column[number] for column in block))
            for number in range(len(block.rewards))
        ]
        return jax.tree.map(lambda *each: jax.numpy.stack(each), *every), state, count, key, rates

    return make_updates


def rows(random, agents, steps, *, images):
    """Rows of agents that go on, with values that tell each apart."""
    found = RowColumns.empty(len(agents), 3 + images, 1, images=images)
    found.agent[:], found.step[:] = agents, steps
    found.state[:] = EpisodeState.RUNNING
    found.reward[:] = random.normal(size=len(agents))
    found.features[:] = random.normal(size=found.features.shape)
    found.images[:] = random.integers(0, 256, found.images.shape)
    found.action[:] = random.uniform(-2, 2, found.action.shape)
    return found


@pytest.mark.parametrize(("frames", "length"), [(1, 1), (3, 2)])
@given(data=st.data())
@settings(max_examples=6, deadline=None)
def test_updates_see_the_same_batches_as_from_a_block(frames, length, data):
    parts = PARTS if frames > 1 else ()
    run = Settings(
        3 + 2 * (frames > 1), 1, parts=parts, frames=frames, algorithm="sac", batch_size=BATCH,
        memory_min_size=10, memory_max_size=CAPACITY, rollout_length=length,
    )  # fmt: skip
    buffer = ReplayBuffer(CAPACITY, run.features, 1, gamma=0.9, images=run.images, frames=frames)
    state = {"n": np.float32(3)}
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    step = dict.fromkeys(range(4), 0)
    there = None
    for turn in range(data.draw(st.integers(1, 5))):
        for _ in range(data.draw(st.integers(1, 12))):
            agents = np.array([agent for agent in step if random.random() < 0.8] or [0])
            kind = RowKind.DEMONSTRATION if agents[0] == 3 else RowKind.TRAINING
            made = rows(random, agents, [step[one] for one in agents.tolist()], images=run.images)
            buffer.add(0, kind, made)
            for agent in agents.tolist():
                step[agent] += 1 + (random.random() < 0.1)  # now and then a row is missing
        if not buffer.transitions:
            continue
        if there is None:
            there = DeviceRows(buffer, run, "cpu", load, (state, np.zeros(2, np.uint32), ()))
            while not there.is_ready:
                time.sleep(0.001)
        batches = int(random.integers(1, 4))
        slots = buffer.draw(np.random.default_rng(turn), batches, BATCH)
        block = empty_block(batches, BATCH, run.numbers, run.actions, run.frames * run.images)
        buffer.gather(slots, length, block)
        seen, same, count, key, rates = there.updates(state, slots, np.ones(2, np.uint32), ())

        assert int(count) == batches
        for name, expected in block._asdict().items():
            np.testing.assert_array_equal(getattr(seen, name)[:batches], expected, err_msg=name)
        assert (float(same["n"]), key.tolist(), rates) == (3.0, [1, 1], ())


def test_what_is_written_is_sent_once_in_chunks(monkeypatch):
    monkeypatch.setattr(device_rows, "CHUNK", 16)
    run = Settings(
        3, 1, algorithm="sac", batch_size=BATCH, memory_min_size=10, memory_max_size=CAPACITY
    )
    buffer, random = ReplayBuffer(CAPACITY, 3, 1, gamma=0.9), np.random.default_rng(0)
    buffer.add(0, RowKind.TRAINING, rows(random, [0] * 40, range(40), images=0))
    there = DeviceRows(buffer, run, "cpu", load, ((), (), ()))
    sent, put = [], there._programs[1]

    def noted(memory, slots, chunk):
        sent.append([slot for slot in slots.tolist() if slot < CAPACITY])
        return put(memory, slots, chunk)

    there._programs[1] = noted
    for _ in range(2):
        there.updates((), buffer.draw(random, 2, BATCH), (), ())
    buffer.add(0, RowKind.TRAINING, rows(random, [0] * 3, range(40, 43), images=0))
    there.updates((), buffer.draw(random, 2, BATCH), (), ())

    assert sent == [[*range(16)], [*range(16, 32)], [*range(32, 40)], [40, 41, 42]]
