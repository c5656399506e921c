"""What a policy of PPO remembers: chains, sequences, and the same numbers as the one that acted."""

import json
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkml.abi.codes import EpisodeState
from arkml.errors import InvalidSettings
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import State
from arkml.learning.checkpoint_files import CheckpointDamaged
from arkml.learning.networks import make_memory, remembered
from arkml.learning.normalizer import Normalizer
from arkml.learning.policy_graph import ExportWrong, to_onnx
from arkml.learning.ppo import Ppo
from arkml.learning.ppo_batches import Chains, draw_minibatches

AGENTS = 5
OF = Settings(
    3, 2, branches=(3,), hidden=8, memory=6, rollout_rows=160, batch_size=128, epochs=2, seed=4
)


class Player:
    """
    Agents that act by the exported file in plain onnxruntime, and keep what it says to remember.

    Episodes of an agent end after a few steps of its own. `memories` has what each row's agent
    remembered before it, by agent and step.
    """

    def __init__(self, seed=0, of=OF):
        self.normalizer = Normalizer(3, active=True)
        self.ppo = Ppo(of, self.normalizer)
        self.random = np.random.default_rng(seed)
        self.lengths = self.random.integers(3, 40, AGENTS)
        self.ids = np.arange(AGENTS, dtype=np.uint64)
        self.steps = np.zeros(AGENTS, int)
        self.states = np.zeros((AGENTS, of.memory), np.float32)
        self.memories, self.scores, self.sent = {}, {}, []
        self.version = 0
        self.load()

    def load(self):
        self.normalizer.adopt()
        model = self.ppo.policy().model
        self.weights = self.ppo.weights()
        self.session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self.version += 1
        self.ppo.published(self.version)

    def frame(self):
        rows = RowColumns.empty(AGENTS, 3, 2)
        ends = self.steps == self.lengths
        rows.agent[:], rows.step[:], rows.version[:] = self.ids, self.steps, self.version
        rows.state[:] = np.where(self.steps == 0, EpisodeState.INITIAL, EpisodeState.RUNNING)
        rows.state[ends] = EpisodeState.TERMINAL
        rows.features[:] = self.random.standard_normal((AGENTS, 3))
        rows.reward[:] = self.random.standard_normal(AGENTS)
        epsilon = self.random.standard_normal((AGENTS, 2)).astype(np.float32)
        masks = np.ones((AGENTS, 3), np.float32)
        given = {"observations": rows.features, "epsilon": epsilon, "h_in": self.states}
        given |= {"action_masks": masks}
        raw, after = self.session.run(["raw_actions", "h_out"], given)
        rows.action[:] = raw
        self.note(rows)
        self.states = np.where(ends[:, None], 0, after)
        self.steps = np.where(ends, 0, self.steps + 1)
        self.ids = np.where(ends, self.ids + AGENTS, self.ids)
        self.sent.append(rows)
        added = self.ppo.buffer.add(0, RowKind.TRAINING, rows)
        self.normalizer.observe(rows.features, added.returns)

    def note(self, rows):
        heads = self.weights.heads(rows.features, self.states)
        deviation = np.exp(self.weights.log_std)
        noise = (rows.action[:, :1] - heads.mean) / deviation
        density = -0.5 * noise**2 - np.log(deviation) - 0.5 * np.log(2 * np.pi)
        shares = np.exp(heads.logits) / np.exp(heads.logits).sum(1, keepdims=True)
        chosen = shares[np.arange(AGENTS), rows.action[:, 1].astype(int)]
        for agent in range(AGENTS):
            key = int(rows.agent[agent]), int(rows.step[agent])
            self.memories[key] = self.states[agent]
            self.scores[key] = float(density[agent, 0] + np.log(chosen[agent]))

    def learn(self, frames=40):
        for _ in range(frames):
            self.frame()
        losses = self.ppo.train(self.ppo.pace.due(0, 0))
        self.load()
        return losses

    def keys(self):
        """The agents and steps of the rows of the next rollout."""
        sent = {row.tobytes(): key for rows in self.sent for row, key in self.keyed(rows)}
        return [sent[row.tobytes()] for row in self.ppo.buffer.take().features]

    @staticmethod
    def keyed(rows):
        keys = zip(rows.agent.tolist(), rows.step.tolist(), strict=True)
        return zip(rows.features, keys, strict=True)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_remembered_is_what_the_policy_that_acted_remembered(seed):
    """Each frame is answered by one of two versions, in any order, by hosts that lag."""
    player = Player(seed)
    player.learn()
    player.learn()
    versions = [(player.session, player.weights, player.version)]
    player.learn()
    versions.append((player.session, player.weights, player.version))
    for _ in range(45):
        player.session, player.weights, player.version = versions[player.random.integers(2)]
        player.frame()
    rollout = player.ppo.buffer.take()
    keys = player.keys()
    rows, _, _ = player.ppo._prepare(rollout)
    order = Chains.of(rollout.following, len(rollout.features)).order
    learned = [keys[row] for row in order if row < len(rollout.following)]

    assert np.unique(rollout.versions).tolist() == [version for _, _, version in versions]
    assert {steps for _, steps in learned} > {0, 1, 2}
    remembered = [player.memories[key] for key in learned]
    np.testing.assert_allclose(rows.memories, remembered, atol=2e-5)
    assert np.abs(remembered).max() > 0.1
    np.testing.assert_allclose(rows.log_probs, [player.scores[key] for key in learned], atol=1e-4)


