"""The protocol of a loaded model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from arkml.batches import Floats
from arkml.policies.ports import Port
from arkml.policies.run_limit import RunLimit

Call = Callable[[], object]
"""Runs a model, or a part of it, on arrays that it was prepared with."""

ALIKE = 1_024
"""Rows of an input whose rows are all alike; also the most rows that one run of a model reads."""


class Model(Protocol):
    """A network with named float32 inputs and outputs. Any thread may run it."""

    @property
    def inputs(self) -> Sequence[Port]:
        """The inputs, in the order of the file."""

    @property
    def outputs(self) -> Sequence[Port]:
        """The outputs that have a row for each row of the inputs."""

    @property
    def session_bytes(self) -> int:
        """Bytes that the model holds while it is loaded, by estimate."""

    def prepare(
        self,
        count: int,
        feeds: Mapping[str, Floats],
        fetches: Mapping[str, Floats],
        limit: RunLimit,
    ) -> Sequence[Call]:
        """
        Return calls that together run the model from `feeds` into `fetches`.

        feeds, fetches: contiguous float32, [count, *shape], by port name, used in place by every
        call; the caller keeps them alive. A feed may have `ALIKE` rows where `count` is larger:
        then all its rows are alike. `limit` bounds the time of a run that may be long.
        """
