"""What a loaded model is to those who run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from arkml.batches import Floats
from arkml.policies.signature import Port

Call = Callable[[], object]

ALIKE = 1_024
"""Rows of an input whose rows are all alike; also the most rows that one run of a model reads."""


class Model(Protocol):
    """A network with named float32 inputs and outputs."""

    @property
    def inputs(self) -> Sequence[Port]: ...

    @property
    def outputs(self) -> Sequence[Port]: ...

    def prepare(
        self, count: int, feeds: Mapping[str, Floats], fetches: Mapping[str, Floats]
    ) -> Sequence[Call]:
        """
        Calls that together run the model from `feeds` into `fetches`.

        Both are contiguous float32, [count, *shape], and are used in place by every call. The
        caller keeps them alive. A feed may have `ALIKE` rows only where `count` is more: then all
        its rows are alike.
        """
