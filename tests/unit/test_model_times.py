"""The time of one node and of one run of a model is bounded, whatever its operators are."""

import time

import numpy as np
import pytest
from tests.unit import policy_models as build
from tests.unit.policy_models import node, numpy_helper, port, weight

from arkml.errors import ModelRejected
from arkml.limits import Limits
from arkml.policies.model_cache import ModelCache
from arkml.policies.operators import RULES
from arkml.policies.operators.costs import WEIGHTS
from arkml.policies.pace import FEWEST, NODE_SECONDS
from arkml.policies.run_limit import RunLimit
from arkml.policies.subnormals import call_flushed
from arkml.policies.vetting import examine
from arkml.policies.workspace import PolicyWorkspace


def images(operator, shape, *weights, **attributes):
    """A model that answers each image with a number, through one node of a window."""
    names = " ".join(["x", *("w" for _ in weights)])
    nodes = [
        node(operator, names, "windows", **attributes),
        node("GlobalMaxPool", "windows", "most"),
        node("Flatten", "most", "y"),
    ]
    given = [weight("w", np.ones(size)) for size in weights]
    return build.model(nodes, [port("x", "N", *shape)], [port("y", "N", "M")], given)


LARGE_POOL = images("MaxPool", (1, 64, 64), kernel_shape=[64, 64], pads=[63] * 4)
LARGE_AVERAGE = images("AveragePool", (2, 64, 64), kernel_shape=[64, 64], pads=[63] * 4)
GROUPED = images("Conv", (64, 32, 32), (64, 1, 32, 32), group=64, pads=[31] * 4)
DILATED = images("Conv", (1, 128, 128), (1, 1, 56, 56), dilations=[4, 4], pads=[110] * 4)
SPATIAL = images("Conv", (2, 24, 24, 24), (1, 2, 12, 12, 12), pads=[11] * 6)


def samples(count):
    nodes = [
        node("Multinomial", "x", "m", sample_size=count),
        node("Cast", "m", "c", to=1),
        node("ReduceMax", "c", "y", axes=[1]),
    ]
    return build.model(nodes, [port("x", "N", 8)], [port("y", "N", 1)])


def over_rows(operator):
    """A model that normalizes over the rows of a batch."""
    nodes = [node(operator, "x", "y", axis=0)]
    return build.model(nodes, [port("x", "N", 1 << 13)], [port("y", "N", 1 << 13)])


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (LARGE_POOL, r"node 'windows' \(MaxPool\): one row of it takes 99 ms"),
        (LARGE_AVERAGE, r"node 'windows' \(AveragePool\): one row of it takes"),
        (GROUPED, r"node 'windows' \(Conv\): one row of it takes"),
        (DILATED, r"node 'windows' \(Conv\): one row of it takes"),
        (SPATIAL, r"node 'windows' \(Conv\): one row of it takes"),
        (samples(2_000_000), r"node 'm' \(Multinomial\): one row of it takes"),
    ],
    ids=["pool", "average", "grouped", "dilated", "3-d", "samples"],
)
def test_a_node_that_is_too_slow_for_one_row_is_refused_by_name(data, refusal):
    with pytest.raises(ModelRejected, match=refusal + r".* 25 ms are allowed"):
        examine(data, Limits())


class Unhindered(RunLimit):
    """A limit that keeps the parts of a long run."""

    def run(self, shared, *_):
        self.calls = shared.calls


def run(data, rows):
    """Run a model on a batch. Returns the most CPU seconds of one of its runs, and their number."""
    model = ModelCache().version(data).load(None)
    feeds = {each.name: np.ones((rows, *each.shape), np.float32) for each in model.inputs}
    fetches = {each.name: np.zeros((rows, *each.shape), np.float32) for each in model.outputs}
    limit = Unhindered(PolicyWorkspace())
    (guarded,) = model.prepare(rows, feeds, fetches, limit)
    guarded()
    seconds = []
    for call in limit.calls:
        started = time.thread_time()
        call()
        seconds.append(time.thread_time() - started)
    return max(seconds), len(seconds)


@pytest.mark.parametrize(
    "data",
    [
        images("MaxPool", (1, 48, 48), kernel_shape=[24, 24], pads=[23] * 4),
        images("Conv", (32, 16, 16), (32, 1, 8, 8), group=32, pads=[7] * 4),
        images("Conv", (1, 96, 96), (1, 1, 9, 9), dilations=[5, 5], pads=[20] * 4),
        images("Conv", (1, 12, 12, 12), (1, 1, 5, 5, 5), pads=[4] * 6),
        samples(20_000),
        over_rows("Softmax"),
        over_rows("LpNormalization"),
    ],
    ids=["pool", "grouped", "dilated", "3-d", "samples", "softmax", "lp"],
)
def test_a_node_that_is_slow_for_many_rows_gets_few_at_a_time(data):
    slowest, runs = run(data, 240)

    assert runs > 1
    assert slowest < 4 * NODE_SECONDS  # by estimate it is below; the machine may be slow


def test_numbers_below_the_normal_ones_do_not_make_a_large_model_slow():
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a w", "y")]
    tiny = weight("w", np.full((768, 768), 1e-20))
    data = build.model(nodes, [port("x", "N", 768)], [port("y", "N", 768)], [tiny])
    pace = examine(data, Limits()).pace
    model = ModelCache().version(data).load(None)
    feeds = {"x": np.full((64, 768), 1e-20, np.float32)}
    y = np.ones((64, 768), np.float32)
    (call,) = model.prepare(64, feeds, {"y": y}, RunLimit(PolicyWorkspace()))
    call()

    assert pace.subnormal_rows < FEWEST
    assert pace.is_flushed
    assert not y.any()


def test_a_small_model_computes_with_all_numbers():
    data = build.linear([[1e-20]])
    model = ModelCache().version(data).load(None)
    y = np.ones((1, 1), np.float32)
    (call,) = model.prepare(
        1, {"obs": np.full((1, 1), 1e-20, np.float32)}, {"actions": y}, RunLimit(PolicyWorkspace())
    )
    call()

    assert 0 < y.item() < 1.2e-38


def test_arithmetic_after_a_flushed_call_is_as_before():
    tiny, small = np.full(4, 1e-30, np.float32), np.float32(1e-10)
    inside = call_flushed(lambda: tiny * small)
    with pytest.raises(KeyError):
        call_flushed({}.popitem)

    assert not inside.any()
    assert (tiny * small).all()


def test_every_operator_has_a_weight():
    assert set(WEIGHTS) == set(RULES)


def test_what_does_not_depend_on_rows_is_charged_to_every_block():
    weights = numpy_helper.from_array(np.array([1 << 18], np.int64), "s")
    nodes = [
        node("ConstantOfShape", "s", "z"),
        node("ReduceMax", "z", "m", keepdims=0),
        node("Add", "x m", "y"),
    ]
    data = build.model(nodes, [port("x", "N", 8)], [port("y", "N", 8)], [weights])
    pace = examine(data, Limits()).pace

    one, ten = (pace.seconds(1_000, block) for block in (1_000, 100))
    assert ten - one == pytest.approx(9 * pace.fixed_seconds)
    assert pace.fixed_seconds > 1e-3
