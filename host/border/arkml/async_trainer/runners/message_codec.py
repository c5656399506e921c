"""Encoding of messages and models that pass between processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.async_trainer.core.transition_batches import ArrayBatch, GenericTransitionBatch
from arkml.async_trainer.messages import PushedItemMessage
from arkml.async_trainer.runners.runner import ActorEnded, ActorJob
from arkml.async_trainer.trainer_errors import BorderAsyncTrainerError
from arkml.base.handler_errors import is_of_handler
from arkml.errors import UsageError

_PROTOCOL = 5

Columns = tuple[list[int], list[npt.NDArray[Any]]]
"""For each transition, the indices of obs and next_obs among the observations; then the columns."""


def encode_message(message: PushedItemMessage) -> bytes:
    """
    Encode a message.

    Transitions of arrays are stacked, because pickle takes microseconds for each array, and an
    observation in two transitions is sent once. Other items are pickled one by one. Raises pickle's
    errors.
    """
    items = message.pushed_items
    columns = _columns_of(items)
    content = (message.id, message.incarnation, message.sequence, columns or items)
    return pickle.dumps((columns is not None, *content), _PROTOCOL)


def decode_message(data: bytes | bytearray | memoryview) -> PushedItemMessage:
    """Decode a message of `encode_message`. Raises pickle's errors."""
    is_stacked, actor, incarnation, sequence, content = pickle.loads(data)
    items = _items_of(content) if is_stacked else content
    return PushedItemMessage(actor, items, incarnation, sequence)


def decode_arrived(arrived: tuple[ActorJob, bytes] | ActorEnded) -> PushedItemMessage | ActorEnded:
    """
    Decode a message; return an `ActorEnded` unchanged.

    Raises BorderAsyncTrainerError if pickle cannot read the message.
    """
    if isinstance(arrived, ActorEnded):
        return arrived
    job, data = arrived
    try:
        return decode_message(data)
    except Exception as error:
        if is_of_handler(error):
            raise
        raise BorderAsyncTrainerError(
            f"a message of actor {job.actor} cannot be unpickled: {error}"
        ) from error


def encode_job(job: ActorJob, dumps: Callable[[Any], bytes] | None = None) -> bytes:
    """
    Encode a job with `dumps`, by default with pickle.

    Raises UsageError, naming the part that cannot be pickled.
    """
    dumps = dumps or encode
    try:
        return dumps(job)
    except Exception as error:
        if is_of_handler(error):
            raise
        for field in fields(job):
            try:
                dumps(getattr(job, field.name))
            except Exception:  # noqa: BLE001  pickle calls methods of any class
                raise UsageError(
                    f"{field.name} cannot be pickled, which actors outside of this process need:"
                    f" {error}"
                ) from error
        raise


def encode_model(model_info: Any) -> bytes:
    """Encode a model. Raises UsageError if pickle cannot."""
    try:
        return encode(model_info)
    except Exception as error:
        if is_of_handler(error):
            raise
        raise UsageError(f"the model info cannot be pickled: {error}") from error


def encode(value: Any) -> bytes:
    """Encode any other value. Raises pickle's errors."""
    return pickle.dumps(value, _PROTOCOL)


def _columns_of(items: Sequence[Any]) -> Columns | None:
    """Return transitions as columns, None unless all are arrays of one shape and dtype."""
    places: dict[int, int] = {}
    observations: list[npt.NDArray[Any]] = []
    order: list[int] = []
    rest: tuple[list[npt.NDArray[Any]], ...] = ([], [], [], [])
    acts, rewards, terminated, truncated = rest
    for item in items:
        if type(item) is not GenericTransitionBatch or type(item.act) is not ArrayBatch:
            return None
        for obs in (item.obs, item.next_obs):
            place = places.get(id(obs))
            if place is None:
                if type(obs) is not ArrayBatch:
                    return None
                place = places[id(obs)] = len(observations)
                observations.append(obs.array)
            order.append(place)
        acts.append(item.act.array)
        rewards.append(item.reward)
        terminated.append(item.is_terminated)
        truncated.append(item.is_truncated)
        if item.ix_sample is not None or item.weight is not None:
            return None
    columns = (observations, *rest)
    if not all(map(_are_alike, columns)):
        return None
    return order, [np.array(column) for column in columns]


def _are_alike(arrays: Sequence[npt.NDArray[Any]]) -> bool:
    kinds = {(array.dtype, array.shape) for array in arrays}
    return len(kinds) == 1 and not arrays[0].dtype.hasobject


def _items_of(columns: Columns) -> list[Any]:
    order, (rows, acts, *rest) = columns
    observations = [ArrayBatch(row) for row in rows]
    places = iter(order)
    return [
        GenericTransitionBatch(
            observations[here], ArrayBatch(act), observations[there], reward, terminated, truncated
        )
        for here, there, act, reward, terminated, truncated in zip(
            places, places, acts, *rest, strict=True
        )
    ]
