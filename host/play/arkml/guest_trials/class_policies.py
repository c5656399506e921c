"""The policies of one worker that act for players of one class who are missing."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.base.loggers import SafeLogger
from arkml.batches import ROW, Batch, Floats
from arkml.errors import ArkmlError
from arkml.guest_trials.behavior_actions import ActionRule
from arkml.guest_trials.guest_trials_options import StandInActions, StandInRows
from arkml.guest_trials.probe import GuestClass
from arkml.hive.protocol.parts import fields_of
from arkml.policies.library import PolicyLibrary
from arkml.policies.policy import Policy
from arkml.policies.policy_files import PolicyFile
from arkml.policies.training import TrainingPolicy

log = SafeLogger(__name__)

_INITIAL = np.uint32(EpisodeState.INITIAL)
_MOST_WARNED = 256  # policies that are remembered
_MOST_BATCHES = 8  # numbers of rows whose arrays are kept

Places = npt.NDArray[np.intp]


class OnceWarned:
    """
    The policies that workers have warned about, so that each is logged once; old ones are dropped.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._origins: dict[str, None] = {}

    def warn(self, origin: str, reason: str) -> None:
        """Log once that default actions replace the actions of a policy, and why."""
        with self._lock:
            is_new = origin not in self._origins
            self._origins[origin] = None
            if len(self._origins) > _MOST_WARNED:  # versions of runs come without end
                del self._origins[next(iter(self._origins))]
        if is_new:
            log.warning("%s: %s; the default action takes its place in such ticks", origin, reason)


class OfferedVersion(NamedTuple):
    """A version of a run's policy: its number, its ONNX file, and its name as an origin."""

    number: int
    data: bytes
    origin: str


class ClassPolicies:
    """
    Acts for agents of one actor class, by a policy file or by the versions of a training run.

    An agent keeps the version that was the newest when its episode began. Recurrent states and
    noise are kept for each slot (the place of an agent in a trial); a new episode begins with a
    state of zeros. Used by the thread of one worker; another thread may call `loaded` and `offer`.

    The last columns of a policy's actions are the numbers of its choices, as in the models of PPO
    (`learning.choice_graph`). In each branch that is the likeliest choice allowed by the input
    `action_masks`, or with noise the choice at its quantile. A policy without that input may return
    a number that is masked, or lies between two choices: the number is rounded, halves to the even
    number, and a choice that does not exist or is not allowed is replaced by the lowest allowed
    one.
    """

    def __init__(
        self,
        actor_class: GuestClass,
        library: PolicyLibrary,
        warned: OnceWarned,
        *,
        seed: int,
        deterministic: bool,
    ) -> None:
        behavior = actor_class.behavior
        self._rule = ActionRule(behavior.spec.actions)
        self._library = library
        self._warned = warned
        self._run = TrainingPolicy(  # it is the shape, masks and agents that versions act for
            f"class {actor_class.name}",
            behavior.num_features,
            behavior.num_actions,
            sink=None,
            seed=seed,
            workspace=library.workspace,
            branches=behavior.spec.actions.branches,
            parts=tuple(fields_of(behavior.spec.declared)),
            deterministic=deterministic,
        )
        self._newest: _Acting | None = None
        self._by_slot: dict[int, _Acting] | None = None
        self._file: Policy | None = None

    def load_file(self, file: PolicyFile, origin: str) -> None:
        """
        Act by an ONNX or Cervo file. Raises InvalidArguments if it is refused or does not fit.
        """
        self._file = self._library.load_file(file, self._run)
        self._newest = _Acting(self._file, origin, self._rule, self._run)

    def loaded(self, version: OfferedVersion) -> Policy:
        """
        Load and return the policy of a run's version. Raises ModelRejected, or as `load_file`.
        """
        return self._library.load_version(version.data, self._run)

    def offer(self, policy: Policy, origin: str) -> None:
        """Use a version of a run for the agents whose episodes begin from now on."""
        if self._by_slot is None:
            self._by_slot = {}
        self._newest = _Acting(policy, origin, self._rule, self._run, is_of_run=True)

    def act(self, rows: StandInRows) -> StandInActions | None:
        """Return actions for agents, or None if there is no policy yet."""
        newest = self._newest
        if newest is None:
            return None
        actions = self._rule.defaults(len(rows.keys), rows.allowed)
        origins = [""] * len(rows.keys)
        for acting, places in self._assigned(rows, newest):
            part = rows if places is None else _part(rows, places)
            try:
                answered, is_good = acting.act(part)
            except ArkmlError as error:
                self._warned.warn(acting.origin, f"the policy failed: {error}")
                continue
            if not is_good.all():
                self._warned.warn(acting.origin, "the policy gave actions that are not finite")
            taken = np.flatnonzero(is_good) if places is None else places[is_good]
            actions[taken] = answered[is_good]
            for place in taken.tolist():
                origins[place] = acting.origin
        return StandInActions(actions, origins)

    def forget(self, key: int) -> None:
        """Forget the recurrent state and the version of a slot."""
        self._run.agents.forget(key)
        if self._file is not None:
            self._file.forget(key)
        if self._by_slot is not None:
            self._by_slot.pop(key, None)

    def _assigned(
        self, rows: StandInRows, newest: _Acting
    ) -> Sequence[tuple[_Acting, Places | None]]:
        """Return the rows of each policy, None for all of them."""
        held = self._by_slot
        if held is None:
            return [(newest, None)]
        keys = rows.keys.tolist()
        for key, is_first in zip(keys, (rows.states == _INITIAL).tolist(), strict=True):
            if is_first or key not in held:
                held[key] = newest
        by_row = [held[key] for key in keys]
        distinct = list(dict.fromkeys(by_row))
        if len(distinct) == 1:
            return [(distinct[0], None)]
        index = {acting: number for number, acting in enumerate(distinct)}
        numbers = np.array([index[acting] for acting in by_row])
        return [(acting, np.flatnonzero(numbers == n)) for n, acting in enumerate(distinct)]


