"""The checks that every untrusted ONNX model passes before onnxruntime loads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

from arkml.base.native_imports import import_onnx
from arkml.errors import ModelRejected, SnapshotTooLarge
from arkml.limits import Limits
from arkml.policies.onnx_wire import walk
from arkml.policies.operators import RULES
from arkml.policies.operators.call import MAX_RANK, ROWS, Call, Tensor, checked_type, grows
from arkml.policies.pace import ModelTime
from arkml.policies.rewriting import Rewriting, replace_items, widen_small_integers
from arkml.policies.weights import attributes, stored

MAX_NODES = 2_000
MAX_NODE_PORTS = 16_384
"""Inputs and outputs of all nodes: vetting takes microseconds for each, onnxruntime as long."""

MAX_PORTS = 64
MAX_FEATURES = 1 << 20
MAX_BATCH = 1 << 16
MAX_NAME = 1_024

_DEFAULT_DOMAINS = ("", "ai.onnx")
_OPSETS = range(7, 27)
_IR_VERSIONS = range(3, 14)
_RANDOM = ("RandomNormalLike", "RandomUniformLike", "Multinomial")


@dataclass(frozen=True, slots=True)
class Cost:
    """
    The cost of one run of a model: a fixed part, and a part for each row of the batch.

    Bytes are the sum of all outputs and scratch of the nodes, an upper bound of the bytes in use at
    one time. Work is in multiply-adds; an element that a node reads or writes counts as eight.
    """

    fixed_bytes: int = 0
    row_bytes: int = 0
    fixed_work: int = 0
    row_work: int = 0


MOST = Cost(fixed_bytes=128 << 20, row_bytes=32 << 20, fixed_work=1 << 29, row_work=1 << 28)


@dataclass(frozen=True, slots=True)
class Vetted:
    """
    A model that passed vetting; onnxruntime loads `model`, not the bytes that it was parsed from.

    model: an `onnx.ModelProto`, without the sizes that the file claims for inner tensors. tensors:
    every named tensor, sized for a batch of `operators.call.ROWS`. pace: the estimated time of
    runs. constants: the bytes of each tensor that depends on no input and is not stored in the
    file.
    """

    model: Any
    tensors: dict[str, Tensor]
    cost: Cost
    pace: ModelTime
    constants: tuple[int, ...]

    def folded(self, most: int) -> tuple[int, int]:
        """
        Choose constants to compute once and keep, of at most `most` bytes together.

        Returns the largest size of one kept constant, and the sum. The smallest constants are kept,
        so that few are computed again in each run.
        """
        largest = total = 0
        for size in sorted(self.constants):
            if total + size > most:
                break
            largest, total = size, total + size
        return largest, total


def vet(data: bytes, limits: Limits) -> Any:
    """
    Return the vetted `onnx.ModelProto` of a file. Raises ModelRejected, naming node and reason.
    """
    return examine(data, limits).model


def examine(data: bytes, limits: Limits) -> Vetted:
    """Vet a model, and return its sizes and cost too. Raises ModelRejected or SnapshotTooLarge."""
    if len(data) > limits.snapshot_bytes:
        raise SnapshotTooLarge(
            f"a model of {len(data)} bytes is larger than {limits.snapshot_bytes}"
        )
    if not data:
        raise ModelRejected("the model has no bytes")
    walk(data)
    model = _parsed(data)
    widen_small_integers(model)
    try:
        vetted = examined(model)
        if not _is_partly_open(vetted):
            return vetted
    except ModelRejected:
        # Some exporters claim any batch size for a graph that is valid for one row only.
        single = _single(model)
        if single is None:
            raise
        with suppress(ModelRejected):
            return examined(single)
        raise
    return examined(_single(model))


def _parsed(data: bytes) -> Any:
    onnx = import_onnx()
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelRejected(f"not an ONNX model: {error}") from None
    del model.graph.value_info[:]  # wrong sizes could mislead an optimizer
    return model


def _is_partly_open(vetted: Vetted) -> bool:
    """Return True if some inputs take any number of rows, and others one."""
    graph = vetted.model.graph
    weights = {weight.name for weight in graph.initializer}
    shapes = [vetted.tensors[p.name].shape for p in graph.input if p.name not in weights]
    return len({any(map(grows, shape)) for shape in shapes}) > 1


def _single(model: Any) -> Any:
    """Return the model for a batch of one, or None if no input or output leaves its batch open."""
    weights = {weight.name for weight in model.graph.initializer}
    changed = False
    for port in (*model.graph.input, *model.graph.output):
        sizes = port.type.tensor_type.shape.dim
        free = [size for size in sizes if not size.HasField("dim_value")]
        if port.name in weights or not free:
            continue
        if len(free) > 1 and port in model.graph.input:
            return None  # which of them is the batch?
        free[0].dim_value = 1
        changed = True
    return model if changed else None


def examined(model: Any) -> Vetted:
    """Vet an `onnx.ModelProto` whose bytes were checked. Raises ModelRejected."""
    graph = model.graph
    version = opset(model)
    if not 0 < len(graph.node) <= MAX_NODES:
        raise ModelRejected(f"the model has {len(graph.node)} nodes, expected 1 to {MAX_NODES}")
    node_ports = sum(len(node.input) + len(node.output) for node in graph.node)
    if node_ports > MAX_NODE_PORTS:
        raise ModelRejected(
            f"the nodes have {node_ports} inputs and outputs together, expected up to"
            f" {MAX_NODE_PORTS}"
        )
    tensors: dict[str, Tensor] = {}
    for weight in graph.initializer:
        _add(tensors, weight.name, _at(f"initializer {_shown(weight.name)}", stored, weight))
    ports = [port for port in graph.input if port.name not in tensors]
    if len(ports) > MAX_PORTS or not 0 < len(graph.output) <= MAX_PORTS:
        raise ModelRejected(
            f"the model has {len(ports)} inputs and {len(graph.output)} outputs,"
            f" expected up to {MAX_PORTS} and 1 to {MAX_PORTS}"
        )
    for port in ports:
        _add(tensors, port.name, _at(f"input {_shown(port.name)}", _input, port))
    cost, pace = Cost(), ModelTime()
    known = {"", *tensors} - {port.name for port in ports}
    constants: list[int] = []
    rewriting = Rewriting(model, tensors)
    nodes: list[Any] = []
    for node in _rewritten(graph.node, rewriting):
        nodes.append(node)
        if len(nodes) > MAX_NODES:
            raise ModelRejected(f"the model has more than {MAX_NODES} nodes with its branches")
        cost, pace = _at(title(node), _node, node, version, tensors, cost, pace)
        is_constant = node.op_type == "Shape" or known.issuperset(node.input)
        if is_constant and node.op_type not in _RANDOM:
            known.update(node.output)
            made = [tensors[name] for name in node.output if name]
            constants += [each.count * each.kind.size for each in made if not each.stored]
    _check_outputs(graph.output, tensors)
    if rewriting.has_changed:
        replace_items(graph.node, nodes)
    return Vetted(model, tensors, cost, pace, tuple(constants))


def _rewritten(nodes: Any, rewriting: Rewriting) -> Iterator[Any]:
    for node in nodes:
        try:
            yield from rewriting.nodes(node)
        except ModelRejected as error:
            raise ModelRejected(f"{title(node)}: {error}") from None


def title(node: Any) -> str:
    """Return a text that names a node in messages."""
    return f"node {_shown(node.name or ''.join(node.output[:1]))} ({node.op_type[:40]})"


def _at(place: str, check: Callable[..., Any], *arguments: Any) -> Any:
    """Run a check, and put its place in the model before the message of a refusal."""
    try:
        return check(*arguments)
    except ModelRejected as error:
        raise ModelRejected(f"{place}: {error}") from None


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:80] + "…")


def _add(tensors: dict[str, Tensor], name: str, tensor: Tensor) -> None:
    if not 0 < len(name) <= MAX_NAME:
        raise ModelRejected(f"a tensor's name has {len(name)} characters, expected 1 to {MAX_NAME}")
    if name in tensors:
        raise ModelRejected(f"two tensors are named {_shown(name)}")
    tensors[name] = tensor


def opset(model: Any) -> int:
    """
    Return a model's version of the default operators; other sets may be declared, but not used.
    """
    if model.ir_version not in _IR_VERSIONS:
        raise ModelRejected(f"IR version {model.ir_version} is not supported")
    if len(model.opset_import) > MAX_PORTS:
        raise ModelRejected(f"{len(model.opset_import)} operator sets")
    versions = {each.version for each in model.opset_import if each.domain in _DEFAULT_DOMAINS}
    if len(versions) != 1:
        raise ModelRejected(f"{len(versions)} versions of the ONNX operators, expected one")
    version: int = versions.pop()
    if version not in _OPSETS:
        raise ModelRejected(f"opset {version} is not supported, only {_OPSETS[0]} to {_OPSETS[-1]}")
    return version


def _input(port: Any) -> Tensor:
    if port.type.WhichOneof("value") != "tensor_type":
        raise ModelRejected("it is not a tensor")
    kind = checked_type(port.type.tensor_type.elem_type)
    dimensions = port.type.tensor_type.shape.dim
    if not 1 <= len(dimensions) <= MAX_RANK:
        raise ModelRejected(f"it has {len(dimensions)} dimensions, not 1 to {MAX_RANK}")
    free = [axis for axis, size in enumerate(dimensions) if not size.HasField("dim_value")]
    if len(free) > 1:
        raise ModelRejected(
            f"its dimensions {' and '.join(map(str, free))} have no fixed size: export it with one"
            " open dimension, that of the batch"
        )
    shape = [size.dim_value for size in dimensions]
    axis = free[0] if free else 0
    features = shape[:axis] + shape[axis + 1 :]
    if free:
        shape[axis] = ROWS
    if min(shape) < 0 or shape[axis] < 1:
        raise ModelRejected(f"its shape is {shape}")
    if prod(features) > MAX_FEATURES or shape[axis] > MAX_BATCH:
        raise ModelRejected(f"a batch of {shape[axis]} times {features} is too large")
    return Tensor(kind, tuple(shape))


def _node(
    node: Any, version: int, tensors: dict[str, Tensor], before: Cost, pace: ModelTime
) -> tuple[Cost, ModelTime]:
    if node.domain not in _DEFAULT_DOMAINS:
        raise ModelRejected(f"operators of {_shown(node.domain)} are not allowed")
    rule = RULES.get(node.op_type)
    if rule is None:
        raise ModelRejected("the operator is not allowed")
    inputs: list[Tensor | None] = []
    for name in node.input:
        if name and name not in tensors:
            raise ModelRejected(f"nothing before it makes its input {_shown(name)}")
        inputs.append(tensors[name] if name else None)
    names = list(node.output)
    call = Call(node.op_type, version, inputs, attributes(node), len(names))
    results = rule(call)
    if len(results) < len(names):
        raise ModelRejected(f"it has {len(names)} outputs, expected at most {len(results)}")
    cost, pace = _spent(before, call, results), pace.with_node(call, results)
    for name, tensor in zip(names, results, strict=False):
        if name:
            _add(tensors, name, tensor)
    return cost, pace


def _spent(before: Cost, call: Call, results: list[Tensor]) -> Cost:
    for tensor in results:
        if len(tensor.shape) > MAX_RANK:
            raise ModelRejected(f"an output has {len(tensor.shape)} dimensions")
        if sum(map(grows, tensor.shape)) > 1:
            raise ModelRejected("an output grows with the square of the batch")
    touched = sum(tensor.count for tensor in (*results, *call.inputs) if tensor is not None)
    room = sum(tensor.count * tensor.kind.size for tensor in results) + call.scratch
    work = call.work + 8 * touched
    by_row = any(grows(tensor.count) for tensor in results)
    share = ROWS if by_row else 1
    cost = Cost(
        before.fixed_bytes + (0 if by_row else room),
        before.row_bytes + (-(-room // share) if by_row else 0),
        before.fixed_work + (0 if by_row else work),
        before.row_work + (-(-work // share) if by_row else 0),
    )
    if cost.fixed_bytes > MOST.fixed_bytes or cost.row_bytes > MOST.row_bytes:
        raise ModelRejected("the tensors up to here need too much memory")
    if cost.fixed_work > MOST.fixed_work or cost.row_work > MOST.row_work:
        raise ModelRejected("the nodes up to here take too long")
    return cost


def _check_outputs(ports: Any, tensors: dict[str, Tensor]) -> None:
    for port in ports:
        tensor = tensors.get(port.name)
        if tensor is None:
            raise ModelRejected(f"output {_shown(port.name)}: no node makes it")
        if tensor.count > MAX_FEATURES * (ROWS if grows(tensor.count) else 1):
            raise ModelRejected(f"output {_shown(port.name)}: {list(tensor.shape)} is too large")
        if not port.type.tensor_type.HasField("shape"):
            continue
        claimed = port.type.tensor_type.shape.dim
        sizes = zip(claimed, tensor.shape, strict=False)
        if len(claimed) != len(tensor.shape) or any(
            claim.HasField("dim_value") and claim.dim_value != size and not grows(size)
            for claim, size in sizes
        ):
            raise ModelRejected(
                f"output {_shown(port.name)}: it is {list(tensor.shape)}, not as declared"
            )
