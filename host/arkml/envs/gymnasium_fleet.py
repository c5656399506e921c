"""Many guests as the sub-environments of a Gymnasium vector environment."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from arkml.batches import Floats
from arkml.envs import vector_infos
from arkml.envs.core.decisions import Decision, Marks
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.core.fleet_step import FleetStep
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.core.options import GuestEnvOptions
from arkml.envs.gymnasium_vector import Outcome, Restart, mode_of
from arkml.envs.remade import Remade
from arkml.envs.spaces import (
    action_space,
    all_allowed,
    observation_space,
    shown,
    shown_one,
    taken,
)
from arkml.errors import UsageError
from arkml.host import Source

_WHO = "a fleet"


class GuestFleetVectorEnv(Remade, VectorEnv[Any, Any, Any]):
    """
    Steps `num_envs` guests with one agent each; `options` are those of `GuestEnv`.

    Observations are float32, [num_envs, num_features], actions float32, [num_envs, num_actions],
    rewards float32, [num_envs], unless a spec declares others: see `spaces`; what cannot be chosen
    is 0 in `info["action_mask"]`. Both modes fit every guest, whenever it replaces its agent. A
    guest that is not there has zeros, and False in `info["present"]`.

    A guest that fails is truncated, with its last observation and its `info["error"]`; with
    `restart="on-failure"` it starts over, otherwise it is not there until `reset`. One that has
    finished, which `info["guest_done"]` says, starts over. The others are not affected.
    """

    def __init__(
        self,
        module: Source,
        *,
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: None = None,
        restart: Restart = None,
        **options: Unpack[GuestEnvOptions],
    ) -> None:
        self._mode = mode_of(autoreset_mode, render_mode, restart)
        self._settings = {"num_envs": num_envs, "autoreset_mode": self._mode, "restart": restart}
        self._restart = restart
        self._fleet = FleetEnv(module, num_envs, **options)
        try:
            self._fresh: FleetStep | None = self._fleet.reset()
        except BaseException:
            self._fleet.close()
            raise
        self.num_envs = num_envs
        self._spec = self._fleet.behavior.spec
        seedable = self._fleet.template.seedable
        self.metadata = {"autoreset_mode": self._mode, "render_modes": [], "seedable": seedable}
        self.single_observation_space = observation_space(self._spec)
        self.single_action_space = action_space(self._spec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seen: Floats = self._fresh.observations
        self._next: Floats = self._fresh.next_observations
        self._held = np.zeros(num_envs, bool)  # whose next episode has begun and was not shown
        self._begun: list[_Told] = []  # the first rows of these episodes
        self._failed = np.zeros(num_envs, bool)  # and is not to start over

    @property
    def guest_env(self) -> GuestEnv:
        """The environment after which the guests are made."""
        return self._fleet.template

    @property
    def fleet_env(self) -> FleetEnv:
        """The environment that is stepped."""
        return self._fleet

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Make new instances; with a seed n guest k has n + k. Raises GuestError."""
        if options and "reset_mask" in options:
            raise UsageError("reset_mask: a fleet is reset as a whole")
        super().reset(seed=seed if isinstance(seed, int) else None, options=options)
        step, self._fresh = self._fresh, None
        if step is None or seed is not None:
            step = self._fleet.reset(seed)
        self._seen = step.observations
        self._held[:] = self._failed[:] = False
        self._begun = []
        info: dict[str, Any] = {}
        self._inform(info, step, _beginnings(step))
        return shown(self._spec, self._seen), info

    def step(self, actions: Any) -> Outcome:
        """Act. Raises InvalidActions, and gymnasium's ResetNeeded where no guest is left."""
        values = taken(self._spec, actions, self.num_envs, _WHO)
        if self._fresh is not None or self._failed.all():
            raise gymnasium.error.ResetNeeded(
                "reset the environment before its first step"
                if self._fresh is not None
                else "every guest has failed: reset, or make it with restart='on-failure'"
            )
        told: list[_Told] = []
        step = self._gone_on(values, told)
        info: dict[str, Any] = {}
        if step.steps:
            step.rewards[step.started & ~step.ended] = 0  # the info has it
            self._note_failures(step)
            told += self._shown(step)
            if self._mode is AutoresetMode.SAME_STEP and step.ended.any():
                told += self._replace(step, info)
        self._seen = step.observations
        self._inform(info, step, told)
        return shown(self._spec, self._seen), step.rewards, step.terminated, step.truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        del kwargs
        self._fleet.close()

    def _gone_on(self, values: Floats, told: list[_Told]) -> FleetStep:
        """Return the next step, in which new episodes begin for those that ended."""
        alive = self._fleet.alive
        over = ~alive & ~self._failed
        if not (over.any() or self._held.any()):
            step = self._fleet.step(values, self._seen)
        else:
            step = self._fleet.step(values, self._seen, alive & ~self._held)
            step.observations[self._held] = self._next[self._held]
            step.present |= self._held
            told += self._begun
            told += self._begin(step, over)
        self._held, self._next, self._begun = step.replaced, step.next_observations, []
        return step

    def _begin(self, step: FleetStep, guests: Marks) -> list[_Told]:
        """Show the first observations of new instances in these places."""
        if not guests.any():
            return []
        fresh = self._fleet.renew(np.flatnonzero(guests).tolist())
        step.follow(fresh, guests)
        self._note_failures(fresh)
        return _beginnings(fresh)

    def _shown(self, step: FleetStep) -> list[_Told]:
        """Return the rows for this step's info; beginnings of the next step are kept."""
        found = [told for told in _all(step) if told.ended]
        for told in _beginnings(step):
            is_late = step.replaced[told.guest]
            (self._begun if is_late else found).append(told)
        return found

    def _note_failures(self, step: FleetStep) -> None:
        if self._restart is None:
            for guest, told in step.steps.items():
                if told.error is not None:
                    self._failed[guest] = True

    def _replace(self, step: FleetStep, info: dict[str, Any]) -> list[_Told]:
        """Show the next episodes of those that ended in this step, and their last observations."""
        ended = step.ended
        info["final_obs"] = np.array([None] * self.num_envs, object)
        for guest in np.flatnonzero(ended):
            info["final_obs"][guest] = shown_one(self._spec, step.observations[guest].copy())
        info["_final_obs"] = ended
        info["final_info"], info["_final_info"] = {}, ended.copy()
        told, self._begun = self._begun, []
        due = ended & self._fleet.alive & ~step.replaced
        if due.any():
            zeros = np.zeros((self.num_envs, self._spec.actions.width), np.float32)
            more = self._fleet.step(zeros, step.observations, due)
            step.follow(more, due)
            self._note_failures(more)
            told += _beginnings(more)
        step.observations[step.replaced] = step.next_observations[step.replaced]
        self._held = np.zeros(self.num_envs, bool)
        return told + self._begin(step, ended & ~self._fleet.alive & ~self._failed)

    def _inform(self, info: dict[str, Any], step: FleetStep, told: list[_Told]) -> None:
        info["present"] = step.present
        if self._spec.actions.branches:
            going = [(found.decision, found.row, found.guest) for found in told if not found.ended]
            info.update(all_allowed(self._spec, going, self.num_envs))
        if not (step.steps or told):
            return
        count = self.num_envs
        errors = {k: str(found.error) for k, found in step.steps.items() if found.error is not None}
        if errors:
            info["error"] = np.array([errors.get(k) for k in range(count)], object)
            info["_error"] = np.array([k in errors for k in range(count)])
        if any(found.done for found in step.steps.values()):
            info["guest_done"] = np.array(
                [k in step.steps and step.steps[k].done for k in range(count)]
            )
        if given := {k: rows for k in step.steps if (rows := self._fleet.take_demonstrations(k))}:
            info["demonstrations"] = given
        is_same = self._mode is AutoresetMode.SAME_STEP
        shown_rows = ((found.decision, {found.row: found.guest}) for found in told)
        vector_infos.tell(info, shown_rows, count, same=is_same)


class _Told(NamedTuple):
    """A row of a guest that the info describes."""

    guest: int
    decision: Decision
    row: int

    @property
    def ended(self) -> bool:
        return bool(self.decision.ended[self.row])


def _all(step: FleetStep) -> list[_Told]:
    return [
        _Told(guest, decision, row)
        for guest, found in step.steps.items()
        for decision in found.decisions
        for row in range(len(decision))
    ]


def _beginnings(step: FleetStep) -> list[_Told]:
    """Return the rows of agents that have not ended."""
    return [told for told in _all(step) if not told.ended]
