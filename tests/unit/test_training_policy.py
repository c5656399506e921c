"""The policy of a run, with real onnxruntime and rows worked out by hand."""

import logging
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from arkml.abi.codes import EpisodeState
from arkml.batches import ROW, Batch, Metadata, MetadataLog
from arkml.errors import InvalidArguments, ModelRejected, Unavailable
from arkml.hive.protocol.runs import RunInfo, Status
from arkml.learning.algorithm import Layer
from arkml.learning.normalizer import Scaling
from arkml.learning.policy_graph import to_onnx
from arkml.learning.ppo import PpoWeights
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache
from arkml.policies.step_limit import StepLimit
from arkml.policies.training import PolicyVersion, TrainingPolicy
from arkml.runs.membership import RunMembership

RUNNING, TERMINAL, INITIAL = EpisodeState.RUNNING, EpisodeState.TERMINAL, EpisodeState.INITIAL
INTERRUPTED = EpisodeState.INTERRUPTED


def network(scale):
    """Actions are scale * features + epsilon, the value is the first feature."""
    nodes = [
        helper.make_node("Mul", ["features", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "epsilon"], ["actions"]),
        helper.make_node("Slice", ["features", "start", "end", "axis"], ["values"]),
    ]
    constants = {"scale": np.float32(scale), "end": np.array([1])}
    return model_of(nodes, constants, {"features": 2, "epsilon": 2}, {"actions": 2, "values": 1})


