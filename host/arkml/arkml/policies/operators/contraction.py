"""The size rule of Einsum: the shape of its output, and the work and memory of computing it."""

from __future__ import annotations

import re
from math import prod

from arkml.errors import ModelRejected
from arkml.policies.operators.call import Call, ElementType, Tensor

_EQUATION = re.compile(r"([a-zA-Z]*)(?:,([a-zA-Z]*))?(?:->([a-zA-Z]*))?")


def einsum(call: Call) -> list[Tensor]:
    """
    Size Einsum of one or two tensors of floats, without an ellipsis and without diagonals.

    Work: the sizes of all indices, multiplied. Steps: the matrices, over the indices common to both
    tensors and the result. Scratch: copies of both tensors and of the result.
    """
    tensors = [call.input(index) for index in range(len(call.inputs))]
    if not 1 <= len(tensors) <= 2:
        raise ModelRejected(f"Einsum of {len(tensors)} tensors, expected 1 or 2")
    kind = tensors[0].kind
    if kind not in (ElementType.FLOAT, ElementType.DOUBLE) or tensors[-1].kind is not kind:
        raise ModelRejected(f"Einsum on {kind.name} is not allowed")
    terms, result = terms_of(call)
    sizes: dict[str, int] = {}
    for term, tensor in zip(terms, tensors, strict=True):
        if len(term) != len(tensor.shape):
            raise ModelRejected(f"the indices {term!r} of a shape {list(tensor.shape)}")
        for index, size in zip(term, tensor.shape, strict=True):
            if sizes.setdefault(index, size) != size:
                raise ModelRejected(f"index {index!r} has the sizes {sizes[index]} and {size}")
    shape = tuple(sizes[index] for index in result)
    call.work += prod(sizes.values())
    shared = set(result).intersection(*terms)
    call.steps += prod(sizes[index] for index in shared)
    call.scratch += kind.size * 2 * (sum(tensor.count for tensor in tensors) + prod(shape))
    return [Tensor(kind, shape)]


def terms_of(call: Call) -> tuple[list[str], str]:
    """Return the indices of each tensor of an Einsum, and of its result. Raises ModelRejected."""
    equation, count = call.attribute("equation"), len(call.inputs)
    text = equation.decode(errors="replace") if isinstance(equation, bytes) else ""
    match = _EQUATION.fullmatch(text.replace(" ", "")) if len(text) < 100 else None
    if match is None or (match[2] is None) != (count == 1):
        raise ModelRejected(f"the equation {text[:80]!r} is not supported")
    terms = [match[1]] if count == 1 else [match[1], match[2]]
    joined = "".join(terms)
    result = match[3]
    if result is None:
        result = "".join(sorted(index for index in set(joined) if joined.count(index) == 1))
    if any(len(set(term)) < len(term) for term in (*terms, result)) or set(result) - set(joined):
        raise ModelRejected(f"the equation {text[:80]!r} is not supported")
    return terms, result
