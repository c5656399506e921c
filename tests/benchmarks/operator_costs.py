"""
Time of single operators on shapes that are slow for their size, beside the time by estimate.

    python -m tests.benchmarks.operator_costs [PART OF A NAME]

Prints for each model the milliseconds of CPU of a run with ordinary numbers, its relation to the
estimate of `arkml.policies.operators.costs`, and the same for subnormal numbers. A relation above
1.5 says that a weight in that module is too small.
"""

import sys
import time

import numpy as np
from onnx import helper, numpy_helper

from arkml.limits import Limits
from arkml.policies import pace
from arkml.policies.load_time import LoadTime
from arkml.policies.ort import OrtRunOptions, open_session
from arkml.policies.vetting import examine

ELEMENTWISE = (
    "Relu LeakyRelu Elu Sigmoid Tanh Softplus Exp Log Sqrt Erf Sin Sign RandomNormalLike"
    " RandomUniformLike Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh"
)
BINARY = "Add Mul Div Pow Min Mean"
OVER_AXES = "Softmax LogSoftmax LpNormalization"
REDUCTIONS = "ReduceMean ReduceMax ReduceL2 ReduceSumSquare ReduceL1 ReduceProd ReduceLogSumExp"
MANY = 1 << 18
RUNS = 8


def port(name, *shape):
    return helper.make_tensor_value_info(name, 1, ["N", *shape])


def weight(values, dtype=np.float32):
    return np.asarray(values, dtype)


def case(operator, *shape, weights=(), inputs=1, rows=1, name="", after=(), **attributes):
    """Return the name, the model and the rows of one node."""
    ports = [port(f"x{number}", *shape) for number in range(inputs)]
    names = [each.name for each in ports] + [f"w{number}" for number in range(len(weights))]
    stored = [numpy_helper.from_array(each, f"w{n}") for n, each in enumerate(weights)]
    made = ["y", "places"] if operator == "TopK" else ["y"]
    nodes = [helper.make_node(operator, names, made, **attributes)]
    for number, (following, options) in enumerate(after):
        nodes[-1].output[0] = f"t{number}"
        nodes.append(helper.make_node(following, [f"t{number}"], ["y"], **options))
    outputs = [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "g", ports, outputs, stored)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return f"{operator} {name or list(shape)}", model.SerializeToString(), rows


