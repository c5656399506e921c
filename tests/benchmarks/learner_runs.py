"""One learner on one game, in a process of its own: ours or theirs; run as a module."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.benchmarks.configurations import CONFIGURATIONS
from tests.benchmarks.games import GAMES, Game, Numbers, rate

EVERY = 2_048  # steps from one rating to the next

Act = Callable[[Numbers], Numbers]


@dataclass(slots=True)
class Journal:
    """
    What a learner acted with, every 2,048 steps and when its steps or seconds were used up. It is
    rated when the learning is over, so that the rating takes no time of it.
    """

    most_steps: int
    most_seconds: float
    start: float = field(default_factory=time.perf_counter)
    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    policies: list[Callable[[], Act]] = field(default_factory=list)
    is_full: bool = False

    def is_due(self, steps: int) -> bool:
        """Whether a policy is to be noted, as at the end, after which no other one is."""
        if not self.is_full:
            elapsed = time.perf_counter() - self.start
            self.is_full = steps >= self.most_steps or elapsed >= self.most_seconds
        return self.is_full or steps >= EVERY * (len(self.steps) + 1)

    def note(self, steps: int, policy: Callable[[], Act]) -> None:
        self.steps.append(steps)
        self.seconds.append(time.perf_counter() - self.start)
        self.policies.append(policy)

    def rated(self, game: Game) -> dict[str, float | None]:
        """
        Steps and seconds to the goal, None if it was not reached; the highest rating; and the
        steps and seconds that were played.
        """
        ratings = [rate(game, policy()) for policy in self.policies]
        reached = [number for number, rating in enumerate(ratings) if rating >= game.goal]
        first = reached[0] if reached else None
        return {
            "steps": None if first is None else self.steps[first],
            "seconds": None if first is None else self.seconds[first],
            "rating": max(ratings),
            "steps played": self.steps[-1],
            "seconds played": self.seconds[-1],
        }


def main(learner: str, name: str, game_name: str, seed: int, seconds: float) -> None:
    game = GAMES[game_name]
    if learner == "ours":
        from tests.benchmarks.learner_ours import learn
    else:
        from tests.benchmarks.learner_theirs import learn
    began = time.perf_counter()
    journal = learn(CONFIGURATIONS[name], game, seed, seconds)
    print(json.dumps({"start-up": journal.start - began, **journal.rated(game)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
