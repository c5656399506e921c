import gc
import signal
import weakref
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.unit import policy_models as build
from tests.unit.policy_models import INITIAL, INTERRUPTED, RUNNING, TERMINAL, acted, batch, load

from arkml.abi.codes import SnapshotFormat
from arkml.batches import MetadataLog
from arkml.errors import ModelRejected, Unavailable
from arkml.hive.protocol.parts import Part, fields_of
from arkml.limits import Limits
from arkml.policies import library, load_time, model_cache, onnx_model, pace, run_limit
from arkml.policies.model_runner import failed
from arkml.policies.onnx import is_of_guest, session_bytes
from arkml.policies.policy_files import PolicyFile
from arkml.policies.training import masks_of
from arkml.policies.workspace import PolicyWorkspace

POLICIES = Path(__file__).parents[2] / "fixtures" / "policies"


def numbers(count, width, seed=0):
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def test_actions_are_those_that_onnxruntime_gave_before():
    expected = np.load(POLICIES / "cervo" / "plain.npz")
    policy = load((POLICIES / "cervo" / "plain.onnx").read_bytes(), 8, 3)

    actions = acted(policy, expected["in_obs"])
    assert np.abs(actions - expected["actions_onnxruntime"]).max() < 1e-6


@pytest.mark.parametrize("count", [0, 1, 2, 63, 1024, 1025, 3000])
def test_every_row_is_the_same_alone_and_in_a_batch_of_any_size(count):
    policy = load((POLICIES / "mlp_f64_a3.onnx").read_bytes())
    features = numbers(count, 64)
    actions = acted(policy, features)

    for row in {0, count // 2, count - 1} & set(range(count)):
        assert np.array_equal(acted(policy, features[row : row + 1])[0], actions[row])


def test_a_batch_that_comes_again_is_read_anew():
    policy = load(build.linear([[1, 2], [3, 4]]))
    asked = batch([[1, 0]], 2)
    policy.act(asked)
    first = asked.actions.tolist()
    asked.features[:] = [[0, 1]]
    policy.act(asked)

    assert (first, asked.actions.tolist()) == ([[1, 2]], [[3, 4]])


def test_a_batch_that_another_policy_answered_is_bound_again():
    single, double = load(build.linear([[1]])), load(build.linear([[2]]))
    asked = batch([[3]], 1)

    for policy, expected in ((single, 3), (double, 6), (single, 3)):
        policy.act(asked)
        assert asked.actions.item() == expected


def test_columns_that_are_not_in_one_piece_are_copied():
    policy = load(build.with_value(flat=True))
    asked = batch(numbers(4, 2), 2)
    wide = np.zeros((3, 4, 6), np.float32)
    wide[0, :, :2] = asked.features
    asked.features, asked.actions, asked.values = wide[0, :, :2], wide[1, :, 1:3], wide[2, :, 3]
    policy.act(asked)

    assert np.array_equal(asked.actions, asked.features)
    assert np.allclose(asked.values, asked.features.sum(axis=1))


@pytest.mark.parametrize("flat", [True, False])
def test_values_of_rank_one_and_two_are_answered(flat):
    policy = load(build.with_value(flat=flat), 2, 2)
    asked = batch([[1, 2], [3, 4]], 2)
    policy.act(asked)

    assert asked.actions.tolist() == [[1, 2], [3, 4]]
    assert asked.values.tolist() == [3, 7]


def test_a_policy_without_a_value_leaves_the_values_alone():
    asked = batch([[1]], 1)
    asked.values[:] = 5
    load(build.linear([[1]])).act(asked)

    assert asked.values.tolist() == [5]


def test_models_without_features_act():
    data = build.model(
        [build.node("Gemm", "obs w b", "actions")],
        [build.port("obs", "N", 0)],
        [build.port("actions", "N", 2)],
        [build.weight("w", np.zeros((0, 2))), build.weight("b", [1, 2])],
    )

    assert acted(load(data, 0, 2), np.zeros((3, 0))).tolist() == [[1, 2]] * 3


def test_features_are_dealt_to_several_observations_in_order():
    data = build.model(
        [
            build.node("ReduceSum", "image axes", "sum", keepdims=0),
            build.node("Mul", "scale sum", "actions"),
        ],
        [build.port("scale", "N", 1), build.port("image", "N", 2, 1)],
        [build.port("actions", "N", 1)],
        [build.numpy_helper.from_array(np.array([1], np.int64), "axes")],
    )

    assert acted(load(data, 3, 1), [[2, 3, 4], [1, 1, 1]]).tolist() == [[14], [2]]


def test_features_that_are_no_numbers_spoil_their_own_row_only():
    policy = load((POLICIES / "det.onnx").read_bytes())
    features = numbers(5, 8)
    clean = acted(policy, features)
    features[2, 3] = np.nan
    spoiled = acted(policy, features)

    assert np.isnan(spoiled[2]).all()
    assert np.array_equal(np.delete(spoiled, 2, 0), np.delete(clean, 2, 0))


def noise(policy, ids, key=7):
    return acted(policy, np.zeros((len(ids), 2)), ids=ids, key=key).tolist()


def test_noise_does_not_depend_on_order_batch_or_fleet():
    one, other = load(build.noisy(2), seed=3), load(build.noisy(2), seed=3)
    ids = list(range(50))
    together = [noise(one, ids) for _ in range(3)]
    apart = [[noise(other, [i])[0] for i in reversed(ids)][::-1] for _ in range(2)]
    in_a_fleet = noise(other, [*ids, *ids], key=[7] * 50 + [8] * 50)

    assert together == [*apart, in_a_fleet[:50]]
    assert in_a_fleet[50:] == noise(load(build.noisy(2), seed=3), ids, key=8)
    assert len({row[0] for step in together for row in step}) == 150


def test_seeds_set_policies_apart():
    assert noise(load(build.noisy(2), seed=1), [5]) != noise(load(build.noisy(2), seed=2), [5])


def test_noise_of_rows_of_one_agent_is_that_of_successive_steps():
    one, other = load(build.noisy(2)), load(build.noisy(2))
    steps = [noise(one, [5])[0] for _ in range(4)]

    assert noise(other, [5, 9, 5, 5])[::2] + noise(other, [5]) == [steps[0], steps[1], steps[3]]


def test_a_deterministic_policy_has_no_noise():
    policy = load(build.noisy(2), deterministic=True)

    assert acted(policy, [[1, 2], [3, 4]], ids=[1, 1]).tolist() == [[1, 2], [3, 4]]


def test_names_of_tensorflow_work():
    data = build.noisy(2, obs="vector_observation:0", epsilon="epsilon:0", actions="Identity:0")

    assert acted(load(data, 2, 2, deterministic=True), [[1, 2]]).tolist() == [[1, 2]]


def test_a_recurrent_network_equals_a_loop_in_numpy():
    data, weights = build.long_short_term(3, 4)
    policy = load(data, 3, 4)
    features = numbers(6 * 5, 3).reshape(6, 5, 3)
    hidden, cell = np.zeros((5, 4)), np.zeros((5, 4))
    order = np.random.default_rng(1)
    for step in features:
        gates = step @ weights["W"][0].T + hidden @ weights["R"][0].T
        gates += weights["B"][0][:16] + weights["B"][0][16:]
        i, o, f, c = np.split(gates, 4, axis=1)
        cell = cell / (1 + np.exp(-f)) + np.tanh(c) / (1 + np.exp(-i))
        hidden = np.tanh(cell) / (1 + np.exp(-o))
        rows = order.permutation(5)

        assert np.allclose(acted(policy, step[rows], ids=rows), hidden[rows], atol=1e-5)


def test_recurrent_state_follows_the_agent_and_not_the_row():
    policy = load(build.adding(1))

    assert acted(policy, [[1], [10]], ids=[1, 2]).tolist() == [[1], [10]]
    assert acted(policy, [[10], [1]], ids=[2, 1]).tolist() == [[20], [2]]
    assert acted(policy, [[1], [1]], ids=[1, 1], key=[7, 8]).tolist() == [[3], [1]]


def test_rows_of_one_agent_advance_its_state_in_push_order():
    policy = load(build.adding(1))
    first = acted(policy, [[1], [10], [2], [3]], ids=[1, 2, 1, 1])
    second = acted(policy, [[4], [20]], ids=[1, 2])

    assert first.tolist() == [[1], [10], [3], [6]]
    assert second.tolist() == [[10], [30]]


def test_state_is_zero_on_an_initial_row_and_after_an_episode():
    policy = load(build.adding(1))

    def step(*rows):
        ids, features, states = zip(*rows, strict=True)
        return acted(policy, np.array([features]).T, ids=ids, states=states).ravel().tolist()

    assert step((1, 5, RUNNING), (2, 6, RUNNING)) == [5, 6]
    assert step((1, 1, INITIAL), (2, 1, TERMINAL)) == [1, 7]
    assert step((1, 1, INTERRUPTED), (2, 1, RUNNING)) == [2, 1]
    assert step((1, 1, RUNNING), (1, 2, INITIAL), (1, 3, RUNNING)) == [1, 2, 5]
    assert step((1, 1, TERMINAL), (1, 2, RUNNING)) == [6, 2]
    assert step((1, 1, RUNNING)) == [3]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_state_that_is_not_finite_becomes_zero_and_is_told_once(caplog, value):
    policy = load(build.adding(1))
    acted(policy, [[value], [3]], ids=[1, 2])
    after = acted(policy, [[5], [4]], ids=[1, 2])
    acted(policy, [[value], [3]], ids=[1, 2])

    assert after.tolist() == [[5], [7]]
    assert caplog.messages == [
        "recurrent states of 1 of 2 agents are not finite: zeros take their places"
    ]


def test_large_states_are_kept():
    policy = load(build.adding(1))
    acted(policy, [[3e38], [3e38]], ids=[1, 2])

    assert acted(policy, [[0], [0]], ids=[1, 2]).tolist() == np.float32([[3e38], [3e38]]).tolist()


def test_a_session_that_is_forgotten_takes_its_state_along():
    policy = load(build.adding(1))
    acted(policy, [[1], [2]], ids=[1, 1], key=[7, 8])
    policy.forget(7)

    assert acted(policy, [[1], [2]], ids=[1, 1], key=[7, 8]).tolist() == [[1], [4]]


def test_models_of_ml_agents_act_and_remember():
    policy = load(build.ml_agents(), 4, 2, deterministic=True)
    sampled = load(build.ml_agents(), 4, 2)

    assert acted(policy, [[1, 2, 3, 4]]).tolist() == [[10, 10]]
    assert acted(policy, [[1, 2, 3, 4]]).tolist() == [[11, 11]]
    actions = acted(sampled, np.zeros((500, 4)))
    assert abs(actions.mean()) < 0.2
    assert abs(actions.std() - 1) < 0.2


def test_action_masks_allow_everything():
    policy = load(build.ml_agents(masks=3), 4, 2, deterministic=True)

    assert acted(policy, [[1, 0, 0, 0]]).tolist() == [[3, 3]]


@pytest.mark.parametrize("size", [1, 4])
def test_a_fixed_batch_of_a_plain_perceptron_is_freed(size):
    policy = load(build.linear([[2]], batch=size), 1, 1)
    asked = batch([[1], [2], [3], [4], [5]], 1)
    policy.act(asked)

    assert asked.actions.ravel().tolist() == [2, 4, 6, 8, 10]
    assert len(asked.scratch.calls) == 1


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 9])
def test_another_model_with_a_fixed_batch_runs_in_padded_blocks(size, count):
    data = build.model(
        [build.node("Reshape", "obs shape", "flat"), build.node("Add", "flat bias", "actions")],
        [build.port("obs", size, 2, 1)],
        [build.port("actions", size, 2)],
        [
            build.numpy_helper.from_array(np.array([size, 2], np.int64), "shape"),
            build.weight("bias", np.arange(2 * size).reshape(size, 2)),
        ],
    )
    bias = np.resize(np.arange(2 * size).reshape(size, 2), (count, 2))
    features = numbers(count, 2)

    assert np.array_equal(acted(load(data, 2, 2), features), features + bias.astype(np.float32))


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [("ReduceMean", {"keepdims": 0}), ("ReduceMax", {"axes": [0]}), ("Softmax", {"axis": 0})],
)
def test_a_row_is_answered_alone_by_a_model_that_computes_its_rows_from_each_other(
    operator, attributes
):
    """The mean of a dueling network over all of its inputs, for one, depends on who submits."""
    data = build.model(
        [
            build.node(operator, "obs", "others", **attributes),
            build.node("Sub", "obs others", "actions"),
        ],
        [build.port("obs", "N", 3)],
        [build.port("actions", "N", 3)],
    )
    assert answers_alone(data, 3)


