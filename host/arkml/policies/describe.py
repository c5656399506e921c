"""Descriptions of model files, for `arkml describe`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import assert_never

from arkml.errors import AbiError, InvalidArguments
from arkml.limits import Limits
from arkml.policies import cervo
from arkml.policies.model_cache import ModelCache
from arkml.policies.nnef import NnefModel
from arkml.policies.nnef_archive import read_archive
from arkml.policies.operators.call import ElementType, Tensor
from arkml.policies.signature import Port, find_roles, find_signature
from arkml.policies.vetting import Vetted, examine

ACCEPTED = "accepted"
_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class PortReport:
    """An input or output: its name, its role, and its shape without the batch."""

    name: str
    role: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelReport:
    """
    The description of a model file.

    kind: onnx, cervo-onnx or cervo-nnef. opset: 0 if the format has none. verdict: `ACCEPTED`, or
    the reason why the model is refused, which leaves fields that could not be determined empty.
    """

    kind: str
    bytes: int
    parameters: int = 0
    nodes: int = 0
    opset: int = 0
    producer: str = ""
    inputs: tuple[PortReport, ...] = ()
    outputs: tuple[PortReport, ...] = ()
    verdict: str = ACCEPTED


def describe(data: bytes, limits: Limits = _LIMITS) -> ModelReport:
    """Describe the bytes of a model file. Raises nothing, whatever they are."""
    report = ModelReport("onnx", len(data))
    try:
        if not cervo.is_cervo(data):
            return _onnx(report, data, limits)
        kind, payload = cervo.unpack(data)
        report = replace(report, kind=f"cervo-{kind.name.lower()}")
        match kind:
            case cervo.AssetKind.ONNX:
                return _onnx(report, payload, limits)
            case cervo.AssetKind.NNEF:
                return _nnef(report, payload, limits)
            case _:
                assert_never(kind)
    except AbiError as error:
        return replace(report, verdict=str(error))


def _onnx(report: ModelReport, data: bytes, limits: Limits) -> ModelReport:
    described = _vetted(report, examine(data, limits))
    try:
        ModelCache(limits).onnx(data)
    except AbiError as error:
        return replace(described, verdict=str(error))
    return described


def _vetted(report: ModelReport, vetted: Vetted) -> ModelReport:
    model, tensors = vetted.model, vetted.tensors
    weights = {weight.name for weight in model.graph.initializer}
    inputs = [port.name for port in model.graph.input if port.name not in weights]
    rows = {tensors[name].shape[0] for name in inputs}
    outputs = [port.name for port in model.graph.output]
    by_row = [name for name in outputs if _has_rows(tensors[name], rows)]
    versions = {each.domain: each.version for each in model.opset_import}
    report = replace(
        report,
        parameters=sum(tensors[name].count for name in weights),
        nodes=len(model.graph.node),
        opset=versions.get("", versions.get("ai.onnx", 0)),
        producer=f"{model.producer_name} {model.producer_version}".strip()[:80],
    )
    report = _with_ports(
        report,
        [Port(name, tensors[name].shape[1:]) for name in inputs],
        [Port(name, tensors[name].shape[1:]) for name in by_row],
    )
    others = [PortReport(n, "other", tensors[n].shape) for n in outputs if n not in by_row]
    return replace(report, outputs=(*report.outputs, *others))


def _has_rows(tensor: Tensor, rows: set[int]) -> bool:
    return tensor.kind == ElementType.FLOAT and tensor.shape[:1] != () and tensor.shape[0] in rows


def _nnef(report: ModelReport, payload: bytes, limits: Limits) -> ModelReport:
    archive = read_archive(payload, limits)
    model = NnefModel(payload, limits)
    model.close()
    report = replace(report, parameters=archive.parameters, nodes=archive.statements)
    return _with_ports(report, model.inputs, model.outputs)


def _with_ports(
    report: ModelReport, inputs: Sequence[Port], outputs: Sequence[Port]
) -> ModelReport:
    roles = find_roles(inputs, outputs)
    names = dict.fromkeys(roles.observations, "observation")
    names |= dict.fromkeys(roles.masks, "mask")
    if roles.epsilon is not None:
        names[roles.epsilon] = "epsilon"
    results = dict.fromkeys(roles.outputs, "output")
    for source, target in roles.recurrent:
        names[source], results[target] = "state", "state"
    with suppress(InvalidArguments):  # named networks: none is surely the actions
        signature = find_signature(roles, None, None, deterministic=False)
        results[signature.actions] = "actions"
        if signature.values is not None:
            results[signature.values] = "values"
    return replace(
        report,
        inputs=tuple(PortReport(port.name, names[port], port.shape) for port in inputs),
        outputs=tuple(PortReport(port.name, results[port], port.shape) for port in outputs),
    )
