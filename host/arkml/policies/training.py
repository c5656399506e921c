"""The policy that acts for a run: its newest version, and the rows it hands on."""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.batches import Batch, Floats
from arkml.errors import Unavailable
from arkml.policies.agents import AgentTable, Visit
from arkml.policies.memory import PolicyMemory
from arkml.policies.noise import Words, streams
from arkml.policies.policy import Policy

log = logging.getLogger(__name__)

_RUNNING = np.uint32(EpisodeState.RUNNING)
_INITIAL = np.uint32(EpisodeState.INITIAL)
_TOLD = 1_000  # so many agents are named in the log, each once

Marks = npt.NDArray[np.bool_]


class Rows(NamedTuple):
    """
    What was asked and answered in one submit; the views live until the call returns.

    agent: uint64, [n], unique in the session of the run. step: uint64, [n]. version: of the policy
    that acted. reward: float32, [n]. state: uint32, [n]. features: float32, [n, num_features].
    action: float32, [n, num_actions], zero where the episode ended. keep: bool, [n], the rows
    that count; None if all do.
    """

    agent: Words
    step: Words
    version: int
    reward: Floats
    state: npt.NDArray[np.uint32]
    features: Floats
    action: Floats
    keep: Marks | None


class RowSink(Protocol):
    """Takes the rows of a run."""

    def take(self, rows: Rows) -> None: ...


class Version(NamedTuple):
    """One version of a run's policy, ready to act."""

    number: int
    policy: Policy


class Irregular:
    """Counts the rows that were answered with zeros, and names their agents once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: set[tuple[str, int]] = set()
        self.counts: dict[str, int] = {}

    def note(self, why: str, marks: Marks, ids: Words) -> None:
        """Rows marked in `marks`, [n], of the agents `ids`, uint64, [n], count for nothing."""
        found = ids[marks].tolist()
        if not found:
            return
        self.counts[why] = self.counts.get(why, 0) + len(found)
        for agent in found:
            if len(self._told) < _TOLD and (why, agent) not in self._told:
                self._told.add((why, agent))
                log.warning(
                    "%s: agent %d: %s; the row is answered with zeros and not learned from",
                    self._name, agent, why,
                )  # fmt: skip


class TrainingPolicy:
    """
    Acts with the newest version of a run's policy, and hands each row with its action to `sink`.

    Versions are offered from another thread and taken over between two batches. Actions are
    clipped to [-1, 1]; the sink gets them as they were drawn. A row that is not finite, or whose
    state does not fit its agent's history, is answered with zeros and not handed on; its agent's
    step goes on, so that the rows around it do not look consecutive. `seed` and the agents' ids
    and steps determine the noise; `deterministic` makes it zero.
    """

    def __init__(
        self,
        name: str,
        num_features: int,
        num_actions: int,
        *,
        sink: RowSink | None,
        seed: int,
        memory: PolicyMemory,
        deterministic: bool = False,
    ) -> None:
        self.num_features = num_features
        self.num_actions = num_actions
        self.seed = seed
        self.memory = memory
        self.deterministic = deterministic
        self.agents = AgentTable(memory=memory)
        self.irregular = Irregular(name)
        self._sink = sink
        self._offered: Version | None = None
        self._live: Version | None = None

    @property
    def version(self) -> int:
        """The version that acts, 0 if there was none yet."""
        return self._live.number if self._live is not None else 0

    def offer(self, version: Version) -> None:
        """Act with `version` from the next batch on. From any thread."""
        self._offered = version

    def act(self, batch: Batch) -> None:
        offered = self._offered
        if offered is not None:
            self._live, self._offered = offered, None
        live = self._live
        if live is None:
            raise Unavailable("there is no policy yet")
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
        keep: Marks | None = None
        if not (plain and steps.all() and _is_finite(batch.features, rewards)) or over.any():
            keep = self.examine(batch, steps, over)
        live.policy.act(batch)
        if self.deterministic:
            self.agents.advance(visit, ends, None)
        if keep is not None:
            self.agents.end(visit, over)
        actions = batch.actions
        if ends is not None:
            actions[ends] = 0
        if keep is not None:
            actions[~keep] = 0
            batch.values[~keep] = 0
        if self._sink is not None:
            agent = _names(visit, self.seed, batch.keys, ids)
            self._sink.take(
                Rows(agent, steps, live.number, rewards, states, batch.features, actions, keep)
            )
        np.clip(actions, -1.0, 1.0, out=actions)

    def forget(self, key: int) -> None:
        self.agents.forget(key)

    def examine(self, batch: Batch, steps: Words, over: Marks) -> Marks | None:
        """
        Return the rows that count, bool, [n], or None if all do; note the others in `irregular`.

        steps: how many rows of its agent came before each row. over: rows of agents whose episode
        ended before.
        """
        rows, features = batch.rows, batch.features
        ids, states = rows["id"], rows["state"]
        initial = states == _INITIAL
        first = steps == 0
        wrong = {
            "its episode has ended": over,
            "its first row is not Initial": first & ~initial & ~over,
            "it is Initial again": initial & ~first & ~over,
        }
        with np.errstate(invalid="ignore"):
            finite = np.isfinite(features).all(axis=1) & np.isfinite(rows["reward"])
        wrong["its features or its reward are not finite"] = ~finite
        for why, marks in wrong.items():
            self.irregular.note(why, marks, ids)
        keep = ~(over | (first != initial) | ~finite)
        return None if keep.all() else keep


def _is_finite(features: Floats, rewards: Floats) -> bool:
    """Whether all is finite; False too for numbers so large that their sum is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(features.sum()) and np.isfinite(rewards.sum()))


def episode_ends(states: npt.NDArray[np.uint32]) -> Marks:
    """Return the rows that end an episode, bool, [n], of states as the ABI numbers them."""
    return np.asarray((states != _RUNNING) & (states != _INITIAL))


def _names(visit: Visit, seed: int, keys: Words, ids: Words) -> Words:
    """One word for each agent that no other agent of the run's session has."""
    if visit.streams is None:
        visit.streams = streams(seed, keys, ids)
    return visit.streams