def answers_alone(data, width):
    """Whether rows of as many features as actions are answered as each of them by itself."""
    features, policy = numbers(5, width), load(data, width, width)
    alone = [acted(policy, features[i : i + 1])[0] for i in range(5)]
    return np.array_equal(acted(policy, features), alone)


def integers(**values):
    return [
        build.numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in values.items()
    ]


def between_rows(nodes, weights=()):
    """A model of these nodes, each `operator inputs -> output`, from obs [N, 2, 3] to actions."""
    made = [
        build.node(operator, *rest.split(" -> "), **attributes)
        for operator, rest, attributes in nodes
    ]
    made.append(build.node("Reshape", "moved rows", "actions"))
    inputs, outputs = [build.port("obs", "N", 2, 3)], [build.port("actions", "N", 6)]
    return build.model(made, inputs, outputs, [*weights, *integers(rows=[-1, 6])])


MOVING = {
    "flip": between_rows(
        [("Slice", "obs last first batch back -> moved", {})],
        integers(last=[-1], first=[-(1 << 40)], batch=[0], back=[-1]),
    ),
    "flip of the rows behind steps": between_rows(
        [
            ("Transpose", "obs -> steps", {"perm": [1, 0, 2]}),
            ("Slice", "steps last first batch back -> turned", {}),
            ("Transpose", "turned -> moved", {"perm": [1, 0, 2]}),
        ],
        integers(last=[-1], first=[-(1 << 40)], batch=[1], back=[-1]),
    ),
    "deal": between_rows(  # as cards to players
        [("Transpose", "obs -> moved", {"perm": [1, 0, 2]})],
    ),
    "deal through a matrix": between_rows(
        [
            ("Reshape", "obs flat -> by_hand", {}),
            ("Transpose", "by_hand -> moved", {"perm": [1, 0]}),
        ],
        integers(flat=[6, -1]),
    ),
    "twice": between_rows(
        [
            ("Concat", "obs obs -> both", {"axis": 0}),
            ("Reshape", "both pairs -> paired", {}),
            ("ReduceSum", "paired axis -> moved", {"keepdims": 0}),
        ],
        integers(pairs=[-1, 2, 2, 3], axis=[1]),
    ),
    "tiles": between_rows(
        [
            ("Tile", "obs two -> both", {}),
            ("Reshape", "both pairs -> paired", {}),
            ("ReduceSum", "paired axis -> moved", {"keepdims": 0}),
        ],
        integers(two=[2, 1, 1], pairs=[-1, 2, 2, 3], axis=[1]),
    ),
    "sums of others": between_rows(
        [
            ("Reshape", "obs rows -> flat", {}),
            ("Einsum", "flat flat -> moved", {"equation": "bi,ci->bi"}),
        ],
    ),
    **{
        f"{operator} over the rows": between_rows(
            [
                (operator, "obs w r -> steps", {"hidden_size": 3}),
                ("Squeeze", "steps one -> moved", {}),
            ],
            [
                build.weight("w", numbers(gates * 3, 3).reshape(1, gates * 3, 3)),
                build.weight("r", numbers(gates * 3, 3).reshape(1, gates * 3, 3)),
                *integers(one=[1]),
            ],
        )
        for operator, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))
    },
    "triangle of rows": between_rows(
        [
            ("Transpose", "obs -> columns", {"perm": [1, 2, 0]}),
            ("Trilu", "columns -> half", {}),
            ("Transpose", "half -> moved", {"perm": [2, 0, 1]}),
        ],
    ),
    "their number": between_rows(
        [
            ("Shape", "obs -> sizes", {"end": 1}),
            ("Cast", "sizes -> count", {"to": 1}),
            ("Div", "obs count -> moved", {}),
        ],
    ),
}


