"""Gymnasium environments, one or several in parallel, as an environment of the trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.wrappers import RescaleAction

from arkml.arrays import real_array
from arkml.async_trainer.core.env import Env, Flags, Step
from arkml.async_trainer.core.record import Record
from arkml.base.short_reprs import cut_repr, short_repr
from arkml.errors import UsageError
from arkml.limits import keep_whole

_CHOICES = (spaces.MultiDiscrete, spaces.MultiBinary)


class GymnasiumAsEnv(Env[npt.NDArray[Any], npt.NDArray[Any]]):
    """
    Steps n Gymnasium environments one after the other.

    Observations of a Box are arrays [n, *shape] of its dtype; other spaces are flattened by
    `gymnasium.spaces.flatten` to float32, [n, width]. Actions have one row for each environment:
    [n, *shape] for a Box, [n] or [n, 1] for a Discrete, and [n, width] for other spaces, which are
    unflattened. `Step.info` is the list of the environments' infos.
    """

    @classmethod
    def build(cls, config: GymnasiumConfig, seed: int) -> Self:
        """
        Build the environments.

        The first has the seed `seed`, and the other seeds derive from it.
        """
        made: list[gymnasium.Env[Any, Any]] = []
        try:
            while len(made) < config.count:
                made.append(config.make())
            return cls(made, seed)
        except BaseException:
            for env in made:
                env.close()
            raise

    def __init__(self, envs: list[gymnasium.Env[Any, Any]], seed: int) -> None:
        self._envs = envs
        self.observation_space: spaces.Space[Any] = envs[0].observation_space
        """Observation space of one environment."""
        self.action_space: spaces.Space[Any] = envs[0].action_space
        """Action space of one environment."""
        for name, space in (
            ("observations", self.observation_space), ("actions", self.action_space)
        ):  # fmt: skip
            if not space.is_np_flattenable:
                raise UsageError(
                    f"the {name} of {envs[0]} are of {space}, whose values have no fixed size: wrap"
                    " the environment so that they have"
                )
        # Hashed: actors' seeds count from 0, and `seed` + k would be the seed of another actor.
        others = np.random.SeedSequence([seed, len(envs)]).generate_state(len(envs)) >> 1
        self._seeds: list[int | None] = [seed, *others[1:].tolist()]
        self._seen: npt.NDArray[Any] = np.zeros(0)

    @property
    def envs(self) -> list[gymnasium.Env[Any, Any]]:
        """The environments."""
        return list(self._envs)

    def reset(self, is_done: Flags | None = None) -> npt.NDArray[Any]:
        """Begin new episodes where `is_done` (int8, [n]) is 1, or everywhere without it."""
        if is_done is None:
            firsts = [self._begun(place, None) for place in range(len(self._envs))]
            self._seen = np.stack(firsts)
            return self._seen
        self._seen = self._seen.copy()
        for place in np.flatnonzero(is_done).tolist():
            self._seen[place] = self._begun(place, None)
        return self._seen

    def reset_with_index(self, ix: int) -> npt.NDArray[Any]:
        """Begin episode `ix`: environment k gets the seed `ix` * n + k."""
        count = len(self._envs)
        self._seen = np.stack([self._begun(k, ix * count + k) for k in range(count)])
        return self._seen

    def step(
        self, act: npt.NDArray[Any]
    ) -> tuple[Step[npt.NDArray[Any], npt.NDArray[Any]], Record]:
        """Act in each environment. Raises UsageError for actions of another shape."""
        try:
            actions = real_array(act)
        except (TypeError, ValueError):
            raise UsageError(f"act is {cut_repr(act)}: it takes numbers") from None
        if len(actions) != len(self._envs):
            raise UsageError(f"{len(actions)} actions for {len(self._envs)} environments")
        count = len(self._envs)
        rewards = np.empty(count, np.float32)
        terminated, truncated = np.zeros((2, count), np.int8)
        seen, infos = [], []
        for place, env in enumerate(self._envs):
            observation, reward, terminated[place], truncated[place], info = env.step(
                self._action(actions[place])
            )
            seen.append(self._row(observation))
            rewards[place] = reward
            infos.append(info)
        self._seen = np.stack(seen)
        return Step(act, self._seen, rewards, terminated, truncated, infos), Record()

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()

    def _begun(self, place: int, seed: int | None) -> npt.NDArray[Any]:
        first, self._seeds[place] = self._seeds[place], None
        observation, _ = self._envs[place].reset(seed=first if seed is None else seed)
        return self._row(observation)

    def _row(self, observation: Any) -> npt.NDArray[Any]:
        space = self.observation_space
        if isinstance(space, spaces.Box):
            row = np.asarray(observation, space.dtype)
            if row.shape != space.shape:
                raise UsageError(
                    f"an observation has the shape {row.shape}: expected {space.shape}"
                )
            return row
        return np.asarray(spaces.flatten(space, observation), np.float32)

    def _action(self, row: npt.NDArray[Any]) -> Any:
        space = self.action_space
        try:
            if isinstance(space, spaces.Box):
                return np.asarray(row, space.dtype).reshape(space.shape)
            if isinstance(space, spaces.Discrete):
                return np.asarray(row, space.dtype).reshape(())[()]
            if isinstance(space, _CHOICES):
                return np.asarray(row, space.dtype).reshape(space.shape)
            return spaces.unflatten(space, row)
        except (ValueError, IndexError) as error:
            raise UsageError(f"{row!r} is not an action of {space}: {error}") from error


@dataclass(frozen=True)
class GymnasiumConfig:
    """
    Configuration of `GymnasiumAsEnv`.

    Args:
        env: Id for `gymnasium.make`, such as "Pendulum-v1", or a picklable function that returns an
            environment.
        arguments: Keyword arguments for either.
        count: Number of environments.
        rescales: Whether actions in [-1, 1] are scaled to the bounds of a Box, as `SacAgent` needs.

    Raises:
        UsageError: A value is invalid.

    """

    __repr__ = short_repr

    env: str | Callable[..., gymnasium.Env[Any, Any]]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    count: int = 1
    rescales: bool = False
    builds: ClassVar[type[GymnasiumAsEnv]] = GymnasiumAsEnv

    def __post_init__(self) -> None:
        keep_whole(self, "count")

    def make(self) -> gymnasium.Env[Any, Any]:
        """Return a new environment. Raises UsageError if `env` does not return an environment."""
        env: Any = (
            gymnasium.make(self.env, **self.arguments)
            if isinstance(self.env, str)
            else self.env(**self.arguments)
        )
        if not isinstance(env, gymnasium.Env):
            raise UsageError(f"{self.env!r} made {type(env).__name__}, not a gymnasium.Env")
        if not self.rescales:
            return env
        if not isinstance(env.action_space, spaces.Box):
            raise UsageError(f"rescales is for actions of a Box, and these are {env.action_space}")
        lowest, highest = np.float32(-1.0), np.float32(1.0)
        rescaled: gymnasium.Env[Any, Any] = RescaleAction(env, lowest, highest)
        return rescaled
