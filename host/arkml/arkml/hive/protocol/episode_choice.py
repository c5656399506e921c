"""The choice of the episodes that rate a policy, made before they are played."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import gcd
from typing import NamedTuple

_PATIENCE = 500
"""The least number of submits without an agent after which it is missing."""

_LOOK = 50  # submits between two looks for agents that are missing

_GOLDEN = (5**0.5 - 1) / 2


class ChosenEnd(NamedTuple):
    """
    The end of a chosen episode.

    `place` is the index of the slot that its agent had in the choice. `ordinal` is the number of
    chosen episodes that had ended in this slot before.
    """

    place: int
    ordinal: int


@dataclass(slots=True)
class _Place:
    """A slot for one agent after another, with the numbers of `chosen` and `ended` episodes."""

    agent: int
    rank: int  # among those that are not given up
    chosen: int = 0
    ended: int = 0
    is_chosen: bool = False  # of the episode in progress
    is_given_up: bool = False
    begun: int = 0  # round in which the episode began
    seen: int = -1  # round of the last row


class EpisodeChoice:
    """
    Chooses the episodes that rate a policy, of agents that play side by side, as each begins.

    The first episodes that *end* are the short ones, and their mean is biased. So `wanted` episodes
    are shared out evenly among the agents, and all of them are played to their ends: of 10
    episodes, for example, 4 agents play 3, 2, 2 and 3. The agents with one more are spread evenly,
    since a guest may have its attackers first, or at every second position. If each episode has an
    agent of its own, a new agent takes the slot of the agent that has been gone longest.

    An agent that vanishes in an episode would be waited for in vain. `pass_submit` gives up the
    slot of an agent that has been missing for as long as the longest chosen episode so far, and for
    at least 500 submits of the others. Its episode does not count, and the other agents play the
    rest of its share.
    """

    def __init__(self, wanted: int, playing: Sequence[int] = ()) -> None:
        """Choose `wanted` episodes; the agents in `playing` are in the middle of one already."""
        self.wanted = wanted
        self.ended = 0
        """Chosen episodes that have ended."""
        self.vanished = 0
        """Chosen episodes whose agents have vanished in them."""
        self._places = [_Place(agent, at) for at, agent in enumerate(playing)]
        self._filled = len(playing)  # places that are not given up
        self._given_up = 0  # episodes that were chosen of those that are given up
        self._round = 0  # submits of the agent that has had the most
        self._passed = 0  # submits
        self._longest = 0  # rounds of a chosen episode
        self._at = {agent: at for at, agent in enumerate(playing)}
        self._vacant: dict[int, None] = {}  # places between two episodes, the oldest first
        self._left = wanted  # episodes that are not chosen yet

    @property
    def is_done(self) -> bool:
        """True if all wanted episodes have ended."""
        return self.ended >= self.wanted

    @property
    def playing(self) -> list[int]:
        """The agents that are in an episode, whether it is chosen or not."""
        return [
            place.agent
            for at, place in enumerate(self._places)
            if at not in self._vacant and not place.is_given_up
        ]

    @property
    def unended(self) -> int:
        """Number of agents that have chosen episodes to play, and have ended none yet."""
        return sum(not place.ended for place in self._due())

    @property
    def rounds(self) -> int:
        """Number of chosen episodes that every agent has ended at least."""
        return min((place.ended for place in self._due()), default=0)

    @property
    def chosen_rounds(self) -> int:
        """Number of episodes that were chosen of every agent at least."""
        return min((place.chosen for place in self._due()), default=0)

    def begin(self, agents: Sequence[int]) -> None:
        """Note that these agents begin episodes in one submit, and choose among the episodes."""
        known = [agent for agent in agents if agent in self._at]
        for agent in known:
            self._vacant.pop(self._at[agent], None)
            self._drop(self._places[self._at[agent]])  # if it has left one without an end
        for agent in agents:
            if agent not in self._at:
                self._take_place(agent)
        for agent in agents:
            place = self._places[self._at[agent]]
            place.begun = self._round
            if self._left and place.chosen < self._share(place):
                self._left -= 1
                place.chosen += 1
                place.is_chosen = True

    def is_chosen(self, agent: int) -> bool:
        """Return whether the episode that an agent plays now is a chosen one."""
        at = self._at.get(agent)
        return at is not None and self._places[at].is_chosen

    def end(self, agent: int) -> ChosenEnd | None:
        """End the episode of an agent. Returns None if it was not chosen."""
        at = self._at.get(agent)
        if at is None:
            return None
        self._vacant[at] = None
        place = self._places[at]
        if not place.is_chosen:
            return None
        place.is_chosen = False
        place.ended += 1
        self.ended += 1
        self._longest = max(self._longest, self._round - place.begun)
        return ChosenEnd(at, place.ended - 1)

    def take_back(self, end: ChosenEnd) -> None:
        """Undo the end of a chosen episode, so that it does not count, and choose another one."""
        place = self._places[end.place]
        place.ended -= 1
        place.chosen -= 1
        self.ended -= 1
        self._left += 1

    def leave(self, agent: int) -> None:
        """End an agent's episode as if it had never begun; another one is chosen instead."""
        at = self._at.get(agent)
        if at is not None:
            self._drop(self._places[at])
            self._vacant[at] = None

    def pass_submit(self, agents: Iterable[int]) -> list[int]:
        """Note the agents that have rows in a submit; return the agents that are given up."""
        present = [self._places[self._at[agent]] for agent in agents if agent in self._at]
        if any(place.seen == self._round for place in present):
            self._round += 1  # agents may have a submit each
        for place in present:
            place.seen = self._round
        self._passed += 1
        return [] if self._passed % _LOOK else self._give_up()

    def _give_up(self) -> list[int]:
        """
        Give up the places whose agents have been missing for too long, and return these agents.
        """
        kept = [place for place in self._places if not place.is_given_up]
        spans = [place.seen - place.begun for place in kept if place.is_chosen]
        patience = max(_PATIENCE, self._longest, *spans)
        missing = [place for place in kept if self._round - place.seen > patience]
        for place in missing:
            self.vanished += place.is_chosen
            self._drop(place)
            place.is_given_up = True
            self._given_up += place.chosen
            self._vacant.pop(self._at.pop(place.agent), None)
        if missing:
            self._filled = 0
            for place in self._places:
                place.rank = self._filled
                self._filled += not place.is_given_up
        return [place.agent for place in missing]

    def _due(self) -> list[_Place]:
        """Return the places with chosen episodes, or with a share of episodes not yet chosen."""
        return [
            place
            for place in self._places
            if not place.is_given_up and (place.chosen or (self._left and self._share(place)))
        ]

    def _share(self, place: _Place) -> int:
        each, over = divmod(self.wanted - self._given_up, self._filled)
        return each + (place.rank * _stride(self._filled) % self._filled < over)

    def _take_place(self, agent: int) -> None:
        at = next(iter(self._vacant), None)
        if at is None:
            at = len(self._places)
            self._places.append(_Place(agent, self._filled))
            self._filled += 1
        else:
            del self._vacant[at]
            place = self._places[at]
            del self._at[place.agent]
            place.agent = agent
        self._at[agent] = at

    def _drop(self, place: _Place) -> None:
        """Take back the choice of the episode in progress."""
        if place.is_chosen:
            place.is_chosen = False
            place.chosen -= 1
            self._left += 1


@lru_cache(maxsize=64)
def _stride(places: int) -> int:
    """
    Return a step by which some of so many places are spread over all of them.

    It is near the golden section, and its multiples come by all places before they repeat.
    """
    exact = places * _GOLDEN
    near = round(exact)
    side = 1 if exact > near else -1
    steps = (near + way * distance for distance in count() for way in (side, -side))
    return next(step for step in steps if step > 0 and gcd(step, places) == 1)
