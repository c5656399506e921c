"""
The agents of one session, tracked from submit to submit by the table in `transitions`.

Invariants of `AgentTracker`:

- A number belongs to one episode. It is new in the report that starts the episode, and forgotten
  with the one that ends it; no report of that number precedes the first or follows the second.
- Each row of a submit is reported once, in push order, except where actions are repeated.
- A row's reward is reported with the row, or, where its actions were repeated, added to the next
  report of a row with its id. Rewards that wait when the guest ends are not reported.
- While there is a `_SteadyGroup`, the latest submit consisted of its agents, all LIVE, in its
  order; observations and waiting rewards are in its arrays, and out of date in `_LiveAgent`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.batches import Batch, Floats, MetadataLog
from arkml.envs.core.decisions import Behavior, Decision, Ids, Marks
from arkml.envs.core.masks import choice_masks, split_masks
from arkml.envs.core.transitions import ABSENT, BY_STATE, LIVE, TRUNCATED, Report
from arkml.errors import UsageError

_RUNNING = np.uint32(EpisodeState.RUNNING)
_MOST_AGENTS = (1 << 31) - 1  # numbers are int32


class AgentNumbers:
    """Numbers of the agents of an environment, from `first` on, each used once in its lifetime."""

    def __init__(self, first: int = 0) -> None:
        self._next = itertools.count(first)
        self._guest_ids: dict[int, int] = {}

    def track(self, behavior: Behavior) -> AgentTracker:
        """Return a tracker for the agents of a session of a new instance."""
        return AgentTracker(self, behavior)

    def new(self, guest_id: int) -> int:
        """Return the number of a new agent. Raises UsageError when all numbers are used."""
        number = next(self._next)
        if number > _MOST_AGENTS:
            raise UsageError(f"the environment has numbered {number} agents: make a new one")
        self._guest_ids[number] = guest_id
        return number

    def forget(self, number: int) -> None:
        """Forget the guest's id of an agent whose episode is over."""
        del self._guest_ids[number]

    def guest_id(self, number: int) -> int:
        """Return the id that the guest gives a live agent. Raises KeyError for other numbers."""
        return self._guest_ids[number]


@dataclass(slots=True)
class _LiveAgent:
    """An agent in state LIVE; its last observation is `features[row]`."""

    number: int
    features: Floats
    row: int
    waiting_reward: float = 0.0

    @property
    def observation(self) -> Floats:
        """The last reported observation, float32, [num_features]."""
        observation: Floats = self.features[self.row]
        return observation


@dataclass(slots=True)
class _SteadyGroup:
    """
    The agents of a submit in which every row was reported once and takes an action.

    The arrays serve the next submits while these agents all keep running: `ids` uint64, [n],
    `numbers` int32, [n], read-only, `places` intp, [n], `observations` float32, [n, num_features],
    `waiting_rewards` float32, [n]; `actions` float32, [n, num_actions], are those to repeat.
    """

    ids: npt.NDArray[np.uint64]
    agents: list[_LiveAgent]
    numbers: Ids
    places: npt.NDArray[np.intp]
    observations: Floats
    waiting_rewards: Floats
    actions: Floats
    repeats: int = 0

    def is_continued_by(self, rows: npt.NDArray[Any]) -> bool:
        """Return whether rows, ROW, [n], are of these agents in this order, all Running."""
        return (
            len(rows) == len(self.ids)
            and bool((rows["state"] == _RUNNING).all())
            and bool((rows["id"] == self.ids).all())
        )

    def write_back(self) -> None:
        """Store observations and waiting rewards with the agents, for a submit of another kind."""
        for row, agent in enumerate(self.agents):
            agent.features, agent.row = self.observations, row
        if self.repeats:
            for agent, reward in zip(self.agents, self.waiting_rewards.tolist(), strict=True):
                agent.waiting_reward = reward


@dataclass(slots=True)
class _Reports:
    """Reports in the making, one entry of each list for each; `last_seen` is by report."""

    agents: list[_LiveAgent] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    flags: list[Report] = field(default_factory=list)
    last_seen: dict[int, Floats] = field(default_factory=dict)

    def add(self, agent: _LiveAgent, place: int, reward: float, flags: Report) -> None:
        """Add the report of the row at `place` of the submit."""
        self.agents.append(agent)
        self.places.append(place)
        self.rewards.append(reward)
        self.flags.append(flags)

    def add_end(self, agent: _LiveAgent) -> None:
        """Add the report of an end that no row of the submit is of."""
        self.last_seen[len(self.agents)] = agent.observation
        self.add(agent, -1, 0.0, TRUNCATED)

    def decision(
        self, behavior: Behavior, features: Floats, metadata: MetadataLog, masks: MetadataLog
    ) -> Decision:
        """Return the decision of a submit with features, float32, [rows, num_features]."""
        places = np.array(self.places, np.intp)
        observations = features[places]
        for report, observation in self.last_seen.items():
            observations[report] = observation
        started, terminated, truncated = zip(*self.flags, strict=True)
        return Decision(
            behavior,
            np.array([agent.number for agent in self.agents], np.int32),
            observations,
            np.array(self.rewards, np.float32),
            np.array(started, bool),
            np.array(terminated, bool),
            np.array(truncated, bool),
            places,
            tuple(metadata),
            choice_masks(masks, places, behavior.spec.actions.branches),
        )