def test_a_rollout_goes_on_with_what_was_remembered_at_the_end_of_the_one_before():
    player = Player(seed=1)
    player.lengths[:] = 1_000  # no episode ends
    for _ in range(3):
        player.learn()
        for _ in range(4):
            player.frame()
        keys, rollout = player.keys(), player.ppo.buffer.take()
        begins = np.flatnonzero(Chains.of(rollout.following, len(keys)).begins)
        first = rollout.memories[begins]

        assert len(begins) == AGENTS
        assert np.abs(first).max() > 0.1
        np.testing.assert_allclose(first, [player.memories[keys[at]] for at in begins], atol=2e-5)


@pytest.mark.parametrize("seed", range(4))
def test_a_learner_that_is_restarted_in_mid_episode_goes_on_bit_for_bit(seed):
    """The restarted one is restarted again while it reads the log."""
    player = Player(seed)
    player.lengths[:2] = 1_000  # of episodes that do not end
    player.learn()
    player.learn()
    for _ in range(player.random.integers(30)):
        player.frame()
    made, known = player.ppo, len(player.sent)
    restored, state = Normalizer(3, active=True), made.state()
    restored.restore(json.loads(json.dumps(player.normalizer.as_json())))
    for read in (player.random.integers(known), known):
        again = Ppo(OF.changed({"seed": 9}), restored)
        again.restore(State(state.tensors, json.loads(json.dumps(state.plain))))
        for rows in player.sent[:read]:
            again.buffer.add(0, RowKind.TRAINING, rows)
        state = again.state()
    again.policy()
    again.published(player.version + 1)
    while not made.is_ready:
        player.frame()
    for rows in player.sent[known:]:
        added = again.buffer.add(0, RowKind.TRAINING, rows)
        restored.observe(rows.features, added.returns)
    first = [one.buffer.take().memories for one in (made, again)]
    for one in (made, again):
        one.train(one.pace.due(0, 0))
    tensors = [one.state().tensors for one in (made, again)]

    assert (np.abs(first[0]).max(axis=1) > 0.1).sum() >= 2
    assert np.array_equal(*first)
    assert tensors[0].keys() == tensors[1].keys()
    assert all(np.array_equal(tensors[1][name], tensors[0][name]) for name in tensors[0])


def test_what_agents_remember_in_one_run_is_nothing_to_another():
    other = Player()
    other.learn()
    player = Player(seed=1)
    player.ppo.restore(other.ppo.state())
    player.ppo.pace.begin(0, 0)
    assert not len(player.ppo.state().tensors["remembered/numbers"])
    player.load()
    for _ in range(50):
        player.frame()

    numbers = other.ppo.state().tensors["remembered/numbers"]
    assert len(numbers) > 0
    assert numbers.max() < len(player.ppo.buffer.take().features) == 50 * AGENTS
    assert not player.ppo.buffer.take().memories.any()


@pytest.mark.parametrize(
    "damaged",
    [
        {"numbers": np.arange(AGENTS)[::-1].copy()},
        {"numbers": np.zeros(AGENTS, np.int64)},
        {"numbers": np.arange(AGENTS, dtype=np.int32)},
        {"numbers": np.arange(AGENTS + 1)},
        {"numbers": np.int64(3)},
        {"memories": np.zeros((AGENTS, 8), np.float32)},
        {"memories": np.zeros((AGENTS, 6))},
        {"memories": np.float32(0)},
    ],
)
def test_a_checkpoint_whose_memories_do_not_fit_its_rows_is_refused_and_changes_nothing(damaged):
    state = Player().ppo.state()
    assert state.tensors["remembered/memories"].shape == (0, 6)
    player = Player(seed=1)
    player.learn()
    before = player.ppo.state().tensors
    wrong = {"remembered/" + name: column for name, column in damaged.items()}

    with pytest.raises(CheckpointDamaged, match="what agents remember is"):
        player.ppo.restore(State({**before, **wrong}, state.plain))
    assert all(np.array_equal(player.ppo.state().tensors[name], before[name]) for name in before)


