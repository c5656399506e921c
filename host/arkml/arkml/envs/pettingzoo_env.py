"""The agents of a guest as a PettingZoo environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from arkml.base.closing import Closing
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.batches import Floats
from arkml.envs import step_infos
from arkml.envs.core.coercion import floats_of
from arkml.envs.core.decisions import Behavior, Decision, Ids, Step
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.core.specs import Actions, Spec
from arkml.envs.drawing import Bars, Figure, Pixels, Plane, RenderMode, draw_bars
from arkml.envs.pictures import Pictures, picture_of
from arkml.envs.remade import Remade
from arkml.envs.spaces import (
    Space,
    action_space,
    allowed,
    observation_space,
    observations_of,
    taken,
    unmasked,
)
from arkml.errors import InvalidActions, UsageError
from arkml.host import Source
from arkml.limits import require_whole

_WHO = "an agent"
_HIDDEN = ""  # in place of the name of an agent that takes no part

Spawn = Literal["show", "hide"]

Outcome = tuple[
    dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
]
"""Observations, rewards, terminated, truncated and infos, each by agent."""


def parallel_env(
    module: Source,
    *,
    spawn: Spawn = "hide",
    max_cycles: int | None = None,
    render_mode: RenderMode = None,
    **options: Unpack[GuestEnvOptions],
) -> GuestParallelEnv:
    """
    Return an environment of a guest whose agents all act at once.

    Args:
        module: The path or the bytes of a guest.
        spawn: "hide" or "show" later agents; see `GuestParallelEnv`.
        max_cycles: Steps after which all agents are truncated, None for no limit.
        render_mode: "ansi", "rgb_array" or None.
        options: Options of the guest; see `GuestEnv`.

    """
    return GuestParallelEnv(
        module, spawn=spawn, max_cycles=max_cycles, render_mode=render_mode, **options
    )


def env(
    module: Source,
    *,
    spawn: Literal["hide"] = "hide",
    max_cycles: int | None = None,
    render_mode: RenderMode = None,
    **options: Unpack[GuestEnvOptions],
) -> Any:
    """
    Return an environment whose agents act in turn, made of `parallel_env` by PettingZoo.

    Its agents are the agents of the first submit.

    Args:
        module: The path or the bytes of a guest.
        spawn: "hide", since agents that act in turn are known from the start.
        max_cycles: Steps after which all agents are truncated, None for no limit.
        render_mode: "ansi", "rgb_array" or None.
        options: Options of the guest; see `GuestEnv`.

    Raises:
        UsageError: An option has a wrong value.

    """
    if spawn != "hide":
        raise UsageError("agents that act in turn are known from the start: spawn='hide'")
    return parallel_to_aec(
        GuestParallelEnv(module, max_cycles=max_cycles, render_mode=render_mode, **options)
    )


class GuestParallelEnv(Sealed, Remade, ParallelEnv[str, Any, Any], Closing):  # type: ignore[misc]  # no types
    """
    A PettingZoo environment that steps all agents of a guest at once.

    Agents are called BEHAVIOR/N, counted from 0 in each episode of the environment; a name is used
    only once in an episode. Observations are float32, [num_features], and actions float32,
    [num_actions], within [-1, 1], unless a spec declares others: see `spaces`. Masked choices are 0
    in `info["action_mask"]`.

    An agent without a row in a submit keeps its last observation, with reward 0 and False in
    `info["acted"]`, and its action is not used. Other infos leave "acted" out, since TorchRL
    expects the names of the first infos in all later ones. An agent that has ended is shown once.
    Every `reset` makes a new instance.

    Args:
        module: The path or the bytes of a guest.
        spawn: "hide" admits only the agents of the first submit: later agents take zeros, and the
            episode ends with the last of the first agents. "show" lets later agents join, so that
            `possible_agents` grows.
        max_cycles: Steps after which all agents are truncated, None for no limit.
        render_mode: "ansi" for a line for each agent, "rgb_array" for a picture, None for neither.
        options: Options of the guest; see `GuestEnv`.

    Raises:
        UsageError: An option has a wrong value.
        GuestError: The guest failed before its first submit.

    Example:
        env = parallel_env("chase.wasm", max_cycles=500)
        observations, infos = env.reset(seed=1)
        while env.agents:
            actions = {agent: env.action_space(agent).sample() for agent in env.agents}
            observations, rewards, terminated, truncated, infos = env.step(actions)

    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "arkml_guest_v0",
        "render_modes": ["ansi", "rgb_array"],
        "is_parallelizable": True,
    }

    def __init__(
        self,
        module: Source,
        *,
        spawn: Spawn = "hide",
        max_cycles: int | None = None,
        render_mode: RenderMode = None,
        **options: Unpack[GuestEnvOptions],
    ) -> None:
        if spawn not in ("show", "hide"):
            raise UsageError(f"spawn is {cut_repr(spawn)}: it takes 'show' or 'hide'")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UsageError(
                f"render_mode is {cut_repr(render_mode)}: it takes None, 'ansi', 'rgb_array'"
            )
        self.render_mode = render_mode
        self._settings = {
            "spawn": spawn, "max_cycles": max_cycles, "render_mode": render_mode,
        }  # fmt: skip
        self._pictures: dict[str, Plane | Pictures] = {}
        self._bars: dict[str, Bars] = {}
        self._features: dict[str, Floats] = {}
        self._acted: dict[str, Floats] = {}
        self._spawn = spawn
        self.max_cycles: int | None = (
            None if max_cycles is None else require_whole("max_cycles", max_cycles)
        )
        self.np_random: np.random.Generator = np.random.default_rng()
        """Random numbers for wrappers, as SuperSuit's `frame_skip_v0`; `reset` seeds them."""
        self._env = GuestEnv(module, **options)
        self._spaces: dict[str, tuple[Space, Space]] = {}
        self._choosers: dict[str, Spec] = {}  # of behaviors with branches
        self.possible_agents: list[str] = []
        self.agents: list[str] = []
        self._possible: set[str] = set()
        self._names: dict[int, str] = {}  # of live agents
        self._named = 0  # agents of the present instance
        self._seen: dict[str, Any] = {}
        self._cycles = 0
        try:
            self._fresh: Step | None = self._env.reset()
            self._begin(self._fresh.decisions[0])
        except BaseException:
            self._env.close()
            raise
        self.agents = []

    @property
    def guest_env(self) -> GuestEnv:
        """The underlying environment of the guest."""
        return self._env

    @property
    def observation_spaces(self) -> dict[str, Space]:
        """The observation space of each of the `possible_agents`."""
        return {agent: self.observation_space(agent) for agent in self.possible_agents}

    @property
    def action_spaces(self) -> dict[str, Space]:
        """The action space of each of the `possible_agents`."""
        return {agent: self.action_space(agent) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of an agent. Raises KeyError for an unknown behavior."""
        return self._spaces_of(agent)[0]

    def action_space(self, agent: str) -> Space:
        """Return the action space of an agent. Raises KeyError for an unknown behavior."""
        return self._spaces_of(agent)[1]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """
        Make a new instance of the guest. Raises GuestError if it fails before its first submit.

        An agent that ends with its first row takes no part.
        """
        del options
        step, self._fresh = self._fresh, None
        if step is None or seed is not None:
            step = self._env.reset(seed)
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self._names.clear()
        self._named = 0
        self._seen.clear()
        self._features.clear()
        self._acted.clear()
        self.agents = []
        self._cycles = 0
        decision = step.decisions[0]
        self._begin(decision)
        names = self._names_of(decision)
        infos = self._show(decision, names, step_infos.guest_info(self._env, step))
        for name, reward in zip(names, decision.rewards.tolist(), strict=True):
            if reward and name != _HIDDEN:
                infos[name]["reward"] = reward
        return {name: self._seen[name] for name in self.agents}, infos

    def step(self, actions: dict[str, Any]) -> Outcome:
        """
        Step all agents. Without agents, the outcome is empty until the next reset.

        Args:
            actions: An action for each agent in `agents` that decides, by name.

        Returns:
            Observations, rewards, terminated, truncated and infos, each by agent.

        Raises:
            InvalidActions: An action has a wrong shape, type or value; the guest was not stepped.
            UsageError: An agent has no action, or does not exist; the guest was not stepped.

        """
        if not self.agents:
            return self._outcome_without_agents(actions)
        decision = self._env.decision
        if decision is None:
            raise UsageError("the environment is closed")
        values = self._gathered(decision, actions)
        if self.render_mode is not None:
            deciding = (self._names.get(agent, "") for agent in decision.acting_agents.tolist())
            self._acted.update(zip(deciding, values, strict=True))
        step = self._env.step(values)
        self._cycles += 1
        rewards = dict.fromkeys(self.agents, 0.0)
        terminated, truncated = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        infos: dict[str, dict[str, Any]] = {name: {"acted": False} for name in self.agents}
        guest_info = step_infos.guest_info(self._env, step)
        for later in step.decisions:
            self._meet(later, later.agents[later.started] if self._spawn == "show" else ())
            names = self._names_of(later)
            infos.update(self._show(later, names, guest_info))
            for told, column in (
                (rewards, later.rewards), (terminated, later.terminated),
                (truncated, later.truncated),
            ):  # fmt: skip
                told.update(zip(names, column.tolist(), strict=True))
                told.pop(_HIDDEN, None)
            for agent in later.agents[later.ended].tolist():
                self._names.pop(agent, None)
        if self._choosers:
            self._unmask_skipped(infos)
        if self.max_cycles is not None and self._cycles >= self.max_cycles:
            truncated = dict.fromkeys(truncated, True)
        shown = {name: self._seen[name] for name in self.agents}
        self._part(terminated, truncated)
        return shown, rewards, terminated, truncated, infos

    def render(self) -> Any:
        """
        Return a line for each agent ("ansi"), or a picture ("rgb_array").

        The picture is uint8, [256, 256, 3]: the agents of the first behavior that declares
        positions (drawn in a plane), images or grids (drawn as pictures). If no behavior does, bars
        show features and last actions of the first 16 agents. Each agent has a color of its own.
        """
        if self.render_mode is None:
            return None
        if self.render_mode == "rgb_array":
            return self._drawn()
        lines = (
            f"{name:24} " + " ".join(f"{value:9.4f}" for value in self._features[name])
            for name in self.agents
        )
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _spaces_of(self, agent: str) -> tuple[Space, Space]:
        try:
            return self._spaces[_behavior_of(agent)]
        except KeyError:
            raise KeyError(agent) from None

    def _begin(self, decision: Decision) -> None:
        """Name the agents of a first submit that play on: a reset cannot tell the end of others."""
        self._meet(decision, decision.agents[decision.started & ~decision.ended])

    def _meet(self, decision: Decision, arriving: Ids | tuple[()]) -> None:
        """Name the agents that are new and take part."""
        behavior = decision.behavior
        if behavior.name not in self._spaces:
            self._spaces[behavior.name] = _spaces(behavior)
            if behavior.spec.actions.branches:
                self._choosers[behavior.name] = behavior.spec
            self._bars[behavior.name] = Bars(behavior.spec)
            if (picture := picture_of(behavior.spec)) is not None:
                self._pictures[behavior.name] = picture
        for agent in map(int, arriving):
            name = self._names[agent] = f"{behavior.name}/{self._named}"
            self._named += 1
            self.agents.append(name)
            if name not in self._possible:
                self._possible.add(name)
                self.possible_agents.append(name)

    def _names_of(self, decision: Decision) -> list[str]:
        """Return the name of the agent of each row, _HIDDEN for one that takes no part."""
        names = self._names
        return [names.get(agent, _HIDDEN) for agent in decision.agents.tolist()]

    def _show(
        self, decision: Decision, names: list[str], guest_info: dict[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Note the observations of the agents that take part, and return their infos by name."""
        observations = observations_of(decision.behavior.spec, decision.observations)
        if isinstance(observations, dict):
            parts = zip(*observations.values(), strict=True)
            each = [dict(zip(observations, values, strict=True)) for values in parts]
        else:
            each = list(observations)
        self._seen.update(zip(names, each, strict=True))
        self._seen.pop(_HIDDEN, None)
        if self.render_mode is not None:
            self._features.update(zip(names, decision.observations, strict=True))
            self._features.pop(_HIDDEN, None)
        infos = {name: dict(guest_info) for name in names}
        for row, said in step_infos.metadata_by_row(decision).items():
            if row >= 0:
                infos[names[row]] = {**said, **guest_info}
        if decision.masks:
            spec = decision.behavior.spec
            for row, name in enumerate(names):
                infos[name].update(allowed(spec, [masks[row] for masks in decision.masks]))
        infos.pop(_HIDDEN, None)
        return infos

    def _drawn(self) -> Pixels:
        agents = [(_behavior_of(name), self._drawn_one(name)) for name in self.agents]
        for behavior, picture in self._pictures.items():
            return picture.draw([shown for its, shown in agents if its == behavior])
        return draw_bars([(self._bars[behavior], shown) for behavior, shown in agents])

    def _drawn_one(self, name: str) -> Figure:
        number = int(name.rpartition("/")[2])
        return Figure(self._features[name], self._acted.get(name), number)

    def _gathered(self, decision: Decision, actions: dict[str, Any]) -> Floats:
        """Return the actions of deciding agents, float32, [m, num_actions], also of hidden ones."""
        if not isinstance(actions, Mapping):
            raise InvalidActions(f"actions come by agent, in a dict, not as {cut_repr(actions)}")
        unknown = set(actions) - set(self.agents)
        if unknown:
            raise UsageError(f"there is no agent {cut_repr(min(unknown, key=cut_repr))} now")
        spec = decision.behavior.spec
        deciding = decision.acting_agents.tolist()
        if (together := self._together(deciding, actions, spec.actions)) is not None:
            return together
        gathered = decision.idle_actions()
        live = set(self.agents)
        for row, agent in enumerate(deciding):
            name = self._names.get(agent, _HIDDEN)
            if name in live:
                if name not in actions:
                    raise UsageError(f"agent {name!r} has no action")
                gathered[row] = taken(spec, actions[name], None, f"agent {name!r}")
        return gathered

    def _together(
        self, deciding: list[int], actions: dict[str, Any], declared: Actions
    ) -> Floats | None:
        """Return the rows, [m, num_actions], if all are valid floats of named agents, or None."""
        try:
            values = floats_of([actions[self._names[agent]] for agent in deciding])
        except (KeyError, TypeError, ValueError):
            return None
        fits = values.shape == (len(deciding), declared.width) and declared.are_valid(values)
        return values if fits else None

    def _outcome_without_agents(self, actions: dict[str, Any]) -> Outcome:
        if self._fresh is not None or actions:
            raise UsageError(f"no agent is left to take {cut_repr(actions)}: reset the environment")
        return {}, {}, {}, {}, {}

    def _part(self, terminated: dict[str, bool], truncated: dict[str, bool]) -> None:
        """Remove the agents whose episode is over, with all that was kept for them."""
        staying = []
        for name in self.agents:
            if terminated[name] or truncated[name]:
                for kept in (self._seen, self._features, self._acted):
                    kept.pop(name, None)
            else:
                staying.append(name)
        self.agents = staying

    def _unmask_skipped(self, infos: dict[str, dict[str, Any]]) -> None:
        """Give the agents with branches that have no row in this step a mask of ones."""
        for name, info in infos.items():
            if "acted" in info and (spec := self._choosers.get(_behavior_of(name))):
                info.update(unmasked(spec))


def _spaces(behavior: Behavior) -> tuple[Space, Space]:
    return observation_space(behavior.spec), action_space(behavior.spec)


def _behavior_of(agent: str) -> str:
    return agent.rpartition("/")[0]
