"""Kernels of policy files, with notes on the roles of their inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from arkml.errors import InvalidArguments, ModelRejected
from arkml.limits import Limits
from arkml.policies.cervo import AssetKind, is_cervo, unpack
from arkml.policies.kernel.reading import NOT_ONNX
from arkml.policies.kernel.rendering import Kernel
from arkml.policies.onnx_model import OnnxFile
from arkml.policies.ports import Port
from arkml.policies.roles import Roles, find_roles
from arkml.policies.signature import Signature, Wanted, find_signature
from arkml.policies.vetting import Vetted

_LIMITS = Limits()
_SECONDS = 10.0
_BRANCHES = "branches"


def render(data: bytes, wanted: Wanted | None = None, *, limits: Limits = _LIMITS) -> bytes:
    """
    Return a policy compiled to a WebAssembly module, for `kernel.js` in a page.

    Args:
        data: An ONNX or Cervo file.
        wanted: Features, actions and branches of the sessions; None takes them from the file, the
            branches from metadata that learners of arkml write.
        limits: Limits of models.

    Returns:
        A `rendering.Kernel` whose section has, beside the version, the numbers of `features` and
        `actions`; `branches`, the choices of each of the last actions; `scored`, true for a model
        with a score for each choice; `inputs` and `outputs`, each with name, shape, offset and
        role; `acting`, the outputs that act, and `values`, each by its number; and `recurrent`,
        pairs of an input with the output that is fed back into it.

    Raises:
        ModelRejected: The file is not a model that arkml runs, or has operators that cannot be
            compiled, which the message names.
        SnapshotTooLarge: The file is larger than `limits` allow.
        InvalidArguments: The model does not fit `wanted`.

    """
    file = _file(data, limits)
    wanted = wanted or _wanted(file)
    signature = _signature(file, wanted)
    vetted = file.of_one_row(signature.outputs)
    return _binary(file, signature, wanted, vetted)


class HostedModel(NamedTuple):
    """
    A policy for a page in which another runtime, not a kernel, computes the outputs.

    Attributes:
        kernel: A module as `render` returns it, but without `run`.
        model: The ONNX file of the model, whose inputs and outputs are float32 with the rows first.
        rows: The only number of rows that the model takes, None for any number.

    """

    kernel: bytes
    model: bytes
    rows: int | None


def hosted(data: bytes, wanted: Wanted, *, limits: Limits = _LIMITS) -> HostedModel:
    """
    Return a policy for `kernel.js` and another runtime, for operators that no kernel supports.

    Arguments and errors are as for `render`, but such operators raise nothing.
    """
    file = _file(data, limits)
    signature = _signature(file, wanted)
    kernel = _binary(file, signature, wanted, None)
    return HostedModel(kernel, *file.exported(signature.outputs))


def _file(data: bytes, limits: Limits) -> OnnxFile:
    kind, model = unpack(data) if is_cervo(data) else (AssetKind.ONNX, data)
    if kind is not AssetKind.ONNX:
        raise ModelRejected(NOT_ONNX)
    return OnnxFile(model, limits, seconds=_SECONDS)


def _signature(file: OnnxFile, wanted: Wanted) -> Signature:
    roles = find_roles(file.layout, wanted.num_features, wanted.parts)
    return find_signature(roles, wanted)


def _binary(file: OnnxFile, signature: Signature, wanted: Wanted, vetted: Vetted | None) -> bytes:
    outputs = [port for port in file.layout.outputs if port.name in signature.outputs]
    kernel = Kernel(vetted, file.layout.inputs, outputs)
    return kernel.binary(_notes(kernel, signature, file.layout.inputs, outputs, wanted))


def _wanted(file: OnnxFile) -> Wanted:
    """Return features, actions and branches of sessions, as the file declares them."""
    sizes = [int(part) for part in file.note(_BRANCHES).split(",") if part.isdecimal()]
    roles = find_roles(file.layout)
    masks = sum(port.width for port in roles.masks)
    if masks and sum(sizes) != masks:
        raise InvalidArguments(
            f"the model takes masks of {masks} choices, and its metadata {_BRANCHES!r} has the"
            f" branches {sizes}: say which branches the agents have"
        )
    return Wanted(branches=tuple(sizes))


def _notes(
    kernel: Kernel,
    signature: Signature,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    wanted: Wanted,
) -> dict[str, object]:
    names = [port.name for port in inputs], [port.name for port in outputs]
    roles = signature.roles
    adapted = dict(roles.adapted)
    places: list[dict[str, object]] = []
    starts = _starts(roles.observations)
    for port in inputs:
        place = _place(port, kernel.inputs[port.name], _role(port, roles))
        if port.name in starts:
            place["start"] = starts[port.name]
        if port in adapted:
            place |= {"from": adapted[port]._asdict()}
        places.append(place)
    return {
        "features": signature.num_features,
        "actions": signature.num_actions,
        "branches": list(wanted.branches),
        "scored": bool(signature.branches),
        "inputs": places,
        "outputs": [_place(p, kernel.outputs[p.name], _part(p, signature)) for p in outputs],
        "acting": [names[1].index(port.name) for port in signature.acting],
        "values": None if signature.values is None else names[1].index(signature.values.name),
        "recurrent": [
            [names[0].index(source.name), names[1].index(target.name)]
            for source, target in roles.recurrent
        ],
    }


def _starts(observations: Sequence[Port]) -> dict[str, int]:
    """Return the feature with which each observation begins."""
    starts, start = {}, 0
    for port in observations:
        starts[port.name] = start
        start += port.width
    return starts


def _place(port: Port, offset: int, role: str) -> dict[str, object]:
    return {"name": port.name, "shape": list(port.shape), "offset": offset, "role": role}


def _role(port: Port, roles: Roles) -> str:
    if port == roles.epsilon:
        return "epsilon"
    if port in roles.masks:
        return "masks"
    return "observation" if port in roles.observations else "recurrent"


def _part(port: Port, signature: Signature) -> str:
    if port in signature.acting:
        return "actions"
    return "values" if port == signature.values else "recurrent"