def test_a_checkpoint_of_an_earlier_release_begins_with_zeros():
    player = Player()
    player.learn()
    state = player.ppo.state()
    tensors = {name: one for name, one in state.tensors.items() if "remembered" not in name}
    again = Ppo(OF, Normalizer(3, active=True))
    again.restore(State(tensors, json.loads(json.dumps(state.plain))))

    assert len(again.buffer.remembered.numbers) == 0


def test_updates_of_sequences_are_finite_and_change_the_memory():
    player = Player()
    before = player.ppo.weights()
    losses = player.learn()
    after = player.ppo.weights()

    assert losses["train/n_updates"] == 2 * 2
    assert losses["train/approx_kl"] < 1.0
    for part in ("encoder", "gates", "taken"):
        old, new = (getattr(one.memory, part).weight for one in (before, after))
        assert np.abs(new - old).max() > 1e-4
    angles = after.memory.angles
    assert (angles[::2] != angles[1::2]).any()


def test_means_begin_with_all_that_the_first_row_of_a_new_memory_has():
    weights, features = Player().weights, np.float32([[0.3, -1.0, 2.0], [1.0, 0.5, 0.0]])
    before = np.zeros((2, OF.memory), np.float32)
    before[1, 3] = 1e-3  # not new, however little there is
    seen = np.maximum(features @ weights.memory.encoder.weight, 0.0)
    taken = np.tanh(seen @ weights.memory.taken.weight)
    after = weights.heads(features, before).memories

    holds = np.arange(6) % 3 < weights.memory.still
    np.testing.assert_allclose(after[0, holds], taken[0, holds], atol=1e-6)
    assert np.abs(after[0, ~holds]).max() < 0.9 * np.abs(taken[0, ~holds]).max()
    assert np.abs(after[1]).max() < 0.9 * np.abs(taken[1]).max()


def test_numbers_that_stand_still_hold_what_is_shown_all_the_time():
    unit = make_memory(np.random.default_rng(3), OF.changed({"memory": 64}), 3)
    features, state = np.float32([[0.3, -1.0, 2.0]]), np.zeros((1, 64), np.float32)
    first = remembered(unit, features, state)
    state = first
    for _ in range(300):
        state = remembered(unit, features, state)
    holds = np.arange(64) % 32 < unit.still

    assert unit.still == 8
    np.testing.assert_allclose(state[:, holds], first[:, holds], atol=1e-4)
    assert (np.abs(state - first)[:, ~holds] > 1e-3).mean() > 0.9


def test_gates_of_numbers_that_stand_still_move_by_little():
    player = Player(of=OF.changed({"memory": 64}))
    before = player.ppo.weights().memory
    player.learn()
    after = player.ppo.weights().memory
    moved = np.abs(after.gates.weight - before.gates.weight).mean(axis=0)

    assert 0.0 < moved[: after.still].max() < 0.2 * moved[after.still :].min()
    assert len(after.angles) == 32 - after.still


@given(st.data(), st.integers(1, 12), st.integers(1, 60))
def test_chains_are_the_rows_that_follow_each_other(data, agents, rows):
    owners = data.draw(st.lists(st.integers(0, agents - 1), min_size=rows, max_size=rows))
    cut = data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    chains, open_chains = [], {}
    for row, (owner, ends) in enumerate(zip(owners, cut, strict=True)):
        if owner not in open_chains:
            open_chains[owner] = []
            chains.append(open_chains[owner])
        open_chains[owner].append(row)
        if ends:
            del open_chains[owner]
    following, total = np.full(rows, -1), rows
    for chain in chains:
        following[chain[:-1]] = chain[1:]
    for chain in chains:  # each chain has an end that is not among the rows
        following[chain[-1]], total = total, total + 1
    ends = [int(following[chain[-1]]) for chain in chains]
    found = Chains.of(following, total)

    assert found.order.tolist() == [
        row for chain, end in zip(chains, ends, strict=True) for row in [*chain, end]
    ]
    assert np.flatnonzero(found.begins).tolist() == [chain[0] for chain in chains]
    assert [found.places[row] for chain in chains for row in chain] == [
        place for chain in chains for place in range(len(chain))
    ]


