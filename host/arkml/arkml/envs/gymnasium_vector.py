"""The agents of one guest as the sub-environments of a Gymnasium vector environment."""

from __future__ import annotations

import logging
from typing import Any, Unpack

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from arkml.abi.codes import EpisodeState
from arkml.arrays import Marks
from arkml.base.loggers import SafeLogger, notice
from arkml.batches import Floats
from arkml.envs import step_infos
from arkml.envs.core.agent_slots import NOWHERE
from arkml.envs.core.decisions import Decision, InPlace, Replaced, Step
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.core.guest_env import GuestEnv, core_of
from arkml.envs.core.id_search import Indices
from arkml.envs.drawing import Figure
from arkml.envs.slots import Slots
from arkml.envs.spaces import (
    all_allowed,
    copied,
    final_observations,
    observations_of,
    taken,
)
from arkml.envs.step_arrays import Outcome, StepArrays
from arkml.envs.vector_places import ON_FAILURE, RestartMode, VectorPlaces, VectorRenderMode
from arkml.errors import UsageError
from arkml.host import Source
from arkml.limits import require_whole
from arkml.sessions.declarations import MOST_COUNT

log = SafeLogger(__name__)

_WHO = "a vector environment"
_Arrays = tuple[Floats, Floats, Marks, Marks]
"""Features, rewards, terminated and truncated by env."""


