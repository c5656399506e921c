"""Descriptions of model files, for the command `arkml describe`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import assert_never

from arkml.errors import AbiError, InvalidArguments, ModelRejected, SnapshotTooLarge
from arkml.limits import Limits
from arkml.policies import cervo
from arkml.policies.model_cache import ModelCache, ModelFile
from arkml.policies.nnef_archive import read_archive
from arkml.policies.onnx_model import OnnxModel
from arkml.policies.operators.call import ROWS, grows
from arkml.policies.policy_files import PolicyFile
from arkml.policies.port_names import Meaning
from arkml.policies.ports import Layout, Port
from arkml.policies.roles import Roles, find_roles
from arkml.policies.signature import Signature, Wanted, find_signature, numbered
from arkml.policies.vetting import examine

ACCEPTED = "accepted"
_LIMITS = Limits()
_MOST_WIDTH = 4_096


Size = int | str
"""A number, or the name of one that is open, as `N`."""


@dataclass(frozen=True, slots=True)
class PortReport:
    """
    An input or output: its name, its role, its shape without the batch, and its element type.

    `has_rows` is False for an output without a row for each row of the inputs.
    """

    name: str
    role: str
    shape: tuple[Size, ...]
    type: str = "float32"
    has_rows: bool = True


@dataclass(frozen=True, slots=True)
class ModelReport:
    """
    The description of a model file.

    kind: onnx, cervo-onnx or cervo-nnef. opset: 0 if the format has none. batch: the number of rows
    that the model takes at a time, None for any number. why_one: why that is 1 although the file
    leaves it open, or empty. acts: a text on the outputs that hold actions. verdict: `ACCEPTED`, or
    the reason why the model is refused; fields that could not be determined are then empty.
    """

    kind: str
    bytes: int
    parameters: int = 0
    nodes: int = 0
    opset: int = 0
    producer: str = ""
    batch: int | None = None
    why_one: str = ""
    inputs: tuple[PortReport, ...] = ()
    outputs: tuple[PortReport, ...] = ()
    acts: str = ""
    verdict: str = ACCEPTED


def describe(data: bytes, limits: Limits = _LIMITS, outputs: tuple[str, ...] = ()) -> ModelReport:
    """
    Return the description of a model file, in which `outputs` hold the actions. Raises nothing.
    """
    report = ModelReport("onnx", len(data))
    models = ModelCache(limits)
    try:
        if not cervo.is_cervo(data):
            return _onnx(report, data, models, limits, outputs)
        kind, payload = cervo.unpack(data)
        report = replace(report, kind=f"cervo-{kind.name.lower()}")
        match kind:
            case cervo.AssetKind.ONNX:
                return _onnx(report, payload, models, limits, outputs)
            case cervo.AssetKind.NNEF:
                return _nnef(report, payload, models, limits, outputs)
            case _:
                assert_never(kind)
    except AbiError as error:
        return replace(report, verdict=str(error))


def require_loadable(file: PolicyFile, models: ModelCache, limits: Limits) -> None:
    """
    Load the model of a policy file once, to check it as most guests will use it.

    Raises ModelRejected, also if it lacks the outputs that are to hold the actions,
    SnapshotTooLarge, and Unavailable.
    """
    if len(file.data) > limits.snapshot_bytes:
        raise SnapshotTooLarge(
            f"a policy of {len(file.data)} bytes is larger than {limits.snapshot_bytes}"
        )
    kind, payload = cervo.AssetKind.ONNX, file.data
    if cervo.is_cervo(file.data):
        kind, payload = cervo.unpack(file.data)
    opened = models.onnx(payload) if kind is cervo.AssetKind.ONNX else models.nnef(payload)
    signatures = list(_signatures(opened.layout, file.outputs))
    if file.outputs and not signatures:
        raise ModelRejected(_refusal(opened.layout, file.outputs))
    opened.load(signatures[0].outputs if signatures else None)


def _onnx(
    report: ModelReport, data: bytes, models: ModelCache, limits: Limits, outputs: tuple[str, ...]
) -> ModelReport:
    vetted = examine(data, limits)
    opened = models.onnx(data)
    model, tensors = vetted.model, vetted.tensors
    versions = {each.domain: each.version for each in model.opset_import}
    report = replace(
        report,
        parameters=sum(tensors[weight.name].count for weight in model.graph.initializer),
        nodes=len(model.graph.node),
        opset=versions.get("", versions.get("ai.onnx", 0)),
        producer=f"{model.producer_name} {model.producer_version}".strip()[:80],
    )
    report = _with_ports(report, opened, outputs)
    by_row = {port.name for port in opened.layout.outputs}
    others = [
        PortReport(
            port.name,
            "other",
            tuple(map(_size, tensors[port.name].shape)),
            tensors[port.name].kind.text,
            has_rows=False,
        )
        for port in model.graph.output
        if port.name not in by_row
    ]
    return replace(report, outputs=(*report.outputs, *others))


def _size(size: int) -> Size:
    if not grows(size):
        return size
    return "N" if size == ROWS else f"{size // ROWS}N"


def _nnef(
    report: ModelReport,
    payload: bytes,
    models: ModelCache,
    limits: Limits,
    outputs: tuple[str, ...],
) -> ModelReport:
    archive = read_archive(payload, limits)
    try:
        opened = models.nnef(payload)
        report = replace(report, parameters=archive.parameters, nodes=archive.statements)
        return _with_ports(report, opened, outputs)
    finally:
        models.close()


def _with_ports(report: ModelReport, opened: ModelFile, outputs: tuple[str, ...]) -> ModelReport:
    layout = opened.layout
    signatures = list(_signatures(layout, outputs))
    roles = signatures[0].roles if signatures else find_roles(layout)
    names = dict.fromkeys(roles.observations, "observation")
    names |= dict.fromkeys(roles.masks, "mask")
    if roles.epsilon is not None:
        names[roles.epsilon] = "epsilon"
    results = dict.fromkeys(roles.outputs, "output")
    for source, target in roles.recurrent:
        names[source] = "state"
        results.setdefault(target, "state")
    for signature in reversed(signatures):
        if signature.values is not None:
            results[signature.values] = "values"
    for signature in reversed(signatures):
        results |= {port: _role(port, signature) for port in signature.acting}
    described = replace(
        report,
        inputs=tuple(PortReport(p.name, names[p], p.shape, p.type) for p in layout.inputs),
        outputs=tuple(PortReport(p.name, results[p], p.shape, p.type) for p in layout.outputs),
        acts="; or ".join(dict.fromkeys(map(_sentence, signatures))),
    )
    if not signatures:
        return replace(described, verdict=_refusal(layout, outputs))
    try:
        model = opened.load(signatures[0].outputs)
    except AbiError as error:
        return replace(described, verdict=str(error))
    if not isinstance(model, OnnxModel):
        return described
    return replace(described, batch=model.block, why_one=model.why_one)


def _sentence(signature: Signature) -> str:
    is_for_branches = signature.branches or any(port.is_whole for port in signature.acting)
    ending = ", for guests that declare branches" if is_for_branches else ""
    return signature.sentence + ending


def _role(port: Port, signature: Signature) -> str:
    if signature.branches:
        return "scores of choices"
    return "choices" if port.is_whole else "actions"


def _signatures(layout: Layout, outputs: tuple[str, ...]) -> Iterator[Signature]:
    """Yield the signatures for guests that leave their widths to the model, else for any guest."""
    roles = find_roles(layout)
    try:
        yield find_signature(roles, Wanted(outputs=outputs))
    except InvalidArguments:
        yield from _of_guests(roles, outputs)


def _of_guests(roles: Roles, outputs: tuple[str, ...]) -> Iterator[Signature]:
    """Yield the signatures for guests of some number of actions, or with branches."""
    widths = sorted({port.width for port in roles.outputs} | {1})
    widths = [width for width in widths if 0 < width <= _MOST_WIDTH]
    asked = [Wanted(None, width, outputs=outputs) for width in widths]
    asked += [Wanted(None, 1, (width,), outputs) for width in widths if width > 1]
    asked += [Wanted(None, p.width, (2,) * p.width, outputs) for p in roles.outputs if p.is_whole]
    asked += [
        Wanted(None, continuous + len(branches), branches, outputs)
        for branches in _branches_of(roles.outputs)
        for continuous in (0, *widths)
    ]
    seen = set()
    for wanted in asked:
        with suppress(InvalidArguments):
            found = find_signature(roles, wanted)
            if found.acting not in seen:
                seen.add(found.acting)
                yield found


def _branches_of(ports: tuple[Port, ...]) -> list[tuple[int, ...]]:
    """Return the branches for which a model may have one of its outputs each."""
    apart = (Meaning.VALUE, Meaning.ASIDE)
    floats = [p for p in ports if 1 < p.width <= _MOST_WIDTH and not p.is_whole]
    heads = [port for port in floats if port.meaning not in apart]
    scores = [port for port in floats if port.meaning is Meaning.SCORES]
    found = [tuple(port.width for port in numbered(group)) for group in (heads, scores)]
    found.append((2,) * len([port for port in ports if port.is_whole and port.width == 1]))
    return [branches for branches in dict.fromkeys(found) if branches]


def _refusal(layout: Layout, outputs: tuple[str, ...]) -> str:
    """Return the reason why no guest can use a model, except for guests that name its outputs."""
    try:
        find_signature(find_roles(layout), Wanted(outputs=outputs))
    except InvalidArguments as error:
        return str(error)
    return ""
