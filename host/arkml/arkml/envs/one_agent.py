"""A guest with one agent at a time, stepped from episode to episode."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.base.closing import Closing
from arkml.batches import Floats
from arkml.envs import step_infos
from arkml.envs.core.coercion import action_of
from arkml.envs.core.decisions import Behavior, Decision, Ids, InPlace, Step
from arkml.envs.core.env_instance import EnvInstance
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.core.guest_env import GuestEnv, core_of
from arkml.errors import GuestStalled, InvalidActions, UsageError
from arkml.host import Source

Outcome = tuple[Floats, float, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated, info."""


class _Kept(NamedTuple):
    """The state to which `give_up` returns; `instance` is None between episodes."""

    instance: EnvInstance | None
    number: int | None
    masks: tuple[Marks, ...]
    agents: Ids | None
    row: int


class OneAgent(Closing):
    """
    Steps a guest that has one agent at a time; `options` are as for `GuestEnv`.

    `who` is the name of the interface in errors. Raises UsageError for a guest with more agents.
    """

    def __init__(self, module: Source, who: str, **options: Unpack[GuestEnvOptions]) -> None:
        self._who = who
        self.env: GuestEnv = GuestEnv(module, **options)
        """The environment that is stepped."""
        self.number: int | None = None
        """The number of the agent during an episode, else None."""
        self._core = core_of(self.env)
        self.masks: tuple[Marks, ...] = ()
        """The masks of the agent's last row, for each branch bool, [choices]."""
        self._agents: Ids | None = None  # of the last step, in which it has the row
        self._row = 0
        self._is_unfit = False  # the guest submitted rows that this interface does not take
        self._kept: _Kept | None = None
        try:
            self._fresh: Step | None = self._first_episode()
            self.behavior: Behavior = self._decision(self._fresh).behavior
        except BaseException:
            self.env.close()
            raise

    def reset(self, seed: int | None = None) -> tuple[Floats, dict[str, Any]]:
        """
        Return the first observation of an episode, float32, [num_features], and its info.

        After the end of an episode, and without a seed, the same instance of the guest continues
        with its next episode; otherwise a new instance begins. Raises GuestError if the guest fails
        before.
        """
        self._fresh = self._next(seed)
        return self.begin()

    def prepare(self, seed: int | None = None) -> None:
        """
        Prepare the next episode as `reset` does, but keep the present one.

        `begin` enters the prepared episode. Then `settle` drops the previous episode, or `give_up`
        returns to it. Raises as `reset`; the present episode continues then.
        """
        self._kept = _Kept(None, self.number, self.masks, self._agents, self._row)
        try:
            if self.number is not None:
                self._kept = self._kept._replace(instance=self._core.set_aside())
            self._fresh = self._next(seed)
        except BaseException:
            self.give_up()
            raise

    def settle(self) -> None:
        """Drop the episode that was kept by `prepare`."""
        kept, self._kept = self._kept, None
        if kept is not None and kept.instance is not None:
            kept.instance.close()

    def give_up(self) -> None:
        """
        Return to the episode that was kept by `prepare`, if there is one.

        An episode that was prepared and not begun stays ready for the next reset, unless an
        instance was set aside for it.
        """
        kept, self._kept = self._kept, None
        if kept is None:
            return
        if kept.instance is not None:
            self._core.take_back(kept.instance)
            self._fresh, self._is_unfit = None, False
        elif not self.is_ready:
            self._is_unfit = True  # it is in the middle of the episode that was given up
        self.number, self.masks = kept.number, kept.masks
        self._agents, self._row = kept.agents, kept.row

    @property
    def is_ready(self) -> bool:
        """True if an episode is prepared and not begun."""
        return self._fresh is not None

    def begin(self) -> tuple[Floats, dict[str, Any]]:
        """Begin the prepared episode. Returns its first observation, [num_features], and info."""
        step, self._fresh = self._fresh, None
        assert step is not None
        decision = step.decisions[0]
        row = int(np.flatnonzero(~decision.ended)[0])
        self.number = int(decision.agents[row])
        info = self._shown(decision, row, step)
        if reward := float(decision.rewards[row]):
            info["reward"] = reward
        return decision.observations[row], info

    def checked(self, action: npt.ArrayLike) -> Floats:
        """Return an action as float32, [num_actions]. Raises InvalidActions."""
        return action_of(action, self.behavior.spec.actions, self._who)

    def step(self, action: Floats) -> Outcome:
        """
        Act with a checked action, float32, [num_actions], within an episode.

        Raises UsageError if the guest no longer has one agent; the next reset makes a new instance.
        """
        try:
            rows, row, step = self._stepped(action[None])
        except InvalidActions:
            raise  # nothing has moved
        except UsageError:
            self.number, self._is_unfit = None, True
            raise
        info = self._shown(rows, row, step)
        terminated, truncated = bool(rows.terminated[row]), bool(rows.truncated[row])
        if terminated or truncated:
            self.number = None
        return rows.observations[row].copy(), float(rows.rewards[row]), terminated, truncated, info

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def require_open(self) -> None:
        """Raise UsageError once the environment is closed."""
        self._core.factory.require_open()

    def _stepped(self, actions: Floats) -> tuple[Decision | InPlace, int, Step | None]:
        """
        Act, and return the rows of the next submit, and which of them is the agent's.

        They come with their step, unless they continue the rows of before one by one: the agent has
        the same row then, and no other begins. Raises as `step`.
        """
        core = self._core
        pending = None if core.instance is None else core.instance.pending
        if pending is not None and pending.rows.agents is self._agents:
            rows = core.step_rows(actions)
        else:
            rows = self.env.step(actions)  # which checks that one agent waits
        if isinstance(rows, InPlace) and rows.before is self._agents and not len(rows.begun):
            return rows, self._row, None
        step = rows if isinstance(rows, Step) else Step((rows.decision(),))
        decision = self._decision(step, self.behavior)
        found = np.flatnonzero(decision.agents == self.number)
        if not len(found):
            raise UsageError(f"the guest continues with another agent: {self._who} has one")
        return decision, int(found[0]), step

    def _shown(self, rows: Decision | InPlace, row: int, step: Step | None) -> dict[str, Any]:
        """Note the row of the agent with its masks, and return its info."""
        self._agents, self._row = rows.agents, row
        if rows.masks:
            self.masks = tuple(masks[row] for masks in rows.masks)
        info: dict[str, Any] = step_infos.metadata_of(rows, row) if len(rows.metadata.rows) else {}
        instance = self._core.instance
        assert instance is not None
        if step is not None or instance.experiments.given:
            info.update(step_infos.guest_info(self.env, step))
        return info

    def _next(self, seed: int | None) -> Step:
        """Return the first step of the next episode, checked. Raises GuestError and UsageError."""
        step, self._fresh = self._fresh, None
        if seed is not None:
            step = self._first_episode(seed)
        elif step is None:
            is_between = self.number is None and not self._is_unfit
            step = (self._next_episode() if is_between else None) or self._first_episode()
        self._is_unfit = True
        self._decision(step, self.behavior)
        self._is_unfit = False
        return step

    def _first_episode(self, seed: int | None = None) -> Step:
        """
        Return the first step of a new instance in which an agent acts. Raises GuestError.

        Before it may be episodes that ended with their first rows.
        """
        first = self.env.reset(seed)
        if not all(decision.ended.all() for decision in first.decisions):
            return first
        step = self._next_episode()
        if step is None:
            guest = self._core.instance.guest  # type: ignore[union-attr]  # `reset` has made it
            raise guest.failure or GuestStalled(
                f"{guest.name} came to its end without an agent that acts"
            )
        return step

    def _next_episode(self) -> Step | None:
        """
        Run the same instance to its next episode in which the agent acts.

        Returns None if the guest ends before. Raises GuestStalled after `idle_calls` submits.
        """
        left = self._core.factory.settings.idle_calls
        decision = self.env.decision
        while decision is not None and not (decision.started & ~decision.ended).any():
            if left == 0:
                self._is_unfit = True
                raise GuestStalled(
                    f"{self._core.factory.module.name} submitted"
                    f" {self._core.factory.settings.idle_calls} times without an agent that acts:"
                    " each of its rows ends an episode, and the first one of an episode must not"
                )
            left -= 1
            if self.env.step(decision.idle_actions()).has_ended:
                return None
            decision = self.env.decision
        return None if decision is None else Step((decision,))

    def _decision(self, step: Step, behavior: Behavior | None = None) -> Decision:
        decision = step_infos.only_decision(step, self._who, behavior)
        if len(decision.acting_agents) > 1:
            raise UsageError(
                f"{self._who} has one agent, this guest {len(decision.acting_agents)}: take"
                " gymnasium.make_vec or PettingZoo"
            )
        return decision