def model_of(nodes, constants, inputs, outputs):
    """A model with ports of these widths; a Slice takes its columns from `start` on `axis`."""
    constants = {"start": np.array([0]), "axis": np.array([1])} | constants
    ports = [
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])
            for name, width in widths.items()
        ]
        for widths in (inputs, outputs)
    ]
    values = [onnx.numpy_helper.from_array(np.array(v), name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "policy", *ports, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()


class Sink:
    def __init__(self):
        self.taken = []

    def take(self, rows):
        keep = slice(None) if rows.keep is None else rows.keep
        self.taken.append([column[keep].copy() if isinstance(column, np.ndarray) else column
                           for column in rows[:7]])  # fmt: skip

    def column(self, number):
        return [value for taken in self.taken for value in taken[number].tolist()]

    @property
    def steps(self):
        return self.column(1)


class World:
    """A policy with a sink; `submit` asks it for rows of (id, state, reward, features)."""

    def __init__(self, *, scale=0.1, deterministic=False):
        self.library = PolicyLibrary(ModelCache())
        self.sink = Sink()
        self.policy = TrainingPolicy(
            "run", 2, 2, sink=self.sink, seed=3, workspace=self.library.workspace,
            deterministic=deterministic,
        )  # fmt: skip
        self.offer(1, scale)

    def offer(self, number, scale):
        loaded = self.library.load_version(network(scale), self.policy)
        self.policy.offer(PolicyVersion(number, loaded))

    def submit(self, *pushed, key=1):
        rows = np.zeros(len(pushed), ROW)
        features = np.zeros((len(pushed), 2), np.float32)
        for row, (agent, state, *more) in enumerate(pushed):
            rows["id"][row], rows["state"][row] = agent, state
            rows["reward"][row] = more[0] if more else 0
            features[row] = more[1] if len(more) > 1 else 1
        actions, values = np.full((len(pushed), 2), 9, np.float32), np.full(len(pushed), 9.0, "f4")
        batch = Batch(rows, features, actions, values, np.array(key, np.uint64))
        self.policy.act(batch)
        return batch


@pytest.mark.parametrize(("pink", "correlation"), [(False, 0.0), (True, 0.754)])
def test_pink_noise_of_an_agent_changes_slowly(pink, correlation):
    world = World()
    world.policy = TrainingPolicy(
        "run", 2, 2, sink=world.sink, seed=3, workspace=world.library.workspace, pink=pink
    )
    world.offer(1, 0.1)
    agents = range(4_000)
    first = world.submit(*((agent, INITIAL) for agent in agents)).actions.copy()
    second = world.submit(*((agent, RUNNING) for agent in agents)).actions

    assert np.corrcoef(first[:, 0], second[:, 0])[0, 1] == pytest.approx(correlation, abs=0.06)


def limited_world(most):
    world = World()
    limit = StepLimit(most)
    world.policy = TrainingPolicy(
        "run", 2, 2, sink=world.sink, seed=3, workspace=world.library.workspace, limit=limit
    )
    world.offer(1, 0.1)
    return world, limit


OTHER = (5 << 32) + 1
"""The key of a session of another guest."""


def test_a_limit_truncates_all_agents_of_the_guest_with_the_rows_of_that_submit():
    world, limit = limited_world(2)
    world.submit((7, INITIAL), (8, INITIAL), (9, INITIAL))
    world.submit((7, RUNNING), (9, TERMINAL))
    world.submit((7, INITIAL), key=OTHER)
    assert limit.take() == set()
    batch = world.submit((7, RUNNING, 3.0), (8, RUNNING), (10, INITIAL))
    world.submit((7, RUNNING), key=OTHER)

    assert world.sink.column(4)[-4:] == [INTERRUPTED, INTERRUPTED, INITIAL, RUNNING]
    assert world.sink.column(3)[-4] == 3.0
    assert batch.actions[:2].tolist() == [[0, 0], [0, 0]]
    assert limit.take() == {0}
    assert limit.take() == set()


def test_what_a_guest_submits_after_the_cut_does_not_count(caplog):
    world, limit = limited_world(1)
    world.submit((7, INITIAL))
    world.submit((7, RUNNING))
    before = len(world.sink.steps)
    with caplog.at_level(logging.WARNING):
        world.submit((7, RUNNING), (7, INITIAL), (8, INITIAL), (9, RUNNING))

    assert len(world.sink.steps) == before
    assert (caplog.records, world.policy.irregular.counts) == ([], {})
    assert limit.take() == {0}
    world.submit((7, RUNNING))
    assert world.policy.irregular.counts == {"its episode has ended": 1}


def test_an_agent_with_two_rows_in_a_submit_is_truncated_with_the_last():
    world, limit = limited_world(3)
    world.submit((7, INITIAL), (8, INITIAL))
    world.submit((7, RUNNING))
    world.submit((8, RUNNING), (7, RUNNING), (7, RUNNING))

    assert world.sink.column(4)[-3:] == [INTERRUPTED, RUNNING, INTERRUPTED]
    assert world.sink.steps[-3:] == [1, 2, 3]
    assert limit.take() == {0}


def test_an_episode_that_ends_at_the_limit_has_its_own_end():
    world, limit = limited_world(1)
    world.submit((7, INITIAL))
    world.submit((7, TERMINAL))

    assert world.sink.column(4) == [INITIAL, TERMINAL]
    assert limit.take() == set()


def test_each_row_is_handed_on_with_its_step_version_and_action():
    world = World(deterministic=False)
    first = world.submit((7, INITIAL), (8, INITIAL, 0.0, 2.0))
    world.offer(2, 0.2)
    second = world.submit((7, RUNNING, 1.5), (8, RUNNING, 2.5))

    assert world.sink.steps == [0, 0, 1, 1]
    assert [taken[2] for taken in world.sink.taken] == [1, 2]
    assert world.sink.column(3) == [0.0, 0.0, 1.5, 2.5]
    assert np.array_equal(np.clip(world.sink.taken[0][6], -1, 1), first.actions)
    assert np.array_equal(np.clip(world.sink.taken[1][6], -1, 1), second.actions)
    assert first.values.tolist() == [1.0, 2.0]


def test_an_agent_has_one_name_and_no_two_have_the_same():
    world = World()
    world.submit((7, INITIAL), (8, INITIAL))
    world.submit((8, RUNNING), (7, RUNNING))
    world.submit((7, INITIAL), key=2)
    names = world.sink.column(0)

    assert names[:2] == names[3:1:-1]
    assert len(set(names)) == 3


def test_actions_are_clipped_and_learned_from_as_they_were_drawn():
    world = World(scale=100.0)
    batch = world.submit((1, INITIAL))

    assert batch.actions.tolist() == [[1.0, 1.0]]
    assert (world.sink.taken[0][6] > 90).all()


def test_actions_of_a_policy_that_no_run_has_learned_are_taken_as_they_are():
    world = World()
    world.policy = TrainingPolicy(
        "evaluation", 2, 2, sink=world.sink, seed=3, workspace=world.library.workspace, clips=False
    )
    world.offer(1, 100.0)
    batch = world.submit((1, INITIAL))

    assert (batch.actions > 90).all()
    assert np.array_equal(batch.actions, world.sink.taken[0][6])


@pytest.mark.parametrize(
    ("number", "position"), [(np.nan, "features"), (np.inf, "features"), (np.nan, "reward")]
)
def test_a_row_that_is_not_finite_is_answered_with_zeros_and_leaves_a_gap(number, position, caplog):
    world = World()
    world.submit((1, INITIAL), (2, INITIAL))
    bad = (1, RUNNING, 0.0, number) if position == "features" else (1, RUNNING, number)
    with caplog.at_level(logging.WARNING):
        batch = world.submit(bad, (2, RUNNING))
        world.submit((1, RUNNING, np.nan), (2, RUNNING))
    world.submit((1, RUNNING), (2, RUNNING))

    assert not batch.actions[0].any()
    assert batch.values[0] == 0
    assert batch.actions[1].any()
    assert world.sink.steps == [0, 0, 1, 2, 3, 3]
    assert sum(world.policy.irregular.counts.values()) == 2
    assert caplog.text.count("agent 1") == 1


def test_the_first_agents_whose_rows_are_refused_are_logged_and_then_totals(
    caplog,
):
    world, agents = World(), range(120)
    world.submit(*((agent, INITIAL) for agent in agents))
    with caplog.at_level(logging.WARNING):
        for agent in agents:
            world.submit((agent, RUNNING, np.nan))

    said = [record.getMessage().removeprefix("run: ") for record in caplog.records]
    reason = "its features or its reward are not finite"
    assert [text.split(":")[0] for text in said[:5]] == [f"agent {agent}" for agent in range(5)]
    assert said[5:] == [f"{reason}: {count} rows so far" for count in (10, 100)]


def test_agents_whose_rows_are_refused_in_one_submit_are_logged_as_one_line(caplog):
    world, agents = World(), range(16)
    world.submit(*((agent, INITIAL) for agent in agents))
    with caplog.at_level(logging.WARNING):
        world.submit(*((agent, RUNNING, np.nan) for agent in agents))

    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "run: agent 0 and 15 others: its features or its reward are not finite",
        "run: its features or its reward are not finite: 16 rows so far",
    ]


def test_an_id_that_comes_back_after_its_end_counts_for_nothing():
    world = World()
    world.submit((1, INITIAL))
    ended = world.submit((1, TERMINAL, 5.0))
    for state in (INITIAL, RUNNING, RUNNING):
        batch = world.submit((1, state))

        assert not batch.actions.any()

    assert world.sink.steps == [0, 1]
    assert not ended.actions.any()
    assert not world.sink.taken[1][6].any()
    assert world.policy.irregular.counts == {"its episode has ended": 3}


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("end", [TERMINAL, EpisodeState.INTERRUPTED])
def test_an_id_that_comes_back_in_the_submit_of_its_end_counts_for_nothing(
    end, deterministic, caplog
):
    world = World(deterministic=deterministic)
    world.submit((1, INITIAL), (2, INITIAL))
    with caplog.at_level(logging.WARNING):
        batch = world.submit((1, end, 5.0), (2, RUNNING), (1, INITIAL), (1, RUNNING), (1, end))
        later = world.submit((1, RUNNING), (2, RUNNING))

    assert [row.any() for row in batch.actions] == [False, True, False, False, False]
    assert not batch.values[2:].any()
    assert not later.actions[0].any()
    assert later.actions[1].any()
    assert world.sink.steps == [0, 0, 1, 1, 2]
    assert world.policy.irregular.counts == {"its episode has ended": 4}
    assert caplog.text.count("agent 1") == 1


def test_an_id_that_ends_in_the_submit_that_it_comes_twice_in_ends_there():
    world = World()
    world.submit((1, INITIAL), (1, RUNNING), (1, TERMINAL))
    batch = world.submit((1, RUNNING))

    assert not batch.actions.any()
    assert world.sink.steps == [0, 1, 2]


def test_rows_of_one_id_in_a_submit_are_told_once(caplog):
    world = World()
    with caplog.at_level(logging.WARNING):
        world.submit((1, INITIAL), (2, INITIAL), (2, RUNNING))
        world.submit((1, RUNNING), (1, RUNNING))

    assert [record.getMessage() for record in caplog.records] == [
        "run: agent 2 has several rows in one submit: each is learned from as the step after the"
        " one before it; agents that are not the same need ids of their own"
    ]
    assert world.sink.steps == [0, 0, 1, 1, 2]


def test_the_first_row_of_an_agent_has_to_be_initial_and_no_other():
    world = World()
    first = world.submit((1, RUNNING), (2, INITIAL))
    again = world.submit((1, RUNNING), (2, INITIAL))

    assert not first.actions[0].any()
    assert not again.actions[1].any()
    assert world.sink.steps == [0, 1]
    assert set(world.policy.irregular.counts) == {
        "its first row is not Initial",
        "it is Initial again",
    }


def test_noise_goes_on_where_it_was_when_a_version_is_replaced():
    replaced, kept = World(), World()
    replaced.submit((1, INITIAL))
    kept.submit((1, INITIAL))
    replaced.offer(2, 0.1)

    assert np.array_equal(replaced.submit((1, RUNNING)).actions, kept.submit((1, RUNNING)).actions)


def test_without_noise_the_agents_steps_are_counted_all_the_same():
    world = World(deterministic=True)
    batch = world.submit((1, INITIAL))
    world.submit((1, TERMINAL))
    world.submit((1, RUNNING))

    assert np.allclose(batch.actions, 0.1)
    assert world.sink.steps == [0, 1]


def test_there_is_no_answer_before_the_first_version():
    library = PolicyLibrary(ModelCache())
    world = World()
    world.policy = TrainingPolicy("run", 2, 2, sink=None, seed=0, workspace=library.workspace)

    with pytest.raises(Unavailable, match="no policy yet"):
        world.submit((1, INITIAL))


def test_a_version_that_is_no_model_is_refused():
    world = World()

    with pytest.raises(ModelRejected):
        world.library.load_version(b"no model", world.policy)


class Joined:
    """A client of a hive whose runs are joined at once, which then publish as they are told."""

    def __init__(self, *, is_pink=False):
        self.is_pink = is_pink

    def join(self, *_, on_policy, **__):
        self.publish = on_policy
        joined = SimpleNamespace(index=0, failure=None, is_pink=self.is_pink, loaded=lambda _: None)
        session = Future()
        session.set_result(joined)
        return session


class AtOnce:
    """An executor that has done what it is given when `submit` returns."""

    def submit(self, work):
        work()


def membership(client):
    return RunMembership(
        client, RunInfo("r1", "run", "game", Status.RUNNING, 2, 2, 0), PolicyLibrary(ModelCache()),
        block=False, sync=False, loaders=AtOnce(), farewells=set(),
    )  # fmt: skip


@pytest.mark.parametrize("is_pink", [False, True])
def test_agents_explore_by_the_noise_of_their_run(is_pink):
    client = Joined(is_pink=is_pink)
    part = membership(client)
    client.publish(1, network(0.1))

    assert part.policy().pink == is_pink


def test_a_membership_says_why_the_newest_version_is_not_used():
    client = Joined()
    part = membership(client)
    client.publish(1, b"no model")
    rejection = part.rejection
    client.publish(2, network(0.1))

    assert rejection.startswith("version 1 of run r1 is not used: not an ONNX model")
    assert part.rejection == ""
    assert part.latest[0] == 2


def test_nothing_is_asked_of_the_policy_for_an_empty_submit():
    world = World()
    world.submit()

    assert world.sink.taken == []


def chooser(*, log_std=0.0):
    """A model of one continuous action of mean 3 and a branch of three equal choices."""
    layers = (Layer(np.zeros((2, 4), "f4"), np.float32([3, 0, 0.5, 0])),)
    value = (Layer(np.zeros((2, 1), "f4"), np.zeros(1, "f4")),)
    scaling, spread = Scaling.identity(2), np.float32([log_std])
    return to_onnx(PpoWeights(scaling, layers, value, spread, (3,)))


class ChooserWorld(World):
    def __init__(self, *, deterministic=False, limit=None):
        self.library = PolicyLibrary(ModelCache())
        self.sink = MaskSink()
        self.policy = TrainingPolicy(
            "run", 2, 2, sink=self.sink, seed=3, workspace=self.library.workspace, branches=(3,),
            deterministic=deterministic, limit=limit,
        )  # fmt: skip
        loaded = self.library.load_version(chooser(), self.policy)
        self.policy.offer(PolicyVersion(1, loaded))

    def choose(self, count, *masked):
        """Submit rows of new agents; `masked` are metadata: row, name and value."""
        self.policy.masks.begin(count)
        self.policy.masks.mask(MetadataLog.of(Metadata(*item) for item in masked))
        return self.submit(*((agent, INITIAL) for agent in range(count)), key=len(self.sink.taken))


class MaskSink(Sink):
    def __init__(self):
        super().__init__()
        self.masks = []

    def take(self, rows):
        super().take(rows)
        self.masks.append(None if rows.masks is None else rows.masks.copy())


def test_choices_are_answered_as_they_are_and_continuous_actions_clipped():
    world = ChooserWorld()
    batch = world.choose(300)
    raw = world.sink.taken[0][6]

    assert set(batch.actions[:, 1].tolist()) == {0.0, 1.0, 2.0}
    assert np.array_equal(batch.actions[:, 1], raw[:, 1])
    assert np.array_equal(batch.actions[:, 0], np.clip(raw[:, 0], -1, 1))
    assert raw[:, 0].max() > 3
    assert world.sink.masks == [None]


def test_a_masked_choice_is_not_taken_and_its_mask_passed_on():
    world = ChooserWorld()
    masked = [(row, f"mask/0/{choice}", 1.0) for row in range(300) for choice in (0, 2) if row % 2]
    batch = world.choose(300, *masked, (1, "speed", 1.0), (0, "mask/0/3", 1.0), (0, "mask/1/0", 1))
    (masks,) = world.sink.masks

    assert set(batch.actions[1::2, 1].tolist()) == {1.0}
    assert set(batch.actions[::2, 1].tolist()) == {0.0, 1.0, 2.0}
    assert masks[::2].all()
    assert masks[1::2].tolist() == [[0, 1, 0]] * 150


def test_a_row_that_is_not_learned_from_is_answered_with_choices_that_are_allowed():
    world = ChooserWorld()
    world.policy.masks.begin(3)
    world.policy.masks.mask(MetadataLog.of(Metadata(row, "mask/0/0", 1.0) for row in (0, 2)))
    batch = world.submit((1, RUNNING), (2, RUNNING), (3, TERMINAL))  # none begins with Initial

    assert batch.actions.tolist() == [[0, 1], [0, 0], [0, 1]]


def test_an_episode_that_is_cut_off_goes_on_in_its_guest_with_a_choice_that_is_allowed():
    world = ChooserWorld(limit=StepLimit(1))
    world.choose(2)
    world.policy.masks.begin(2)
    world.policy.masks.mask(MetadataLog.of([Metadata(1, "mask/0/0", 1.0)]))
    batch = world.submit((0, RUNNING), (1, RUNNING), key=0)

    assert batch.actions.tolist() == [[0, 0], [0, 1]]


def test_masks_last_for_one_batch_and_a_value_of_zero_takes_one_back():
    world = ChooserWorld()
    world.choose(3, *((row, "mask/0/1", 1.0) for row in range(3)), (2, "mask/0/1", 0.0))
    world.choose(3)

    assert world.sink.masks[0][:, 1].tolist() == [0, 0, 1]
    assert world.sink.masks[1] is None


def test_without_noise_the_likeliest_allowed_choice_is_taken():
    world = ChooserWorld(deterministic=True)
    batch = world.choose(2, (1, "mask/0/1", 1.0))

    assert batch.actions.tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert world.sink.taken[0][6][:, 0].tolist() == [3.0, 3.0]


def test_a_model_of_other_branches_is_refused():
    world = ChooserWorld()
    other = TrainingPolicy(
        "run", 2, 2, sink=None, seed=0, workspace=world.library.workspace, branches=(4,)
    )

    with pytest.raises(InvalidArguments, match="takes masks of 3 choices, the agents have 4"):
        world.library.load_version(chooser(), other)


def remembering(added, width=2):
    """What is remembered grows by `added` with each row, and is the action."""
    nodes = [
        helper.make_node("Add", ["h_in", "added"], ["h_out"]),
        helper.make_node("Slice", ["h_out", "start", "end", "axis"], ["kept"]),
        helper.make_node("Mul", ["features", "nothing"], ["none"]),
        helper.make_node("Add", ["kept", "none"], ["actions"]),
    ]
    constants = {"added": np.float32(added), "nothing": np.float32(0.0), "end": np.array([2])}
    inputs, outputs = {"features": 2, "h_in": width}, {"actions": 2, "h_out": width}
    return model_of(nodes, constants, inputs, outputs)


class Remembering(World):
    def offer(self, number, added, width=2):
        loaded = self.library.load_version(remembering(added, width), self.policy)
        self.policy.offer(PolicyVersion(number, loaded))

    def answers(self, *pushed):
        return self.submit(*pushed).actions[:, 0].tolist()


def test_agents_keep_what_they_remember_when_a_new_version_acts():
    world = Remembering(scale=0.25)
    first = world.answers((7, INITIAL), (8, INITIAL)), world.answers((8, RUNNING), (7, RUNNING))
    world.offer(2, 0.125)
    then = world.answers((7, RUNNING), (9, INITIAL)), world.answers((8, TERMINAL), (9, RUNNING))
    world.offer(3, 0.0625)

    assert first == ([0.25, 0.25], [0.5, 0.5])
    assert then == ([0.625, 0.125], [0.0, 0.25])
    assert world.answers((7, RUNNING), (10, INITIAL), (9, RUNNING)) == [0.6875, 0.0625, 0.3125]


def test_agents_that_act_several_times_in_a_submit_remember_each():
    world = Remembering(scale=0.25)

    assert world.answers((7, INITIAL), (7, RUNNING), (8, INITIAL)) == [0.25, 0.5, 0.25]


def test_a_version_that_remembers_another_number_is_refused_and_the_one_before_acts_on():
    world = Remembering(scale=0.25)
    world.answers((7, INITIAL))

    with pytest.raises(ModelRejected, match="4 numbers of recurrent state, and agents have 2"):
        world.offer(2, 0.125, width=4)
    assert world.answers((7, RUNNING)) == [0.5]
    assert world.policy.version == 1
