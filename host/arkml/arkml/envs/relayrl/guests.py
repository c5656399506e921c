"""Guests as RelayRL environments: one, or many with an id each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack
from uuid import uuid4

import numpy as np

from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.envs.core.decisions import Behavior
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.relayrl import checks
from arkml.envs.relayrl.kinds import (
    EnvironmentError,
    EnvironmentKind,
    EnvironmentUuid,
    Tensor,
)
from arkml.envs.relayrl.making import ActingPolicy, Guests
from arkml.envs.relayrl.seat import Seat, begun
from arkml.envs.relayrl.traits import (
    EnvironmentHandle,
    ScalarEnvReset,
    ScalarEnvStep,
    VectorEnvReset,
    VectorEnvStep,
)
from arkml.host import Source

D_IN = D_OUT = 1
"""Ranks of observations and actions."""


class GuestScalarEnvironment(Guests):
    """
    A RelayRL environment of a guest with one agent.

    Observations are float32, [num_features], and actions float32, [num_actions], within [-1, 1]
    unless a spec declares others. A branch is one whole number, and masked choices are in `info`. A
    guest that finishes or fails ends the episode as truncated, and `info` says so.

    Args:
        module: The path or the bytes of a guest.
        policy: Function from an observation to an action, which acts in `run_environment`.
        seed: Seed of the first episode; None draws one.
        options: Options of the guest; see `GuestEnv`.

    Example:
        env = GuestScalarEnvironment("walker.wasm", seed=1)
        observation = env.reset().observation
        step = env.step(np.zeros(env.num_actions, np.float32))

    """

    def __init__(
        self,
        module: Source,
        *,
        policy: ActingPolicy | None = None,
        seed: int | None = None,
        **options: Unpack[GuestEnvOptions],
    ) -> None:
        super().__init__(module, policy=policy, seed=seed, **options)
        self._seat: Seat | None = None

    def kind(self) -> EnvironmentKind:
        """Return the kind of environment."""
        return EnvironmentKind.Scalar

    def reset(self) -> ScalarEnvReset:
        """Begin an episode. If that fails, the present one continues."""
        with self._lock, begun([self._started()]) as (beginning,):
            return ScalarEnvReset(*beginning)

    def step(self, action: Tensor) -> ScalarEnvStep:
        """
        Step with an action, [num_actions]. Raises EnvironmentError before anything is stepped.
        """
        with self._lock:
            seat = self._started()
            values = checks.action(action, seat.actions)
            seat.require_playing()
            return ScalarEnvStep(*seat.step(values))

    @property
    def behavior(self) -> Behavior:
        """The behavior of the agent. Raises EnvironmentError if the guest does not start."""
        with self._lock:
            return self._started().behavior

    @property
    def masks(self) -> list[list[Marks]]:
        """The agent's masked choices now: a list of one list with bool, [choices], per branch."""
        with self._lock:
            return [self._started().masks]

    def run_environment(self) -> None:
        """Play one episode with the policy. If that fails, the present episode continues."""
        with self._lock:
            seat = self._started()
            self._require_policy()
            with begun([seat]) as ((seen, _),):
                self._play(seat, seen)

    def build_observation(self) -> Floats:
        """Return the present observation, float32, [num_features]."""
        with self._lock:
            self._require_own()
            if self._seat is None or self._seat.seen is None:
                raise EnvironmentError.ObservationBuildingError("the environment was not reset yet")
            return self._seat.seen.copy()

    def calculate_performance_return(self) -> Floats:
        """Return the return (sum of rewards) of each episode that has ended, float32, [k]."""
        with self._lock:
            self._require_own()
            return _returns([] if self._seat is None else self._seat.returns)

    def clone_box(self) -> GuestScalarEnvironment:
        """Return a new environment with the settings of this one, which has not started yet."""
        self._require_own()
        return GuestScalarEnvironment(**self._made_with)

    def into_handle(self) -> EnvironmentHandle:
        handle: EnvironmentHandle = EnvironmentHandle.Scalar(self._moved())
        return handle

    def close(self) -> None:
        """Free the guest."""
        with self._lock:
            if self._is_given_away:
                return
            self._is_closed = True
            if self._seat is not None:
                self._seat.agent.close()

    def _started(self) -> Seat:
        self._require_own()
        if self._seat is None:
            self._seat = Seat(self._module, self._seed, self._options)
        return self._seat


