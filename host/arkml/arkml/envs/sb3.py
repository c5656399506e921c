"""Guests as vectorized environments of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Unpack

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env.base_vec_env import (
    VecEnv,
    VecEnvIndices,
    VecEnvObs,
    VecEnvStepReturn,
)

from arkml.arrays import Marks
from arkml.base.closing import Closing
from arkml.base.sealed import Sealed
from arkml.batches import Floats
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.vector_env import VectorEnvOptions, vector_env
from arkml.errors import UsageError
from arkml.host import Source

_EMPTY = (
    "Stable-Baselines3 has no empty places, and {count} of {total} places are empty: take"
    " per='guest' with one agent a guest, num_envs= as many as the guest has agents, or"
    " gymnasium.make_vec, whose info['present'] names the places that are not"
)


Ends = dict[int, dict[str, Any]]  # infos of places whose episode ended


class GuestSb3VecEnv(Sealed, VecEnv, Closing):
    """
    A Stable-Baselines3 environment of guests of one agent each, or of the agents of one guest.

    Observations are float32, [num_envs, num_features], and rewards float32, [num_envs], unless a
    spec declares others. Arrays belong to the caller; the dicts of infos belong to the environment
    and are valid until its next step.

    Each sub-environment (a place) has one agent. After the end of an episode a place shows the
    first observation of the next one. Its info has "terminal_observation", "TimeLimit.truncated"
    and the metadata of the last row; other infos are empty. For agents with choices, every info
    after a step has the "action_mask" of the observation shown, and `action_masks` is the method
    that sb3-contrib's MaskablePPO calls.

    SAME_STEP requires that a guest replaces its agents in the submit that ends them. NEXT_STEP fits
    guests that replace them one submit later: an end is reported in that step, so an episode has
    one more step, from its last observation, with reward 0 and an action without effect.

    Guests that fail start over, with "error" in the info of the places whose episodes they cut.

    Args:
        module: The path or the bytes of a guest.
        per: "guest" steps `num_envs` guests of one agent each, "agent" the agents of one guest.
        options: Options of `vector_env` and `GuestEnv`. SAME_STEP and `restart="on-failure"` are
            the defaults.

    Raises:
        UsageError: An option has a wrong value; in a step, a guest leaves a place empty.

    Example:
        envs = GuestSb3VecEnv("walker.wasm", num_envs=16)
        model = PPO("MlpPolicy", envs).learn(100_000)

    """

    def __init__(
        self,
        module: Source,
        *,
        per: Literal["agent", "guest"] = "guest",
        **options: Unpack[VectorEnvOptions],
    ) -> None:
        options.setdefault("autoreset_mode", AutoresetMode.SAME_STEP)
        options.setdefault("restart", "on-failure")
        if options["autoreset_mode"] in (AutoresetMode.DISABLED, AutoresetMode.DISABLED.value):
            raise UsageError(
                "autoreset_mode is Disabled: Stable-Baselines3 has no reset for one of several"
                " environments; take SameStep or NextStep"
            )
        self._envs = envs = vector_env(module, per=per, **options)
        self._actions: npt.NDArray[Any] | None = None
        self._is_per_guest = per == "guest"
        self._mode: AutoresetMode = envs.metadata["autoreset_mode"]
        self._infos: list[dict[str, Any]] = [{} for _ in range(envs.num_envs)]
        self._filled: list[dict[str, Any]] = []
        self._ended: Marks = np.zeros(envs.num_envs, bool)  # ends that NEXT_STEP reports next
        self._ends: Ends = {}
        try:
            super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        except BaseException:
            envs.close()
            raise

    @property
    def guest_env(self) -> GuestEnv:
        """
        The underlying environment of the guest; for many guests, one with the options of each.
        """
        return self._envs.guest_env

    def reset(self) -> VecEnvObs:
        """
        Make new instances of guests. Raises GuestError, and UsageError if a place stays empty.
        """
        seeds = self._seeds if self._is_per_guest else self._seeds[:1]
        has_seeds = any(seed is not None for seed in seeds)
        observations, info = self._envs.reset(seed=list(seeds) if has_seeds else None)
        self._reset_seeds()
        self._reset_options()
        self._clear_infos()
        self._ended, self._ends = np.zeros(self.num_envs, bool), {}
        _require_full(info)
        return observations  # type: ignore[no-any-return]

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Store the actions for the next `step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step all places. Raises InvalidActions, and UsageError if a place is left empty."""
        actions, self._actions = self._actions, None
        if actions is None:
            raise UsageError("step_wait takes the actions that step_async gives")
        observations, rewards, terminated, truncated, info = self._envs.step(actions)
        _require_full(info)
        self._clear_infos()
        over = terminated | truncated
        ends = _ends(over, observations, truncated & ~terminated, info) if over.any() else {}
        if self._mode is AutoresetMode.NEXT_STEP:
            over, self._ended = self._ended, over
            ends, self._ends = self._ends, ends
            rewards[over] = 0  # those of agents that have acted before they are shown
        elif ends and self._begins_anew(info):
            observations, _, _, _, info = self._envs.step(actions)  # a new instance
            _require_full(info)
        for index, end in ends.items():
            self._infos[index].update(end)
            self._filled.append(self._infos[index])
        if "action_mask" in info:
            for index, given in enumerate(self._infos):
                given["action_mask"] = _of_env(info["action_mask"], index)
            self._filled = self._infos.copy()
        return observations, rewards, over, self._infos

    def action_masks(self) -> Marks:
        """Return which choices may be taken now, bool, [num_envs, choices of all branches]."""
        return self._envs.action_masks()

    def close(self) -> None:
        """Close all guests."""
        self._envs.close()

    def get_images(self) -> Sequence[npt.NDArray[np.uint8] | None]:
        """Return a picture of each place, uint8, [256, 256, 3]."""
        return list(self._envs.render() or ())

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of the vector environment, for each place. Raises AttributeError."""
        values = self._envs.get_attr(attr_name)
        return [values[index] for index in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """
        Set an attribute that all places share. Raises UsageError if only some places are named.
        """
        if set(self._get_indices(indices)) != set(range(self.num_envs)):
            raise UsageError(f"the places share {attr_name}: set it for all of them")
        self._envs.set_attr(attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **kwargs: Any
    ) -> list[Any]:
        """
        Call a method of the vector environment once; return its result for each place.

        Args:
            method_name: Name of the method.
            method_args: Arguments of the method.
            indices: Places whose results are returned, None for all.
            kwargs: Keyword arguments of the method.

        Raises:
            AttributeError: There is no public method of that name.

        """
        results = self._envs.call(method_name, *method_args, **kwargs)
        return [results[index] for index in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: VecEnvIndices = None) -> list[bool]:
        """Return False for each place: guests have no wrappers of their own."""
        del wrapper_class
        return [False for _ in self._get_indices(indices)]

    def _clear_infos(self) -> None:
        for info in self._filled:
            info.clear()
        self._filled = []

    def _begins_anew(self, info: dict[str, Any]) -> bool:
        """Return whether the one guest is over, whose agents begin in a new instance at once."""
        is_over = "guest_done" in info or "error" in info or self.guest_env.decision is None
        return is_over and not self._is_per_guest


def _require_full(info: dict[str, Any]) -> None:
    """Raise UsageError if a place is empty."""
    present = info["present"]
    if not present.all():
        count = int((~present).sum())
        raise UsageError(_EMPTY.format(count=count, total=len(present)))


def _ends(over: Marks, seen: Any, cut: Marks, info: dict[str, Any]) -> Ends:
    """
    Return the infos of the places whose episode ended.

    Args:
        over: bool, [num_envs], True for places that ended.
        seen: Observations of the step.
        cut: bool, [num_envs], True for places that were truncated.
        info: Info of the step.

    """
    last = info.get("final_obs")
    metadata = _rows_of(info if last is None else info.get("final_info", {}))
    error = info.get("error")
    ends: Ends = {}
    for index in np.flatnonzero(over).tolist():
        end = ends[index] = {
            "terminal_observation": _row(seen, index) if last is None else last[index],
            "TimeLimit.truncated": bool(cut[index]),
        }
        for name, values, has in metadata:
            if has[index]:
                end[name] = values[index]
        if error is not None and error[index] is not None:
            end["error"] = error[index]
    return ends


def _of_env(masks: Any, index: int) -> Any:
    """Return the mask of one place: int8, [choices], a tuple by branch, or a dict of both kinds."""
    if isinstance(masks, tuple):
        return tuple(mask[index] for mask in masks)
    return masks[index]


def _row(observations: Any, index: int) -> Any:
    """Return the observation of one place, a copy."""
    if isinstance(observations, dict):
        return {name: part[index].copy() for name, part in observations.items()}
    return observations[index].copy()


def _rows_of(info: dict[str, Any]) -> list[tuple[str, Floats, Marks]]:
    """Return the metadata in an info: its name, values and mask, [num_envs]."""
    return [
        (name, values, info[f"_{name}"])
        for name, values in info.items()
        if isinstance(values, np.ndarray) and values.dtype.kind == "f" and f"_{name}" in info
    ]