@pytest.mark.parametrize("name", MOVING)
def test_a_row_is_answered_alone_by_a_model_that_moves_or_counts_rows(name):
    assert answers_alone(MOVING[name], 6)


STAYING = {
    "steps in one matrix": between_rows(  # as in torch's attention
        [
            ("Transpose", "obs -> steps", {"perm": [1, 0, 2]}),
            ("Reshape", "steps flat -> matrix", {}),
            ("Relu", "matrix -> result", {}),
            ("Reshape", "result apart -> again", {}),
            ("Transpose", "again -> moved", {"perm": [1, 0, 2]}),
        ],
        integers(flat=[-1, 3], apart=[2, -1, 3]),
    ),
    "tiles of one row": between_rows(
        [
            ("Tile", "obs two -> both", {}),
            ("Reshape", "both apart -> turns", {}),
            ("ReduceSum", "turns axis -> moved", {"keepdims": 0}),
        ],
        integers(two=[2, 1, 1], apart=[2, -1, 2, 3], axis=[0]),
    ),
    "triangle of features": between_rows([("Trilu", "obs -> moved", {"upper": 0})]),
    "features from the last on": between_rows(
        [("Slice", "obs last first axis back -> moved", {})],
        integers(last=[-1], first=[-(1 << 40)], axis=[1], back=[-1]),
    ),
    "divided by the number of features": between_rows(
        [
            ("Shape", "obs -> sizes", {}),
            ("Gather", "sizes axis -> width", {"axis": 0}),
            ("Cast", "width -> count", {"to": 1}),
            ("Div", "obs count -> moved", {}),
        ],
        integers(axis=[-1]),
    ),
    "as many zeros": between_rows(
        [
            ("Shape", "obs -> sizes", {}),
            ("ConstantOfShape", "sizes -> zeros", {}),
            ("Add", "obs zeros -> moved", {}),
        ],
    ),
}


