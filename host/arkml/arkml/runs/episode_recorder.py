"""
The recorder of episodes that are played to rate a policy; it adds up their rewards row by row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arkml.abi.codes import EPISODE_ENDS, EpisodeState
from arkml.arrays import Marks
from arkml.hive.protocol.episode_choice import ChosenEnd, EpisodeChoice
from arkml.policies.training import Rows


class PlayedEpisodes(NamedTuple):
    """
    The chosen episodes of an evaluation that have ended.

    They were played by policy version `version` in `frames` frames. `returns`, `lengths` and
    `successes` have one value for each episode; `successes` is None if the guest has never defined
    success. `shortfall` is a sentence about missing episodes and returns that are not finite, empty
    if there are as many as wanted and all are finite. `vanished` is the number of episodes in which
    an agent vanished without an end; other episodes were played instead.
    """

    version: int
    returns: list[float]
    lengths: list[int]
    successes: list[bool] | None
    frames: int
    shortfall: str = ""
    vanished: int = 0


def vanishing(count: int) -> str:
    """Return a sentence about `count` episodes whose agents vanished without an end."""
    return (
        f"agents that vanished without an end: {count:,}; their episodes do not count, and others"
        " are chosen for them"
    )


def not_finite(returns: Sequence[float]) -> str:
    """Return a sentence about returns that are not finite, empty if all are."""
    lost = len(returns) - sum(map(math.isfinite, returns))
    if not lost:
        return ""
    return (
        f"{lost:,} of {len(returns):,} episodes have a return that is not finite, because the guest"
        " gave such rewards"
    )


class _Ended(NamedTuple):
    """The end of a chosen episode, and the agent that played it."""

    agent: int
    end: ChosenEnd


class EpisodeRecorder:
    """
    A receiver of rows that adds up the rewards of episodes chosen by an `EpisodeChoice`.

    `returns`, `lengths` (in steps) and `successes` belong to the chosen episodes that have ended,
    in the order of their ends. Rows out of turn are left out of returns and lengths. Rows with
    numbers that are not finite count, because a policy may have driven its guest to them: the
    return of an episode with such a reward is not finite. An episode is a success if in it the
    guest has pushed the metadata SUCCESS with a value other than 0; `knows_success` is True once
    the guest has pushed that metadata.

    Under a limit of `most` steps the agents of a guest are cut off together. An episode that began
    later than the one that reached the limit could end only if it was short, so later episodes do
    not count, whether they have ended or not. `repeats` is the number of guests that played exactly
    the same episodes as the previous guest.
    """

    def __init__(self, wanted: int = 0, most: int | None = None) -> None:
        self.most = most
        self.repeats = 0
        self._life: list[tuple[float, int]] = []  # episodes of the guest
        self._life_before: list[tuple[float, int]] = []
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.successes: list[bool] = []
        self.knows_success = False
        self.choice = EpisodeChoice(wanted)
        self._ends: list[_Ended] = []
        self._open: dict[int, tuple[float, int]] = {}
        self._round = 0  # submits of the agent that has had the most
        self._present: set[int] = set()  # the agents of that round
        self._begun: dict[int, int] = {}  # rounds in which the episodes of the guest began
        self._full: int | None = None  # the first of those that have reached the limit
        self._succeeded: set[int] = set()
        self._ended: dict[int, int] = {}  # places in the lists, of agents of the last rows

    def take(self, rows: Rows) -> None:
        """Add the rows of one submit."""
        self.follow(rows)

    def follow(self, rows: Rows) -> list[bool]:
        """
        Add the rows of one submit; return for each row whether it belongs to a chosen episode.
        """
        self._ended.clear()
        self._pass_round(rows.agent.tolist())
        columns = (rows.agent, rows.reward, rows.state, rows.step, _counting(rows))
        chosen, begun = [False] * len(rows.agent), {}
        for row, (agent, reward, state, step, counts) in enumerate(
            zip(*(c.tolist() for c in columns), strict=True)
        ):
            if not step:
                if agent in self._open:
                    self._leave(agent)
                if counts:
                    begun[agent] = row
            elif agent in self._open:
                chosen[row] = self.choice.is_chosen(agent)
                total, length = self._open[agent]
                if counts:
                    total, length = total + reward, length + 1
                self._open[agent] = total, length
                if state in EPISODE_ENDS:
                    self._note_full(agent, state, step)
                    self._end(agent, total, length)
        self.choice.begin(list(begun))
        for agent, row in begun.items():
            self._open[agent] = 0.0, 0
            self._begun[agent] = self._round
            chosen[row] = self.choice.is_chosen(agent)
        for agent in self.choice.pass_submit(rows.agent.tolist()):
            self._open.pop(agent, None)
            self._succeeded.discard(agent)
        return chosen

    def mark(self, agents: Sequence[int], values: Sequence[float]) -> None:
        """
        Record values of the metadata SUCCESS that came with the last submit, and their agents.
        """
        self.knows_success = True
        for agent, value in zip(agents, values, strict=True):
            if not value:
                continue
            if agent in self._ended:
                self.successes[self._ended[agent]] = True
            else:
                self._succeeded.add(agent)

    def cut_off(self) -> list[int]:
        """
        End the episodes in progress, because their guest was cut off.

        Returns the agents whose episodes do not count, because they began too late.
        """
        late = [] if self._full is None else [a for a, at in self._begun.items() if at > self._full]
        for agent, (total, length) in list(self._open.items()):
            self._end(agent, total, length)
        self._take_back(set(late))
        self._begun, self._full = {}, None
        self.repeats += self._life == self._life_before
        self._life, self._life_before = [], self._life
        return late

    @property
    def is_done(self) -> bool:
        """True if all wanted episodes have ended, and none of them can turn out to be too late."""
        if not self.choice.is_done or self.most is None or not self._open:
            return self.choice.is_done
        oldest = min(self._begun.get(agent, -1) for agent in self._open)
        return all(self._begun.get(one.agent, -1) <= oldest for one in self._ends)

    def restart(self, wanted: int) -> None:
        """Forget all episodes, and choose `wanted` episodes that begin from now on."""
        self.returns, self.lengths, self.successes, self._ends = [], [], [], []
        self.choice = EpisodeChoice(wanted, self.choice.playing)
        self._succeeded.clear()
        self._ended.clear()
        self._begun = {agent: at for agent, at in self._begun.items() if agent in self._open}

    def played(self, version: int, frames: int) -> PlayedEpisodes:
        """
        Return all chosen episodes; if some are missing, the same number of episodes for each agent.
        """
        choice = self.choice
        rounds = choice.wanted if choice.is_done else choice.rounds
        kept = [place for place, one in enumerate(self._ends) if one.end.ordinal < rounds]
        successes = [self.successes[place] for place in kept] if self.knows_success else None
        returns = [self.returns[place] for place in kept]
        missing = "" if choice.is_done else _shortfall(choice, len(kept), frames)
        return PlayedEpisodes(
            version,
            returns,
            [self.lengths[place] for place in kept],
            successes,
            frames,
            "; ".join(filter(None, (missing, not_finite(returns)))),
            choice.vanished,
        )

    def _end(self, agent: int, total: float, length: int) -> None:
        del self._open[agent]
        if self.most is not None:
            self._life.append((total, length))
        if not length:
            self.choice.leave(agent)
        elif (end := self.choice.end(agent)) is not None:
            self._ended[agent] = len(self.returns)
            self._ends.append(_Ended(agent, end))
            self.returns.append(total)
            self.lengths.append(length)
            self.successes.append(agent in self._succeeded)
        self._succeeded.discard(agent)

    def _pass_round(self, agents: Sequence[int]) -> None:
        """Count the rounds. A round may have several submits, such as one for each agent."""
        if not self._present.isdisjoint(agents):
            self._round += 1
            self._present.clear()
        self._present.update(agents)

    def _note_full(self, agent: int, state: int, step: int) -> None:
        """Note the beginning of an episode that the limit has ended, after `step` rows."""
        if self.most is None or state != EpisodeState.INTERRUPTED or step < self.most:
            return
        began = self._begun.get(agent, -1)
        self._full = began if self._full is None else min(began, self._full)

    def _take_back(self, agents: set[int]) -> None:
        """Forget the episodes of these agents, which have ended."""
        kept = [place for place, one in enumerate(self._ends) if one.agent not in agents]
        for one in reversed(self._ends):
            if one.agent in agents:
                self.choice.take_back(one.end)
        self._ends = [self._ends[place] for place in kept]
        self.returns = [self.returns[place] for place in kept]
        self.lengths = [self.lengths[place] for place in kept]
        self.successes = [self.successes[place] for place in kept]
        self._ended.clear()

    def _leave(self, agent: int) -> None:
        """Forget an episode that was left without an end."""
        del self._open[agent]
        self.choice.leave(agent)
        self._succeeded.discard(agent)


def _counting(rows: Rows) -> Marks:
    """Return the rows that count, bool, [n]: those to learn from, and those that are not finite."""
    if rows.keep is None:
        return np.ones(len(rows.agent), bool)
    return rows.keep if rows.lost is None else rows.keep | rows.lost


def _shortfall(choice: EpisodeChoice, counted: int, frames: int) -> str:
    """Return a sentence on why an evaluation counts fewer episodes than wanted."""
    within = f"within {frames:,} frames"
    if not choice.ended:
        return f"no episode ended {within}"
    if choice.unended:
        agents = "1 agent" if choice.unended == 1 else f"{choice.unended:,} agents"
        return (
            f"{agents} ended no episode {within}, and the mean of the others is that of short"
            " episodes"
        )
    return (
        f"{counted:,} of {choice.wanted:,} episodes count, as many of each agent as ended {within}"
    )
