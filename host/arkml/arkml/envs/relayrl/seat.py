"""One guest of a RelayRL environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.envs.core.decisions import Behavior
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.core.specs import Actions
from arkml.envs.one_agent import OneAgent
from arkml.envs.relayrl import checks
from arkml.envs.relayrl.kinds import EnvInfo
from arkml.errors import ArkmlError, UsageError
from arkml.host import Source


class _Kept(NamedTuple):
    """The state to which `give_up` returns."""

    seed: int | None
    seen: Floats | None
    returns: int
    sum: float


class Seat:
    """One guest, its present observation and the returns of its episodes."""

    def __init__(self, module: Source, seed: int | None, options: GuestEnvOptions) -> None:
        try:
            self.agent: OneAgent = OneAgent(module, checks.WHO, **options)
        except UsageError as error:
            raise checks.refused(str(error)) from error
        except ArkmlError as error:
            raise checks.refused(f"the guest does not start: {error}") from error
        self._seed = seed
        self.seen: Floats | None = None
        self.returns: list[float] = []
        self._sum = 0.0
        self._kept: _Kept | None = None

    @property
    def behavior(self) -> Behavior:
        return self.agent.behavior

    @property
    def actions(self) -> Actions:
        return self.agent.behavior.spec.actions

    @property
    def masks(self) -> list[Marks]:
        """The choices that are masked now: for each branch a bool array, [choices]."""
        if self.seen is None:
            return [np.zeros(choices, bool) for choices in self.actions.branches]
        return list(self.agent.masks)

    def prepare(self) -> None:
        """
        Prepare the next episode, but keep the present one.

        `begin` enters the prepared episode. Then `settle` drops the kept one, or `give_up` returns
        to it. Raises EnvironmentError, in which case the present episode continues.
        """
        self._kept = _Kept(self._seed, self.seen, len(self.returns), self._sum)
        try:
            self.agent.prepare(self._seed)
        except ArkmlError as error:
            raise checks.refused(f"the guest begins no episode: {error}") from error
        self._seed = None

    def begin(self) -> tuple[Floats, EnvInfo | None]:
        """Begin the prepared episode. Returns its first observation, [num_features], and info."""
        self.seen, info = self.agent.begin()
        self._sum = 0.0
        return self.seen.copy(), self._env_info(info)

    def settle(self) -> None:
        """Drop the episode that `prepare` kept."""
        self._kept = None
        self.agent.settle()

    def give_up(self) -> None:
        """Return to the episode that `prepare` kept, if there is one."""
        self.agent.give_up()
        kept, self._kept = self._kept, None
        if kept is None:
            return
        self.seen, self._sum = kept.seen, kept.sum
        del self.returns[kept.returns :]
        if not self.agent.is_ready:
            self._seed = kept.seed

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, EnvInfo | None]:
        """
        Step with an action, float32, [num_actions].

        A guest that no longer has exactly one agent ends the episode, as a failed guest does.
        """
        try:
            self.seen, reward, terminated, truncated, info = self.agent.step(action)
        except UsageError as error:
            assert self.seen is not None
            reward, terminated, truncated, info = 0.0, False, True, {"error": str(error)}
        self._sum += reward
        if terminated or truncated:
            self.returns.append(self._sum)
        return self.seen.copy(), reward, terminated, truncated, self._env_info(info)

    def require_playing(self) -> None:
        """Raise EnvironmentError if no episode is in progress."""
        if self.seen is None:
            raise checks.refused("reset the environment before its first step")
        if self.agent.number is None:
            raise checks.refused("the episode has ended: reset the environment")

    def _env_info(self, info: dict[str, Any]) -> EnvInfo | None:
        """Return the info of a step, with `mask/BRANCH/CHOICE` for masked choices."""
        masked = [
            (f"mask/{branch}/{choice}", "1.0")
            for branch, masks in enumerate(self.agent.masks)
            for choice in np.flatnonzero(masks)
        ]
        return [(name, str(value)) for name, value in info.items()] + masked or None


@contextmanager
def begun(seats: Sequence[Seat]) -> Iterator[list[tuple[Floats, EnvInfo | None]]]:
    """
    Begin an episode in each seat; an error, here or in the `with` block, restores the old episodes.

    Yields for each seat its first observation, float32, [num_features], and info.
    """
    try:
        for seat in seats:
            seat.prepare()
        yield [seat.begin() for seat in seats]
    except BaseException:
        for seat in seats:
            seat.give_up()
        raise
    for seat in seats:
        seat.settle()