@pytest.mark.parametrize("name", STAYING)
def test_rows_that_stay_in_their_order_are_answered_in_one_run(name):
    assert answers_alone(STAYING[name], 6)
    assert onnx_model.load_onnx(STAYING[name], Limits(), seconds=10.0).block is None


def test_a_recurrent_model_with_a_fixed_batch_remembers():
    policy = load(build.adding(1, batch=2))

    assert acted(policy, [[1], [2], [3]]).tolist() == [[1], [2], [3]]
    assert acted(policy, [[1], [1]], ids=[2, 0]).tolist() == [[4], [2]]


def load_fresh(data, *, override=None, **options):
    """A policy of a model that is not in the shared cache."""
    library = build.PolicyLibrary(model_cache.ModelCache(**options), override=override)
    return library.load(data, build.SnapshotFormat.ONNX, None, None)


def hungry():
    """Each row makes 8 MiB."""
    return build.model(
        [
            build.node("Transpose", "obs", "column", perm=[0, 2, 1]),
            build.node("MatMul", "column obs", "square"),
            build.node("ReduceMean", "square", "mean", axes=[2], keepdims=0),
            build.node("ReduceMean", "mean", "actions", axes=[1], keepdims=1),
        ],
        [build.port("obs", "N", 1, 1448)],
        [build.port("actions", "N", 1)],
    )