class GuestVectorEnvironment(Guests):
    """
    A RelayRL environment of many guests with one agent each, each with an id.

    Any subset of the guests may be stepped together. All arguments are checked before a guest is
    stepped, and results come in the order of the request. A guest that fails is truncated; the
    others continue.

    Args:
        module: The path or the bytes of a guest.
        policy: Function from an observation to an action, which acts in `run_environment`.
        seed: Seed of the first guest; guest k gets `seed` + k. None draws seeds.
        options: Options of the guests; see `GuestEnv`.

    Example:
        envs = GuestVectorEnvironment("walker.wasm", seed=1)
        ids = envs.init_num_envs(8)
        envs.reset(ids)
        action = np.zeros(envs.num_actions, np.float32)
        steps = envs.step([(env_id, action) for env_id in ids])

    """

    def __init__(
        self,
        module: Source,
        *,
        policy: ActingPolicy | None = None,
        seed: int | None = None,
        **options: Unpack[GuestEnvOptions],
    ) -> None:
        super().__init__(module, policy=policy, seed=seed, **options)
        self._seats: dict[EnvironmentUuid, Seat] = {}

    def kind(self) -> EnvironmentKind:
        """Return the kind of environment."""
        return EnvironmentKind.Vector

    def init_num_envs(self, num_envs: int) -> list[EnvironmentUuid]:
        """Set the number of guests. The first ones keep their ids, surplus ones are closed."""
        with self._lock:
            self._require_own()
            count = checks.count(num_envs)
            added: dict[EnvironmentUuid, Seat] = {}
            try:
                for number in range(len(self._seats), count):
                    seed = None if self._seed is None else self._seed + number
                    added[uuid4()] = Seat(self._module, seed, self._options)
            except BaseException:
                for seat in added.values():
                    seat.agent.close()
                raise
            for env_id in list(self._seats)[count:]:
                self._seats.pop(env_id).agent.close()
            self._seats |= added
            return list(self._seats)

    def reset(self, env_ids: Sequence[EnvironmentUuid]) -> list[VectorEnvReset]:
        """Begin an episode in each environment, or, if one fails, in none of them."""
        with self._lock:
            self._require_own()
            asked = checks.ids(env_ids, self._seats)
            with begun([self._seats[env_id] for env_id in asked]) as beginnings:
                return [
                    VectorEnvReset(env_id, *first)
                    for env_id, first in zip(asked, beginnings, strict=True)
                ]

    def step(self, actions: Sequence[tuple[EnvironmentUuid, Tensor]]) -> list[VectorEnvStep]:
        """Step each environment of `actions`: pairs of an id and an action, [num_actions]."""
        with self._lock:
            self._require_own()
            asked = checks.pairs(actions)
            checks.ids([env_id for env_id, _ in asked], self._seats)
            ready: list[tuple[EnvironmentUuid, Floats]] = []
            for env_id, action in asked:
                seat = self._seats[env_id]
                ready.append((env_id, checks.action(action, seat.actions)))
                seat.require_playing()
            return [
                VectorEnvStep(env_id, *self._seats[env_id].step(action)) for env_id, action in ready
            ]

    @property
    def env_ids(self) -> list[EnvironmentUuid]:
        """The ids of the environments, in order."""
        with self._lock:
            self._require_own()
            return list(self._seats)

    @property
    def behavior(self) -> Behavior:
        """The behavior of each agent. Raises EnvironmentError before `init_num_envs`."""
        with self._lock:
            self._require_own()
            checks.ids([], self._seats)
            return next(iter(self._seats.values())).behavior

    @property
    def masks(self) -> list[list[Marks]]:
        """
        The masked choices of each agent now: a list per agent with bool, [choices], per branch.
        """
        with self._lock:
            self._require_own()
            return [seat.masks for seat in self._seats.values()]

    def run_environment(self) -> None:
        """Play one episode in each environment with the policy. If one fails, none has changed."""
        with self._lock:
            self._require_own()
            checks.ids([], self._seats)
            self._require_policy()
            seats = list(self._seats.values())
            with begun(seats) as beginnings:
                for seat, (seen, _) in zip(seats, beginnings, strict=True):
                    self._play(seat, seen)

    def build_observation(self) -> Floats:
        """Return the present observations in the order of the ids, float32, [n, num_features]."""
        with self._lock:
            self._require_own()
            seen = [seat.seen for seat in self._seats.values()]
            if not seen or any(found is None for found in seen):
                raise EnvironmentError.ObservationBuildingError(
                    "some environments were not reset yet"
                )
            return np.array(seen, np.float32)

    def calculate_performance_return(self) -> Floats:
        """Return the return (sum of rewards) of each episode that has ended, float32, [k]."""
        with self._lock:
            self._require_own()
            return _returns([r for seat in self._seats.values() for r in seat.returns])

    def into_handle(self) -> EnvironmentHandle:
        handle: EnvironmentHandle = EnvironmentHandle.Vector(self._moved())
        return handle

    def close(self) -> None:
        """Free the guests."""
        with self._lock:
            if self._is_given_away:
                return
            self._is_closed = True
            for seat in self._seats.values():
                seat.agent.close()


def _returns(returns: list[float]) -> Floats:
    if not returns:
        raise EnvironmentError.TrainingPerformanceReturnError("no episode has ended yet")
    return np.array(returns, np.float32)
