"""Policies with an input for each part of an observation, whose names are those of the guest."""

import numpy as np
import pytest
from onnx import numpy_helper
from tests.integration.command_line import CORRIDOR
from tests.unit import policy_models as build

import arkml
from arkml import Host
from arkml.errors import InvalidArguments

ROW = {"cell": 1, "breath": 1, "door": 1, "color": 3}
"""The parts of the corridor's observations, in the order of its row, with their widths."""


def corridor_policy(names, widths=ROW):
    """A file whose inputs lie in this order, which walks and takes keys by the color."""
    weights = np.zeros((6, 8), np.float32)
    weights[3:, 5:] = 2.0 * np.eye(3)
    return build.model(
        [
            build.node("Concat", " ".join(ROW), "row", axis=1),
            build.node("MatMul", "row w", "scores"),
            build.node("Add", "scores b", "logits"),
        ],
        [build.port(name, "N", widths[name]) for name in names],
        [build.port("logits", "N", 8)],
        [
            build.weight("w", weights),
            numpy_helper.from_array(np.array([0, 1, 2, -1, 1, 0, 0, 0], np.float32), "b"),
        ],
    )


ORDERS = [list(ROW), sorted(ROW), sorted(ROW, reverse=True)]


@pytest.fixture(scope="module")
def returns():
    """The returns of evaluations, by the order of the inputs."""
    return [
        arkml.evaluate(CORRIDOR, corridor_policy(names), episodes=8).returns for names in ORDERS
    ]


def test_inputs_that_are_called_as_the_parts_get_them_in_any_order(returns):
    assert returns[0].min() > 0  # it reaches the last cell
    assert all(np.array_equal(returns[0], others) for others in returns[1:])


def test_a_guest_that_plays_without_a_run_is_answered_alike():
    forbidden, memories = [], []
    for names in ORDERS:
        with Host(policy=corridor_policy(names)) as host, host.load(CORRIDOR) as guest:
            for _ in range(40):
                guest.update()
            assert guest.statistics.rows == 40 * 16
            forbidden.append(guest.call("forbidden"))
            memories.append(guest.read_memory(1024, 60_000))

    assert memories[1:] == memories[:1] * 2
    assert forbidden == [0, 0, 0]


def test_inputs_called_as_parts_of_other_widths_are_refused():
    swapped = {"cell": 3, "breath": 1, "door": 1, "color": 1}
    with pytest.raises(InvalidArguments, match="declares parts of these names as cell: 1, breath"):
        arkml.evaluate(CORRIDOR, corridor_policy(list(ROW), swapped), episodes=1)
