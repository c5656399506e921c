"""
The contract of RelayRL environments, as checks of any implementation.

    from arkml.testing.relayrl import check_scalar

    def test_mine():
        check_scalar(lambda: MyEnvironment(), action=np.zeros(2, np.float32))

Raises AssertionError with a sentence on the first broken clause. Needs no pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import numpy as np

from arkml.envs import relayrl

Closing = Callable[[Any], Any]
"""Registers an environment to be closed at the end of a check, and returns it."""

_LONGEST = 10_000  # steps in which an episode ends


def check_scalar(
    make: Callable[[], Any], *, action: Any, d_in: int = 1, longest: int = _LONGEST
) -> None:
    """
    Check that an implementation of ScalarEnvironment keeps the contract.

    Args:
        make: Returns a new environment.
        action: A valid action of the environment, such as `np.zeros(2, np.float32)`.
        d_in: Number of axes of its observations, such as 1 for vectors.
        longest: Most steps of an episode.

    Raises:
        AssertionError: A clause of the contract is broken; the message names it.

    """
    with _closing() as closing:
        _check_scalar(closing(make()), closing, action, d_in, longest)


def _check_scalar(environment: Any, closing: Closing, action: Any, d_in: int, longest: int) -> None:
    _check_common(environment, relayrl.ScalarEnvironment, relayrl.EnvironmentKind.Scalar)
    _fails(lambda: environment.step(action), "a step before the first reset")
    begun = environment.reset()
    _observation(begun.observation, d_in, "reset")
    before = np.array(environment.build_observation())
    _same(
        before,
        begun.observation,
        "build_observation after reset differs from the observation of reset",
    )
    for wrong in _wrong_actions(action):
        _fails(partial(environment.step, wrong), f"an action of shape {wrong.shape}")
        _same(
            environment.build_observation(), before, "an action that was refused changed the state"
        )
    _play_scalar(environment, action, d_in, longest)
    _fails(lambda: environment.step(action), "a step after the end of an episode")
    environment.reset()
    environment.step(action)
    if isinstance(environment, relayrl.DynScalarEnvironment):
        clone = closing(environment.clone_box())
        _fails(lambda: clone.step(action), "a step of a clone, which has not been reset,")
        clone.reset()
    handle = environment.into_handle()
    closing(handle.environment)
    assert handle.kind == relayrl.EnvironmentKind.Scalar, (
        "into_handle is not EnvironmentHandle.Scalar"
    )
    _fails(environment.reset, "a reset of an environment that was turned into a handle")
    handle.environment.reset()


def check_vector(
    make: Callable[[], Any], *, action: Any, d_in: int = 1, longest: int = _LONGEST
) -> None:
    """Check that an implementation of VectorEnvironment keeps the contract; see `check_scalar`."""
    with _closing() as closing:
        _check_vector(closing(make()), closing, action, d_in, longest)


def _check_vector(environment: Any, closing: Closing, action: Any, d_in: int, longest: int) -> None:
    _check_common(environment, relayrl.VectorEnvironment, relayrl.EnvironmentKind.Vector)
    _fails(lambda: environment.step([(uuid4(), action)]), "a step before init_num_envs")
    _fails(lambda: environment.init_num_envs(0), "init_num_envs(0)")
    ids = environment.init_num_envs(3)
    assert len(set(ids)) == 3, f"init_num_envs(3) gave {len(set(ids))} ids"
    assert all(isinstance(env_id, UUID) for env_id in ids), "an id is not a UUID"
    _fails(lambda: environment.step([(ids[0], action)]), "a step before the first reset")
    _check_ids(environment, ids, action)
    begun = environment.reset(ids)
    assert {found.env_id for found in begun} == set(ids), "reset does not answer for each id"
    for found in begun:
        _observation(found.observation, d_in, "reset")
    before = np.array(environment.build_observation())
    for wrong in _wrong_actions(action):
        pairs = [(ids[0], action), (ids[1], wrong)]
        _fails(partial(environment.step, pairs), f"an action of shape {wrong.shape}")
        _same(
            environment.build_observation(), before, "an action that was refused changed the state"
        )
    _check_ids(environment, ids, action)
    _same(environment.build_observation(), before, "a wrong id changed the state")
    stepped = environment.step([(ids[1], action)])
    assert [found.env_id for found in stepped] == [ids[1]], "a subset is stepped alone"
    _play_vector(environment, ids[0], action, d_in, longest)
    _fails(
        lambda: environment.step([(ids[1], action), (ids[0], action)]),
        "a step after the end of an episode",
    )
    _check_resizing(environment, closing, ids, action)


@contextmanager
def _closing() -> Iterator[Closing]:
    """Yield a function that registers environments, to be closed at the end."""
    with ExitStack() as stack:

        def closing(environment: Any) -> Any:
            if hasattr(environment, "close"):
                stack.callback(environment.close)
            return environment

        yield closing


def _check_common(environment: Any, trait: Any, kind: relayrl.EnvironmentKind) -> None:
    has_trait = isinstance(environment, trait)
    assert has_trait, f"it is not a {trait.__name__}: a method is missing"
    assert environment.kind() == kind, f"kind() is {environment.kind()}, not {kind}"
    for name in ("observation_dtype", "action_dtype"):
        found = getattr(environment, name)()
        assert isinstance(found, relayrl.EnvDType), f"{name}() is {found!r}, not an EnvDType"
    raised = _error_of(environment.build_observation)
    assert isinstance(raised, relayrl.EnvironmentError.ObservationBuildingError), (
        f"build_observation before the first reset raises {raised!r}, not ObservationBuildingError"
    )


def _check_ids(environment: Any, ids: Sequence[UUID], action: Any) -> None:
    unknown, twice = uuid4(), [(ids[0], action), (ids[0], action)]
    _fails(lambda: environment.step([(ids[0], action), (unknown, action)]), "an unknown id in step")
    _fails(lambda: environment.step(twice), "an id twice in step")
    _fails(lambda: environment.reset([ids[0], unknown]), "an unknown id in reset")
    _fails(lambda: environment.reset([ids[0], ids[0]]), "an id twice in reset")


def _check_resizing(environment: Any, closing: Closing, ids: Sequence[UUID], action: Any) -> None:
    fewer = environment.init_num_envs(2)
    assert set(fewer) < set(ids), "with fewer environments those that stay keep their ids"
    more = environment.init_num_envs(4)
    assert set(fewer) < set(more), "with more environments those that were there keep their ids"
    gone = next(env_id for env_id in ids if env_id not in fewer)
    _fails(lambda: environment.step([(gone, action)]), "an id of an environment that is gone")
    handle = environment.into_handle()
    closing(handle.environment)
    assert handle.kind == relayrl.EnvironmentKind.Vector, (
        "into_handle is not EnvironmentHandle.Vector"
    )
    _fails(lambda: environment.reset(more), "a reset of an environment turned into a handle")
    handle.environment.reset(more)


def _play_scalar(environment: Any, action: Any, d_in: int, longest: int) -> None:
    for _ in range(longest):
        found = environment.step(action)
        _check_step(found, d_in)
        _same(environment.build_observation(), found.observation, "build_observation is not new")
        if found.terminated or found.truncated:
            return
    raise AssertionError(f"an episode did not end in {longest} steps")


def _play_vector(environment: Any, env_id: UUID, action: Any, d_in: int, longest: int) -> None:
    for _ in range(longest):
        (found,) = environment.step([(env_id, action)])
        _check_step(found, d_in)
        if found.terminated or found.truncated:
            return
    raise AssertionError(f"an episode did not end in {longest} steps")


def _check_step(found: Any, d_in: int) -> None:
    _observation(found.observation, d_in, "step")
    assert np.isfinite(found.reward), f"a reward is {found.reward}"
    assert found.info is None or all(
        isinstance(part, str) for pair in found.info for part in pair
    ), f"info is {found.info!r}, not pairs of text"


def _wrong_actions(action: Any) -> list[Any]:
    right = np.asarray(action)
    return [np.zeros((*right.shape, 1), right.dtype), np.zeros(right.size + 1, right.dtype)]


def _observation(found: Any, d_in: int, where: str) -> None:
    rank = np.asarray(found).ndim
    assert rank == d_in, f"{where} gives observations of rank {rank}, not {d_in}"


def _same(found: Any, expected: Any, text: str) -> None:
    assert np.array_equal(np.asarray(found), np.asarray(expected)), text


def _fails(call: Callable[[], Any], what: str) -> None:
    raised = _error_of(call)
    assert raised is not None, f"{what} raises no EnvironmentError"


def _error_of(call: Callable[[], Any]) -> relayrl.EnvironmentError | None:
    try:
        call()
    except relayrl.EnvironmentError as error:
        return error
    return None
