from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.unit import policy_models as build

from arkml.policies.rebatch import fixed_batch, is_rowwise, with_free_batch

POLICIES = Path(__file__).parents[2] / "fixtures" / "policies"


def parsed(data):
    return onnx.load_from_string(data)


def elementwise(operator, bias, **attributes):
    nodes = [build.node(operator, "obs bias", "actions", **attributes)]
    ports = [build.port("obs", 4, 3)], [build.port("actions", 4, 3)]
    return parsed(build.model(nodes, *ports, [build.weight("bias", bias)]))


def test_the_batch_is_fixed_where_all_inputs_agree_on_a_number():
    assert fixed_batch(parsed(build.linear([[1]], batch=4))) == 4
    assert fixed_batch(parsed(build.linear([[1]], batch="N"))) is None
    assert fixed_batch(parsed(build.adding(1, batch=2))) == 2


@pytest.mark.parametrize("name", ["mlp_f64_a3", "det", "stoch", "cervo/plain", "cervo/epsilon"])
def test_perceptrons_treat_every_row_alike(name):
    assert is_rowwise(onnx.load(POLICIES / f"{name}.onnx"))


@pytest.mark.parametrize("bias", [1.0, np.zeros(3), np.zeros((1, 3))])
def test_a_bias_that_all_rows_share_keeps_rows_alike(bias):
    assert is_rowwise(elementwise("Add", bias))


def test_a_bias_with_a_row_for_each_row_does_not():
    assert not is_rowwise(elementwise("Add", np.zeros((4, 3))))
    assert not is_rowwise(elementwise("Concat", np.zeros((4, 3)), axis=1))


@pytest.mark.parametrize(
    "nodes",
    [
        [("Concat", "obs obs", "actions", {"axis": 0})],
        [("ReduceMean", "obs", "actions", {"axes": [0]})],
        [("Transpose", "obs", "actions", {})],
        [("MatMul", "w obs", "actions", {})],
        [("Gemm", "obs w w", "actions", {"transA": 1})],
        [("MatMul", "obs obs", "actions", {})],
        [("Softmax", "obs", "actions", {"axis": 0})],
    ],
    ids=lambda nodes: nodes[0][0],
)
def test_operators_that_mix_rows_are_known(nodes):
    made = [build.node(name, inputs, to, **given) for name, inputs, to, given in nodes]
    ports = [build.port("obs", 4, 4)], [build.port("actions", 4, 4)]

    assert not is_rowwise(parsed(build.model(made, *ports, [build.weight("w", np.eye(4))])))


def test_freeing_the_batch_leaves_the_original_alone():
    fixed = parsed(build.linear([[1]], batch=4))
    free = with_free_batch(fixed)

    assert fixed_batch(free) is None
    assert fixed_batch(fixed) == 4