def small_nodes():
    for operator in ELEMENTWISE.split():
        yield case(operator, MANY)
    for operator in BINARY.split():
        yield case(operator, MANY, inputs=2)
        odd = weight(np.full((1, 1, 2, 1), 0.5))
        yield case(operator, MANY // 2, 1, 2, weights=[odd], name="in small pieces")
    for operator in OVER_AXES.split():
        for shape, axis in (((MANY,), -1), ((MANY, 1), -1), ((2, MANY // 2), 1)):
            yield case(operator, *shape, axis=axis)
        yield case(operator, 1 << 13, axis=0, rows=1_000, name="over rows")
    for operator in REDUCTIONS.split():
        for shape, axes in (((512, 512), [1]), ((MANY // 2, 1, 2), [2]), ((8,) * 6, [1, 3, 5])):
            yield case(operator, *shape, axes=axes)
    for shape, order in (((64, 64, 64), [0, 3, 2, 1]), ((2, 1 << 16, 2), [0, 3, 2, 1])):
        yield case("Transpose", *shape, perm=order)
    yield case("Gather", 1, weights=[weight(np.zeros(MANY), np.int64)], axis=1)
    yield case("Expand", 1, 1 << 17, 1, weights=[weight([1, 2, 1 << 17, 2], np.int64)])
    yield from looked_up()
    yield case("LayerNormalization", 1 << 17, 2, weights=[weight([1, 1])])
    yield case("InstanceNormalization", 1 << 16, 2, weights=[np.ones(1 << 16, np.float32)] * 2)


def looked_up():
    """Yield nodes that pad, count up, choose, and look up elements."""
    half = weight(np.full((1,), 0.5))
    yield case("Mod", MANY, weights=[half], fmod=1)
    yield case("Mod", MANY // 8, weights=[weight([1e-30])], fmod=1, name="of far numbers")
    for sizes, pads in (((1 << 16, 1), (0, 0, 1, 0, 0, 1)), ((512, 512), (0, 1, 1, 0, 1, 1))):
        yield case("Pad", *sizes, weights=[weight(pads, np.int64)])
        yield case("Pad", *sizes, weights=[weight(pads, np.int64)], mode="edge")
    cast = [("Cast", {"to": 1})]
    for sizes, count in (((MANY,), 3), ((MANY,), MANY), ((1 << 15, 8), 8), ((1 << 13, 32), 5)):
        name = f"{count} of {sizes}"
        yield case("TopK", *sizes, weights=[weight([count], np.int64)], name=name)
    for sizes, axis in (((MANY,), 1), ((1 << 17, 2), 2), ((2, 1 << 17), 1), ((64, 64, 64), 2)):
        yield case("CumSum", *sizes, weights=[weight(axis, np.int64)], name=f"{axis} of {sizes}")
    yield case("IsNaN", MANY, after=cast)
    for sizes in ((512, 512), (1 << 15, 2, 4)):
        yield case("Trilu", *sizes, weights=[weight(0, np.int64)], name=f"of {sizes}")
    for steps, features, hidden in ((64, 8, 8), (1, 256, 256), (16, 64, 64), (256, 1, 1)):
        sizes = ((1, hidden, features), (1, hidden, hidden))
        weights = [np.full(each, 0.1, np.float32) for each in sizes]
        name = f"{steps} steps of {features} and {hidden}"
        yield case("RNN", 64, features, weights=weights, rows=steps, hidden_size=hidden, name=name)


def large_nodes():
    square = np.full((512, 512), 0.1, np.float32)
    for rows, equation, sizes, weights in (
        (64, "bi,ij->bj", (512,), [square]),
        (1, "bij,jk->bik", (512, 512), [square]),
        (1, "bij,bjk->bik", (256, 256), []),
        (1, "bij,bij->bi", (4096, 16), []),
        (1, "bij,bij->bij", (4096, 16), []),
        (1, "bij->bji", (1024, 256), []),
    ):
        count = 1 if "," not in equation or weights else 2
        yield case(
            "Einsum", *sizes, inputs=count, weights=weights, rows=rows, equation=equation,
            name=equation,
        )  # fmt: skip
    cast = [("Cast", {"to": 1})]
    for classes, samples, rows in ((64, 1_000, 64), (2, 200_000, 8), (MANY, 16, 1)):
        name = f"{samples} of {classes}"
        yield case("Multinomial", classes, sample_size=samples, rows=rows, after=cast, name=name)
    for rows, inner, columns in ((64, 512, 512), (1, 512, 512), (1, MANY, 1), (64, 2_048, 3)):
        matrix = np.full((inner, columns), 0.1, np.float32)
        name = f"{rows} x {inner} x {columns}"
        yield case("MatMul", inner, weights=[matrix], rows=rows, name=name)
    for shape in ((1 << 16, 1, 1), (4_096, 4, 4), (16, 128, 128)):
        yield case("MatMul", *shape, inputs=2)
    for images, filters, settings in (
        ((32, 64, 64), (32, 32, 3, 3), {"pads": [1] * 4}),
        ((64, 64, 64), (64, 1, 3, 3), {"pads": [1] * 4, "group": 64}),
        ((1_024, 8, 8), (1_024, 2, 3, 3), {"pads": [1] * 4, "group": 512}),
        ((16, 64, 64), (16, 16, 5, 5), {"pads": [18] * 4, "dilations": [9, 9]}),
        ((1, 64, 64), (1, 1, 64, 64), {"pads": [63] * 4}),
        ((8, 16, 16, 16), (8, 8, 3, 3, 3), {"pads": [1] * 6}),
        ((4, 64, 64, 1), (4, 4, 8, 8, 1), {"pads": [4, 4, 0, 4, 4, 0]}),
    ):
        yield case("Conv", *images, weights=[np.full(filters, 0.1, np.float32)], **settings)
    for operator in ("MaxPool", "AveragePool"):
        yield case(operator, 1, 64, 64, kernel_shape=[64, 64], pads=[63] * 4)
        yield case(operator, 4, 4_096, 1, kernel_shape=[64, 1], pads=[32, 0, 32, 0])
        yield case(operator, MANY, 1, kernel_shape=[1])


def measured(session, rows, fill):
    """Return the least CPU milliseconds of a run, on random numbers or on one."""
    random = np.random.default_rng(0)
    feeds = {}
    for port in session.inputs:
        shape = (rows, *port.shape[1:])
        numbers = random.normal(size=shape) if fill is None else np.full(shape, fill)
        feeds[port.name] = numbers.astype(np.float32)
    names, options, times = session.outputs, OrtRunOptions(), []
    while len(times) < RUNS and sum(times) < 1.0:
        started = time.thread_time()
        session.run(names, feeds, options)
        times.append(time.thread_time() - started)
    return 1e3 * min(times)


def main():
    pace.NODE_SECONDS = 1e3  # what is refused is measured, too
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    print(f"{'operator':44}{'ms':>9}{'/ est.':>8}{'subnormal':>11}{'/ est.':>8}")
    for name, data, rows in (*small_nodes(), *large_nodes()):
        if part not in name:
            continue
        known = examine(data, Limits()).pace
        session = open_session(data, LoadTime(60.0), folded_bytes=1 << 20)
        ordinary = measured(session, rows, None)
        subnormal = max(measured(session, rows, fill) for fill in (1e-40, 1e-20))
        fixed = known.fixed_seconds
        first = ordinary / 1e3 / (fixed + rows * known.row_seconds)
        second = subnormal / 1e3 / (fixed + rows * known.subnormal_seconds)
        print(f"{name:44}{ordinary:9.3f}{first:8.2f}{subnormal:11.3f}{second:8.2f}", flush=True)


if __name__ == "__main__":
    main()
