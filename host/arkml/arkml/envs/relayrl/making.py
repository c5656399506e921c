"""The base class of guests as RelayRL environments: options, pickling and ownership."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self, Unpack

import numpy as np

from arkml.base.closing import Closing
from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.batches import Floats
from arkml.envs.core.decisions import Behavior
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.relayrl import checks
from arkml.envs.relayrl.kinds import EnvDType, EnvNdArrayDType
from arkml.envs.relayrl.seat import Seat
from arkml.host import Source
from arkml.policies.choice_masks import ChoiceMasks
from arkml.policies.workspace import PolicyWorkspace

log = SafeLogger(__name__)

_F32 = EnvDType.NdArray(EnvNdArrayDType.F32)

ActingPolicy = Callable[[Floats], Any]
"""A function from an observation, [num_features], to an action, [num_actions]."""


class Guests(Sealed, Closing):
    """
    Base class of environments of guests.

    `policy` acts in `run_environment`, `options` are as for `GuestEnv`.
    """

    def __init__(
        self,
        module: Source,
        *,
        policy: ActingPolicy | None = None,
        seed: int | None = None,
        **options: Unpack[GuestEnvOptions],
    ) -> None:
        if policy is not None and not callable(policy):
            raise checks.refused(
                f"policy is {cut_repr(policy)}: it is a function from an observation to an action"
            )
        self._made_with: dict[str, Any] = {
            "module": module,
            "policy": policy,
            "seed": seed,
            **options,
        }
        self._module = module
        self._policy = policy
        self._seed = seed
        self._options = options
        self._lock = threading.RLock()
        self._masks: ChoiceMasks | None = None
        self._is_given_away = False
        self._is_closed = False

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Pickle by the path and the digest of the module, and the settings."""
        with self._lock, GuestEnv(self._module, **self._options) as env:
            self._require_own()
            settings = {**env.__getstate__(), "policy": self._policy, "seed": self._seed}
        return _remade, (type(self), settings)

    def observation_dtype(self) -> EnvDType:
        """Return the dtype of observations."""
        return _F32

    def action_dtype(self) -> EnvDType:
        """Return the dtype of actions."""
        return _F32

    @property
    def behavior(self) -> Behavior:
        """The behavior of the guests' agents. Raises EnvironmentError if there is none."""
        raise NotImplementedError

    @property
    def num_actions(self) -> int:
        """The number of values of an action. Raises EnvironmentError as `behavior` does."""
        return self.behavior.num_actions

    def _require_own(self) -> None:
        if self._is_given_away:
            raise checks.refused("the environment was turned into a handle")
        if self._is_closed:
            raise checks.refused("the environment is closed")

    def _moved(self) -> Self:
        """Return another object with the state of this one, which becomes unusable."""
        with self._lock:
            self._require_own()
            other = object.__new__(type(self))
            other.__dict__.update(self.__dict__)
            self._is_given_away = True
            return other

    def _require_policy(self) -> None:
        if self._policy is None:
            raise checks.refused("run_environment needs a policy: give one when it is made")

    def _play(self, seat: Seat, seen: Floats) -> None:
        """Play the episode that began with `seen`, float32, [num_features], with the policy."""
        assert self._policy is not None
        branches = seat.actions.branches
        if self._masks is None:
            self._masks = ChoiceMasks(branches, PolicyWorkspace())
        info = None
        while seat.agent.number is not None:
            action = checks.action(self._policy(seen), seat.actions).copy()
            if branches:
                self._masks.rows = 1 - np.concatenate(seat.masks, dtype=np.float32)[None]
                self._masks.hold_some(action[None, -len(branches) :], 0, None, None)
            seen, _, _, _, info = seat.step(action)
        if reason := dict(info or ()).get("error"):
            log.warning("an episode is cut off, because the guest failed: %s", reason)


def _remade(kind: Callable[..., Any], settings: dict[str, Any]) -> Any:
    own = {name: settings.pop(name) for name in ("policy", "seed")}
    GuestEnv(**settings).close()  # refuses another module at the path
    return kind(**settings, **own)