@given(st.integers(1, 500), st.integers(1, 3), st.integers(2, 200), st.integers(2, 70))
def test_minibatches_are_whole_sequences_and_have_each_row_once_an_epoch(rows, epochs, size, steps):
    steps = min(steps, size)
    made = draw_minibatches(np.random.default_rng(0), rows, epochs, size, steps=steps)
    numbers = made[made >= 0]

    assert made.shape[1:] == (max(1, size // steps), steps)
    assert sorted(numbers.tolist()) == sorted(list(range(rows)) * epochs)
    for sequence in made.reshape(-1, steps):
        if sequence[0] >= 0:
            kept = sequence[sequence >= 0]
            assert kept[0] % steps == 0
            assert kept.tolist() == list(range(kept[0], kept[0] + len(kept)))
            assert len(kept) == steps or kept[-1] == rows - 1


@pytest.mark.parametrize("steps", [1, 17, 64])
def test_sequences_begin_with_what_was_remembered_before_them(steps):
    player = Player(seed=2, of=OF.changed({"sequence_length": steps}))
    player.lengths[:] = 1_000
    player.learn()
    for _ in range(50):
        player.frame()
    rows, _, _ = player.ppo._prepare(player.ppo.buffer.take())
    sequences = set(range(0, 5 * 50, steps))

    assert set(np.flatnonzero(rows.begins)) == sequences | {50 * agent for agent in range(AGENTS)}


@pytest.mark.parametrize("closed", [-12.0, -14.0, -16.0, -18.0, -30.0])
def test_gates_that_are_all_but_closed_are_exported_as_they_are(closed):
    """onnxruntime's sigmoid is 1e-7 off there, and its root 4e-4."""
    weights = Player(of=OF.changed({"memory": 64})).weights
    gates = weights.memory.gates
    near = (closed + np.linspace(-2.0, 2.0, len(gates.bias))).astype(np.float32)
    taken = weights.memory.taken._replace(bias=np.full(64, 5.0, np.float32))
    memory = weights.memory._replace(gates=gates._replace(bias=near), taken=taken)
    shut = replace(weights, memory=memory)
    random = np.random.default_rng(1)
    features = random.standard_normal((500, 3)).astype(np.float32)
    before = random.uniform(-1.0, 1.0, (500, 64)).astype(np.float32)
    given = {"observations": features, "h_in": before, "epsilon": np.zeros((500, 2), np.float32)}
    given["action_masks"] = np.ones((500, 3), np.float32)
    session = onnxruntime.InferenceSession(to_onnx(shut), providers=["CPUExecutionProvider"])

    expected = shut.heads(features, before).memories
    np.testing.assert_allclose(session.run(["h_out"], given)[0], expected, atol=5e-5)


def test_an_export_that_remembers_otherwise_is_refused():
    made = Player().ppo
    model = made.policy().model
    other = Player(of=OF.changed({"seed": 5})).ppo.weights()

    made.weights().check(model)
    with pytest.raises(ExportWrong, match="memories"):
        other.check(model)


def test_a_checkpoint_has_the_memory_and_fits_no_other():
    player = Player()
    player.learn()
    state = player.ppo.state()
    plain = json.loads(json.dumps(state.plain))
    again = Ppo(OF.changed({"seed": 9}), Normalizer(3, active=True))
    again.restore(State(state.tensors, plain))
    other = Ppo(OF.changed({"memory": 8}), Normalizer(3, active=True))

    assert again.state().tensors.keys() == state.tensors.keys()
    assert all(np.array_equal(a, state.tensors[n]) for n, a in again.state().tensors.items())
    with pytest.raises(CheckpointDamaged, match="does not fit this run"):
        other.restore(State(state.tensors, plain))


@pytest.mark.parametrize("steps", [0, 2.5, 100_000, "64"])
def test_a_sequence_has_a_thousand_rows_at_most(steps):
    with pytest.raises(InvalidSettings, match="sequence_length"):
        OF.changed({"sequence_length": steps})


@pytest.mark.parametrize("memory", [-2, 3, 3.5, 100_000, "64"])
def test_a_memory_is_an_even_number_of_some_hundred(memory):
    with pytest.raises(InvalidSettings, match="memory"):
        OF.changed({"memory": memory})


def test_an_algorithm_that_does_without_memory_is_not_asked_for_one():
    continuous = Settings(3, 2)

    assert continuous.changed({"memory": 64}).learner == "ppo"
    with pytest.raises(InvalidSettings, match=r'memory is 64, and algorithm is "sac".*"ppo"'):
        continuous.changed({"memory": 64, "algorithm": "sac"})
