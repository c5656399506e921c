"""Conversion of trees of arrays to named tensors, as checkpoints hold them, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from arkml.learning.checkpoint_files import CheckpointDamaged
from arkml.learning.networks import mapped

Tensors = dict[str, npt.NDArray[Any]]
Tree = TypeVar("Tree")


def flatten(tree: Any) -> Tensors:
    """
    Return copies of the arrays in a tree of named tuples and lists, in numpy.

    The name of each is its path, as in "actor/0/weight".
    """
    return {name: np.array(leaf) for name, leaf in _leaves(tree, "")}


def restored(tree: Tree, tensors: Mapping[str, npt.NDArray[Any]]) -> Tree:
    """
    Return a tree like the given one with copies of these arrays at its leaves.

    Raises CheckpointDamaged if a tensor is missing or unknown, or has another shape or dtype.
    """
    expected = dict(_leaves(tree, ""))
    if unknown := sorted(tensors.keys() - expected.keys()):
        raise CheckpointDamaged(f"the checkpoint does not fit this run: {unknown[0]} is unknown")
    for name, leaf in expected.items():
        if name not in tensors:
            raise CheckpointDamaged(f"the checkpoint does not fit this run: {name} is missing")
        tensor = tensors[name]
        if (tensor.shape, tensor.dtype) != (leaf.shape, leaf.dtype):
            raise CheckpointDamaged(
                f"the checkpoint does not fit this run: {name} is {tensor.dtype},"
                f" {list(tensor.shape)}, and the run has {leaf.dtype}, {list(leaf.shape)}"
            )
    names = iter(expected)  # in the order in which `mapped` comes to the leaves
    result: Tree = mapped(lambda _: tensors[next(names)].copy(), tree)
    return result


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    children = _children(tree)
    if children is None:
        yield path, tree
        return
    for name, child in children:
        yield from _leaves(child, f"{path}/{name}" if path else name)


def _children(tree: Any) -> list[tuple[str, Any]] | None:
    """Return the children of a named tuple or a list with their names, None for an array."""
    if hasattr(tree, "_fields"):
        return list(zip(tree._fields, tree, strict=True))
    if isinstance(tree, list):
        return [(str(number), child) for number, child in enumerate(tree)]
    return None
