"""The agents of one guest as the sub-environments of a Gymnasium vector environment."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from arkml.arrays import Marks
from arkml.base.closing import Closing
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.batches import Floats
from arkml.envs import showing
from arkml.envs.core.decisions import Decision, Ids, InPlace, Step
from arkml.envs.core.guest_env import GuestEnv, core_of
from arkml.envs.core.id_search import Places
from arkml.envs.core.options import GuestEnvOptions
from arkml.envs.drawing import Shown
from arkml.envs.made_spec import MadeSpec
from arkml.envs.remade import Remade
from arkml.envs.slots import Slots
from arkml.envs.spaces import (
    action_space,
    all_allowed,
    final_observations,
    observation_space,
    shown,
    taken,
)
from arkml.envs.step_arrays import ArrayCheck, Outcome, StepArrays, owned
from arkml.envs.vector_infos import VectorInfos
from arkml.envs.vector_places import RENDER_FPS, RENDER_MODES, VectorPlaces, VectorRenderMode
from arkml.errors import UsageError
from arkml.host import Source
from arkml.limits import require_whole

_WHO = "a vector environment"

ON_FAILURE = "on-failure"
Restart = Literal["on-failure"] | None


def mode_of(
    autoreset_mode: AutoresetMode | str, render_mode: str | None, restart: str | None
) -> AutoresetMode:
    """Return the autoreset mode. Raises UsageError for an option with a wrong value."""
    try:
        mode = AutoresetMode(autoreset_mode)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if render_mode not in (None, *RENDER_MODES):
        raise UsageError(f"render_mode is {cut_repr(render_mode)}: it takes None or 'rgb_array'")
    if restart not in (None, ON_FAILURE):
        raise UsageError(f"restart is {cut_repr(restart)}: it takes None or {ON_FAILURE!r}")
    return mode


class GuestVectorEnv(Sealed, Remade, MadeSpec, VectorPlaces, VectorEnv[Any, Any, Any], Closing):
    """
    A Gymnasium vector environment that steps all agents of one guest together.

    Observations are float32, [num_envs, num_features], actions float32, [num_envs, num_actions],
    and rewards float32, [num_envs], unless a spec declares others: see `spaces`. Masked choices are
    0 in `info["action_mask"]`. An empty place has zeros, and False in `info["present"]`.

    The infos have the metadata of rows by name, in Gymnasium's form for vectors, and the reward of
    a first row under "reward".

    A guest that has finished starts over with the next step. After a failure that step raises
    gymnasium's ResetNeeded, unless `restart` is "on-failure".

    NEXT_STEP fits guests that replace an agent in the submit after its last one: an agent that ends
    in one step is replaced in the next. If the replacement comes in the same submit, its first row
    takes a zero action, counted in `info["auto_answered"]`; SAME_STEP fits such guests exactly.

    Args:
        module: The path or the bytes of a guest.
        num_envs: Number of places. None or 1 takes the `slots` of the spec, or else the number of
            agents in the first submit.
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
        restart: Restart = None,
        **options: Unpack[GuestEnvOptions],
    ) -> None:
        mode = mode_of(autoreset_mode, render_mode, restart)
        if mode is AutoresetMode.DISABLED:
            raise UsageError(
                "autoreset_mode is DISABLED: guests begin the episodes of their agents by"
                " themselves; with per='guest' each place is a guest that waits for its reset"
            )
        num_envs = None if num_envs is None else require_whole("num_envs", num_envs)
        self._settings = {
            "num_envs": num_envs, "autoreset_mode": mode, "restart": restart,
            "render_mode": render_mode,
        }  # fmt: skip
        self.render_mode = render_mode
        self._mode = self.autoreset_mode = mode
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
        self.metadata = {
            "autoreset_mode": mode, "render_modes": RENDER_MODES, "seedable": seedable,
            "render_fps": RENDER_FPS,
        }  # fmt: skip
        self.single_observation_space = observation_space(self._spec)
        self.single_action_space = action_space(self._spec)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._slots = Slots(self.num_envs)
        self._places: Places | None = None  # of the agents that decide, None for all in order
        self._has_hidden = False  # some of them have none
        self._seated: Ids | None = None  # the agents of the last decision, if row k has place k
        self._hidden: Ids = np.zeros(0, np.int32)
        self._is_over = True
        self._has_failed = False
        self._all = np.ones(self.num_envs, bool)
        self._acted: Floats | None = None
        self._in_order = np.arange(self.num_envs)
        self._out = ArrayCheck(self._spec, self.num_envs)
        self._infos = VectorInfos(self.num_envs)

    @property
    def guest_env(self) -> GuestEnv:
        """The environment that is stepped."""
        return self._env

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """
        Make a new instance, whose agents take the places.

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
        self._hidden = np.zeros(0, np.int32)
        self._is_over = self._has_failed = False
        observations, _, _, _, info = owned(self._show(step))
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
            UsageError: The arrays of `out` do not fit, or the agents do not fit into the places.
            ResetNeeded: The guest failed, or the environment was not reset (an error of Gymnasium).

        """
        values = taken(self._spec, actions, self.num_envs, _WHO)
        if out is not None:
            self._out.require(out)
        self._acted = values
        outcome = self._start_over() if self._is_over else self._stepped(values)
        return owned(outcome) if out is None else out.filled(outcome)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environment."""
        del kwargs
        self._env.close()

    def _agents_shown(self) -> list[Shown | None]:
        agents: list[Shown | None] = [None] * self.num_envs
        decision = self._env.decision
        if decision is not None:
            rows = dict(zip(decision.agents.tolist(), decision.observations, strict=True))
            for place, agent in enumerate(self._slots.agents.tolist()):
                if agent in rows:
                    action = None if self._acted is None else self._acted[place]
                    agents[place] = Shown(rows[agent], action, place)
        return agents

    def _stepped(self, values: Floats) -> Outcome:
        if self._places is not None:
            step = self._env.step(self._chosen(values))
        else:
            rows = core_of(self._env).step_rows(values)
            if isinstance(rows, Step):
                step = rows
            elif rows.before is self._seated and self._shows(rows):
                return self._show_in_place(rows)
            else:
                assert self._env.decision is not None
                step = Step((self._env.decision,))
        return self._show(step) if step.decisions else self._ended(step)

    def _shows(self, moved: InPlace) -> bool:
        """Return whether rows are shown as they are: with SAME_STEP, if no agent changes."""
        if self._mode is AutoresetMode.NEXT_STEP:
            return True
        return not len(moved.begun) and not len(moved.over)

    def _show_in_place(self, rows: InPlace) -> Outcome:
        """Return the outcome of a submit whose rows are in the order of the places, as views."""
        info = {"present": self._all, **self._guest_info(None)}
        rewards = rows.rewards
        if len(rows.begun) or len(rows.over):
            self._slots.follow(rows.agents, rows.over)
            if rows.is_rewarded and np.count_nonzero(first := rewards[rows.begun]):
                self._infos.add_rewards(info, rows.begun, first)
                rewards = rewards.copy()
                rewards[rows.begun] = 0
        if rows.metadata:
            self._infos.add_log(info, rows.metadata)
        self._infos.complete(info)
        if rows.masks:
            deciding = ~(rows.terminated | rows.truncated)
            info.update(self._allowed(rows.masks, deciding, deciding))
        self._seated = rows.agents
        return (
            shown(self._spec, rows.observations), rewards, rows.terminated, rows.truncated, info
        )  # fmt: skip

    def _chosen(self, values: Floats) -> Floats:
        """Return the rows of deciding agents, float32, [m, num_actions]; hidden ones take zeros."""
        assert self._places is not None
        chosen: Floats = values.take(self._places, 0)
        if self._has_hidden:
            chosen[self._places < 0] = 0
        return chosen

    def _ended(self, step: Step) -> Outcome:
        """Return the outcome of a guest that ended after all its agents had."""
        self._is_over, self._has_failed = True, step.error is not None
        self._seated = None
        return self._empty(self._guest_info(step))

    def _guest_info(self, step: Step | None) -> dict[str, Any]:
        """Return the part of an info that describes the guest, the same for all places."""
        return self._infos.of_guest(showing.guest_info(self._env, step))

    def _empty(self, info: dict[str, Any]) -> Outcome:
        """Return the outcome in which all places are empty."""
        no = np.zeros(self.num_envs, bool)
        rows = np.zeros((self.num_envs, self._behavior.num_features), np.float32)
        rewards = np.zeros(self.num_envs, np.float32)
        info = {"present": no.copy(), **info, **all_allowed(self._spec, (), self.num_envs)}
        self._allowed_now = info.get("action_mask")
        self._infos.complete(info)
        return shown(self._spec, rows), rewards, no, no.copy(), info

    def _show(self, step: Step) -> Outcome:
        info: dict[str, Any] = {}
        try:
            decision = showing.only_decision(step, _WHO, self._behavior)
            if len(self._hidden):
                self._slots.enter(decision, self._hidden)
                self._hidden = np.zeros(0, np.int32)
            places, (observations, *outcome) = self._shown(decision, info)
        except UsageError:
            self._is_over = self._has_failed = True  # the guest is in a submit that cannot be shown
            raise
        info.update(self._guest_info(step))
        is_same = self._mode is AutoresetMode.SAME_STEP
        self._infos.add(info, decision, places, same=is_same)
        self._infos.complete(info)
        self._is_over, self._has_failed = step.is_over, step.error is not None
        self._plan(decision, places, info)
        return shown(self._spec, observations), *outcome, info

    def _shown(
        self, decision: Decision, info: dict[str, Any]
    ) -> tuple[Places, tuple[Floats, Floats, Marks, Marks]]:
        """
        Return the places of rows, intp, [n], and the arrays shown there, features by place first.

        Raises UsageError for agents that do not fit into the places, or the mode.
        """
        places = self._slots.of(decision)
        if self._mode is AutoresetMode.SAME_STEP:
            return places, self._show_same(decision, places, info)
        return places, self._show_next(decision, places, info)

    def _allowed(self, masks: tuple[Marks, ...], rows: Any, places: Any) -> dict[str, Any]:
        """Return the info with the masks of agents, whose rows sit at these places."""
        info = all_allowed(self._spec, [(masks, rows, places)], self.num_envs)
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

    def _show_next(
        self, decision: Decision, places: Places, info: dict[str, Any]
    ) -> tuple[Floats, Floats, Marks, Marks]:
        """
        Show rows at their places, new agents in places that were empty, others not yet.

        Fills in the `places` of rows, intp, [n], that had none. Raises UsageError if there are too
        few.
        """
        ended = decision.ended
        begun = (decision.started & ~ended).nonzero()[0]
        if len(begun):
            room = int((self._slots.agents < 0).sum())
            if len(begun) > room + int(ended.sum()):
                self._slots.enter(decision, decision.agents[begun])
            self._hidden = decision.agents[begun[room:]]
            begun = begun[:room]
            places[begun] = self._slots.enter(decision, decision.agents[begun])
            if len(self._hidden):
                info.update(self._infos.of_guest({"auto_answered": len(self._hidden)}))
        self._slots.leave(places[ended & (places >= 0)])
        outcome = self._placed(decision, places, (places >= 0).nonzero()[0], info)
        outcome[1][places[begun]] = 0  # the reward of a first row is in the info
        return outcome

    def _show_same(
        self, decision: Decision, places: Places, info: dict[str, Any]
    ) -> tuple[Floats, Floats, Marks, Marks]:
        """Show rows as `_show_next`, but let new agents replace agents that end in this submit."""
        ended = decision.ended
        begun = (decision.started & ~ended).nonzero()[0]
        old = (places >= 0).nonzero()[0]
        outcome = self._placed(decision, places, old, info)
        observations, _, terminated, truncated = outcome
        over = terminated | truncated
        count = np.count_nonzero(over)
        if count:
            info["final_obs"] = final_observations(self._spec, observations, over)
            info["_final_obs"] = over
            info["final_info"], info["_final_info"] = {}, over.copy()
        if len(begun) < count and self._env.decision is not None:
            raise UsageError(
                f"{decision.behavior.name} does not replace its agents in the submit that ends"
                " them: take autoreset_mode NEXT_STEP"
            )
        self._slots.leave(places[ended & (places >= 0)])
        places[begun] = self._slots.enter(decision, decision.agents[begun])
        observations[places[begun]] = decision.observations[begun]
        info["present"][places[begun]] = True
        return outcome

    def _placed(
        self, decision: Decision, places: Places, rows: Places, info: dict[str, Any]
    ) -> tuple[Floats, Floats, Marks, Marks]:
        """Return observations, rewards, terminated, truncated with these rows at their places."""
        terminated, truncated, present = np.zeros((3, self.num_envs), bool)
        observations = np.zeros((self.num_envs, decision.behavior.num_features), np.float32)
        rewards = np.zeros(self.num_envs, np.float32)
        at = places[rows]
        observations[at] = decision.observations[rows]
        rewards[at] = decision.rewards[rows]
        terminated[at] = decision.terminated[rows]
        truncated[at] = decision.truncated[rows]
        present[at] = True
        info["present"] = present
        return observations, rewards, terminated, truncated

    def _plan(self, decision: Decision, places: Places, info: dict[str, Any]) -> None:
        """Prepare the order of the next actions, and the check for the unchanged next submit."""
        deciding = (~decision.ended).nonzero()[0]
        seats = places[deciding]
        self._has_hidden = bool((seats < 0).any())
        if self._has_hidden:
            again = ((seats < 0) & ~decision.started[deciding]).nonzero()[0]
            if len(again):  # rows of agents that began with another row of this submit
                seats[again] = self._slots.of(decision)[deciding[again]]
        is_in_order = (
            len(places) == self.num_envs
            and bool((places == self._in_order).all())
            and bool((decision.places >= 0).all())
        )
        self._seated = decision.agents if is_in_order else None
        self._places = None if is_in_order else seats
        if decision.masks:
            sitting = seats >= 0
            info.update(self._allowed(decision.masks, deciding[sitting], seats[sitting]))