class AgentTracker:
    """The live agents of one session."""

    def __init__(self, numbers: AgentNumbers, behavior: Behavior) -> None:
        self.behavior: Behavior = behavior
        self._numbers = numbers
        self._live: dict[int, _LiveAgent] = {}
        self._steady: _SteadyGroup | None = None
        self._acting_rows: Any = slice(None)

    @property
    def acting_rows(self) -> Any:
        """Rows of the latest submit that take an action: a slice, or intp, [m]."""
        return self._acting_rows

    @property
    def running_agents(self) -> Ids | None:
        """The array that is `agents` of the next decision if they all keep running, or None."""
        return None if self._steady is None else self._steady.numbers

    def observe(self, batch: Batch, metadata: MetadataLog) -> Decision:
        """Return the decision of a submit with at least one row; its arrays are copies."""
        masks, rest = split_masks(metadata) if metadata else ((), ())
        steady = self._steady
        if steady is not None and steady.is_continued_by(batch.rows):
            return self._continue(steady, batch, rest, masks)
        if steady is not None:
            steady.write_back()
        features = batch.features.copy()
        reports = _Reports()
        columns = (batch.rows[name].tolist() for name in ("id", "state", "reward"))
        for place, (guest_id, state, reward) in enumerate(zip(*columns, strict=True)):
            self._advance(reports, guest_id, state, reward, features, place)
        self._settle(reports, batch, features)
        return reports.decision(self.behavior, features, rest, masks)

    def keep_actions(self, actions: Floats) -> None:
        """Keep the actions of a decision, float32, [rows, num_actions], if they are to repeat."""
        if self._steady is not None and self.behavior.spec.decision_period > 1:
            self._steady.actions = actions.copy()

    def repeat_actions(self, batch: Batch) -> bool:
        """
        Answer a submit with the previous actions, unless an agent is due a decision.

        All are due after `decision_period` submits, and where an agent begins, ends or is missing.
        The rewards of the submit wait for the next decision. Returns whether it was answered.
        """
        steady = self._steady
        if steady is None or steady.repeats >= self.behavior.spec.decision_period - 1:
            return False
        if not steady.is_continued_by(batch.rows):
            return False
        steady.repeats += 1
        steady.waiting_rewards += batch.rows["reward"]
        batch.actions[...] = steady.actions
        batch.values[...] = 0
        return True

    def truncate_all(self) -> Decision:
        """Return a decision that truncates every live agent with its last observation."""
        if self._steady is not None:
            self._steady.write_back()
        agents = list(self._live.values())
        self.forget_all()
        count, width = len(agents), self.behavior.num_features
        observations = np.array([agent.observation for agent in agents], np.float32)
        no, places = np.zeros(count, bool), np.full(count, -1)
        return Decision(
            self.behavior,
            np.array([agent.number for agent in agents], np.int32),
            observations.reshape(count, width),
            np.zeros(count, np.float32),
            no, no, ~no, places,
            masks=self._choice_masks((), places),
        )  # fmt: skip

    def forget_all(self) -> None:
        """Forget the live agents without reporting an end."""
        for agent in self._live.values():
            self._numbers.forget(agent.number)
        self._live.clear()
        self._steady = None

    def _continue(
        self, steady: _SteadyGroup, batch: Batch, rest: MetadataLog, masks: MetadataLog
    ) -> Decision:
        """Return the decision of agents that all kept running, without a look at single ones."""
        no = np.zeros(len(batch), bool)
        steady.observations = batch.features.copy()
        self._acting_rows = slice(None)
        rewards = batch.rows["reward"].copy()
        if steady.repeats:
            rewards = rewards + steady.waiting_rewards
            steady.waiting_rewards[:] = 0
            steady.repeats = 0
        return Decision(
            self.behavior, steady.numbers, steady.observations, rewards, no, no, no, steady.places,
            tuple(rest), self._choice_masks(masks, steady.places),
        )  # fmt: skip

    def _advance(
        self,
        reports: _Reports,
        guest_id: int,
        state: int,
        reward: float,
        features: Floats,
        place: int,
    ) -> None:
        """Move the agent of one row by the table, and add its reports."""
        agent = self._live.get(guest_id)
        transition = BY_STATE[ABSENT if agent is None else LIVE][state]
        if agent is not None:
            reward += agent.waiting_reward
            agent.waiting_reward = 0.0
            if transition.ends_previous:
                reports.add_end(agent)
                self._end(guest_id, agent)
        if transition.report.started or agent is None:
            agent = _LiveAgent(self._numbers.new(guest_id), features, place)
            self._live[guest_id] = agent
        else:
            agent.features, agent.row = features, place
        reports.add(agent, place, reward, transition.report)
        if transition.next_state is ABSENT:
            self._end(guest_id, agent)

    def _end(self, guest_id: int, agent: _LiveAgent) -> None:
        del self._live[guest_id]
        self._numbers.forget(agent.number)

    def _settle(self, reports: _Reports, batch: Batch, features: Floats) -> None:
        """Note the rows that take an action, and prepare for a submit of the same agents."""
        pairs = zip(reports.places, reports.flags, strict=True)
        self._acting_rows = np.array([place for place, flags in pairs if not flags.ended], np.intp)
        self._steady = None
        if len(self._acting_rows) == len(batch) == len(reports.agents):
            count, num_actions = len(batch), self.behavior.num_actions
            numbers = np.array([agent.number for agent in reports.agents], np.int32)
            numbers.setflags(write=False)
            self._steady = _SteadyGroup(
                ids=batch.rows["id"].copy(),
                agents=reports.agents,
                numbers=numbers,
                places=np.arange(count),
                observations=features,
                waiting_rewards=np.zeros(count, np.float32),
                actions=np.zeros((count, num_actions), np.float32),
            )

    def _choice_masks(self, masks: MetadataLog, places: npt.NDArray[np.intp]) -> tuple[Marks, ...]:
        """Return the choices that agents cannot take, for each branch bool, [n, choices]."""
        return choice_masks(masks, places, self.behavior.spec.actions.branches)