def test_rows_that_need_much_memory_run_in_smaller_chunks(monkeypatch):
    monkeypatch.setattr(onnx_model, "_QUICK", 1e9)  # no timer, however busy the machine is
    policy = load_fresh(hungry())
    asked = batch(np.ones((40, 1448)), 1)
    policy.act(asked)

    assert asked.actions.ravel().tolist() == [1] * 40
    assert len(asked.scratch.calls[0].calls) > 2


def test_a_run_over_the_memory_cap_fails_and_the_next_one_does_not(monkeypatch):
    monkeypatch.setattr(onnx_model, "_CHUNK_BYTES", 1 << 40)
    monkeypatch.setattr(onnx_model, "_PART_SECONDS", 1e9)
    monkeypatch.setattr(pace, "NODE_SECONDS", 1e9)
    monkeypatch.setattr(pace, "BLOCK_SECONDS", 1e9)
    greedy = load_fresh(hungry())

    with pytest.raises(Unavailable, match="the model failed"):
        acted(greedy, np.ones((200, 1448)))
    assert acted(greedy, np.ones((2, 1448))).tolist() == [[1], [1]]


def test_a_failure_without_text_is_named_by_its_type():
    assert str(failed(MemoryError())) == "the model failed: MemoryError"
    assert str(failed(RuntimeError(" \n"))) == "the model failed: RuntimeError"


class Alarm(Exception):
    """What a signal handler of the embedder raises."""


