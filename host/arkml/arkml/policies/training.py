"""
The policy of a training run: it acts by the newest version, and passes the rows on to be learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.arrays import Marks
from arkml.base.loggers import SafeLogger
from arkml.batches import Batch, Floats
from arkml.errors import Unavailable
from arkml.policies.agents import AgentTable, SavedAgents, Visit
from arkml.policies.choice_masks import ChoiceMasks, MaskedPolicy
from arkml.policies.external import ExternalPolicy
from arkml.policies.noise import Words, streams
from arkml.policies.policy import Policy
from arkml.policies.ports import Parts
from arkml.policies.step_limit import StepLimit
from arkml.policies.workspace import PolicyWorkspace

log = SafeLogger(__name__)

_RUNNING = np.uint32(EpisodeState.RUNNING)
_INITIAL = np.uint32(EpisodeState.INITIAL)
_NAMED = 5  # agents after which no more are logged for a reason
_TOLD = 10  # rows of one reason from which on their number is logged


class Rows(NamedTuple):
    """
    The rows of one submit with their actions, as views that live until the call returns.

    agent: uint64, [n], unique in the run's session. step: uint64, [n], the agent's step. version:
    the policy version that acted. reward: float32, [n]. state: uint32, [n], the episode state.
    features: float32, [n, num_features]. action: float32, [n, num_actions], zero where the episode
    ended. keep: bool, [n], True for rows to learn from; None for all. masks: float32, [n, choices
    of all branches], 0 for a masked choice, else 1; None if no choice is masked. lost: bool, [n],
    True for rows that `keep` leaves out because of numbers that are not finite alone; None for
    none.
    """

    agent: Words
    step: Words
    version: int
    reward: Floats
    state: npt.NDArray[np.uint32]
    features: Floats
    action: Floats
    keep: Marks | None
    masks: Floats | None = None
    lost: Marks | None = None


class RowSink(Protocol):
    """A receiver of the rows of a run, for example a recorder."""

    def take(self, rows: Rows) -> None:
        """Receive the rows of one submit; copy the views that are to be kept."""


class PolicyVersion(NamedTuple):
    """A version of a run's policy, loaded and ready to act."""

    number: int
    policy: Policy


class IrregularRows:
    """
    Counts rows that were refused and answered with zeros, and logs the first agents of each reason.

    Those of one submit are one line. After these, the number of rows is logged each time it has one
    more digit. With `is_brief` only the first line is logged for each reason, and `tell` logs
    totals.
    """

    def __init__(self, name: str, *, is_brief: bool = False) -> None:
        self._name = name
        self._is_brief = is_brief
        self._named: dict[str, set[int]] = {}
        self.counts: dict[str, int] = {}

    def note(self, reason: str, marks: Marks, ids: Words) -> None:
        """Count the rows of agents `ids`, uint64, [n], where `marks`, bool, [n], is True."""
        agents = ids[marks].tolist()
        if not agents:
            return
        before = self.counts.get(reason, 0)
        count = self.counts[reason] = before + len(agents)
        named = self._named.setdefault(reason, set())
        new = [agent for agent in dict.fromkeys(agents) if agent not in named]
        if new and len(named) < (1 if self._is_brief else _NAMED):
            named.update(new[:_NAMED])
            others = f" and {len(new) - 1} others" if new[1:] else ""
            log.warning(
                "%s: agent %d%s: %s; the row is answered with zeros and not learned from",
                self._name, new[0], others, reason,
            )  # fmt: skip
        if not self._is_brief and count >= _TOLD and len(str(count)) > len(str(before)):
            log.warning("%s: %s: %d rows so far", self._name, reason, count)

    def tell(self) -> None:
        """Log the number of rows for each reason, if it is more than one."""
        for reason, count in self.counts.items():
            if count > 1:
                log.warning("%s: %s: %d rows in all", self._name, reason, count)


