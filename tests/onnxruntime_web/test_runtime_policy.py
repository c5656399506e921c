"""Policies that a page runs by onnxruntime-web act as the kernels that are compiled of them."""

import numpy as np
import pytest
from tests.unit.policy_models import model, node, port
from tests.unit.test_kernel_page import LONG, SHORT, in_page, rows, width_of

from arkml.policies.signature import Wanted

pytestmark = pytest.mark.onnxruntime_web
FRAMES = 200
ONE_ROW = model(
    [node("Sin", "obs", "h"), node("Reshape", "h shape", "actions")],
    [port("obs", 1, 3)], [port("actions", 1, 3)],
    [__import__("onnx").numpy_helper.from_array(np.array([1, 3], np.int64), "shape")],
)  # fmt: skip
CASES = {
    **{name: case for name, case in (LONG | SHORT).items() if name != "states that overflow"},
    "a batch of one row": (ONE_ROW, Wanted(num_actions=3)),
}


def alike(found, expected):
    """Whether numbers are close, but for some choices at the border of two."""
    return np.isclose(found, expected, rtol=1e-4, atol=1e-4).mean() >= 0.995


@pytest.mark.parametrize("options", [{}, {"deterministic": True}], ids=str)
@pytest.mark.parametrize(("data", "wanted"), CASES.values(), ids=CASES)
def test_a_runtime_acts_as_a_kernel(modules, data, wanted, options):
    features, *others = rows(width_of(data), sum(wanted.branches), FRAMES, scale=0.3)
    made = (np.nan_to_num(features, posinf=1.0, neginf=-1.0).clip(-3, 3), *others)
    ours = in_page(data, wanted, *made, **options)
    theirs = in_page(data, wanted, *made, runtime=modules, **options)

    for found, expected in zip(theirs, ours, strict=True):
        assert alike(found, expected)
    assert len(np.unique(ours[0])) > 2
