"""Random models of allowed operators, compared with what onnxruntime makes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from operator import le
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tests.fuzz.mutations import Input

from arkml.base.native_imports import import_onnxruntime
from arkml.errors import ModelRejected, SnapshotTooLarge, Unavailable
from arkml.limits import Limits
from arkml.policies.border import outputs_of, prune
from arkml.policies.model import ALIKE
from arkml.policies.onnx_model import load_onnx
from arkml.policies.operators.call import ROWS, grows
from arkml.policies.ort import ARENA_BYTES
from arkml.policies.vetting import Vetted, examine

LIMITS = Limits()
NODE_SECONDS = 0.025
"""Seconds of CPU that a node may take in one run of a block of rows."""

SLACK = 4.0
"""Factor by which a measured time may be over its bound: machines differ."""

_FIXED = 0.05  # seconds of one run of nothing, with plenty of room for a loaded machine
_LOAD = 10.0
_BATCH = 64
_SMALL = 1 << 16  # bytes of a row; models of larger ones are not run on many
_SIZES = [1, 1, 2, 3, 5, 8]
_OPSETS = [9, 11, 12, 13, 17, 18, 20]
_UNARY = [
    "Relu", "LeakyRelu", "Elu", "Sigmoid", "HardSigmoid", "Tanh", "Softplus", "Softsign", "Exp",
    "Log", "Sqrt", "Erf", "Reciprocal", "Sin", "Cos", "Floor", "Ceil", "Round", "Abs", "Neg",
    "Sign", "Identity", "Softmax", "LogSoftmax", "LpNormalization", "Dropout", "ThresholdedRelu",
    "Selu", "Gelu", "Mish", "HardSwish", "Shape", "RandomNormalLike", "Not", "Cast",
    "RandomUniformLike", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh",
    "IsNaN", "IsInf",
]  # fmt: skip
_BINARY = [
    "Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Min", "Max", "Sum", "Mean", "Greater", "Less",
    "Equal", "And", "Or", "MatMul", "Mod", "Einsum",
]  # fmt: skip
_REDUCERS = [
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare",
    "ReduceL1", "ReduceProd", "ReduceLogSum", "ReduceLogSumExp",
]  # fmt: skip
_WINDOWS = [
    "Conv", "Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool",
]  # fmt: skip
_ARRANGEMENTS = [
    "flatten", "transpose", "concat", "slice", "gather", "tile", "expand", "split", "squeeze",
    "where",
]  # fmt: skip
_LAYERS = [
    "lstm", "gru", "batch", "instance", "layer", "multinomial", "zeros",
]  # fmt: skip

_BOUNDED = {"Slice", "Shape", "Concat", "Split", "Conv", "MaxPool", "AveragePool"}
"""Operators after which a vetted size is a bound: of smaller batches, and of dilated windows."""

Shape = tuple[int | str, ...]


@dataclass(slots=True)
class _Graph:
    """A model in the making: `shapes` are the guessed shapes of the float tensors so far."""

    draw: st.DrawFn
    largest: int
    version: int
    shapes: dict[str, Shape] = field(default_factory=dict)
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)

    def size(self) -> int:
        return min(self.largest, self.draw(st.sampled_from([*_SIZES, 16, 33, 64])))

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def weight(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def floats(self, *shape: int | str) -> str:
        sizes = [size if isinstance(size, int) else 1 for size in shape]
        count = min(prod(sizes), 1 << 18)
        values = np.linspace(-1, 1, count, dtype=np.float32)
        return self.weight(values.reshape(sizes) if count == prod(sizes) else values)

    def integers(self, *values: int) -> str:
        return self.weight(np.array(values, np.int64))

    def add(
        self, operator: str, inputs: list[str], shape: Shape, outputs: int = 1, **options: Any
    ) -> None:
        names = [f"t{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **options))
        self.shapes[names[0]] = shape


def _elementwise(graph: _Graph, name: str, shape: Shape) -> None:
    operator = graph.pick(_UNARY)
    options: dict[str, Any] = {}
    if operator in ("Softmax", "LogSoftmax", "LpNormalization"):
        options["axis"] = graph.pick([-1, 0, 1, -2])
    if operator == "Cast":
        options["to"] = graph.pick([1, 1, 6, 7, 9, 10, 11])
    outputs = graph.pick([1, 2]) if operator == "Dropout" else 1
    graph.add(operator, [name], shape, outputs, **options)


def _combination(graph: _Graph, name: str, shape: Shape) -> None:
    others = [name, *graph.shapes, graph.floats(*shape[1:]), graph.floats(graph.size())]
    pair = [name, graph.pick(others)]
    operator = graph.pick(_BINARY)
    options: dict[str, Any] = {}
    if operator == "Mod":
        options["fmod"] = 1
    if operator == "Einsum":
        options["equation"] = graph.pick(_EQUATIONS)
    graph.add(operator, pair[:: graph.pick([1, -1])], shape, **options)


def _gemm(graph: _Graph, name: str, shape: Shape) -> None:
    width = graph.size()
    inner = shape[-1] if shape and isinstance(shape[-1], int) else 1
    turned = graph.pick([0, 0, 1])
    matrix = graph.floats(width, inner) if turned else graph.floats(inner, width)
    bias = [graph.floats(graph.pick([width, 1]))] if graph.pick([True, False]) else []
    graph.add("Gemm", [name, matrix, *bias], (*shape[:-1], width), transB=turned)


def _reshape(graph: _Graph, name: str, shape: Shape) -> None:
    sizes = [size for size in shape if isinstance(size, int)]
    count = prod(sizes)
    divisors = [n for n in (1, 2, 3, 4, 8, 16, 33, 64) if count % n == 0]
    some = graph.pick(divisors)
    options = [
        (0, -1), (-1, count), (0, some, count // some), (0, 1, some, count // some), (-1,),
        (0, some, count // some, 1, 1), (-1, some), (1, -1), (count // some, -1), (0, 0, -1),
    ]  # fmt: skip
    wanted = graph.pick(options)
    known = tuple("N" if size <= 0 else size for size in wanted)
    graph.add("Reshape", [name, graph.integers(*wanted)], known)


def _arrangement(graph: _Graph, name: str, shape: Shape) -> None:
    rank = len(shape)
    axis = graph.pick([0, 1, -1, 2])
    match graph.pick(
        [
            "flatten",
            "transpose",
            "concat",
            "slice",
            "gather",
            "tile",
            "expand",
            "split",
            "squeeze",
            "where",
        ]
    ):
        case "flatten":
            graph.add("Flatten", [name], ("N", 1), axis=axis)
        case "transpose":
            order = graph.draw(st.permutations(range(rank)))
            graph.add("Transpose", [name], tuple(shape[place] for place in order), perm=order)
        case "concat":
            graph.add("Concat", [name, graph.pick(list(graph.shapes))], shape, axis=axis)
        case "slice":
            ends = [graph.integers(graph.pick(each)) for each in _SLICES]
            graph.add("Slice", [name, *ends[:2], graph.integers(axis), ends[2]], shape)
        case "gather":
            where = graph.integers(*graph.draw(st.lists(st.integers(-2, 3), max_size=3)))
            graph.add("Gather", [name, where], shape, axis=axis)
        case "tile":
            graph.add("Tile", [name, graph.integers(*(graph.size() for _ in shape))], shape)
        case "expand":
            graph.add("Expand", [name, graph.integers(graph.size(), *(1 for _ in shape))], shape)
        case "split":
            graph.add("Split", [name], shape, graph.pick([1, 2]), axis=axis)
        case "squeeze":
            inputs = [name, graph.integers(axis)] if graph.version >= 13 else [name]
            options: dict[str, Any] = {} if graph.version >= 13 else {"axes": [axis]}
            graph.add(graph.pick(["Squeeze", "Unsqueeze"]), inputs, (*shape, 1), **options)
        case _:
            chosen = graph.weight(np.ones([1] * rank, np.bool_))
            graph.add("Where", [chosen, name, graph.pick(list(graph.shapes))], shape)


def _selection(graph: _Graph, name: str, shape: Shape) -> None:
    axis = graph.pick([1, -1, 0, 2])
    rank = len(shape)
    match graph.pick(["pad", "cumsum", "triangle", "top", "one hot", "elements"]):
        case "pad":
            sizes = [graph.pick([0, 0, 1, 2, graph.largest]) for _ in range(2 * rank)]
            mode = graph.pick(["constant", "reflect", "edge"])
            graph.add("Pad", [name, graph.integers(*sizes)], shape, mode=mode)
        case "cumsum":
            graph.add("CumSum", [name, graph.integers(axis)], shape)
        case "triangle":
            diagonal = graph.integers(graph.pick([0, 1, -1, graph.largest]))
            graph.add("Trilu", [name, diagonal], shape, upper=graph.pick([0, 1]))
        case "top":
            count = graph.integers(graph.pick([1, 2, graph.largest]))
            graph.add("TopK", [name, count], shape, 2, axis=axis)
        case "one hot":
            depth, ends = graph.integers(graph.size()), graph.floats(2)
            graph.add("ArgMax", [name], shape[:-1], axis=-1, keepdims=0)
            chosen = next(reversed(graph.shapes))
            graph.add("OneHot", [chosen, depth, ends], shape, axis=axis)
        case _:
            where = graph.integers(*graph.draw(st.lists(st.integers(-2, 3), max_size=3)))
            graph.add("GatherElements", [name, where], shape, axis=axis)


_EQUATIONS = ["bi,bi->b", "bi,bj->bij", "bi,ij->bj", "bij,bjk->bik", "bi,ci->bc", "bij,bij->bji"]

_SLICES = ([0, 1, -1, -(1 << 31)], [1, 2, -1, (1 << 63) - 1], [1, 1, 2, -1, -3])


def _window(graph: _Graph, name: str, shape: Shape) -> None:
    channels = shape[1] if len(shape) > 1 and isinstance(shape[1], int) else 1
    kernel = [graph.size() for _ in shape[2:]]
    pads = [graph.pick([0, 0, 1, size - 1]) for size in kernel * 2]
    options: dict[str, Any] = {"kernel_shape": kernel, "pads": pads}
    if graph.pick([True, False]):
        options["strides"] = [graph.pick([1, 1, 2]) for _ in kernel]
    if graph.pick([True, False, False]):
        options["dilations"] = [graph.pick([1, 2, 3]) for _ in kernel]
    if graph.pick([True, False, False]):
        options["auto_pad"] = graph.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
        del options["pads"]
    operator = graph.pick(_WINDOWS)
    if operator == "Conv":
        groups = graph.pick([1, 1, channels])
        filters = groups * graph.pick([1, 2, 4])
        weights = graph.floats(filters, max(1, channels // groups), *kernel)
        graph.add(
            operator, [name, weights], (shape[0], filters, *shape[2:]), group=groups, **options
        )
    elif operator.startswith("Global"):
        graph.add(operator, [name], (*shape[:2], *(1 for _ in kernel)))
    else:
        ceil = {"ceil_mode": graph.pick([0, 1])} if graph.version >= 11 else {}
        graph.add(operator, [name], shape, **options, **ceil)


def _reduction(graph: _Graph, name: str, shape: Shape) -> None:
    operator = graph.pick([*_REDUCERS, "ArgMax", "ArgMin"])
    keep = graph.pick([0, 1])
    axis = graph.pick([1, -1, 0, 2])
    kept = shape[:1] + shape[2:] if not keep else shape
    if operator.startswith("Arg"):
        graph.add(operator, [name], kept, axis=axis, keepdims=keep)
    elif graph.version >= 18 or (operator == "ReduceSum" and graph.version >= 13):
        graph.add(operator, [name, graph.integers(axis)], kept, keepdims=keep)
    else:
        graph.add(operator, [name], kept, axes=[axis], keepdims=keep)


def _layer(graph: _Graph, name: str, shape: Shape) -> None:
    width = shape[-1] if shape and isinstance(shape[-1], int) else 1
    channels = shape[1] if len(shape) > 1 and isinstance(shape[1], int) else 1
    match graph.pick(_LAYERS):
        case "multinomial":
            graph.add(
                "Multinomial", [name], ("N", 4), sample_size=graph.pick([1, 4, 1000, 200_000])
            )
        case "zeros":
            graph.add("ConstantOfShape", [graph.integers(graph.size(), graph.size())], (1, 1))
        case "batch":
            scales = [graph.floats(channels) for _ in range(4)]
            graph.add("BatchNormalization", [name, *scales], shape)
        case "instance":
            scales = [graph.floats(channels) for _ in range(2)]
            graph.add("InstanceNormalization", [name, *scales], shape)
        case "layer":
            graph.add("LayerNormalization", [name, graph.floats(width)], shape)
        case cell:
            gates, hidden = (4, 3) if cell == "lstm" else (3, 3)
            weights = [graph.floats(1, gates * hidden, inner) for inner in (width, hidden)]
            graph.add(cell.upper(), [name, *weights], ("N", 1, "N", hidden), 2, hidden_size=hidden)


_KINDS: list[Callable[[_Graph, str, Shape], None]] = [
    _elementwise, _elementwise, _combination, _gemm, _reshape, _arrangement, _window, _window,
    _reduction, _layer, _selection,
]  # fmt: skip


@st.composite
def models(draw: st.DrawFn, largest: int = 64) -> bytes:
    """Draw a model whose kernels and widths are at most `largest`."""
    graph = _Graph(draw, largest, draw(st.sampled_from(_OPSETS)))
    rank = draw(st.sampled_from([1, 1, 2, 3, 3, 4]))
    shape: Shape = ("N", *(graph.size() for _ in range(rank)))
    graph.shapes["x"] = shape
    for _ in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(list(graph.shapes)[-2:]))
        known = graph.shapes[name]
        fitting = [kind for kind in _KINDS if kind is not _window or len(known) in (3, 4, 5)]
        draw(st.sampled_from(fitting))(graph, name, known)
    names = [name for node in graph.nodes for name in node.output]
    shown = names if draw(st.booleans()) else names[-1:]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in shown]
    port = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))
    made = helper.make_graph(graph.nodes, "g", [port], outputs, graph.weights)
    opsets = [helper.make_opsetid("", graph.version)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=8)
    return Input(model.SerializeToString())


def check_against_onnxruntime(data: bytes) -> None:
    """Compare sizes, bytes and time of a vetted model with those of its runs."""
    try:
        vetted = examine(data, LIMITS)
    except (ModelRejected, SnapshotTooLarge):
        return
    try:
        session = _session(vetted.model.SerializeToString())
    except Exception:  # noqa: BLE001 onnxruntime's own refusals have many types
        return
    _check_shapes(vetted, session)
    prune(vetted.model, outputs_of(vetted.model))  # as a host does, and onnxruntime not always
    _check_time(data, _session(vetted.model.SerializeToString()), len(vetted.model.graph.node))


def _check_shapes(vetted: Vetted, session: Any) -> None:
    names = [meta.name for meta in session.get_outputs()]
    is_exact = _BOUNDED.isdisjoint(node.op_type for node in vetted.model.graph.node)
    is_small = max(vetted.cost.row_bytes, vetted.cost.fixed_bytes // ALIKE) < _SMALL
    for rows in (1, 3, ALIKE) if is_small else (1, 3):
        feeds = {meta.name: _rows(rows, meta.shape[1:]) for meta in session.get_inputs()}
        try:
            results = session.run(names, feeds)
        except Exception:  # noqa: BLE001 onnxruntime's own refusals have many types
            return
        size = 0
        for name, result in zip(names, results, strict=True):
            claimed = vetted.tensors[name].shape
            expected = tuple(n // ROWS * rows if grows(n) else n for n in claimed)
            assert _fits(result.shape, expected, is_exact=is_exact), (
                f"{name}: {result.shape}, vetted as {expected}"
            )
            size += result.nbytes
        most = vetted.cost.fixed_bytes + rows * vetted.cost.row_bytes
        assert size <= most, f"{size} bytes of outputs for {rows} rows, vetted as {most}"


def _session(data: bytes) -> Any:
    """Return a session of onnxruntime's own module, which has as much memory as the host's."""
    ort = _module()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.use_env_allocators", "1")
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


@cache
def _module() -> Any:
    ort = import_onnxruntime()
    ort.set_default_logger_severity(4)
    memory = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    arena = ort.OrtArenaCfg({"max_mem": ARENA_BYTES})
    ort.create_and_register_allocator(memory, arena)
    return ort


def _fits(shape: tuple[int, ...], expected: tuple[int, ...], *, is_exact: bool) -> bool:
    if is_exact:
        return shape == expected
    return len(shape) == len(expected) and all(map(le, shape, expected))


def _check_time(data: bytes, session: Any, nodes: int) -> None:
    """Bound the time of one run of a model that loads, of the rows that a run has."""
    try:
        model = load_onnx(data, LIMITS, seconds=_LOAD)
    except (ModelRejected, Unavailable):
        return
    rows = min(_BATCH, model.chunk)
    feeds = {port.name: _rows(rows, port.shape) for port in model.inputs}
    try:
        session.run(None, feeds)  # the first run is slower than the others
        started = time.thread_time()
        session.run(None, feeds)
        seconds = time.thread_time() - started
    except Exception:  # noqa: BLE001 onnxruntime's own refusals have many types
        return
    most = _FIXED + SLACK * NODE_SECONDS * nodes
    assert seconds < most, f"{rows} rows took {seconds:.2f} s of CPU, {most:.2f} at most"


def _rows(count: int, shape: Sequence[int]) -> Any:
    return np.ones((count, *shape), np.float32)
