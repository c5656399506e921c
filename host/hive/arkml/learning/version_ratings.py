"""Ratings of policy versions by the training episodes that began under them."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import NamedTuple

from arkml.hive.protocol.episode_choice import ChosenEnd, EpisodeChoice

LEAST = 20
"""Episodes of a rating, at least, whether they are of one agent or of many."""

_PATIENCE = 100
"""Episodes of each agent, on average, that may end before a rating is given up."""


class Candidate(NamedTuple):
    """A version whose rating has begun, and which must be kept until the rating ends."""

    version: int


class Rating(NamedTuple):
    """The mean return of episodes that began under a version or, at most, a few versions apart."""

    version: int
    score: float


class _Played(NamedTuple):
    agent: int
    end: ChosenEnd
    version: int
    total: float


class VersionRatings:
    """
    Rates one policy version after another, by training episodes that are chosen as they begin.

    Among simultaneous agents the first episodes to end are short ones. So each agent plays the same
    number of episodes of a rating, all of them to their ends; see `EpisodeChoice`.

    The rated version is the one under which the middle episode began. If every agent has begun at
    least half of its episodes under that version, only these count. If versions follow each other
    faster, episodes that began under neighboring versions count, too. If the version changes before
    half of the episodes have begun, the rating begins anew with the new version, once.

    `take` returns the results: a Candidate when the version is known, and a Rating when all
    episodes have ended. Agents that end no episode for a long time are left out of the next rating.
    """

    def __init__(self) -> None:
        self._choice: EpisodeChoice | None = None
        self._each = 0  # episodes of each agent in a rating
        self._open: dict[int, int] = {}  # number of the rating in which an agent began, if it plays
        self._begun: dict[int, int] = {}  # version under which it began, of chosen episodes
        self._ratings = self._chosen = self._ended = 0
        self._version: int | None = None
        self._first: int | None = None  # version under which the rating began
        self._is_renewed = False  # it began with the first episodes of that version
        self._played: list[_Played] = []
        self._made: list[Candidate | Rating] = []

    def take(self) -> list[Candidate | Rating]:
        """Return the candidates and ratings since the last call."""
        made, self._made = self._made, []
        return made

    def begin(self, agents: Sequence[int], version: int) -> None:
        """Note that an episode of each of these agents begins under a policy version."""
        for agent in agents:
            self.leave(agent)
        choice = self._choice
        if choice is not None and version != self._first and not self._is_renewed:
            self._is_renewed = True
            choice = choice if 2 * choice.chosen_rounds >= self._each else None
        if choice is None:
            choice = self._begin_rating(len(agents), version)
        choice.begin(agents)
        for agent in agents:
            self._open[agent] = self._ratings
            if not choice.is_chosen(agent):
                continue
            self._begun[agent] = version
            self._chosen += 1
            if self._version is None and 2 * self._chosen >= choice.wanted:
                self._version = version
                self._made.append(Candidate(version))

    def end(self, agent: int, total: float) -> None:
        """Note that the episode of an agent ended with this return."""
        self._open.pop(agent, None)
        choice = self._choice
        if choice is None:
            return
        self._ended += 1
        ended = choice.end(agent)
        if ended is not None:
            self._played.append(_Played(agent, ended, self._begun.pop(agent), total))
        if choice.is_done:
            self._rate()
        elif self._ended * self._each > _PATIENCE * choice.wanted:
            self._give_up()

    def leave(self, agent: int) -> None:
        """Forget the present episode of an agent, if there is one, so that it counts nowhere."""
        if self._open.pop(agent, None) is not None and self._choice is not None:
            self._chosen -= self._begun.pop(agent, None) is not None
            self._choice.leave(agent)

    def take_back(self, agents: Container[int]) -> None:
        """
        Forget the episodes of agents, whether they have ended or not, so that they count nowhere.
        """
        choice = self._choice
        for one in reversed(self._played if choice is not None else ()):
            if one.agent in agents and choice is not None:
                choice.take_back(one.end)
                self._chosen -= 1
        self._played = [one for one in self._played if one.agent not in agents]
        for agent in [agent for agent in self._open if agent in agents]:
            self.leave(agent)

    def _begin_rating(self, more: int, version: int) -> EpisodeChoice:
        """Begin a rating of the agents that play and `more` of them, under a version."""
        agents = len(self._open) + more
        self._each = -(-LEAST // agents)
        self._choice = EpisodeChoice(self._each * agents, list(self._open))
        self._ratings += 1
        self._chosen = self._ended = 0
        self._first, self._version, self._begun, self._played = version, None, {}, []
        return self._choice

    def _rate(self) -> None:
        assert self._version is not None
        own: dict[int, list[float]] = {one.end.place: [] for one in self._played}
        for one in self._played:
            if one.version == self._version:
                own[one.end.place].append(one.total)
        rounds = min(map(len, own.values()))
        returns = [one.total for one in self._played]
        if 2 * rounds >= self._each:
            returns = [total for totals in own.values() for total in totals[:rounds]]
        self._made.append(Rating(self._version, math.fsum(returns) / len(returns)))
        self._choice, self._is_renewed = None, False

    def _give_up(self) -> None:
        """Give a rating up, and the agents that it waits for."""
        self._open = {
            agent: number
            for agent, number in self._open.items()
            if number == self._ratings and agent not in self._begun
        }
        self._choice, self._is_renewed = None, False
