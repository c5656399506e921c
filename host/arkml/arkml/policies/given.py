"""Policies that the embedder passes to a host, objects and functions, checked at each call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EPISODE_ENDS
from arkml.arrays import has_mask
from arkml.base.handler_errors import is_of_handler
from arkml.base.loggers import SafeLogger
from arkml.base.short_reprs import cut_repr
from arkml.batches import Batch, Floats
from arkml.errors import AbiError, InvalidArguments, PolicyFailed, UsageError
from arkml.limits import whole_number
from arkml.policies.policy import Policy

log = SafeLogger(__name__)

T = TypeVar("T")

PolicyFunction: TypeAlias = Callable[[Floats], npt.ArrayLike]
"""A function from observations, float32, [n, F], to actions, float32, [n, A]."""

_MEMBERS = ("num_features", "num_actions", "act", "forget")
_SHOWN = 200  # characters of an exception's text in a message


class ObjectPolicy:
    """
    A wrapper of an embedder's policy object that turns its faults into `PolicyFailed`.

    Raises UsageError if `num_features` or `num_actions` of the object are not counts.
    """

    def __init__(self, policy: Policy) -> None:
        self.name: str = _name(type(policy))
        self.num_features: int = _count(policy, "num_features")
        self.num_actions: int = _count(policy, "num_actions")
        self._policy = policy

    def require(self, num_features: int | None, num_actions: int | None) -> None:
        """Raise InvalidArguments unless the policy fits a session with these numbers."""
        features = self.num_features if num_features is None else num_features
        actions = self.num_actions if num_actions is None else num_actions
        if (features, actions) != (self.num_features, self.num_actions):
            raise InvalidArguments(
                f"policy {self.name} of the host takes {self.num_features} features and gives"
                f" {self.num_actions} actions; the session has {features} and {actions}"
            )

    def is_made_of(self, other: Policy) -> bool:
        """Return whether `other` wraps the same object of the embedder."""
        return isinstance(other, ObjectPolicy) and other._policy is self._policy  # noqa: SLF001

    def act(self, batch: Batch) -> None:
        if not len(batch):
            return
        actions, values = batch.actions, batch.values
        call_embedder(self.name, self._policy.act, batch)
        if batch.actions is not actions or batch.values is not values:
            batch.actions, batch.values = actions, values
            raise PolicyFailed(
                f"policy {self.name} replaced an array of the batch: write into it instead, as"
                " batch.actions[:] = ..."
            )

    def forget(self, key: int) -> None:
        try:
            call_embedder(self.name, self._policy.forget, key)
        except (AbiError, PolicyFailed):  # the session is closed all the same
            log.exception("policy %s failed to forget session %d", self.name, key)


class FunctionPolicy:
    """A policy for sessions of one shape that calls a function of the embedder."""

    def __init__(self, function: PolicyFunction, num_features: int, num_actions: int) -> None:
        self.name: str = _name(function)
        self.num_features = num_features
        self.num_actions = num_actions
        self._function = function

    def act(self, batch: Batch) -> None:
        if not len(batch):
            return
        actions = call_embedder(self.name, self._function, batch.features.copy())
        batch.actions[:] = self._checked(actions, batch)

    def forget(self, key: int) -> None:
        """Do nothing, since a function keeps no state for sessions."""
        del key

    def _checked(self, given: Any, batch: Batch) -> Floats:
        """Return the actions as float32, [n, num_actions]. Raises PolicyFailed."""
        wanted = (len(batch), self.num_actions)
        if type(given) is not np.ndarray or given.dtype != np.float32:
            given = self._converted(given)
        if given.shape != wanted:
            raise PolicyFailed(
                f"policy {self.name} returned actions of shape {given.shape} for observations of"
                f" shape {batch.features.shape}: return float32 of shape {wanted}"
            )
        finite = np.isfinite(given)
        if not finite.all():
            rows = ~finite.all(axis=1) & ~np.isin(batch.rows["state"], EPISODE_ENDS)
            if rows.any():
                row = int(rows.argmax())
                raise PolicyFailed(
                    f"policy {self.name} returned actions that are not finite for agent"
                    f" {batch.rows['id'][row]} (row {row} of {wanted[0]}): {given[row].tolist()}"
                )
        actions: Floats = given
        return actions

    def _converted(self, given: Any) -> Floats:
        wanted = f"return a numpy array of float32, [n, {self.num_actions}]"
        try:
            array = np.asarray(given)
        except Exception as error:
            if is_of_handler(error):
                raise
            raise PolicyFailed(
                f"policy {self.name} returned a {type(given).__name__} that is not an array"
                f" ({_text(error)}): {wanted}"
            ) from error
        if has_mask(given, array.ndim):
            raise PolicyFailed(f"policy {self.name} returned an array with a mask: {wanted}")
        if array.dtype.kind not in "fiu":
            raise PolicyFailed(
                f"policy {self.name} returned a {type(given).__name__} of dtype {array.dtype}:"
                f" {wanted}"
            )
        with np.errstate(over="ignore"):
            return array.astype(np.float32)


def call_embedder(name: str, function: Callable[[Any], T], argument: Any) -> T:
    """
    Call the embedder's code, in which Ctrl-C is an exception: see `InterruptGuard.interrupt`.

    Raises PolicyFailed if the code raises an Exception. An AbiError is passed on, since the guest
    gets its code, and so is an exception of a signal handler, because the policy has not failed.
    """
    try:
        return function(argument)
    except AbiError:
        raise
    except Exception as error:
        if is_of_handler(error):
            raise
        raise PolicyFailed(f"policy {name} raised {_text(error)}") from error


def checked_policy(policy: object) -> ObjectPolicy | PolicyFunction:
    """
    Return a policy object of the embedder wrapped, and a function as it is.

    Raises UsageError for everything else.
    """
    if isinstance(policy, type):
        raise UsageError(f"policy is the class {_name(policy)}: give an object of it")
    missing = [name for name in _MEMBERS if not hasattr(policy, name)]
    if not missing:
        return ObjectPolicy(policy)  # type: ignore[arg-type]
    if not callable(policy):
        raise UsageError(
            f"policy is of type {_name(type(policy))}: it takes a path, bytes, a function of"
            f" observations, or an arkml.Policy, of which this lacks {', '.join(missing)}"
        )
    if inspect.iscoroutinefunction(policy):
        raise UsageError(f"policy {_name(policy)} is a coroutine function: a submit waits for none")
    try:
        inspect.signature(policy).bind(None)
    except TypeError as error:
        raise UsageError(
            f"policy {_name(policy)} cannot be called with one argument, the observations: {error}"
        ) from error
    except ValueError:
        pass  # a function of C that does not say what it takes
    return policy


def _count(policy: Policy, member: str) -> int:
    value = getattr(policy, member)
    count = whole_number(value)
    if count is None or count < 0:
        raise UsageError(
            f"{member} of policy {_name(type(policy))} is {cut_repr(value)}: it takes a whole"
            " number from 0"
        )
    return count


def _name(function: object) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}.{name}"


def _text(error: BaseException) -> str:
    text = str(error)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__
