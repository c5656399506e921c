"""Images that are stacked: a policy at play and its learner see the same ones, bit for bit."""

import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from arkml.abi.codes import EpisodeState
from arkml.errors import InvalidSettings
from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning import rollout_buffer
from arkml.learning.checkpoint_files import shaping_settings
from arkml.learning.encoders import Views, _side_by_side, encoded, stacked
from arkml.learning.image_shifts import shifted
from arkml.learning.jax_maps import JAX
from arkml.learning.maps import NUMPY
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo
from arkml.learning.ppo_batches import draw_minibatches
from arkml.learning.ppo_state import first_state, rates_of
from arkml.learning.replay_buffer import ReplayBuffer, empty_block
from arkml.learning.rollout_buffer import RolloutBuffer
from arkml.learning.sac import Sac

INITIAL, RUNNING = int(EpisodeState.INITIAL), int(EpisodeState.RUNNING)
ENDS = int(EpisodeState.TERMINAL), int(EpisodeState.INTERRUPTED)
AGENTS = 5
ME, VIEW, OTHER = (
    Part("me", (1,)),
    Part("view", (3, 4, 2), "image"),
    Part("other", (2, 2, 1), "image"),
)
PARTS = (VIEW, ME, OTHER)
FEATURES = sum(part.width for part in PARTS)
IMAGES = VIEW.size + OTHER.size
OF = Settings(
    FEATURES, 2, branches=(3,), parts=PARTS, hidden=8, frames=4, rollout_rows=160, batch_size=128,
    epochs=2, seed=4,
)  # fmt: skip
SAC = Settings(FEATURES, 2, parts=PARTS, hidden=8, frames=3, algorithm="sac")


class Player:
    """
    Agents that act by the exported file in plain onnxruntime, and keep what it says to keep.

    `seen` has the images that the policy had at each row, of all frames, by the row's only number.
    """

    def __init__(self, of, learner, seed=0):
        self.of, self.random = of, np.random.default_rng(seed)
        self.learner = learner(of, Normalizer(of.features, of.parts, active=True))
        self.lengths = self.random.integers(1, 30, AGENTS)
        self.ids, self.steps = np.arange(AGENTS, dtype=np.uint64), np.zeros(AGENTS, int)
        self.version, self.rows, self.seen = 3, 0, {}
        self.past = np.zeros((AGENTS, (of.frames - 1) * IMAGES), np.float32)
        self.memories = np.zeros((AGENTS, of.memory), np.float32)
        self.load()

    def load(self):
        model = self.learner.policy().model
        self.session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self.version += 1
        self.learner.published(self.version)

    def frame(self, older=0):
        rows = RowColumns.empty(AGENTS, FEATURES, 2, images=IMAGES)
        ends = self.steps == self.lengths
        rows.agent[:], rows.step[:], rows.version[:] = self.ids, self.steps, self.version - older
        rows.state[:] = np.where(self.steps == 0, INITIAL, RUNNING)
        rows.state[ends] = self.random.choice(ENDS)
        rows.features[:, 0] = np.arange(self.rows, self.rows + AGENTS)
        rows.images[:] = self.random.integers(0, 256, (AGENTS, IMAGES))
        given = {"me": rows.features, "frames_in": self.past}
        given["view"] = rows.images[:, : VIEW.size].reshape(-1, *VIEW.shape).astype(np.float32)
        given["other"] = rows.images[:, VIEW.size :].reshape(-1, *OTHER.shape).astype(np.float32)
        given["epsilon"] = self.random.standard_normal((AGENTS, 2)).astype(np.float32)
        if self.of.branches:
            given["action_masks"] = np.ones((AGENTS, 3), np.float32)
        names = ["raw_actions" if self.of.branches else "actions", "frames_out"]
        if self.of.memory:
            given["h_in"] = self.memories
            names.append("h_out")
        actions, after, *memories = self.session.run(names, given)
        for memory in memories:
            self.memories = np.where(ends[:, None], 0, memory)
        rows.action[:] = actions
        for row, past in enumerate(self.past):
            self.seen[self.rows + row] = np.append(past, rows.images[row]).astype(np.uint8)
        self.past = np.where(ends[:, None], 0, after)
        self.steps = np.where(ends, 0, self.steps + 1)
        self.ids = np.where(ends, self.ids + AGENTS, self.ids)
        self.rows += AGENTS
        self.learner.buffer.add(0, RowKind.TRAINING, rows)


