"""What one run of the benchmarks has at hand: its length, its peer, its notes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.benchmarks.measuring import Block, interleave
from tests.benchmarks.peer import Peer


@dataclass(slots=True)
class Bench:
    """`notes` are lines that explain rows, by topic."""

    peer: Peer | None
    quick: bool
    notes: dict[str, list[str]] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        return 5 if self.quick else 21

    @property
    def block_seconds(self) -> float:
        """How long a short block takes."""
        return 0.015 if self.quick else 0.025

    def interleave(
        self, blocks: Mapping[str, Block], *, rounds: int | None = None
    ) -> dict[str, list[float]]:
        return interleave(blocks, rounds or self.rounds)

    def note(self, topic: str, line: str) -> None:
        self.notes.setdefault(topic, []).append(line)

    def say(self, what: str) -> None:
        """Tell whoever waits what is measured now."""
        print(f"  {what} ...", file=sys.stderr, flush=True)
