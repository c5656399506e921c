"""The protocol of a loaded model, a network that computes named outputs from named inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from arkml.batches import Floats
from arkml.policies.noise import Words
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
        """Estimated bytes that the model holds while it is loaded."""

    def prepare(
        self,
        count: int,
        feeds: Mapping[str, Floats],
        fetches: Mapping[str, Floats],
        limit: RunLimit,
    ) -> Sequence[Call]:
        """
        Return functions that together run the model from inputs, `feeds`, to outputs, `fetches`.

        feeds, fetches: contiguous float32, [count, *shape], by port name, used in place by every
        call; the caller keeps them alive. A feed whose rows are all alike may have only `ALIKE`
        rows. `limit` bounds the time of a run that may be long.
        """


@runtime_checkable
class MakesNoise(Protocol):
    """A model with its own generator of noise."""

    def fill_noise(
        self, port: Port, out: Floats, streams: Words, steps: Words, *, is_pink: bool
    ) -> None:
        """
        Fill `out`, float32, [n, width], as `noise.fill_normal` or `noise.PinkNoise` does.

        streams, steps: uint64, [n]. The numbers may differ from numpy's in the last bits.
        """
