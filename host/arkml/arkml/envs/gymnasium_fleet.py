"""Many guests as the sub-environments of a Gymnasium vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from arkml.arrays import Marks, every, some
from arkml.base.short_reprs import cut_repr
from arkml.batches import Floats
from arkml.envs.core.coercion import seed_of
from arkml.envs.core.decisions import Decision
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.core.fleet_step import FleetStep
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.core.id_search import Indices
from arkml.envs.drawing import Figure
from arkml.envs.spaces import (
    all_allowed,
    copied,
    final_observations,
    keep_allowed,
    observations_of,
    taken,
)
from arkml.envs.step_arrays import Outcome, StepArrays
from arkml.envs.vector_places import RestartMode, VectorPlaces, VectorRenderMode
from arkml.errors import UsageError
from arkml.host import Source
from arkml.limits import whole_number

_WHO = "a fleet"


class GuestFleetVectorEnv(VectorPlaces):
    """
    A Gymnasium vector environment that steps many guests of one module with one agent each.

    Observations are float32, [num_envs, num_features], actions float32, [num_envs, num_actions],
    and rewards float32, [num_envs], unless a spec declares others: see `spaces`. Masked choices are
    0 in `info["action_mask"]`. The sub-environment of a guest that is over has zeros, and False in
    `info["present"]`.

    All autoreset modes work for every guest, whether it replaces its agent in the same submit or a
    later one. With DISABLED a guest whose episode has ended waits for `reset(options={"reset_mask":
    mask})`.

    A guest that fails is truncated, with its last observation and its `info["error"]`; the others
    are not affected. A guest that has finished (`info["guest_done"]`) starts over.

    Args:
        module: The path or the bytes of a guest.
        num_envs: Number of guests.
        autoreset_mode: NEXT_STEP, SAME_STEP or DISABLED.
        render_mode: "rgb_array" for a picture of each guest, None for no pictures.
        restart: "on-failure" starts failed guests over. None leaves their sub-environments empty
            until `reset`.
        options: Options of the guests; see `GuestEnv`.

    Raises:
        UsageError: An option has a wrong value, or a guest has more than one agent.
        GuestError: A guest failed before its first submit.

    Example:
        envs = gymnasium.make_vec(
            "arkml.envs.gym:arkml/Guest-v0", num_envs=64, module="walker.wasm", per="guest"
        )
        observations, info = envs.reset(seed=1)

    """

    def __init__(
        self,
        module: Source,
        *,
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: VectorRenderMode = None,
        restart: RestartMode = None,
        **options: Unpack[GuestEnvOptions],
    ) -> None:
        self._keep_options(autoreset_mode, render_mode, restart)
        self._settings["num_envs"] = num_envs
        self._is_disabled = self._mode is AutoresetMode.DISABLED
        self._fleet = FleetEnv(module, num_envs, **options)
        try:
            self._fresh: FleetStep | None = self._fleet.reset()
        except BaseException:
            self._fleet.close()
            raise
        num_envs = self._fleet.num_guests
        self._set_up(self._fleet.behavior.spec, num_envs)
        self._seen: Floats = self._fresh.observations
        self._next: Floats = self._fresh.next_observations
        self._held = np.zeros(num_envs, bool)  # guests whose begun episode was not shown
        self._acted: Floats | None = None
        self._begun: list[_Rows] = []  # the first rows of these episodes
        self._failed = np.zeros(num_envs, bool)  # guests that failed and do not start over
        self._over = np.zeros(num_envs, bool)  # guests that wait for a reset

    @property
    def guest_env(self) -> GuestEnv:
        """The environment with the options of every guest; it is not stepped itself."""
        return self._fleet.template

    @property
    def fleet_env(self) -> FleetEnv:
        """The underlying environment of all guests."""
        return self._fleet

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """
        Make new instances, or with DISABLED begin new episodes of some guests.

        Args:
            seed: With a number n, guest k gets the seed n + k. A list has a seed, or None, for each
                guest.
            options: With DISABLED, `{"reset_mask": mask}`, bool, [num_envs], selects the guests:
                one whose episode has ended plays its next episode unless it gets a seed, and any
                other guest starts over.

        Returns:
            Observations and info, which includes data of the guests' first rows, and "error" of
            failed ones.

        Raises:
            GuestError: A guest failed before its first submit.
            UsageError: "reset_mask" is malformed, or the mode is not DISABLED.

        """
        if options and "reset_mask" in options:
            return self._reset_some(seed, options)
        super().reset(seed=whole_number(seed), options=options)
        step, self._fresh = self._fresh, None
        if step is None or seed is not None:
            step = self._fleet.reset(seed)
        self._seen = step.observations
        self._held[:] = self._failed[:] = self._over[:] = False
        self._begun = []
        info: dict[str, Any] = {}
        self._inform(info, step, _beginnings(step))
        return copied(observations_of(self._spec, self._seen)), info

    def step(self, actions: Any, *, out: StepArrays | None = None) -> Outcome:
        """
        Step all guests.

        Args:
            actions: Actions for all sub-environments, as in `action_space`.
            out: Arrays to write the outcome into, which are then returned, with `present` in the
                info. None makes new arrays.

        Returns:
            Observations, rewards, terminated, truncated and info.

        Raises:
            InvalidActions: The actions have a wrong shape, type or value; no guest was stepped.
            UsageError: The arrays of `out` do not fit, or the environment is closed.
            ResetNeeded: All guests have failed, or with DISABLED a guest waits for its reset (an
                error of Gymnasium).

        """
        if self.closed:
            self._require_open()
        values = taken(self._spec, actions, self.num_envs, _WHO)
        if out is not None:
            self._out.require(out)
        if self._fresh is not None or every(self._failed):
            raise gymnasium.error.ResetNeeded(
                "reset the environment before its first step"
                if self._fresh is not None
                else "every guest has failed: reset, or make it with restart='on-failure'"
            )
        if some(self._over):
            raise gymnasium.error.ResetNeeded(
                f"the episodes of guests {np.flatnonzero(self._over).tolist()} have ended: reset"
                " them with options={'reset_mask': mask}"
            )
        self._acted = values
        rows: list[_Rows] = []
        step = self._stepped(values, rows)
        info: dict[str, Any] = {}
        if step.steps or step.events is not None:
            if step.steps or step.is_rewarded:
                step.rewards[_begun(step)] = 0  # it is in the info
            if step.steps:
                self._note_failures(step)
            rows += self._rows_now(step)
            if self._is_same and some(step.ended):
                rows += self._replace(step, info)
            if self._is_disabled:
                self._over = step.ended
        self._seen = step.observations
        self._inform(info, step, rows)
        observations = observations_of(self._spec, self._seen)
        if out is None:
            return copied(observations), step.rewards, step.terminated, step.truncated, info
        return out.filled((observations, step.rewards, step.terminated, step.truncated, info))

    def close_extras(self, **kwargs: Any) -> None:
        """Close all guests."""
        del kwargs
        self._fleet.close()

    def _reset_some(
        self, seed: int | list[int | None] | None, options: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes of the guests in `reset_mask`."""
        if not self._is_disabled:
            raise UsageError(
                f"reset_mask is for autoreset_mode='Disabled': with {self._mode.value!r} the next"
                " episode of a guest begins by itself"
            )
        if self._fresh is not None:
            raise UsageError("reset the environment as a whole before some of its guests")
        mask, seeds = _mask_of(options, self.num_envs), _seeds_of(seed, self.num_envs)
        step, steps = self._begin_again(mask, seeds)
        begun = mask & np.array([one is None for one in seeds])
        rows = [(decision, _within(indices, begun)) for decision, indices in self._begun]
        self._begun = [(decision, _within(indices, ~mask)) for decision, indices in self._begun]
        self._failed, self._over = self._failed & ~mask, self._over & ~mask
        self._held = self._held & ~mask
        for one in steps:
            self._note_failures(one)
            rows += _beginnings(one)
        self._seen = np.where(mask[:, None], step.observations, self._seen)
        step.present |= ~mask & self._fleet.alive
        info: dict[str, Any] = {}
        allowed = self._allowed_now
        self._inform(info, step, rows)
        if self._spec.actions.branches:
            keep_allowed(info["action_mask"], allowed, ~mask)
        return copied(observations_of(self._spec, self._seen)), info

    def _begin_again(
        self, guests: Marks, seeds: Sequence[int | None]
    ) -> tuple[FleetStep, list[FleetStep]]:
        """
        Return the first observations of new episodes of guests, and the steps to them.

        A guest whose episode has ended continues with its next one; another one, or one that is
        over, or that has a seed, starts over with a new instance. One that fails is over, and its
        step has the error.
        """
        fleet = self._fleet
        has_seed = np.array([seed is not None for seed in seeds])
        anew = guests & (~self._over | has_seed | ~fleet.alive)
        begun = guests & ~anew & self._held
        due = guests & ~anew & ~begun
        step = FleetStep.empty(fleet.num_guests, fleet.behavior.num_features)
        step.observations[begun] = self._next[begun]
        step.present |= begun
        steps = []
        if due.any():
            idle: Floats = np.zeros((fleet.num_guests, fleet.behavior.num_actions), np.float32)
            steps.append(fleet.step(idle, self._seen, due))
            step.follow(steps[-1], due)
            anew |= due & ~fleet.alive
        if anew.any():
            chosen = np.flatnonzero(anew).tolist()
            steps.append(fleet.renew(chosen, [seeds[guest] for guest in chosen]))
            step.follow(steps[-1], anew)
        return step, steps

    def _figures(self) -> list[Figure | None]:
        actions = self._acted
        return [
            Figure(self._seen[guest], None if actions is None else actions[guest], guest)
            if is_alive
            else None
            for guest, is_alive in enumerate(self._fleet.alive.tolist())
        ]

    def _stepped(self, values: Floats, rows: list[_Rows]) -> FleetStep:
        """Return the next step; new episodes begin in the places of ended ones."""
        alive = self._fleet.alive
        is_there = alive if every(alive) else alive | self._failed  # these are not made again
        if every(is_there) and not some(self._held):
            step = self._fleet.step(values, self._seen)
        else:
            step = self._fleet.step(values, self._seen, alive & ~self._held)
            step.observations[self._held] = self._next[self._held]
            step.present |= self._held
            rows += self._begun
            rows += self._begin(step, ~is_there)
        self._held, self._next, self._begun = step.replaced, step.next_observations, []
        return step

    def _begin(self, step: FleetStep, guests: Marks) -> list[_Rows]:
        """Make new instances for guests, bool, [guests], and show their first observations."""
        if not some(guests):
            return []
        fresh = self._fleet.renew(np.flatnonzero(guests).tolist())
        step.follow(fresh, guests)
        self._note_failures(fresh)
        return _beginnings(fresh)

    def _rows_now(self, step: FleetStep) -> list[_Rows]:
        """
        Return the rows for the info of this step, and keep rows of episodes that are shown later.
        """
        if not step.steps or not some(step.replaced):
            return _all(step)
        now: list[_Rows] = []
        for decision, indices in _all(step):
            late = step.replaced[indices] & ~decision.ended
            if some(late):
                self._begun.append((decision, np.where(late, indices, -1)))
                indices = np.where(late, -1, indices)
            now.append((decision, indices))
        return now

    def _note_failures(self, step: FleetStep) -> None:
        if self._restart is None:
            for guest, outcome in step.steps.items():
                if outcome.error is not None:
                    self._failed[guest] = True

    def _replace(self, step: FleetStep, info: dict[str, Any]) -> list[_Rows]:
        """
        Show the next episodes of guests that ended in this step; their last rows go to the info.
        """
        ended = step.ended
        info["final_obs"] = final_observations(self._spec, step.observations[ended], ended)
        info["_final_obs"] = ended
        info["final_info"], info["_final_info"] = {}, ended.copy()
        rows, self._begun = self._begun, []
        due = ended & self._fleet.alive & ~step.replaced
        if some(due):
            zeros = np.zeros((self.num_envs, self._spec.actions.width), np.float32)
            more = self._fleet.step(zeros, step.observations, due)
            step.follow(more, due)
            self._note_failures(more)
            rows += _beginnings(more)
        step.observations[step.replaced] = step.next_observations[step.replaced]
        self._held = np.zeros(self.num_envs, bool)
        return rows + self._begin(step, ended & ~self._fleet.alive & ~self._failed)

    def _inform(self, info: dict[str, Any], step: FleetStep, rows: list[_Rows]) -> None:
        info["present"] = step.present
        if self._spec.actions.branches:
            going = [(decision.masks, *_going(decision, indices)) for decision, indices in rows]
            info.update(all_allowed(self._spec, going, self.num_envs))
            self._allowed_now = info["action_mask"]
        if step.alone:
            self._inform_alone(info, step)
        for decision, indices in rows:
            are_shown = indices is step.event_guests
            self._infos.add(
                info, decision, indices, are_shown=are_shown,
                is_rewarded=step.is_rewarded or not are_shown,
            )  # fmt: skip
        self._infos.complete(info)

    def _inform_alone(self, info: dict[str, Any], step: FleetStep) -> None:
        """Add errors, ends and demonstrations of guests that were run by themselves."""
        count = self.num_envs
        errors = {k: str(one.error) for k, one in step.steps.items() if one.error is not None}
        if errors:
            info["error"] = np.array([errors.get(k) for k in range(count)], object)
            info["_error"] = np.array([k in errors for k in range(count)])
        if any(one.has_finished for one in step.steps.values()):
            done = np.array([k in step.steps and step.steps[k].has_finished for k in range(count)])
            info["guest_done"], info["_guest_done"] = done, done.copy()
        demonstrations = {k: self._fleet.take_demonstrations(k) for k in step.alone}
        if any(demonstrations.values()):
            given = info["demonstrations"] = np.full(count, None, object)
            for guest, rows in demonstrations.items():
                given[guest] = rows or None
            info["_demonstrations"] = given.astype(bool)