class TrainingPolicy:
    """
    Acts with the newest version of a run's policy, and passes each row with its action to `sink`.

    Another thread offers versions; a batch takes the newest one before it acts. A row with numbers
    that are not finite, or with a state that does not fit its agent's history, is answered with
    zeros, or the lowest allowed choices, and not passed on. It still counts as a step of its agent,
    so that the rows before and after it are not taken for consecutive.

    Args:
        branches: Choices of the last actions, which are not clipped.
        masks: Masks of the agents of the batch, None without branches.
        seed: Determines the noise, with the agents' ids and steps.
        deterministic: True makes the noise zero.
        pink: True explores with noise that changes slowly; see `noise.PinkNoise`.
        limit: Cuts episodes off, or None.
        clips: True clips continuous actions to [-1, 1], which learners expect; the sink gets them
            unclipped. False passes the policy's actions to agents as they are.

    """

    def __init__(
        self,
        name: str,
        num_features: int,
        num_actions: int,
        *,
        sink: RowSink | None,
        seed: int,
        workspace: PolicyWorkspace,
        branches: Sequence[int] = (),
        parts: Parts = (),
        deterministic: bool = False,
        pink: bool = False,
        limit: StepLimit | None = None,
        clips: bool = True,
    ) -> None:
        self.num_features = num_features
        self.num_actions = num_actions
        self.seed = seed
        self.workspace = workspace
        self.deterministic = deterministic
        self.pink = pink
        self.branches = tuple(branches)
        self.parts = parts
        self.masks: ChoiceMasks | None = ChoiceMasks(branches, workspace) if branches else None
        self._continuous = num_actions - len(branches)
        self.agents = AgentTable(workspace=workspace)
        self.others: dict[int, AgentTable] = {}
        """The agents of rows whose actions the guest chose, by the kind of the rows."""
        self._left: dict[AgentTable, dict[tuple[int, int], int]] = {}
        """The steps of agents, by key and id, when a state was loaded; until their next rows."""
        self.irregular = IrregularRows(name)
        self._name = name
        self._has_told_turns = False
        self._sink = sink
        self._limit = limit
        self._clips = clips
        self._offered: PolicyVersion | None = None
        self._live: PolicyVersion | None = None

    @property
    def version(self) -> int:
        """The policy version that acts, 0 before the first."""
        return self._live.number if self._live is not None else 0

    def offer(self, version: PolicyVersion) -> None:
        """Act with `version` from the next batch on. Any thread may call it."""
        self._offered = version

    def act(self, batch: Batch) -> None:
        """
        Fill `batch.actions` and `batch.values`, and pass the rows on to the sink.

        Raises Unavailable if there is no version yet, or the model fails.
        """
        offered = self._offered
        if offered is not None:
            self._live, self._offered = offered, None
        live = self._live
        if live is None:
            raise Unavailable("the run has no policy yet")
        if not len(batch):
            return
        rows = batch.rows
        ids, states = rows["id"], rows["state"]
        visit = self.agents.visit(batch.keys, ids)
        steps = self.agents.steps(visit)
        rewards = rows["reward"]
        plain = bool((states == _RUNNING).all())
        ends = None if plain else episode_ends(states)
        over = self.agents.ended(visit, ends)
        limited = None
        if self._limit is not None:
            limited = self._limit.apply(batch.keys, steps, states, over, visit.last_rows())
        keep: Marks | None = None
        lost: Marks | None = None
        if not (plain and steps.all() and _is_finite(batch.features, rewards)) or over.any():
            gone = None if limited is None else limited.gone
            keep, lost = self.examine(batch, steps, over, gone)
        if visit.turns is not None and not self._has_told_turns:
            several = visit.turns > 0
            self._tell_turns(ids[several if keep is None else several & keep])
        if limited is not None:
            states, ends = limited.states, episode_ends(limited.states)
        advanced = self.agents.advanced
        live.policy.act(batch)
        if self.masks is not None:
            self.masks.hold(batch)
        if self.agents.advanced == advanced:  # the model draws no noise
            self.agents.advance(visit, ends, None)
        if keep is not None:
            self.agents.end(visit, over)
        if limited is not None:
            self.agents.end(visit, limited.cut)
        actions = batch.actions
        if ends is not None:
            actions[ends] = 0
        idle = None if limited is None else limited.cut  # episodes that go on for their guest
        if keep is not None:
            actions[~keep] = 0
            batch.values[~keep] = 0
            idle = ~keep if idle is None else idle | ~keep
        if idle is not None and self.masks is not None:
            self.masks.hold_idle(batch, idle)
        if self._sink is not None:
            keep = self.without_false_joins(self.agents, batch, steps, keep)
            agent = _names(visit, self.seed, batch.keys, ids)
            if self._limit is not None:
                agent = self._limit.named(agent, batch.keys)
            masks = None if self.masks is None else self.masks.rows
            number, features = live.number, batch.features
            self._sink.take(
                Rows(agent, steps, number, rewards, states, features, actions, keep, masks, lost)
            )
        if self._clips:
            continuous = actions[:, : self._continuous]
            np.clip(continuous, -1.0, 1.0, out=continuous)

    def names(self, keys: Words, ids: Words) -> Words:
        """Return the agents' numbers in the rows that the sink gets: uint64, [n]."""
        agents = streams(self.seed, keys, ids)
        return agents if self._limit is None else self._limit.named(agents, keys)

    def forget(self, key: int) -> None:
        """Drop the state of the agents of session `key`, which is closed."""
        self.agents.forget(key)
        for agents in self.others.values():
            agents.forget(key)
        for left in self._left.values():
            for agent in [agent for agent in left if agent[0] == key]:
                del left[agent]

    def others_of(self, kind: int) -> AgentTable:
        """
        Return the table of agents of rows whose actions the guest chose, by the kind of these rows.
        """
        if kind not in self.others:
            self.others[kind] = AgentTable(workspace=self.workspace)
        return self.others[kind]

    def load(self, key: int, own: SavedAgents | None, others: Mapping[int, SavedAgents]) -> None:
        """
        Replace the agents of session `key` by saved agents. Raises Unavailable.

        Args:
            key: The key of the session.
            own: The agents that act by this policy, or None.
            others: The agents of rows whose actions the guest chose, by the kind of the rows.

        """
        tables = [(self.agents, own)]
        tables += [(self.others_of(kind), others.get(kind)) for kind in {*self.others, *others}]
        for table, saved in tables:
            ids, steps, *_ = table.save(key)
            left = self._left.setdefault(table, {})
            for agent, step in zip(ids.tolist(), steps.tolist(), strict=True):
                left.setdefault((key, agent), step)
            table.forget(key)
            if saved is not None:
                table.load(key, saved)

    def _tell_turns(self, ids: Words) -> None:
        """Log once that agents, those of `ids`, have several rows in one submit."""
        if not len(ids):
            return
        self._has_told_turns = True
        log.warning(
            "%s: agent %d has several rows in one submit: each is learned from as the step after"
            " the one before it; agents that are not the same need ids of their own",
            self._name, int(ids[0]),
        )  # fmt: skip

    def without_false_joins(
        self, table: AgentTable, batch: Batch, steps: Words, keep: Marks | None
    ) -> Marks | None:
        """
        Return `keep`, bool, [n], without rows that seem to continue rows undone by a restore.

        The learner joins a row to the newest row of its agent if that is one step earlier; after a
        restore, that newest row may come from an undone course of the game. steps: uint64, [n], the
        number of the agent's rows before each row.
        """
        left = self._left.get(table)
        if not left:
            return keep
        kept = np.ones(len(batch), np.bool_) if keep is None else keep.copy()
        keys = np.broadcast_to(batch.keys, kept.shape).tolist()
        agents = zip(keys, batch.rows["id"].tolist(), strict=True)
        for row, (agent, step) in enumerate(zip(agents, steps.tolist(), strict=True)):
            if left.pop(agent, None) == step:
                kept[row] = False
        return kept

    def examine(
        self, batch: Batch, steps: Words, over: Marks, gone: Marks | None = None
    ) -> tuple[Marks | None, Marks | None]:
        """
        Return the columns `keep` and `lost` of `Rows`, and count rows that are not kept.

        steps: uint64, [n], the number of the agent's rows before each row. over: bool, [n], rows of
        agents whose episodes had ended before. gone: bool, [n], rows to be ignored, which are not
        irregular either.
        """
        rows, features = batch.rows, batch.features
        ids, states = rows["id"], rows["state"]
        initial = states == _INITIAL
        first = steps == 0
        irregular = {
            "its episode has ended": over,
            "its first row is not Initial": first & ~initial & ~over,
            "it is Initial again": initial & ~first & ~over,
        }
        with np.errstate(invalid="ignore"):
            finite = np.isfinite(features).all(axis=1) & np.isfinite(rows["reward"])
        irregular["its features or its reward are not finite"] = ~finite
        ignored = over | (first != initial)
        if gone is not None:
            irregular = {reason: marks & ~gone for reason, marks in irregular.items()}
            ignored |= gone
        for reason, marks in irregular.items():
            self.irregular.note(reason, marks, ids)
        keep, lost = finite & ~ignored, ~finite & ~ignored
        return None if keep.all() else keep, lost if lost.any() else None


def masks_of(policy: Policy) -> ChoiceMasks | None:
    """Return the choice masks of the policy's batches, None for a policy without branches."""
    if isinstance(policy, TrainingPolicy | MaskedPolicy | ExternalPolicy):
        return policy.masks
    return None


def _is_finite(features: Floats, rewards: Floats) -> bool:
    """Return True if all is finite, False also for numbers so large that their sum is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(features.sum()) and np.isfinite(rewards.sum()))


def episode_ends(states: npt.NDArray[np.uint32]) -> Marks:
    """Return which rows end an episode, bool, [n], given their states, uint32, [n], of the ABI."""
    return np.asarray((states != _RUNNING) & (states != _INITIAL))


def _names(visit: Visit, seed: int, keys: Words, ids: Words) -> Words:
    """Return the number of each row's agent, unique in the run's session: uint64, [n]."""
    if visit.streams is None:
        visit.streams = streams(seed, keys, ids)
    return visit.streams