class _Acting:
    """A policy with the arrays of its batches."""

    def __init__(
        self,
        policy: Policy,
        origin: str,
        rule: ActionRule,
        run: TrainingPolicy,
        *,
        is_of_run: bool = False,
    ) -> None:
        self.origin = origin
        self._policy = policy
        self._rule = rule
        self._continuous = rule.width - len(rule.branches)
        self._run = run
        self._is_of_run = is_of_run
        self._batches: dict[int, Batch] = {}

    def act(self, rows: StandInRows) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """
        Return valid actions, float32, [n, num_actions], and the rows that have some, bool, [n].

        Raises Unavailable if the policy fails, and then no agent has advanced.
        """
        batch = self._batch(len(rows.keys))
        batch.features[...] = rows.observations
        batch.keys[...] = rows.keys
        batch.rows["state"] = rows.states
        masks = self._run.masks
        if masks is not None:
            masks.begin(len(batch))
            masks.rows = None if rows.allowed is None else rows.allowed.astype(np.float32)
        self._policy.act(batch)
        is_good = np.asarray(np.isfinite(batch.actions).all(axis=1))
        floats = np.where(is_good[:, None], batch.actions, np.float32(0))
        continuous, numbers = floats[:, : self._continuous], floats[:, self._continuous :]
        if self._is_of_run:  # the agents of a run get its actions clipped to this
            np.clip(continuous, -1.0, 1.0, out=continuous)
        np.rint(numbers, out=numbers)
        return self._rule.settled(floats, rows.allowed), is_good

    def _batch(self, count: int) -> Batch:
        """Return the batch of a number of rows; a policy binds its model to one only once."""
        batch = self._batches.get(count)
        if batch is None:
            if len(self._batches) >= _MOST_BATCHES:
                self._batches.clear()
            run = self._run
            batch = self._batches[count] = Batch(
                np.zeros(count, ROW),  # one agent a slot, which its key names: all ids are 0
                np.zeros((count, run.num_features), np.float32),
                np.zeros((count, run.num_actions), np.float32),
                np.zeros(count, np.float32),
                np.zeros(count, np.uint64),
            )
        return batch


def _part(rows: StandInRows, places: Places) -> StandInRows:
    """Return some of the rows."""
    allowed = None if rows.allowed is None else rows.allowed[places]
    return rows._replace(
        observations=rows.observations[places],
        allowed=allowed,
        keys=rows.keys[places],
        agents=rows.agents[places],
        states=rows.states[places],
    )
