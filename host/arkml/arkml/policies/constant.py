"""The first policy of a run, before any learning: an ONNX file whose actions are zero."""

from __future__ import annotations

import numpy as np

from arkml.base.native_imports import import_onnx

_OPSET, _IR = 17, 8


def zeros(num_features: int, num_actions: int) -> bytes:
    """Return an ONNX policy whose actions, [n, num_actions], and values, [n, 1], are zero."""
    onnx = import_onnx()
    helper, from_array = onnx.helper, onnx.numpy_helper.from_array
    float32 = onnx.TensorProto.FLOAT
    outputs = {"actions": num_actions, "values": 1}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["observations", f"{n}_weights"], [n]) for n in outputs],
        "zeros",
        [helper.make_tensor_value_info("observations", float32, ["n", num_features])],
        [helper.make_tensor_value_info(n, float32, ["n", width]) for n, width in outputs.items()],
        [
            from_array(np.zeros((num_features, width), np.float32), f"{n}_weights")
            for n, width in outputs.items()
        ],
    )
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(graph, ir_version=_IR, opset_imports=[opset])
    data: bytes = model.SerializeToString()
    return data