@pytest.fixture
def alarm():
    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGUSR1, ring)
    yield partial(signal.raise_signal, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("is_plain", [True, False])
def test_what_a_signal_handler_raises_in_a_run_is_no_fault_of_the_model(alarm, is_plain):
    policy = build.load(build.linear([[1]]), 1, 1)
    asked = build.batch([[1]], 1)
    policy.act(asked)
    bound = asked.scratch
    bound.only, bound.calls = (alarm, ()) if is_plain else (None, (alarm,))

    with pytest.raises(Alarm):
        policy.act(asked)
    bound.only = lambda: None
    policy.act(asked)


@pytest.fixture
def _patient(monkeypatch):
    """The processor's time alone decides, however busy the machine is."""
    monkeypatch.setattr(load_time, "PATIENCE", 10_000.0)


def deep(width, layers, *, remember):
    """Many layers that change nothing, after a memory that adds up the observations."""
    nodes = [build.node("MatMul", f"h{i} w", f"h{i + 1}") for i in range(layers)]
    nodes.append(build.node("Identity", f"h{layers}", "actions"))
    inputs, outputs = [build.port("obs", "N", width)], [build.port("actions", "N", width)]
    if remember:
        nodes.insert(0, build.node("Add", "obs memory_in", "h0"))
        nodes.append(build.node("Identity", "h0", "memory_out"))
        inputs.append(build.port("memory_in", "N", width))
        outputs.append(build.port("memory_out", "N", width))
    else:
        nodes.insert(0, build.node("Identity", "obs", "h0"))
    return build.model(nodes, inputs, outputs, [build.weight("w", np.eye(width))])


@pytest.mark.usefixtures("_patient")
def test_a_batch_of_the_embedders_policy_that_takes_too_long_is_given_up_and_no_agent_moves_on():
    data = deep(256, 200, remember=True)
    policy = load_fresh(data, seconds=0.3, override=PolicyFile(data))
    ones = np.ones((20_000, 256), np.float32)
    acted(policy, ones[:1])

    with pytest.raises(Unavailable, match=r"longer than 0\.3 s"):
        acted(policy, ones)
    assert acted(policy, ones[:1])[0, 0] == 2


def test_a_policy_of_a_guest_that_ran_for_too_long_is_not_run_again(monkeypatch):
    monkeypatch.setattr(run_limit, "_MOSTLY", 0.0)  # however busy the machine is
    library = build.PolicyLibrary(model_cache.ModelCache())
    data = deep(256, 200, remember=True)
    policy = library.load(data, build.SnapshotFormat.ONNX, None, None)
    small, large = (batch(np.ones((count, 256)), 256) for count in (1, 20_000))
    policy.act(small)
    library.workspace.run_seconds = 0.1

    with pytest.raises(Unavailable, match=r"longer than 0\.1 s$"):
        policy.act(large)
    library.workspace.run_seconds = 10.0
    for asked in (small, batch(np.ones((1, 256)), 256)):
        with pytest.raises(Unavailable, match=r"longer than 0\.1 s before: it is not run again"):
            policy.act(asked)
    with pytest.raises(Unavailable, match="not run again"):
        library.load(data, build.SnapshotFormat.ONNX, None, None)


def test_a_policy_that_hardly_had_the_processor_is_run_again(monkeypatch):
    monkeypatch.setattr(run_limit, "_MOSTLY", 1e9)
    library = build.PolicyLibrary(model_cache.ModelCache())
    policy = library.load(deep(256, 200, remember=True), build.SnapshotFormat.ONNX, None, None)
    library.workspace.run_seconds = 0.05

    with pytest.raises(
        Unavailable, match=r"longer than 0\.05 s, of which it had the processor for"
    ):
        acted(policy, np.ones((4_000, 256)))
    assert acted(policy, np.ones((1, 256)))[0, 0] == 1


def test_one_guest_that_runs_out_of_time_stops_the_policy_of_no_other_guest():
    models, data = model_cache.ModelCache(), deep(256, 200, remember=True)
    libraries = [build.PolicyLibrary(models) for _ in range(2)]
    hasty, other = (each.load(data, build.SnapshotFormat.ONNX, None, None) for each in libraries)
    libraries[0].workspace.run_seconds = 0.05
    ones = np.ones((4_000, 256), np.float32)

    with pytest.raises(Unavailable, match="longer than"):
        acted(hasty, ones)
    assert acted(other, ones[:100]).tolist() == ones[:100].tolist()


def test_an_interrupt_is_heard_between_the_blocks_of_a_batch():
    library = build.PolicyLibrary(model_cache.ModelCache())
    policy = library.load(deep(256, 200, remember=True), build.SnapshotFormat.ONNX, None, None)
    asked = []
    library.workspace.is_interrupted = lambda: asked.append(1) or len(asked) == 3

    with pytest.raises(Unavailable, match="was interrupted"):
        acted(policy, np.ones((20_000, 256)))
    assert len(asked) == 3
    assert acted(policy, np.ones((1, 256)))[0, 0] == 1


@pytest.mark.usefixtures("_patient")
def test_a_model_that_is_slow_on_one_row_is_rejected():
    with pytest.raises(ModelRejected, match=r"did not (load|run on 3 rows) in 0\.02 s of CPU"):
        load_fresh(deep(2048, 50, remember=False), seconds=0.02)


def test_a_machine_that_is_too_busy_to_load_a_model_is_not_the_models_fault(monkeypatch):
    monkeypatch.setattr(load_time, "PATIENCE", 1e-9)

    with pytest.raises(Unavailable, match=r"the busy machine gave it .* of CPU: load it again"):
        load_fresh(build.linear([[1]]))


@pytest.mark.parametrize("options", [{}, {"override": build.linear([[1]])}])
def test_a_policy_says_whether_a_guest_brought_it(options):
    policy = load_fresh(build.linear([[1]]), **options)

    assert is_of_guest(policy) == (not options)
    assert (session_bytes(policy) > 0) == (not options)


def rows_times_masks(width, *, batch="N"):
    """actions = obs * (the sum of the masks) + epsilon"""
    return build.model(
        [
            build.node("ReduceMean", "action_masks", "mean", axes=[1], keepdims=1),
            build.node("Mul", "obs mean", "product"),
            build.node("Add", "product epsilon", "actions"),
        ],
        [
            build.port("obs", batch, 1),
            build.port("action_masks", batch, width),
            build.port("epsilon", batch, 1),
        ],
        [build.port("actions", batch, 1)],
    )


@pytest.mark.parametrize("size", ["N", 3, 1_500])
def test_masks_of_many_rows_are_made_once_and_read_for_all(size):
    policy = load(rows_times_masks(4, batch=size), deterministic=True)
    features = numbers(2_500, 1)
    asked = batch(features, 1)
    policy.act(asked)

    assert np.array_equal(asked.actions, features)
    assert asked.scratch.feeds["action_masks"].shape == (1_024, 4)
    assert asked.scratch.feeds["epsilon"].shape == (1_024, 1)


def test_rows_that_take_turns_see_the_masks_too():
    one, other = (load(build.ml_agents(masks=3), 4, 2, deterministic=True) for _ in range(2))
    features, first, second = numbers(2_200, 4), np.arange(1_500), np.arange(700)
    together = acted(one, features, ids=[*first, *second])
    apart = [acted(other, features[:1_500], ids=first), acted(other, features[1_500:], ids=second)]

    assert np.array_equal(together, np.concatenate(apart))


def recalling(width):
    """actions = obs, value = sum of the actions before"""
    axes = build.numpy_helper.from_array(np.array([1], np.int64), "axes")
    return build.model(
        [
            build.node("Identity", "obs", "actions"),
            build.node("ReduceSum", "prev_action axes", "value", keepdims=1),
        ],
        [build.port("obs", "N", width), build.port("prev_action", "N", width)],
        [build.port("actions", "N", width), build.port("value", "N", 1)],
        [axes],
    )


def recalled(policy, features, masked=(), **rows):
    """The values for `features`, of which the guest masks `masked`, by row and column."""
    asked = batch(features, policy.num_actions, **rows)
    if masks := masks_of(policy):
        masks.begin(len(asked))
        places = np.array([row for row, _ in masked], np.intp)
        names = tuple(name for _, name in masked)
        masks.mask(MetadataLog(places, names, np.arange(len(names)), np.ones(len(names))))
    policy.act(asked)
    return asked.values.tolist()


def playing(data, width, branches):
    """The policy in ONNX bytes, of a guest with these branches."""
    library_ = library.PolicyLibrary(build.CACHE)
    return library_.load(data, SnapshotFormat.ONNX, width, width, lambda *_: branches)


def test_the_action_before_is_the_one_that_was_taken_under_masks():
    policy = playing(recalling(2), 2, (4, 4))
    masked = [(0, "mask/0/3"), (0, "mask/1/3")]
    recalled(policy, [[3, 3], [3, 3]], masked)

    assert recalled(policy, [[9, -1], [1.4, 2]]) == [0, 6]
    assert recalled(policy, [[0, 0], [0, 0]]) == [0, 3]


def test_rows_that_take_turns_see_the_actions_that_were_taken():
    policy = playing(recalling(1), 1, (4,))
    masked = [(0, "mask/0/3"), (2, "mask/0/2"), (3, "mask/0/0")]

    assert recalled(policy, [[3], [3], [2], [0]], masked, ids=[1, 2, 1, 1]) == [0, 0, 0, 0]
    assert recalled(policy, [[2], [2]], ids=[1, 2]) == [1, 3]


def test_continuous_actions_before_the_choices_are_recalled_as_they_are():
    policy = playing(recalling(3), 3, (4,))
    recalled(policy, [[0.25, -7.5, 3]], [(0, "mask/0/3")])

    assert recalled(policy, [[0, 0, 0]]) == [-7.25]


def test_an_action_that_is_not_finite_is_recalled_as_the_zero_of_its_answer():
    policy = load(recalling(2), 2, 2)
    recalled(policy, [[np.nan, 2], [np.inf, 1]])

    assert recalled(policy, [[0, 0], [0, 0]]) == [2, 1]


def test_a_policy_is_freed_with_its_last_reference_and_not_by_a_collection():
    policy = playing(recalling(2), 2, (4, 4))
    recalled(policy, [[1, 2]])
    acting = weakref.ref(policy.policy)
    gc.disable()
    try:
        del policy

        assert acting() is None
    finally:
        gc.enable()


def limited(monkeypatch, data, size):
    monkeypatch.setattr(library, "PolicyWorkspace", partial(PolicyWorkspace, batch_bytes=size))
    return load(data, deterministic=True)


def test_a_batch_whose_masks_would_take_too_much_memory_is_refused(monkeypatch):
    policy = limited(monkeypatch, rows_times_masks(99), 100 * 4 * 100)

    with pytest.raises(Unavailable, match="101 rows take 40400 bytes, 40000 are allowed"):
        acted(policy, np.ones((101, 1)))
    assert acted(policy, np.ones((100, 1))).ravel().tolist() == [1] * 100


def test_a_batch_whose_states_would_take_too_much_memory_moves_nobody_on(monkeypatch):
    policy = limited(monkeypatch, build.adding(5), 10 * 2 * 5 * 4)
    acted(policy, np.ones((2, 5)))

    with pytest.raises(Unavailable, match="11 rows take 440 bytes, 400 are allowed"):
        acted(policy, np.ones((11, 5)))
    assert acted(policy, np.ones((10, 5)))[:3, 0].tolist() == [2, 2, 1]


def test_batches_that_take_turns_with_one_memory_do_not_mix():
    policies = build.PolicyLibrary(build.CACHE, seed=3)
    adding, noisy = (
        policies.load(data, build.SnapshotFormat.ONNX, 2, 2)
        for data in (build.adding(2), build.noisy(2))
    )
    alone = acted(load(build.noisy(2), seed=3), np.zeros((40, 2)))
    few, many = batch(np.ones((3, 2)), 2), batch(np.zeros((40, 2)), 2)
    for policy, asked in ((adding, few), (noisy, many), (adding, few)):
        policy.act(asked)

    assert few.actions.tolist() == [[2, 2]] * 3
    assert np.array_equal(many.actions, alone)


@pytest.mark.parametrize(("constants", "white"), [((), 1), (("version_number",), 255)])
def test_an_image_with_the_channels_first_is_scaled_for_a_file_of_ml_agents(constants, white):
    image = Part("view", (1, 2, 2), "image")
    data = build.model(
        [
            build.node("Flatten", "obs_0", "actions"),
            *(build.node("Identity", "three", name) for name in constants),
        ],
        [build.port("obs_0", "N", 2, 1, 2)],
        [build.port("actions", "N", 4), *(build.port(name, 1) for name in constants)],
        [build.weight("three", [3.0])],
    )
    parts = tuple(fields_of([image]))
    policy = library.PolicyLibrary(build.CACHE).load(
        data, SnapshotFormat.ONNX, 4, 4, parts_of=lambda *_: parts
    )
    actions = acted(policy, [[0.0, 51.0, 102.0, 255.0]])

    np.testing.assert_allclose(actions, np.array([[0.0, 102.0, 51.0, 255.0]]) / white, rtol=1e-6)