_Rows = tuple[Decision, Indices]
"""Rows whose metadata and masks are in an info: intp, [n], the guest of each, -1 for none of it."""


def _mask_of(options: dict[str, Any], count: int) -> Marks:
    """Return the `reset_mask` of reset options, bool, [count]. Raises UsageError for others."""
    mask = options["reset_mask"]
    is_mask = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (count,)
    if not is_mask or not mask.any():
        raise UsageError(
            f"reset_mask is {cut_repr(mask)}: it takes an array of {count} bools, one of them True"
        )
    found: Marks = mask
    return found


def _seeds_of(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """Return the seed of each of `count` guests; `seed` is the first one's, or one for each."""
    if seed is None:
        return [None] * count
    if not isinstance(seed, Sequence):
        first = seed_of(seed)
        return [first + guest for guest in range(count)]
    if len(seed) != count:
        raise UsageError(f"{len(seed)} seeds for {count} guests")
    return list(seed)


def _begun(step: FleetStep) -> Any:
    """Return the guests whose agents begin and have not ended: intp, [n], or bool, [guests]."""
    if step.steps or step.events is None:
        return step.started & ~step.ended
    return step.event_guests[step.events.started]


def _all(step: FleetStep) -> list[_Rows]:
    """Return all rows of a step that may have metadata or masks."""
    rows = [] if step.events is None else [(step.events, step.event_guests)]
    if not step.steps:  # as in most steps
        return rows
    return rows + [
        (decision, np.full(len(decision), guest))
        for guest, outcome in step.steps.items()
        for decision in outcome.decisions
    ]


def _beginnings(step: FleetStep) -> list[_Rows]:
    """Return the rows of agents that have not ended."""
    return [(decision, np.where(decision.ended, -1, indices)) for decision, indices in _all(step)]


def _within(indices: Indices, guests: Marks) -> Indices:
    """Return the guest of each row, intp, [n], -1 for one not among `guests`, bool, [guests]."""
    kept: Indices = np.where((indices >= 0) & guests[indices], indices, -1)
    return kept


def _going(decision: Decision, indices: Indices) -> tuple[Indices, Indices]:
    """Return the rows of agents that have not ended, and their guests: intp, [m] each."""
    rows = ((indices >= 0) & ~decision.ended).nonzero()[0]
    return rows, indices[rows]
