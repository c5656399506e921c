"""Small ONNX models for tests, and batches to ask them with."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from arkml.abi.codes import SnapshotFormat
from arkml.batches import ROW, Batch
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache

CACHE = ModelCache()
RUNNING, TERMINAL, INTERRUPTED, INITIAL = range(4)


def port(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def weight(name, values):
    return numpy_helper.from_array(np.asarray(values, np.float32), name)


def model(nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(nodes, "policy", inputs, outputs, list(weights))
    opset = helper.make_opsetid("", 15)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def linear(weights, *, obs="obs", actions="actions", batch="N"):
    """actions = obs @ weights"""
    features, width = np.shape(weights)
    return model(
        [node("MatMul", f"{obs} w", actions)],
        [port(obs, batch, features)],
        [port(actions, batch, width)],
        [weight("w", weights)],
    )


def with_value(*, flat):
    """actions = obs, value = sum of obs, of rank 1 if `flat`."""
    keep = 0 if flat else 1
    shape = ["N"] if flat else ["N", 1]
    return model(
        [
            node("Identity", "obs", "actions"),
            node("ReduceSum", "obs axes", "value", keepdims=keep),
        ],
        [port("obs", "N", 2)],
        [port("actions", "N", 2), port("value", *shape)],
        [numpy_helper.from_array(np.array([1], np.int64), "axes")],
    )


def noisy(width, *, obs="obs", epsilon="epsilon", actions="actions"):
    """actions = obs + epsilon"""
    return model(
        [node("Add", f"{obs} {epsilon}", actions)],
        [port(obs, "N", width), port(epsilon, "N", width)],
        [port(actions, "N", width)],
    )


def adding(width, *, batch="N"):
    """actions = memory = memory + obs"""
    return model(
        [node("Add", "obs memory_in", "memory_out"), node("Identity", "memory_out", "actions")],
        [port("obs", batch, width), port("memory_in", batch, width)],
        [port("actions", batch, width), port("memory_out", batch, width)],
    )


def long_short_term(features, hidden, seed=0):
    """An LSTM with states of (N, 1, hidden); actions are the hidden state. Also its weights."""
    random = np.random.default_rng(seed)
    weights = {
        "W": random.normal(size=(1, 4 * hidden, features)) / 2,
        "R": random.normal(size=(1, 4 * hidden, hidden)) / 2,
        "B": random.normal(size=(1, 8 * hidden)) / 4,
    }
    weights = {name: values.astype(np.float32) for name, values in weights.items()}
    constants = [weight(name, values) for name, values in weights.items()]
    constants.append(numpy_helper.from_array(np.array([0], np.int64), "first"))
    data = model(
        [
            node("Unsqueeze", "features first", "x"),
            node("Transpose", "lstm_hidden_state.1", "h", perm=[1, 0, 2]),
            node("Transpose", "lstm_cell_state.1", "c", perm=[1, 0, 2]),
            helper.make_node(
                "LSTM", ["x", "W", "R", "B", "", "h", "c"], ["", "hn", "cn"], hidden_size=hidden
            ),
            node("Squeeze", "hn first", "actions"),
            node("Transpose", "hn", "lstm_hidden_state", perm=[1, 0, 2]),
            node("Transpose", "cn", "lstm_cell_state", perm=[1, 0, 2]),
        ],
        [
            port("features", "N", features),
            port("lstm_hidden_state.1", "N", 1, hidden),
            port("lstm_cell_state.1", "N", 1, hidden),
        ],
        [
            port("actions", "N", hidden),
            port("lstm_hidden_state", "N", 1, hidden),
            port("lstm_cell_state", "N", 1, hidden),
        ],
        constants,
    )
    return data, weights


def ml_agents(*, features=4, actions=2, memory=3, masks=0):
    """
    A model in the form of ML-Agents.

    The mean is the sum of features and memory; the memory grows by one at each step; the sampled
    actions are the mean plus noise from inside of the graph. With masks the mean is multiplied by
    their sum.
    """
    sized = {"version_number": 3, "memory_size": memory, "continuous_action_output_shape": actions}
    weights = [weight(f"const_{name}", [value]) for name, value in sized.items()]
    weights += [
        weight("ones", np.ones((features, actions))),
        weight("mix", np.ones((memory, actions)) / memory),
        weight("one", 1.0),
        numpy_helper.from_array(np.array([1], np.int64), "axis"),
    ]
    nodes = [node("Identity", f"const_{name}", name) for name in sized]
    nodes += [
        node("MatMul", "obs_0 ones", "seen"),
        node("Squeeze", "recurrent_in axis", "flat"),
        node("MatMul", "flat mix", "recalled"),
        node("Add", "seen recalled", "sum"),
        node("RandomNormalLike", "sum", "noise"),
        node("Add", "recurrent_in one", "recurrent_out"),
    ]
    inputs = [port("obs_0", "batch", features), port("recurrent_in", "batch", 1, memory)]
    if masks:
        nodes += [
            node("ReduceSum", "action_masks axis", "allowed", keepdims=1),
            node("Mul", "sum allowed", "deterministic_continuous_actions"),
        ]
        inputs.append(port("action_masks", "batch", masks))
    else:
        nodes.append(node("Identity", "sum", "deterministic_continuous_actions"))
    nodes.append(node("Add", "deterministic_continuous_actions noise", "continuous_actions"))
    outputs = [port(name, 1) for name in ("version_number", "memory_size")]
    outputs += [
        port("continuous_actions", "batch", actions),
        port("continuous_action_output_shape", 1),
        port("deterministic_continuous_actions", "batch", actions),
        port("recurrent_out", "batch", 1, memory),
    ]
    return model(nodes, inputs, outputs, weights)


def batch(features, num_actions, *, ids=None, states=None, key=7):
    """A batch with a row for each row of `features`; every id is new unless given."""
    features = np.ascontiguousarray(features, np.float32)
    count = len(features)
    rows = np.zeros(count, ROW)
    rows["id"] = np.arange(count) if ids is None else ids
    rows["state"] = RUNNING if states is None else states
    actions = np.full((count, num_actions), np.nan, np.float32)
    values = np.zeros(count, np.float32)
    return Batch(rows, features, actions, values, np.asarray(key, np.uint64))


def load(data, num_features=None, num_actions=None, **options):
    """The policy in ONNX bytes."""
    library = PolicyLibrary(CACHE, **options)
    return library.load(data, SnapshotFormat.ONNX, num_features, num_actions)


def acted(policy, features, **rows):
    """The actions for `features`."""
    asked = batch(features, policy.num_actions, **rows)
    policy.act(asked)
    return asked.actions


def weighty(exported, seed):
    """A file of a learner of ours whose weights are far from zero, so that its answers differ."""
    found = onnx.ModelProto.FromString(exported)
    random = np.random.default_rng(seed)
    for one in found.graph.initializer:
        if one.name.endswith(("_weight", "_bias")):
            shape = numpy_helper.to_array(one).shape
            one.raw_data = random.normal(0.0, 0.3, shape).astype("<f4").tobytes()
    return found.SerializeToString()