@pytest.mark.parametrize("memory", [0, 6])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_learned_from_is_what_the_policy_saw(seed, memory):
    """Over borders of rollouts and episodes; rows of some frames are too old to learn from."""
    player = Player(OF.changed({"memory": memory}), Ppo, seed)
    for _ in range(4):
        while not player.learner.is_ready:
            player.frame()
        for _ in range(player.random.integers(0, 6)):
            player.frame(older=3)
        rollout = player.learner.buffer.take()
        held = rollout.features[:, 0].astype(int)  # which are normalized in place
        rows, _, _ = player.learner._prepare(rollout)
        numbers = dict(zip(rollout.actions[:, 0], held, strict=False))
        learned = stacked(np, rows.images, rows.frames)

        assert len(learned) == len(numbers) == len(rollout.following)
        for action, images in zip(rows.actions[:, 0], learned, strict=True):
            np.testing.assert_array_equal(images, player.seen[numbers[action]])
        assert len(rows.images) < 1.2 * len(learned)  # each image is there once
        ends = stacked(np, rollout.images, rollout.frames)[len(learned) :]
        after = held[len(learned) :]
        assert len(ends)
        for number, images in zip(after, ends, strict=True):
            np.testing.assert_array_equal(images, player.seen[number])

        player.learner.train(player.learner.pace.due(0, 0))
        for _ in range(player.random.integers(0, 3)):
            player.frame()  # by the policy before
        player.load()


def test_an_agent_that_was_forgotten_is_seen_anew(monkeypatch):
    monkeypatch.setattr(rollout_buffer, "_REMEMBERED", 0)
    player = Player(OF, Ppo)
    player.lengths[:] = 1_000
    player.frame(older=1)
    player.learner.buffer.release()
    player.load()
    for _ in range(3):
        player.frame()
    rollout = player.learner.buffer.take()

    assert rollout.frames[:AGENTS, :-1].max() == -1
    assert (rollout.frames[AGENTS : 2 * AGENTS, -2] == np.arange(AGENTS)).all()


def test_updates_take_the_images_at_their_places():
    player = Player(OF, Ppo)
    while not player.learner.is_ready:
        player.frame()
    rows, _, _ = player.learner._prepare(player.learner.buffer.take())
    rows = rows._replace(frames=np.maximum(rows.frames, 0))
    turned = rows._replace(images=rows.images[::-1], frames=len(rows.images) - 1 - rows.frames)
    other = rows._replace(frames=rows.frames[::-1])
    batches = draw_minibatches(np.random.default_rng(0), len(rows.frames), 2, OF.batch_size)
    learned = [
        player.learner._updated(player.learner._padded_rows(each), batches, rates_of(OF, 0)).losses
        for each in (rows, turned, other)
    ]

    assert learned[0] == learned[1] != learned[2]


def test_rows_that_none_will_be_seen_with_are_dropped():
    player = Player(OF, Ppo)
    buffer = player.learner.buffer
    for _ in range(40):
        player.frame()
    player.learner.train(0)
    for _ in range(1_000):  # none is learned from, and each might be seen with the next one
        player.frame(older=2)
    room = len(buffer._room)
    buffer.release()

    assert room <= 4_096
    assert buffer.held <= AGENTS * OF.frames


def test_a_chain_that_lost_a_row_is_seen_anew():
    buffer = RolloutBuffer(OF)
    rows = RowColumns.empty(6, FEATURES, 2, images=IMAGES)
    rows.step[:], rows.version[:], rows.state[:] = [0, 1, 2, 4, 5, 6], 1, RUNNING
    rows.images[:] = 1 + np.arange(6)[:, None]
    buffer.published(1)
    buffer.add(0, RowKind.TRAINING, rows)
    rollout = buffer.take()
    seen = stacked(np, rollout.images, rollout.frames)[:, ::IMAGES]

    assert seen[: len(rollout.following)].tolist() == [
        [0, 0, 0, 1], [0, 0, 1, 2], [0, 0, 0, 4], [0, 0, 4, 5],
    ]  # fmt: skip


