"""Small policies of each kind: with scores, with noise, with memory."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def model(nodes, weights, inputs, outputs):
    graph = helper.make_graph(
        [helper.make_node(*node) for node in nodes],
        "policy",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", w]) for n, w in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", w]) for n, w in outputs.items()],
        [numpy_helper.from_array(value.astype(np.float32), n) for n, value in weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()


def drawn(*shape, seed):
    return np.random.default_rng(seed).normal(size=shape)


def scoring(features, actions):
    nodes = [("MatMul", ["obs", "w"], ["h"]), ("Tanh", ["h"], ["actions"])]
    weights = {"w": drawn(features, actions, seed=1)}
    return model(nodes, weights, {"obs": features}, {"actions": actions})


def noisy(features, actions):
    nodes = [
        ("MatMul", ["obs", "w"], ["h"]),
        ("Add", ["h", "epsilon"], ["s"]),
        ("Tanh", ["s"], ["actions"]),
    ]
    weights = {"w": drawn(features, actions, seed=2)}
    inputs = {"obs": features, "epsilon": actions}
    return model(nodes, weights, inputs, {"actions": actions})


def remembering(features, actions, width=8):
    nodes = [
        ("MatMul", ["obs", "w"], ["x"]),
        ("MatMul", ["memory", "u"], ["y"]),
        ("Add", ["x", "y"], ["z"]),
        ("Tanh", ["z"], ["memory_out"]),
        ("MatMul", ["memory_out", "v"], ["actions"]),
    ]
    weights = {
        "w": drawn(features, width, seed=3),
        "u": 0.5 * drawn(width, width, seed=4),
        "v": drawn(width, actions, seed=5),
    }
    inputs = {"obs": features, "memory": width}
    return model(nodes, weights, inputs, {"actions": actions, "memory_out": width})
