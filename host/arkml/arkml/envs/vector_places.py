"""The base class of vector environments of guests: options, spaces, pictures and masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from arkml.arrays import Marks
from arkml.base.closing import Closing
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.envs.core.guest_env import GuestEnv, core_of
from arkml.envs.core.specs import Spec
from arkml.envs.drawing import Bars, Figure, Pixels, blank
from arkml.envs.made_spec import MadeSpec
from arkml.envs.pictures import picture_of
from arkml.envs.remade import Remade
from arkml.envs.spaces import (
    Space,
    action_space,
    choices_allowed,
    observation_space,
    require_branches,
)
from arkml.envs.step_arrays import ArrayCheck
from arkml.envs.vector_infos import VectorInfos
from arkml.errors import UsageError

VectorRenderMode = Literal["rgb_array"] | None

ON_FAILURE = "on-failure"
RestartMode = Literal["on-failure"] | None

_RENDER_MODES = ["rgb_array"]
_RENDER_FPS = 60
_OF_PLACES = ("render", "action_masks")  # methods with a result for each place


class VectorPlaces(Sealed, Remade, MadeSpec, VectorEnv[Any, Any, Any], Closing):
    """
    A vector environment in which each sub-environment (a place) has one agent of a guest.

    The places are not environments of their own: attributes and methods belong to the vector
    environment or to its `guest_env`, and all places share them. Pictures and masks have a part for
    each place.
    """

    num_envs: int
    autoreset_mode: AutoresetMode
    render_mode: str | None
    metadata: dict[str, Any]
    single_observation_space: Space
    single_action_space: Space
    observation_space: Space
    action_space: Space
    _picture: Any = None
    _allowed_now: Any = None

    def _keep_options(
        self, autoreset_mode: AutoresetMode | str, render_mode: str | None, restart: str | None
    ) -> None:
        """Check and keep the options. Raises UsageError for one with a wrong value."""
        try:
            mode = AutoresetMode(autoreset_mode)
        except ValueError as error:
            raise UsageError(str(error)) from error
        if render_mode not in (None, *_RENDER_MODES):
            known = "None or 'rgb_array'"
            raise UsageError(f"render_mode is {cut_repr(render_mode)}: it takes {known}")
        if restart not in (None, ON_FAILURE):
            raise UsageError(f"restart is {cut_repr(restart)}: it takes None or {ON_FAILURE!r}")
        self._mode = self.autoreset_mode = mode
        self.render_mode, self._restart = render_mode, restart
        self._is_same = mode is AutoresetMode.SAME_STEP
        self._settings = {"autoreset_mode": mode, "restart": restart, "render_mode": render_mode}

    def _set_up(self, spec: Spec, num_envs: int) -> None:
        """Set the spaces of `num_envs` agents with a spec, and the rest that follows from these."""
        self._spec, self.num_envs = spec, num_envs
        self.metadata = {
            "autoreset_mode": self._mode, "render_modes": _RENDER_MODES,
            "seedable": self.guest_env.seedable, "render_fps": _RENDER_FPS,
        }  # fmt: skip
        self.single_observation_space = observation_space(spec)
        self.single_action_space = action_space(spec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._out = ArrayCheck(spec, num_envs)
        self._infos = VectorInfos(num_envs, same=self._is_same)

    def _require_open(self) -> None:
        """Raise UsageError once the environment is closed."""
        core_of(self.guest_env).factory.require_open()

    def action_masks(self) -> Marks:
        """
        Return which choices agents may take now, bool, [num_envs, choices of all branches].

        Places without an agent have True. Raises UsageError for agents without branches, and before
        the first reset.
        """
        require_branches(self._spec, "this environment")
        if self._allowed_now is None:
            raise UsageError("reset the environment before its masks are asked for")
        return choices_allowed(self._allowed_now)

    @property
    def guest_env(self) -> GuestEnv:
        """The underlying environment of a guest."""
        raise NotImplementedError

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """
        Call a method once, or read an attribute, and return the result for each place.

        `render` and `action_masks` have a result of their own for each place. Raises
        AttributeError.
        """
        value = getattr(self._owner(name), name)
        result = value(*args, **kwargs) if callable(value) else value
        if name in _OF_PLACES and result is not None:
            return tuple(result)
        return (result,) * self.num_envs

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute for each place. Raises AttributeError."""
        return (getattr(self._owner(name), name),) * self.num_envs

    def set_attr(self, name: str, values: Any) -> None:
        """
        Set an attribute that all places share, to a value or to a list of equal ones.

        Raises AttributeError for an unknown name, and UsageError for different values.
        """
        if isinstance(values, list | tuple):
            if len(values) != self.num_envs or any(value != values[0] for value in values):
                raise UsageError(
                    f"{name} takes one value: the {self.num_envs} places share it, and cannot have"
                    f" {cut_repr(values)}"
                )
            values = values[0]
        setattr(self._owner(name), name, values)

    def render(self) -> tuple[Pixels, ...] | None:
        """
        Return a picture of each place, uint8, [256, 256, 3], or None without a render_mode.

        A picture shows the agent's position in a plane, if the spec declares positions; else its
        images and grids, if there are any; else bars of its features and of its last action. An
        empty place is blank.
        """
        if self.render_mode is None:
            return None
        if self._picture is None:
            self._picture = picture_of(self._spec) or Bars(self._spec)
        picture = self._picture
        return tuple(blank() if one is None else picture.draw([one]) for one in self._figures())

    def _figures(self) -> Sequence[Figure | None]:
        """Return the agent of each place, None for an empty one."""
        raise NotImplementedError

    def _owner(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{name} is private")
        owners = (self, self.guest_env)
        for owner in owners:
            if hasattr(owner, name):
                return owner
        raise AttributeError(f"{type(self).__name__} and its guest_env have no attribute {name!r}")
