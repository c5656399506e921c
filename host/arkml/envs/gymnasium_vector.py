"""The agents of one guest as the sub-environments of a Gymnasium vector environment."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from arkml.batches import Floats
from arkml.envs import showing, vector_infos
from arkml.envs.core.decisions import Decision, Ids, Marks, Step
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.core.options import GuestEnvOptions
from arkml.envs.remade import Remade
from arkml.envs.slots import Slots
from arkml.envs.spaces import action_space, all_allowed, observation_space, shown, shown_one, taken
from arkml.errors import UsageError
from arkml.host import Source

_WHO = "a vector environment"

ON_FAILURE = "on-failure"
Restart = Literal["on-failure"] | None

Outcome = tuple[Any, Floats, Marks, Marks, dict[str, Any]]


def mode_of(
    autoreset_mode: AutoresetMode | str, render_mode: str | None, restart: str | None
) -> AutoresetMode:
    """Return the autoreset mode. Raises UsageError for modes that guests do not have."""
    try:
        mode = AutoresetMode(autoreset_mode)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if mode is AutoresetMode.DISABLED:
        raise UsageError("autoreset_mode is DISABLED: guests begin episodes by themselves")
    if render_mode is not None:
        raise UsageError(f"render_mode is {render_mode!r}: a vector environment renders nothing")
    if restart not in (None, ON_FAILURE):
        raise UsageError(f"restart is {restart!r}: it takes None or {ON_FAILURE!r}")
    return mode


class GuestVectorEnv(Remade, VectorEnv[Any, Any, Any]):
    """
    Steps all agents of a guest together; `options` are those of `GuestEnv`.

    Observations are float32, [num_envs, num_features], actions float32, [num_envs, num_actions],
    rewards float32, [num_envs], unless a spec declares others: see `spaces`; what cannot be chosen
    is 0 in `info["action_mask"]`. There are as many places as a spec declares, or as agents in the
    first submit, unless `num_envs` is more than the 1 that `make_vec` gives by itself. A place
    that is empty has zeros, and False in `info["present"]`.

    What the guest says with a row is in the infos by name, as Gymnasium has it, with the reward of
    a first row under "reward".

    A guest that has finished starts over with the next step. One that failed does so with
    `restart="on-failure"`; otherwise that step raises gymnasium's ResetNeeded.

    NEXT_STEP fits guests that replace an agent in the submit after its last one: what ends in one
    step begins in the next. Where the replacement comes in the same submit, its first row takes a
    zero action, counted in `info["auto_answered"]`; SAME_STEP fits those exactly.
    """

    def __init__(
        self,
        module: Source,
        *,
        num_envs: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: None = None,
        restart: Restart = None,
        **options: Unpack[GuestEnvOptions],
    ) -> None:
        mode = mode_of(autoreset_mode, render_mode, restart)
        self._settings = {"num_envs": num_envs, "autoreset_mode": mode, "restart": restart}
        self._mode = mode
        self._restart = restart
        self._env = GuestEnv(module, **options)
        try:
            self._fresh: Step | None = self._env.reset()
            decision = showing.only_decision(self._fresh, _WHO)
        except BaseException:
            self._env.close()
            raise
        self._behavior = decision.behavior
        self._spec = decision.behavior.spec
        if num_envs in (None, 1):
            num_envs = self._spec.slots or len(decision.deciding)
        self.num_envs = num_envs
        seedable = self._env.seedable
        self.metadata = {"autoreset_mode": mode, "render_modes": [], "seedable": seedable}
        self.single_observation_space = observation_space(self._spec)
        self.single_action_space = action_space(self._spec)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._slots = Slots(self.num_envs)
        self._places: npt.NDArray[np.intp] | None = None
        self._numbers: Ids | None = None
        self._hidden: Ids = np.zeros(0, np.int32)
        self._is_over = True
        self._has_failed = False
        self._all = np.ones(self.num_envs, bool)

    @property
    def guest_env(self) -> GuestEnv:
        """The environment that is stepped."""
        return self._env

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Make a new instance, whose agents take the places; of many seeds the first counts."""
        if options and "reset_mask" in options:
            raise UsageError("reset_mask: guests begin the episodes of single agents by themselves")
        if isinstance(seed, list):
            seed = seed[0] if seed else None
        super().reset(seed=seed, options=options)
        step, self._fresh = self._fresh, None
        if step is None or seed is not None:
            step = self._env.reset(seed)
        self._slots.clear()
        self._hidden = np.zeros(0, np.int32)
        self._is_over = self._has_failed = False
        observations, _, _, _, info = self._show(step)
        return observations, info

    def step(self, actions: Any) -> Outcome:
        """Act. Raises InvalidActions."""
        values = taken(self._spec, actions, self.num_envs, _WHO)
        if self._is_over:
            return self._start_over()
        step = self._env.step(values if self._places is None else self._chosen(values))
        if not step.decisions:
            return self._nobody(step)
        decision = step.decisions[0]
        if decision.agents is self._numbers and not step.is_over:
            info = {"present": self._all.copy(), **showing.told(self._env, step)}
            if decision.metadata:
                seats = {place: place for place in range(self.num_envs)}
                vector_infos.tell(info, [(decision, seats)], self.num_envs, same=False)
            if decision.masks:
                info.update(self._allowed(decision, slice(None), slice(None)))
            return (
                shown(self._spec, decision.observations), decision.rewards, decision.terminated,
                decision.truncated.copy(), info,
            )  # fmt: skip
        return self._show(step)

    def close_extras(self, **kwargs: Any) -> None:
        del kwargs
        self._env.close()

    def _chosen(self, values: Floats) -> Floats:
        """Return the actions of the agents that decide; one that was not shown takes zeros."""
        assert self._places is not None
        chosen = values[self._places]
        chosen[self._places < 0] = 0
        return chosen

    def _nobody(self, step: Step) -> Outcome:
        """Return the outcome of a guest that came to its end after its agents."""
        self._is_over, self._has_failed = True, step.error is not None
        return self._empty(showing.told(self._env, step))

    def _empty(self, info: dict[str, Any]) -> Outcome:
        """Empty all places."""
        no = np.zeros(self.num_envs, bool)
        rows = np.zeros((self.num_envs, self._behavior.num_features), np.float32)
        rewards = np.zeros(self.num_envs, np.float32)
        observations = shown(self._spec, rows)
        return observations, rewards, no, no.copy(), {
            "present": no.copy(), **info, **all_allowed(self._spec, (), self.num_envs)
        }  # fmt: skip

    def _show(self, step: Step) -> Outcome:
        try:
            decision = showing.only_decision(step, _WHO, self._behavior)
            observations, *outcome, info = self._outcome(decision)
        except UsageError:
            self._is_over = self._has_failed = True  # it is in the middle of what is not shown
            raise
        info.update(showing.told(self._env, step))
        self._is_over, self._has_failed = step.is_over, step.error is not None
        self._plan(decision)
        places = self._slots.of(decision.agents)
        sitting = places >= 0
        info.update(self._allowed(decision, sitting, places[sitting]))
        return shown(self._spec, observations), *outcome, info

    def _allowed(self, decision: Decision, rows: Any, places: Any) -> dict[str, Any]:
        """Return what the agents can choose, whose rows sit at these places."""
        return all_allowed(self._spec, [(decision, rows, places)], self.num_envs)

    def _start_over(self) -> Outcome:
        """Return the first step of a new instance, after the last one of another."""
        if self._fresh is not None:
            raise gymnasium.error.ResetNeeded("reset the environment before its first step")
        if self._has_failed and self._restart is None:
            raise gymnasium.error.ResetNeeded(
                f"the guest failed: reset the environment, or make it with restart={ON_FAILURE!r}"
            )
        observations, info = self.reset()
        no = np.zeros(self.num_envs, bool)
        return observations, np.zeros(self.num_envs, np.float32), no, no.copy(), info

    def _outcome(self, decision: Decision) -> Outcome:
        count = self.num_envs
        observations = np.zeros((count, decision.behavior.num_features), np.float32)
        rewards = np.zeros(count, np.float32)
        terminated, truncated = np.zeros(count, bool), np.zeros(count, bool)
        info: dict[str, Any] = {"present": np.zeros(count, bool)}
        if len(self._hidden):
            self._slots.enter(decision, self._hidden)
            self._hidden = np.zeros(0, np.int32)
        ended, fresh = decision.ended, decision.started & ~decision.ended
        old = ~fresh & (self._slots.of(decision.agents) >= 0)
        places = self._slots.of(decision.agents[old])
        observations[places] = decision.observations[old]
        rewards[places] = decision.rewards[old]
        terminated[places] = decision.terminated[old]
        truncated[places] = decision.truncated[old]
        info["present"][places] = True
        if self._mode is AutoresetMode.NEXT_STEP:
            self._begin_next(decision, fresh, observations, info)
            self._slots.leave(decision.agents[old & ended])
        else:
            self._slots.leave(decision.agents[old & ended])
            self._begin_same(decision, fresh, terminated | truncated, observations, info)
        if decision.metadata or decision.rewards[fresh].any():
            self._tell(decision, dict(zip(np.flatnonzero(old), places, strict=True)), fresh, info)
        return observations, rewards, terminated, truncated, info

    def _begin_next(
        self, decision: Decision, fresh: Marks, observations: Floats, info: dict[str, Any]
    ) -> None:
        """Show new agents in places that were empty; the others come with the next submit."""
        arrived = decision.agents[fresh]
        room = int((self._slots.agents < 0).sum())
        going = int(decision.ended.sum())
        if len(arrived) > room + going:
            self._slots.enter(decision, arrived)
        shown, self._hidden = arrived[:room], arrived[room:]
        places = self._slots.enter(decision, shown)
        observations[places] = decision.observations[fresh][:room]
        info["present"][places] = True
        if len(self._hidden):
            info["auto_answered"] = len(self._hidden)

    def _begin_same(
        self,
        decision: Decision,
        fresh: Marks,
        ended: Marks,
        observations: Floats,
        info: dict[str, Any],
    ) -> None:
        """Show new agents in the places of those that ended with this submit."""
        if ended.any():
            info["final_obs"] = np.array([None] * self.num_envs, object)
            for place in np.flatnonzero(ended):
                info["final_obs"][place] = shown_one(self._spec, observations[place].copy())
            info["_final_obs"] = ended.copy()
            info["final_info"], info["_final_info"] = {}, ended.copy()
        if int(fresh.sum()) < int(ended.sum()) and self._env.decision is not None:
            raise UsageError(
                f"{decision.behavior.name} does not replace its agents in the submit that ends"
                " them: take autoreset_mode NEXT_STEP"
            )
        places = self._slots.enter(decision, decision.agents[fresh])
        observations[places] = decision.observations[fresh]
        info["present"][places] = True

    def _tell(
        self, decision: Decision, places: dict[int, int], fresh: Marks, info: dict[str, Any]
    ) -> None:
        """Add the metadata of the rows that are shown; those that kept running are at `places`."""
        begun = self._slots.of(decision.agents[fresh])
        rows = np.flatnonzero(fresh)[begun >= 0]
        places.update(zip(rows, begun[begun >= 0], strict=True))
        is_same = self._mode is AutoresetMode.SAME_STEP
        vector_infos.tell(info, [(decision, places)], self.num_envs, same=is_same)

    def _plan(self, decision: Decision) -> None:
        """Plan the way of the next actions, and whether the next submit can be shown as it is."""
        deciding = decision.deciding
        is_whole = np.array_equal(deciding, self._slots.agents)
        self._places = None if is_whole else self._slots.of(deciding)
        self._numbers = self._env.steady_agents if is_whole else None
