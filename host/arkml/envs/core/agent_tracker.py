"""The names of agents in an environment, and their episodes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.batches import Batch, Floats, MetadataLog
from arkml.envs.core.decisions import Behavior, Decision, Ids, Marks
from arkml.envs.core.masks import Said, masked, parted

Words = npt.NDArray[np.uint64]

_RUNNING = np.uint32(EpisodeState.RUNNING)
_INITIAL, _TERMINAL = int(EpisodeState.INITIAL), int(EpisodeState.TERMINAL)
_INTERRUPTED = int(EpisodeState.INTERRUPTED)
_LAST = (1 << 31) - 1


@dataclass(slots=True)
class _Row:
    """One row of a decision; `place` is that of its submit, or -1."""

    agent: int
    place: int
    observation: Floats
    reward: float
    started: bool
    terminated: bool
    truncated: bool


class Agents:
    """
    Gives the agents of one environment their numbers, which come once in its life.

    A guest names an agent by a session and 64 bits. Numbers count from 0.
    """

    def __init__(self) -> None:
        self._next = itertools.count()
        self._guest_ids: dict[int, int] = {}

    def track(self, behavior: Behavior) -> AgentTracker:
        """Return a tracker for the agents of a session of a new instance."""
        return AgentTracker(self, behavior)

    def new(self, guest_id: int) -> int:
        number = next(self._next)
        if number > _LAST:
            raise OverflowError(f"an environment has numbers for {_LAST} agents")
        self._guest_ids[number] = guest_id
        return number

    def forget(self, number: int) -> None:
        """Drop the agents whose episode is over and was shown."""
        del self._guest_ids[number]

    def guest_id(self, number: int) -> int:
        """Return the id that the guest gives a live agent. Raises KeyError."""
        return self._guest_ids[number]


class AgentTracker:
    """The live agents of one session, with what they showed last."""

    def __init__(self, agents: Agents, behavior: Behavior) -> None:
        self.behavior = behavior
        self._agents = agents
        self._live: dict[int, int] = {}
        self._ids: Words = np.zeros(0, np.uint64)
        self._numbers = np.zeros(0, np.int32)
        self._last: Floats = np.zeros((0, behavior.num_features), np.float32)
        self._shown: dict[int, Floats] = {}
        self._period = behavior.spec.decision_period
        self._since = 0
        self._actions: Floats = np.zeros((0, behavior.num_actions), np.float32)
        self._owed = np.zeros(0, np.float32)
        self._debts: dict[int, float] = {}  # rewards that agents have not seen
        self._places: Any = slice(None)
        self._order = np.zeros(0, np.intp)

    @property
    def places(self) -> Any:
        """Rows of the last submit that take an action: a slice, or int, [m]."""
        return self._places

    @property
    def steady(self) -> Ids | None:
        """The very array that names the agents of the next submit, if they all just run on."""
        return self._numbers if len(self._ids) else None

    def see(self, batch: Batch, metadata: MetadataLog) -> Decision:
        """Return the decision that a submit shows; its arrays are copies."""
        masks, said = parted(metadata) if metadata else ((), ())
        if self.is_steady(batch):
            decision = self._all_running(batch, said, masks)
        else:
            decision = self._each(batch, said, masks)
        self._since = 0
        return decision

    def is_steady(self, batch: Batch) -> bool:
        """Return whether the agents of the submit before all keep running."""
        rows = batch.rows
        return bool((rows["state"] == _RUNNING).all()) and np.array_equal(rows["id"], self._ids)

    def acted(self, actions: Floats) -> None:
        """Note the actions of the agents, float32, [rows, num_actions]."""
        if self._period > 1:
            self._actions = actions.copy()
            self._owed = np.zeros(len(actions), np.float32)

    def repeat(self, batch: Batch) -> bool:
        """
        Give the agents of a submit their last actions again, if none of them is due a decision.

        One is due where an agent begins, ends or is missing. The rewards come with the next
        decision.
        """
        if self._since >= self._period - 1 or not self.is_steady(batch):
            return False
        self._since += 1
        self._owed += batch.rows["reward"]
        batch.actions[...] = self._actions
        batch.values[...] = 0
        return True

    def drop(self) -> Decision:
        """Return a decision that truncates every live agent with its last observation."""
        live = list(self._live.values())
        self._remember()
        shown = [self._shown[number] for number in live]
        count = len(live)
        no, places = np.zeros(count, bool), np.full(count, -1)
        self.forget()
        return Decision(
            self.behavior,
            np.array(live, np.int32),
            np.array(shown, np.float32).reshape(count, self.behavior.num_features),
            np.zeros(count, np.float32),
            no, no, ~no, places,
            masks=self._masked((), places),
        )  # fmt: skip

    def forget(self) -> None:
        """Forget the live agents without showing an end."""
        for number in self._live.values():
            self._agents.forget(number)
        self._live.clear()
        self._ids = np.zeros(0, np.uint64)

    def _all_running(self, batch: Batch, said: Said, masks: Said) -> Decision:
        """Return the decision of agents that all kept running, as in the submit before."""
        count = len(batch)
        no = np.zeros(count, bool)
        self._last = batch.features.copy()
        self._places = slice(None)
        rewards = np.ascontiguousarray(batch.rows["reward"])
        if self._since:
            rewards = rewards + self._owed
        return Decision(
            self.behavior, self._numbers, self._last, rewards, no, no, no, self._order,
            tuple(said), self._masked(masks, self._order),
        )  # fmt: skip

    def _each(self, batch: Batch, said: Said, masks: Said) -> Decision:
        self._remember()
        if self._since:
            self._debts.update(zip(self._ids.tolist(), self._owed.tolist(), strict=True))
        found: list[_Row] = []
        features = batch.features.copy()
        columns = (batch.rows[name].tolist() for name in ("id", "state", "reward"))
        for place, (guest_id, state, reward) in enumerate(zip(*columns, strict=True)):
            reward += self._debts.pop(guest_id, 0.0)
            found += self._row(guest_id, state, reward, place, features[place])
        self._settle(found, batch)
        return self._decision(found, said, masks)

    def _row(
        self, guest_id: int, state: int, reward: float, place: int, features: Floats
    ) -> list[_Row]:
        """Add a row of a submit, after the end of an episode that the guest left open."""
        found: list[_Row] = []
        number = self._live.get(guest_id)
        if number is not None and state == _INITIAL:
            found.append(_Row(number, -1, self._shown[number], 0.0, False, False, True))
            self._end(guest_id)
            number = None
        started = number is None
        if number is None:
            number = self._live[guest_id] = self._agents.new(guest_id)
        terminated, truncated = state == _TERMINAL, state == _INTERRUPTED
        found.append(_Row(number, place, features, reward, started, terminated, truncated))
        self._shown[number] = features
        if terminated or truncated:
            self._end(guest_id)
        return found

    def _end(self, guest_id: int) -> None:
        number = self._live.pop(guest_id)
        self._shown.pop(number, None)
        self._agents.forget(number)

    def _settle(self, found: list[_Row], batch: Batch) -> None:
        """Have the next submit found quickly where the same agents run on."""
        deciding = [row for row in found if not (row.terminated or row.truncated)]
        self._places = np.array([row.place for row in deciding], np.intp)
        if len(deciding) == len(batch) == len(found):
            self._ids = batch.rows["id"].copy()
            self._numbers = np.array([row.agent for row in found], np.int32)
            self._numbers.setflags(write=False)
            self._order = np.arange(len(batch))
            self._last = np.array([row.observation for row in found], np.float32)
        else:
            self._ids = np.zeros(0, np.uint64)

    def _remember(self) -> None:
        """Note what the agents of quick submits showed last."""
        if len(self._ids):
            self._shown.update(zip(self._numbers.tolist(), self._last, strict=True))

    def _masked(self, masks: Said, places: npt.NDArray[np.intp]) -> tuple[Marks, ...]:
        """Return what the agents of rows cannot choose, for each branch bool, [n, choices]."""
        return masked(masks, places, self.behavior.spec.actions.branches)

    def _decision(self, found: list[_Row], said: Said, masks: Said) -> Decision:
        count = len(found)
        places = np.array([row.place for row in found], np.intp)
        return Decision(
            self.behavior,
            np.array([row.agent for row in found], np.int32),
            np.array([row.observation for row in found], np.float32).reshape(
                count, self.behavior.num_features
            ),
            np.array([row.reward for row in found], np.float32),
            np.array([row.started for row in found], bool),
            np.array([row.terminated for row in found], bool),
            np.array([row.truncated for row in found], bool),
            places,
            tuple(said),
            self._masked(masks, places),
        )
