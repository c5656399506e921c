"""
Options of learning from trials: the hive, the runs of actor classes, the actions to learn from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from arkml.errors import UsageError
from arkml.guest_trials.learning.spans import SpanRules
from arkml.hive.address import Address

Learned = Literal["", "people", "all"]
"""The actions that are learned from: of none, of players, or of players and policies."""

Rewards = Literal["guest", "aggregated"]
"""The rewards of rows: the guest's own, or those of all senders."""

_LEARNED: Final = ("", "people", "all")
_REWARDS: Final = ("guest", "aggregated")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningOptions:
    """
    Options of a server of trials that takes part in runs of a hive.

    Attributes:
        hive: "HOST:PORT" or a URL.
        token: The token for the hive.
        runs: The names of the runs by actor class. Versions of a class's run also replace missing
            players of the class.
        learn: The actors whose actions are learned from.
        rewards: The rewards that are learned from.

    Raises:
        UsageError: A value is invalid, for example an empty name of a run.

    """

    hive: str
    runs: Mapping[str, str]
    token: str | None = None
    learn: Learned = ""
    rewards: Rewards = "guest"

    def __post_init__(self) -> None:
        Address.parse(self.hive)
        if not self.runs:
            raise UsageError("learning from trials takes the run of a class, as walker=walk")
        for actor_class, name in self.runs.items():
            if not name:
                raise UsageError(f"the run of class {actor_class!r} has no name")
        if self.learn not in _LEARNED:
            raise UsageError(f"learn is {self.learn!r}: it takes 'people' or 'all'")
        if self.rewards not in _REWARDS:
            raise UsageError(f"rewards is {self.rewards!r}: it takes 'guest' or 'aggregated'")

    def rules(self, run: str) -> SpanRules:
        """Return the rule that selects the ticks from which the run with this name learns."""
        return SpanRules(
            is_aggregated=self.rewards == "aggregated", run=run if self.learn == "all" else ""
        )

    @property
    def sentence(self) -> str:
        """A sentence for people on how runs learn from them, empty if no run does."""
        if not self.learn:
            return ""
        runs = ", ".join(f"{name} (as {one})" for one, name in self.runs.items())
        rewards = "the game's rewards" if self.rewards == "guest" else "the rewards of all"
        return f"What players do is learned from, with {rewards}, by the hive's runs: {runs}."