@hypothesis_settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 30), capacity=st.integers(7, 80), frames=st.integers(1, 5))
def test_a_replay_buffer_sees_what_it_still_holds(seed, capacity, frames):
    random = np.random.default_rng(seed)
    made = ReplayBuffer(capacity, 3, 1, gamma=0.5, images=2, frames=frames)
    steps, seen, past = np.zeros(4, int), {}, np.zeros((4, frames), int)
    for number in range(1, 60):
        agent = random.integers(4)
        rows = RowColumns.empty(1, 3, 1, images=2)
        rows.agent[:], rows.step[:], rows.images[:] = agent, steps[agent], number
        rows.state[:] = RUNNING if steps[agent] else INITIAL
        if steps[agent] and random.random() < 0.2:
            rows.state[:] = random.choice(ENDS)
        past[agent] = np.append(past[agent, 1:], number)
        seen[number] = past[agent].copy()
        made.add(0, RowKind.TRAINING, rows)
        ended = rows.state[0] in ENDS
        steps[agent] = 0 if ended else steps[agent] + 1
        past[agent] *= not ended
    slots = np.flatnonzero(made._steps["next"][: made.held] >= 0)
    oldest = made._values.images[: made.held].min()
    if not len(slots):
        return
    block = empty_block(1, len(slots), 1, 1, 2 * frames)
    made.gather(slots[None], 1, block)

    for images in (block.images[0], block.following_images[0]):
        for found in images[:, ::2]:
            wanted = seen[int(found[-1])]
            np.testing.assert_array_equal(found, np.where(wanted < oldest, 0, wanted))


def test_sac_learns_from_what_its_policy_saw():
    player = Player(SAC, Sac)
    for _ in range(60):
        player.frame()
    buffer = player.learner.buffer
    slots = np.flatnonzero(buffer._steps["next"][: buffer.held] >= 0)
    block = empty_block(1, len(slots), 1, 2, SAC.frames * IMAGES)
    buffer.gather(slots[None], 1, block)

    for images, numbers in (
        (block.images, block.features),
        (block.following_images, block.following),
    ):
        for found, number in zip(images[0], numbers[0, :, 0].astype(int), strict=True):
            np.testing.assert_array_equal(found, player.seen[number])
    assert player.learner.train(2)["train/n_updates"] == 2


def test_all_frames_of_a_row_are_moved_alike():
    image = np.random.default_rng(0).integers(0, 256, (30, IMAGES), np.uint8)
    views = Views(PARTS, frames=3)
    moved = np.asarray(shifted(views, 2, np.tile(image, 3), np.array([0, 1], np.uint32)))
    frames = moved.reshape(30, 3, IMAGES)

    assert not np.array_equal(frames[:, 0], image)
    np.testing.assert_array_equal(frames[:, 0], frames[:, 1])
    np.testing.assert_array_equal(frames[:, 0], frames[:, 2])


@pytest.mark.parametrize("size", ["small", "impala"])
def test_numpy_and_jax_see_the_same_of_all_frames(size):
    of = OF.changed({"encoder": size})
    views, encoders = Views.of(of), first_state(of).weights.encoders
    images = np.random.default_rng(0).integers(0, 256, (30, of.frames * IMAGES), np.uint8)
    features = np.ones((30, 1), np.float32)
    ours = encoded(NUMPY, views, encoders, features, images)
    theirs = encoded(JAX, views, encoders, jnp.asarray(features), jnp.asarray(images))
    blind = images.copy()
    blind[:, :IMAGES] = 0

    np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-4, atol=1e-5)
    assert not np.allclose(ours, encoded(NUMPY, views, encoders, features, blind))


def test_the_channels_of_frames_are_side_by_side_the_oldest_first():
    images = np.arange(2 * 3 * IMAGES).reshape(2, -1)
    field = Views(PARTS).encoded[-1]
    together = _side_by_side(np, images.reshape(2, 3, IMAGES), field)
    alone = images.reshape(2, 3, IMAGES)[:, :, VIEW.size :].reshape(2, 3, *OTHER.shape)

    assert field.part is OTHER
    np.testing.assert_array_equal(together, np.concatenate(alone.transpose(1, 0, 2, 3, 4), -1))


@pytest.mark.parametrize("frames", [0, 17, 1.5, "4"])
def test_frames_are_sixteen_at_most(frames):
    with pytest.raises(InvalidSettings, match="frames"):
        OF.changed({"frames": frames})


def test_frames_are_refused_without_an_image():
    with pytest.raises(InvalidSettings, match="frames is 4: only images are stacked"):
        Settings(3, 1, frames=4)


def test_a_checkpoint_fits_runs_with_as_many_frames():
    alone = OF.changed({"frames": 1})

    assert shaping_settings(OF)["frames"] == 4
    assert shaping_settings(OF) != shaping_settings(alone)
    assert "frames" not in shaping_settings(alone)
