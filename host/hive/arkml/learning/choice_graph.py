"""
Discrete choices in the ONNX graph of a policy, drawn by logits, masks and noise, and their check.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.learning.policy_graph import TOLERANCE, ExportWrong, PolicyGraph

Doubles = npt.NDArray[np.float64]

_CONSTANTS = {
    "zero": 0.0,
    "half": 0.5,
    "one": 1.0,
    "root_half": math.sqrt(0.5),
    "below_one": 1.0 - 2.0**-24,  # the largest quantile, so that some sum is over its level
    "smallest_logit": -1e8,
    "largest_logit": 1e8,
    "impossible": -1e30,  # the logit of a choice that is not allowed
}

_BLOCK = 64  # choices that are summed by one matrix


class ChoiceGraph:
    """
    The part of a policy's graph that makes the discrete choices, for all branches at once.

    Tensors are [N, branches, choices of the largest branch]; elements beyond the choices of a
    smaller branch count as masked. The metadata `branches` of the model has the choices of each
    branch, such as "3,2".
    """

    def __init__(self, graph: PolicyGraph, branches: Sequence[int]) -> None:
        self._graph = graph
        graph.note("branches", ",".join(map(str, branches)))
        most = max(branches)
        if most > _BLOCK:
            most = -(-most // _BLOCK) * _BLOCK
        self._shape = len(branches), most
        starts = list(accumulate(branches, initial=0))[:-1]
        places = np.arange(most)
        sizes = np.array(branches)[:, None]
        index = np.array(starts)[:, None] + np.minimum(places, sizes - 1)
        self._index = graph.integers("choice_index", index)
        self._exists = graph.constant("choice_exists", places < sizes)
        self._axis = graph.integers("choice_axis", [2])
        self._number = {name: graph.constant(name, value) for name, value in _CONSTANTS.items()}

    def choices(self, logits: str, ranks: str) -> str:
        """
        Add nodes that choose in each branch, float32, [N, branches], from logits and noise `ranks`.
        """
        graph = self._graph
        allowed = self._allowed()
        scores = self._scores(logits, allowed)
        likeliest = graph.node("ArgMax", [scores], axis=2, keepdims=0)
        drawn = self._drawn(scores, allowed, ranks)
        is_zero = graph.node("Equal", [ranks, self._number["zero"]])
        chosen = graph.node("Where", [is_zero, likeliest, drawn])
        return graph.node("Cast", [chosen], to=1)

    def _allowed(self) -> str:
        """Add 1 for each allowed choice, or for every one if a branch allows none; else 0."""
        graph = self._graph
        masks = graph.node("Gather", ["action_masks", self._index], axis=1)
        open_ = graph.node("Greater", [masks, self._number["half"]])
        given = graph.node("Mul", [graph.node("Cast", [open_], to=1), self._exists])
        any_ = graph.node("ReduceMax", [given], axes=[2], keepdims=1)
        none = graph.node("Sub", [self._number["one"], any_])
        return graph.node("Max", [given, graph.node("Mul", [none, self._exists])])

    def _scores(self, logits: str, allowed: str) -> str:
        """Add finite logits, which no choice that is not allowed reaches; NaN counts as 0."""
        graph = self._graph
        wide = graph.node("Gather", [logits, self._index], axis=1)
        is_number = graph.node("Equal", [wide, wide])
        numbers = graph.node("Where", [is_number, wide, self._number["zero"]])
        bounds = [self._number[name] for name in ("smallest_logit", "largest_logit")]
        bounded = graph.node("Clip", [numbers, *bounds])
        is_allowed = graph.node("Greater", [allowed, self._number["half"]])
        return graph.node("Where", [is_allowed, bounded, self._number["impossible"]])

    def _drawn(self, scores: str, allowed: str, ranks: str) -> str:
        """Add the choice at the quantile of epsilon, int64, [N, branches]."""
        graph = self._graph
        # A softmax may leave a little probability to impossible choices.
        shares = graph.node("Mul", [graph.node("Softmax", [scores], axis=2), allowed])
        sums = self._sums(shares)
        total = graph.node("ReduceMax", [graph.node("Mul", [sums, allowed])], axes=[2])
        normal = graph.node("Mul", [ranks, self._number["root_half"]])
        double = graph.node("Add", [graph.node("Erf", [normal]), self._number["one"]])
        quantile = graph.node("Mul", [double, self._number["half"]])
        below = graph.node("Min", [quantile, self._number["below_one"]])
        level = graph.node("Mul", [graph.node("Unsqueeze", [below, self._axis]), total])
        is_over = graph.node("Cast", [graph.node("Greater", [sums, level])], to=1)
        # 2 for an allowed choice over the level, 1 for any other allowed one, 0 for the rest.
        rated = graph.node("Mul", [allowed, graph.node("Add", [is_over, self._number["one"]])])
        return graph.node("ArgMax", [rated], axis=2, keepdims=0)

    def _sums(self, shares: str) -> str:
        """Add cumulative sums along the last axis, in blocks if there are many choices."""
        graph, (count, most) = self._graph, self._shape
        size = min(most, _BLOCK)
        within = graph.constant("sum_within", np.triu(np.ones((size, size))))
        if most <= _BLOCK:
            return graph.node("MatMul", [shares, within])
        number = most // _BLOCK
        blocks = graph.integers("block_shape", [0, count, number, _BLOCK])
        inner = graph.node("MatMul", [graph.node("Reshape", [shares, blocks]), within])
        totals = graph.node("Gather", [inner, graph.integers("block_end", _BLOCK - 1)], axis=3)
        before = graph.constant("sum_before", np.triu(np.ones((number, number)), 1))
        starts = graph.node("MatMul", [totals, before])
        starts = graph.node("Unsqueeze", [starts, graph.integers("block_axis", [3])])
        whole = graph.integers("choice_shape", [0, count, most])
        return graph.node("Reshape", [graph.node("Add", [inner, starts]), whole])


def require_choices(
    branches: Sequence[int], chosen: Floats, logits: Floats, masks: Floats, epsilon: Floats
) -> None:
    """
    Raise ExportWrong if a model makes a masked choice, or another than epsilon's quantile gives.

    Args:
        branches: The number of choices of each branch.
        chosen: The choices that the model makes: float32, [n, branches].
        logits: The logits of all branches, side by side: float32, [n, choices].
        masks: 1 for each choice that is allowed, else 0: float32, [n, choices].
        epsilon: Standard normal numbers or zeros: float32, [n, branches].

    """
    for branch, (start, end) in enumerate(pairwise(accumulate(branches, initial=0))):
        columns = slice(start, end)
        _require_choice(
            branch,
            chosen[:, branch],
            logits[:, columns].astype(np.float64),
            masks[:, columns] > 0.5,
            epsilon[:, branch],
        )


def _require_choice(
    branch: int, chosen: Floats, logits: Doubles, masks: npt.NDArray[np.bool_], epsilon: Floats
) -> None:
    """Raise ExportWrong for choices, float32, [n], that do not follow from logits, [n, choices]."""
    allowed = masks | ~masks.any(axis=1, keepdims=True)
    shown = np.where(allowed, logits, -np.inf)
    shares = np.exp(shown - shown.max(axis=1, keepdims=True))
    sums = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    scale = TOLERANCE * max(1.0, float(np.abs(logits).max()))
    for row, choice in enumerate(chosen.tolist()):
        place = int(choice) if choice in range(logits.shape[1]) else -1
        fits = place >= 0 and bool(allowed[row, place])
        if fits and epsilon[row] == 0:
            fits = shown[row, place] >= shown[row].max() - scale
        elif fits:
            level = 0.5 * (1.0 + math.erf(float(epsilon[row]) * math.sqrt(0.5)))
            before = sums[row, place - 1] if place else 0.0
            fits = before - scale <= level <= sums[row, place] + scale
        if not fits:
            raise ExportWrong(
                f"the exported model chooses {choice:g} in branch {branch}, with logits"
                f" {_listed(logits[row])}, masks {_listed(masks[row])} and epsilon {epsilon[row]:g}"
            )


def _listed(values: npt.NDArray[Any]) -> list[Any]:
    listed: list[Any] = values[:8].tolist()
    return listed
