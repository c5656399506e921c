"""Attributes and pictures of the places of a vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from arkml.arrays import Marks
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.core.specs import Spec
from arkml.envs.drawing import Bars, Figure, Pixels, blank, plane_of
from arkml.envs.spaces import choices_allowed, require_branches
from arkml.errors import UsageError

VectorRenderMode = Literal["rgb_array"] | None

RENDER_MODES = ["rgb_array"]
RENDER_FPS = 60
_OF_PLACES = ("render", "action_masks")  # methods with a result for each place


class VectorPlaces:
    """
    A mixin for vector environments whose places are the agents of guests.

    The places are not environments of their own: attributes and methods belong to the vector
    environment or to its `guest_env`, and all places share them. Pictures and masks have a part for
    each place.
    """

    num_envs: int
    render_mode: str | None
    _spec: Spec
    _picture: Any = None
    _allowed_now: Any = None

    def action_masks(self) -> Marks:
        """
        Return the choices that agents may take now, bool, [num_envs, choices of all branches].

        Empty places may take all. Raises UsageError for agents without branches, and before the
        first reset.
        """
        require_branches(self._spec, "this environment")
        if self._allowed_now is None:
            raise UsageError("reset the environment before its masks are asked for")
        return choices_allowed(self._allowed_now)

    @property
    def guest_env(self) -> GuestEnv:
        """The environment that is stepped."""
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

        Raises AttributeError if there is none of that name, and UsageError for different values.
        """
        if isinstance(values, list | tuple):
            if len(values) != self.num_envs or any(value != values[0] for value in values):
                raise UsageError(
                    f"{name} takes one value: the {self.num_envs} places share it, and cannot have"
                    f" {values!r:.80}"
                )
            values = values[0]
        setattr(self._owner(name), name, values)

    def render(self) -> tuple[Pixels, ...] | None:
        """
        Return a picture of each place, uint8, [256, 256, 3], or None without a render_mode.

        It shows the agent in its plane or, if the spec declares no positions, bars of its features
        and of its last action. An empty place is blank.
        """
        if self.render_mode is None:
            return None
        if self._picture is None:
            self._picture = plane_of(self._spec) or Bars(self._spec)
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