class GuestVectorEnv(VectorPlaces):
    """
    A Gymnasium vector environment that steps all agents of one guest together.

    Observations are float32, [num_envs, num_features], actions float32, [num_envs, num_actions],
    and rewards float32, [num_envs], unless a spec declares others: see `spaces`. Masked choices are
    0 in `info["action_mask"]`. Each agent takes a place, the index of a sub-environment. An empty
    place has zeros, and False in `info["present"]`.

    The infos have the agents' metadata by name, in Gymnasium's form for vectors, and under "reward"
    the reward of an agent's first row.

    A guest that has finished starts over with the next step. After a failure that step raises
    gymnasium's ResetNeeded, unless `restart` is "on-failure".

    The mode NEXT_STEP fits guests that replace an agent in the submit after its last one: an agent
    that ends in one step is replaced in the next. If the replacement comes in the same submit, its
    first row takes a zero action, counted in `info["auto_answered"]`, and the reward of that comes
    in the step that begins the episode, which learners pass over. A warning is logged, since
    SAME_STEP fits such guests exactly.

    Args:
        module: The path or the bytes of a guest.
        num_envs: Number of places, 65,536 at most. None or 1 takes the `slots` of the spec, or else
            the number of agents in the first submit.
        autoreset_mode: NEXT_STEP or SAME_STEP.
        render_mode: "rgb_array" for a picture of each place, None for no pictures.
        restart: "on-failure" starts over after a failure of the guest.
        options: Options of the guest; see `GuestEnv`.

    Raises:
        UsageError: An option has a wrong value, or the first submit has agents of several
            behaviors.
        GuestError: The guest failed before its first submit.

    Example:
        envs = GuestVectorEnv("walkers.wasm", autoreset_mode="SameStep")
        observations, info = envs.reset(seed=1)
        for _ in range(1_000):
            actions = envs.action_space.sample()
            observations, rewards, terminated, truncated, info = envs.step(actions)

    """

    def __init__(
        self,
        module: Source,
        *,
        num_envs: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: VectorRenderMode = None,
        restart: RestartMode = None,
        **options: Unpack[GuestEnvOptions],
    ) -> None:
        self._keep_options(autoreset_mode, render_mode, restart)
        if self._mode is AutoresetMode.DISABLED:
            raise UsageError(
                "autoreset_mode is DISABLED: guests begin the episodes of their agents by"
                " themselves; with per='guest' each place is a guest that waits for its reset"
            )
        if num_envs is not None:
            num_envs = require_whole("num_envs", num_envs, MOST_COUNT)
        self._settings["num_envs"] = num_envs
        self._env = GuestEnv(module, **options)
        self._core = core_of(self._env)
        try:
            self._fresh: Step | None = self._env.reset()
            decision = step_infos.only_decision(self._fresh, _WHO)
        except BaseException:
            self._env.close()
            raise
        self._behavior, spec = decision.behavior, decision.behavior.spec
        if num_envs is None or num_envs == 1:
            num_envs = spec.slots or len(decision.acting_agents)
        self._set_up(spec, num_envs)
        self._slots = Slots(self.num_envs)
        self._is_over = True
        self._has_failed = False
        self._all = np.ones(self.num_envs, bool)

    @property
    def guest_env(self) -> GuestEnv:
        """The underlying environment of the guest."""
        return self._env

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """
        Make a new instance of the guest, and assign its agents to the places.

        Args:
            seed: Seed of the instance, or a list whose first seed is taken; None draws one.
            options: Options of Gymnasium; "reset_mask" is refused.

        Returns:
            Observations and info.

        Raises:
            GuestError: The guest failed before its first submit.
            UsageError: The agents do not fit into the places.

        """
        if options and "reset_mask" in options:
            raise UsageError(
                "reset_mask: guests begin the episodes of their agents by themselves; with"
                " per='guest' and autoreset_mode='Disabled' each place is a guest of its own"
            )
        if isinstance(seed, list):
            seed = seed[0] if seed else None
        super().reset(seed=seed, options=options)
        step, self._fresh = self._fresh, None
        if step is None or seed is not None:
            step = self._env.reset(seed)
        self._slots.clear()
        self._is_over = self._has_failed = False
        observations, _, _, _, info = self._show(step)
        return observations, info

    def step(self, actions: Any, *, out: StepArrays | None = None) -> Outcome:
        """
        Step all agents.

        Args:
            actions: Actions of all places, as in `action_space`.
            out: Arrays to write the outcome into, which are then returned, with `present` in the
                info. None makes new arrays.

        Returns:
            Observations, rewards, terminated, truncated and info.

        Raises:
            InvalidActions: The actions have a wrong shape, type or value; no agent was stepped.
            UsageError: The arrays of `out` do not fit, the agents do not fit into the places, or
                the environment is closed.
            ResetNeeded: The guest failed, or the environment was not reset (an error of Gymnasium).

        """
        if self.closed:
            self._require_open()
        values = taken(self._spec, actions, self.num_envs, _WHO)
        if out is not None:
            self._out.require(out)
        self._slots.acted = values
        if self._is_over:
            outcome = self._start_over()
        else:
            outcome = self._stepped(values, with_views=out is not None)
        return outcome if out is None else out.filled(outcome)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environment."""
        del kwargs
        self._env.close()

    def _figures(self) -> list[Figure | None]:
        figures: list[Figure | None] = [None] * self.num_envs
        decision = self._env.decision
        if decision is not None:
            rows = dict(zip(decision.agents.tolist(), decision.observations, strict=True))
            acted = self._slots.acted
            for index, agent in enumerate(self._slots.agents.tolist()):
                if agent in rows:
                    action = None if acted is None else acted[index]
                    figures[index] = Figure(rows[agent], action, index)
        return figures

    def _stepped(self, values: Floats, *, with_views: bool) -> Outcome:
        """Step all agents; `with_views` returns arrays that the next step may write into."""
        slots = self._slots
        if slots.acting is not None:
            assert self._env.decision is not None
            step = self._core.step_acting(slots.chosen(values, self._env.decision))
        elif isinstance(rows := self._core.step_rows(values), Step):
            step = rows
        elif isinstance(rows, Replaced) and self._is_same and rows.before is slots.in_order:
            return self._show_replaced(rows)
        elif (
            isinstance(rows, InPlace)
            and rows.before is slots.in_order
            and not (self._is_same and (len(rows.begun) or len(rows.over)))
        ):
            shown = self._show_in_order(rows)
            return shown if with_views else _owned(shown)
        else:
            assert self._env.decision is not None
            step = Step((self._env.decision,))
        return self._show(step) if step.decisions else self._ended(step)

    def _show_in_order(self, rows: InPlace) -> Outcome:
        """
        Return the outcome of a submit whose row k is of env k, as views.

        With SAME_STEP no agent begins or ends in it.
        """
        info: dict[str, Any] = {"present": self._all}
        instance = self._core.instance
        assert instance is not None
        if instance.experiments.given:
            info.update(self._guest_info(None))
        rewards = rows.rewards
        if len(rows.begun) or len(rows.over):
            self._slots.follow(rows.agents, rows.over)
            if rows.is_rewarded and np.count_nonzero(first := rewards[rows.begun]):
                self._infos.add_rewards(info, rows.begun, first)
                rewards = rewards.copy()
                rewards[rows.begun] = 0
        if len(rows.metadata.rows):
            self._infos.add_log(info, rows.metadata)
        self._infos.complete(info)
        if rows.masks:
            deciding = ~(rows.terminated | rows.truncated)
            info.update(self._allowed(rows.masks, deciding, deciding))
        self._slots.in_order = rows.agents
        return (
            observations_of(self._spec, rows.observations), rewards, rows.terminated,
            rows.truncated, info,
        )  # fmt: skip

    def _show_replaced(self, rows: Replaced) -> Outcome:
        """
        Return the outcome of a submit in which agent k of before is of env k, with SAME_STEP.
        """
        continuing, acting, places = rows.continuing, rows.acting, rows.places
        info: dict[str, Any] = {"present": self._all.copy()}
        instance = self._core.instance
        assert instance is not None
        if instance.experiments.given:
            info.update(self._guest_info(None))
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        if len(places):
            over = continuing[places]
            is_terminal = rows.states[over] == EpisodeState.TERMINAL
            terminated[places], truncated[places] = is_terminal, ~is_terminal
            ended = terminated | truncated
            last = rows.observations[over]
            info["final_obs"] = final_observations(self._spec, last, ended)
            info["_final_obs"] = ended
            info["final_info"], info["_final_info"] = {}, ended.copy()
        if log := rows.metadata:
            place_of, is_over = (
                np.empty(len(rows.states), np.intp),
                np.zeros(len(rows.states), bool),
            )
            place_of[continuing] = place_of[acting] = np.arange(self.num_envs)
            is_over[continuing[places]] = True
            self._infos.add_said(info, log, place_of[log.rows], is_over[log.rows])
        first = rows.rewards[acting[places]]
        if len(rewarded := first.nonzero()[0]):
            self._infos.add_rewards(info, places[rewarded], first[rewarded])
        self._infos.complete(info)
        if rows.masks:
            info.update(self._allowed(rows.masks, acting, slice(None)))
        self._slots.follow(rows.agents, NOWHERE)
        self._slots.in_order = rows.agents
        features, rewards = rows.observations.take(acting, 0), rows.rewards.take(continuing)
        return observations_of(self._spec, features), rewards, terminated, truncated, info

    def _ended(self, step: Step) -> Outcome:
        """Return the outcome of a guest that ended after all its agents had."""
        self._is_over, self._has_failed = True, step.error is not None
        self._slots.in_order = None
        info = self._guest_info(step)
        no = np.zeros(self.num_envs, bool)
        features = np.zeros((self.num_envs, self._behavior.num_features), np.float32)
        rewards = np.zeros(self.num_envs, np.float32)
        info = {"present": no.copy(), **info, **all_allowed(self._spec, (), self.num_envs)}
        self._allowed_now = info.get("action_mask")
        self._infos.complete(info)
        return observations_of(self._spec, features), rewards, no, no.copy(), info

    def _guest_info(self, step: Step | None) -> dict[str, Any]:
        """Return the part of an info that describes the guest, the same for all places."""
        return self._infos.of_guest(step_infos.guest_info(self._env, step))

    def _show(self, step: Step) -> Outcome:
        info: dict[str, Any] = {}
        arrange = self._arrange_same if self._is_same else self._arrange_next
        try:
            decision = step_infos.only_decision(step, _WHO, self._behavior)
            self._slots.enter_waiting(decision)
            indices = self._slots.of(decision)
            features, *outcome = arrange(decision, indices, info)
        except UsageError:
            self._is_over = self._has_failed = True  # the guest is in a submit that cannot be shown
            raise
        info.update(self._guest_info(step))
        self._infos.add(info, decision, indices)
        self._infos.complete(info)
        self._is_over, self._has_failed = step.has_ended, step.error is not None
        deciding, acting = self._slots.plan(decision, indices)
        if decision.masks:
            has_slot = acting >= 0
            info.update(self._allowed(decision.masks, deciding[has_slot], acting[has_slot]))
        return observations_of(self._spec, features), *outcome, info

    def _allowed(self, masks: tuple[Marks, ...], rows: Any, indices: Any) -> dict[str, Any]:
        """Return the info with the masks of these rows, which are of the envs `indices`."""
        info = all_allowed(self._spec, [(masks, rows, indices)], self.num_envs)
        self._allowed_now = info["action_mask"]
        return info

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

    def _arrange_next(self, decision: Decision, indices: Indices, info: dict[str, Any]) -> _Arrays:
        """
        Return the arrays of a step by env, with new agents in slots that were empty, others not.

        indices: intp, [n], the env of each row, which is filled in where new agents get one; -1 is
        for none. Raises UsageError if there are too few.
        """
        slots, ended = self._slots, decision.ended
        begun = (decision.started & ~ended).nonzero()[0]
        if len(begun):
            room = int((slots.agents < 0).sum())
            if len(begun) > room + int(ended.sum()):
                slots.enter(decision, decision.agents[begun])
            slots.waiting = decision.agents[begun[room:]]
            begun = begun[:room]
            indices[begun] = slots.enter(decision, decision.agents[begun])
            if len(slots.waiting):
                info.update(self._infos.of_guest({"auto_answered": len(slots.waiting)}))
                notice(
                    log,
                    logging.WARNING,
                    f"{self._core.factory.module.name} replaces its agents in the submit that ends"
                    " them: with autoreset_mode='NextStep' their episodes begin with an action of"
                    " zeros, and lack its reward; take 'SameStep'",
                )
        slots.leave(indices[ended & (indices >= 0)])
        outcome = self._arranged(decision, indices, (indices >= 0).nonzero()[0], info)
        outcome[1][indices[begun]] = 0  # the reward of a first row is in the info
        return outcome

    def _arrange_same(self, decision: Decision, indices: Indices, info: dict[str, Any]) -> _Arrays:
        """
        Do as `_arrange_next` does, but let new agents replace agents that end in the same submit.
        """
        slots, ended = self._slots, decision.ended
        begun = (decision.started & ~ended).nonzero()[0]
        outcome = self._arranged(decision, indices, (indices >= 0).nonzero()[0], info)
        features, _, terminated, truncated = outcome
        over = terminated | truncated
        count = np.count_nonzero(over)
        if count:
            info["final_obs"] = final_observations(self._spec, features[over], over)
            info["_final_obs"] = over
            info["final_info"], info["_final_info"] = {}, over.copy()
        if len(begun) < count and self._env.decision is not None:
            raise UsageError(
                f"{decision.behavior.name} does not replace its agents in the submit that ends"
                " them: take autoreset_mode NEXT_STEP"
            )
        slots.leave(indices[ended & (indices >= 0)])
        indices[begun] = slots.enter(decision, decision.agents[begun])
        features[indices[begun]] = decision.observations[begun]
        info["present"][indices[begun]] = True
        return outcome

    def _arranged(
        self, decision: Decision, indices: Indices, rows: Indices, info: dict[str, Any]
    ) -> _Arrays:
        """Return the arrays of a step by env, from these rows, intp, [m], of a decision."""
        terminated, truncated, present = np.zeros((3, self.num_envs), bool)
        rewards = np.zeros(self.num_envs, np.float32)
        at = indices[rows]
        sources = np.full(self.num_envs, -1)
        sources[at] = rows
        features = decision.observations[sources]  # one copy of what may be megabytes
        if len(rows) < self.num_envs:
            features[sources < 0] = 0
        rewards[at] = decision.rewards[rows]
        terminated[at] = decision.terminated[rows]
        truncated[at] = decision.truncated[rows]
        present[at] = True
        info["present"] = present
        return features, rewards, terminated, truncated


def _owned(outcome: Outcome) -> Outcome:
    """Return an outcome whose arrays are copies, `present` among them; its info is the same."""
    observations, rewards, terminated, truncated, info = outcome
    info["present"] = info["present"].copy()
    seen = copied(observations) if isinstance(observations, dict) else observations.copy()
    return seen, rewards.copy(), terminated.copy(), truncated.copy(), info
