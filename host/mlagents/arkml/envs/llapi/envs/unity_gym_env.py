"""A single-agent ML-Agents environment as a Gymnasium environment."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import error, spaces
from numpy.typing import NDArray

from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed
from arkml.envs.llapi.base_env import (
    ActionSpec,
    ActionTuple,
    BaseEnv,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
)
from arkml.envs.llapi.exception import UnityActionException

logger = SafeLogger(__name__)

_PICTURE = 3  # rank of a picture: channels, height, width


class UnityGymException(error.Error):
    """Raised when an environment cannot be wrapped, or is used wrongly."""


class UnityToGymWrapper(Sealed, gym.Env[Any, Any]):
    """
    Wraps an environment with one behavior and one agent.

    Args:
        unity_env: Environment to wrap, which is closed with this one.
        uint8_visual: Whether pictures are uint8, 0 to 255, instead of float32, 0 to 1.
        flatten_branched: Whether all discrete branches are combined into one choice.
        allow_multiple_obs: Whether an observation is the list of all pictures and then all vectors.
            By default it is the first picture or, without pictures, all vectors in one.
        action_space_seed: Seed of the action space.
        legacy_api: Whether to return values of OpenAI Gym: an observation from `reset`, and four
            values from `step`.

    Raises:
        UnityGymException: The environment has more than one behavior or agent.

    """

    # Both spellings: Gymnasium's, and OpenAI Gym's, for which the original was written.
    metadata = {"render_modes": ["rgb_array"], "render.modes": ["rgb_array"]}  # noqa: RUF012
    reward_range = (-float("inf"), float("inf"))

    def __init__(
        self,
        unity_env: BaseEnv,
        uint8_visual: bool = False,
        flatten_branched: bool = False,
        allow_multiple_obs: bool = False,
        action_space_seed: int | None = None,
        *,
        legacy_api: bool = False,
    ) -> None:
        """Reset `unity_env` to learn its spaces. Raises UnityGymException."""
        self._env = unity_env
        if not unity_env.behavior_specs:
            unity_env.step()  # the first step reports the behavior's spec
        if len(unity_env.behavior_specs) != 1:
            raise UnityGymException(
                "There can only be one behavior in a UnityEnvironment if it is wrapped in a gym."
            )
        self.name, self.group_spec = next(iter(unity_env.behavior_specs.items()))
        self.visual_obs: NDArray[Any] | None = None
        self.game_over = False
        self.uint8_visual = uint8_visual
        self._allow_multiple_obs = allow_multiple_obs
        self._legacy_api = legacy_api
        _check_observations(self.group_spec, uint8_visual, allow_multiple_obs)
        unity_env.reset()
        decisions, _ = unity_env.get_steps(self.name)
        self._check_agents(len(decisions))
        spec = self.group_spec.action_spec
        self.action_size = spec.discrete_size or spec.continuous_size
        self.action_space = _action_space(spec, flatten_branched)
        self._flattener: ActionFlattener | None = None
        if flatten_branched and isinstance(self.action_space, spaces.MultiDiscrete):
            self._flattener = ActionFlattener(spec.discrete_branches)
            self.action_space = self._flattener.action_space
        if action_space_seed is not None:
            self.action_space.seed(action_space_seed)
        self.observation_space = _observation_space(
            self.group_spec, uint8_visual, allow_multiple_obs
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """
        Begin a new episode. Returns the observation and `info`.

        `seed` only seeds this object's generator, since the environment is already running.
        """
        super().reset(seed=seed, options=options)
        self._env.reset()
        decisions, _ = self._env.get_steps(self.name)
        self._check_agents(len(decisions))
        self.game_over = False
        observation, _, _, _, info = self._single_step(decisions)
        return observation if self._legacy_api else (observation, info)

    def step(self, action: Any) -> Any:
        """
        Act in the environment.

        Returns observation, reward, terminated, truncated and info, in which "step" is the batch.

        Raises UnityGymException after the end of an episode, and UnityActionException for an
        invalid action.
        """
        if self.game_over:
            raise UnityGymException(
                "You are calling 'step()' even though this environment has already "
                "returned done = True. You must always call 'reset()' once you "
                "receive 'done = True'."
            )
        if self._flattener is not None:
            action = self._flattener.lookup_action(action)
        row = np.array(action).reshape((1, self.action_size))
        actions = ActionTuple()
        if self.group_spec.action_spec.is_continuous():
            actions.add_continuous(row)
        else:
            actions.add_discrete(row)
        self._env.set_actions(self.name, actions)
        self._env.step()
        decisions, terminals = self._env.get_steps(self.name)
        self._check_agents(max(len(decisions), len(terminals)))
        self.game_over = len(terminals) != 0
        result = self._single_step(terminals if self.game_over else decisions)
        if not self._legacy_api:
            return result
        observation, reward, terminated, truncated, info = result
        return observation, reward, terminated or truncated, info

    def render(self, mode: str = "rgb_array") -> Any:
        """Return the latest observed picture, or None, without drawing a new one."""
        del mode  # there is only one
        return self.visual_obs

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def seed(self, seed: Any = None) -> None:
        """Log a warning only: an environment is seeded when it is created."""
        del seed
        logger.warning("Could not seed environment %s", self.name)

    def _single_step(
        self, steps: DecisionSteps | TerminalSteps
    ) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not len(steps):
            raise UnityGymException("There is no Agent in the environment that needs an action.")
        pictures = [self._preprocess(each[0]) for each in steps.obs if each.ndim == 1 + _PICTURE]
        vectors = [each[0] for each in steps.obs if each.ndim == 2]
        observations = [*pictures, np.concatenate(vectors)] if vectors else pictures
        if pictures:
            self.visual_obs = pictures[0]
        interrupted = isinstance(steps, TerminalSteps) and bool(steps.interrupted[0])
        return (
            observations if self._allow_multiple_obs else observations[0],
            float(steps.reward[0]),
            isinstance(steps, TerminalSteps) and not interrupted,
            interrupted,
            {"step": steps},
        )

    def _preprocess(self, picture: NDArray[np.float32]) -> NDArray[Any]:
        return (255.0 * picture).astype(np.uint8) if self.uint8_visual else picture

    @staticmethod
    def _check_agents(n_agents: int) -> None:
        if n_agents > 1:
            raise UnityGymException(
                f"There can only be one Agent in the environment but {n_agents} were detected."
            )


class ActionFlattener:
    """Numbers all combinations of discrete branches; the last branch varies fastest."""

    def __init__(self, branched_action_space: Sequence[int]) -> None:
        combinations = itertools.product(*(range(size) for size in branched_action_space))
        self.action_lookup = {number: list(each) for number, each in enumerate(combinations)}
        self.action_space = spaces.Discrete(len(self.action_lookup))

    def lookup_action(self, action: Any) -> list[int]:
        """
        Return the choice of each branch. `action` is a number, or an array with one.

        Raises UnityActionException for an unknown combination.
        """
        number = action.item() if isinstance(action, np.ndarray) and action.size == 1 else action
        try:
            return self.action_lookup[number]
        except (KeyError, TypeError):
            raise UnityActionException(
                "A flattened action is a whole number from 0 to"
                f" {len(self.action_lookup) - 1}, not {str(action)[:80]}"
            ) from None


def _check_observations(spec: BehaviorSpec, uint8_visual: bool, allow_multiple: bool) -> None:
    pictures = sum(len(each.shape) == _PICTURE for each in spec.observation_specs)
    numbers = _vector_size(spec)
    if pictures == 0 and numbers == 0:
        raise UnityGymException("There are no observations provided by the environment.")
    if pictures == 0 and uint8_visual:
        logger.warning(
            "uint8_visual was set to true, but visual observations are not in use. "
            "This setting will not have any effect."
        )
    if pictures + (numbers > 0) > 1 and not allow_multiple:
        logger.warning(
            "The environment contains multiple observations. "
            "You must define allow_multiple_obs=True to receive them all. "
            "Otherwise, only the first visual observation (or vector observation if "
            "there are no visual observations) will be provided in the observation."
        )


def _action_space(spec: ActionSpec, flatten_branched: bool) -> spaces.Space[Any]:
    if spec.is_discrete():
        branches = spec.discrete_branches
        return (
            spaces.Discrete(branches[0])
            if len(branches) == 1
            else spaces.MultiDiscrete(list(branches))
        )
    if not spec.is_continuous():
        raise UnityGymException(
            "The gym wrapper does not provide explicit support for both discrete "
            "and continuous actions."
        )
    if flatten_branched:
        logger.warning("The environment has a non-discrete action space. It will not be flattened.")
    return spaces.Box(-1, 1, (spec.continuous_size,), dtype=np.float32)


def _observation_space(
    spec: BehaviorSpec, uint8_visual: bool, allow_multiple: bool
) -> spaces.Space[Any]:
    listed: list[spaces.Space[Any]] = [
        spaces.Box(0, 255, each.shape, dtype=np.uint8)
        if uint8_visual
        else spaces.Box(0, 1, each.shape, dtype=np.float32)
        for each in spec.observation_specs
        if len(each.shape) == _PICTURE
    ]
    size = _vector_size(spec)
    if size:
        listed.append(spaces.Box(-np.inf, np.inf, (size,), dtype=np.float32))
    return spaces.Tuple(listed) if allow_multiple else listed[0]


def _vector_size(spec: BehaviorSpec) -> int:
    return sum(each.shape[0] for each in spec.observation_specs if len(each.shape) == 1)
