"""The CPU time that a run of a model is expected to take, and the number of rows that limits it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from arkml.errors import ModelRejected
from arkml.policies.operators.call import ROWS, Call, Tensor
from arkml.policies.operators.costs import NodeTime, node_times

NODE_SECONDS = 0.025
"""CPU seconds that one node may take in one run: onnxruntime can be stopped between nodes only."""

BLOCK_SECONDS = 0.1
"""CPU seconds of one run: Ctrl-C is heard between runs only."""

FEWEST = 64
"""
Rows of a run that are efficient. A model which would get fewer because its numbers might be
subnormal runs with these set to zero, and then costs what it costs with ordinary numbers.
"""

_MOST = 1 << 20
_RUN = 20e-6


@dataclass(frozen=True, slots=True)
class ModelTime:
    """
    The estimated time of a model, summed over its nodes in the order of the graph.

    Attributes:
        rows: The most rows of one run for which each node takes less than `NODE_SECONDS`; 0 if the
            fixed time of a node alone is more.
        subnormal_rows: As `rows`, where the numbers are subnormal.
        fixed_seconds: Seconds of each run, whatever its rows.
        row_seconds: Seconds that each row adds.
        subnormal_seconds: Seconds that each row of subnormal numbers adds.

    """

    rows: int = _MOST
    subnormal_rows: int = _MOST
    fixed_seconds: float = _RUN
    row_seconds: float = 0.0
    subnormal_seconds: float = 0.0

    def with_node(self, call: Call, results: list[Tensor]) -> ModelTime:
        """Return the time with one more node added. Raises ModelRejected if one row is too slow."""
        ordinary, subnormal = node_times(call, results, ROWS)
        rows = _rows(ordinary)
        if rows < 1:
            milliseconds = (ordinary.fixed + ordinary.row) / 1e6
            raise ModelRejected(
                f"one row of it takes {milliseconds:,.0f} ms of CPU by estimate,"
                f" {NODE_SECONDS * 1e3:.0f} ms are allowed: make its tensors or its window smaller"
            )
        # A fixed part on subnormal numbers has no row to be shared by: it counts in all of them.
        return ModelTime(
            min(self.rows, rows),
            min(self.subnormal_rows, _rows(subnormal)),
            self.fixed_seconds + ordinary.fixed / 1e9,
            self.row_seconds + ordinary.row / 1e9,
            self.subnormal_seconds + (subnormal.row + subnormal.fixed - ordinary.fixed) / 1e9,
        )

    @property
    def is_flushed(self) -> bool:
        """True if runs must set subnormal numbers to zero to be in time."""
        return self.subnormal_rows < FEWEST

    @property
    def block_rows(self) -> int:
        """The most rows in one run."""
        rows = self.rows if self.is_flushed else min(self.rows, self.subnormal_rows)
        left = max(0.0, BLOCK_SECONDS - self.fixed_seconds)
        return max(1, min(rows, int(left / self.row_seconds)) if self.row_seconds else rows)

    def seconds(self, rows: int, block: int, *, at_worst: bool = False) -> float:
        """Return the estimated CPU seconds of `rows` rows, in runs of `block` rows each."""
        by_row = self.subnormal_seconds if at_worst and not self.is_flushed else self.row_seconds
        return -(-rows // block) * self.fixed_seconds + rows * by_row


def _rows(time: NodeTime) -> int:
    left = NODE_SECONDS * 1e9 - time.fixed
    if left < 0:
        return 0
    return min(_MOST, math.floor(left / time.row)) if time.row else _MOST
