"""One learner on one game, in a process of its own: ours or theirs; run as a module."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.benchmarks.games import AGENTS, GAMES, ROWS_PER_UPDATE, Game, Numbers, rate

EVERY = 2_048  # steps from one rating to the next

Act = Callable[[Numbers], Numbers]


@dataclass(slots=True)
class Journal:
    """
    What a learner acted with, every so many steps. It is rated when the learning is over, so that
    the rating takes nobody's time.
    """

    start: float
    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    policies: list[Callable[[], Act]] = field(default_factory=list)

    def is_due(self, steps: int) -> bool:
        return steps >= EVERY * (len(self.steps) + 1)

    def note(self, steps: int, policy: Callable[[], Act]) -> None:
        self.steps.append(steps)
        self.seconds.append(time.perf_counter() - self.start)
        self.policies.append(policy)

    def until(self, game: Game) -> tuple[float, float]:
        """Steps and seconds to the goal; infinite if it was not reached."""
        for steps, seconds, policy in self._marks():
            if rate(game, policy()) >= game.goal:
                return steps, seconds
        return float("inf"), float("inf")

    def _marks(self) -> Iterator[tuple[int, float, Callable[[], Act]]]:
        return zip(self.steps, self.seconds, self.policies, strict=True)


def main(learner: str, name: str, seed: int) -> None:
    game = GAMES[name]
    if learner == "ours":
        from tests.benchmarks.learner_ours import learn
    else:
        from tests.benchmarks.learner_theirs import learn
    began = time.perf_counter()
    journal = learn(game, seed, AGENTS, ROWS_PER_UPDATE)
    steps, seconds = journal.until(game)
    started = journal.start - began
    print(json.dumps({"start-up": started, "steps": steps, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
