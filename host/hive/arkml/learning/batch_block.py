"""The batches of a call of updates, side by side in arrays that their owner keeps."""

from __future__ import annotations

from typing import Any, NamedTuple

from arkml.learning.row_memory import lazy_zeros
from arkml.limits import MIB

BLOCK_BYTES = 16 * MIB
"""Bytes that the batches of one block take at most, unless one batch alone takes more."""


class BatchBlock(NamedTuple):
    """
    Transitions of K batches of B, raw, as the replay buffer gathers them; float32.

    Attributes:
        features: Features before the first step: [K, B, F].
        actions: Actions of the first step, within [-1, 1]: [K, B, A].
        following: Features after the last step: [K, B, F].
        rewards: Discounted sums over the steps: [K, B].
        discounts: Discounts of the return that follows, 0 where the episode terminated: [K, B].

    """

    features: Any
    actions: Any
    following: Any
    rewards: Any
    discounts: Any


def empty_block(batches: int, size: int, features: int, actions: int) -> BatchBlock:
    """
    Return zeros for `batches` batches of `size` transitions.

    Each array begins at a page, so JAX may read it without a copy, also after a call has returned:
    fill it again only when the updates made from it are done.

    Args:
        batches: The number of batches.
        size: The number of transitions of a batch.
        features: The number of features of a row.
        actions: The number of actions of a row.

    """
    widths = ((features,), (actions,), (features,), (), ())
    return BatchBlock(*(lazy_zeros((batches, size, *width), "<f4") for width in widths))


def most_batches(size: int, features: int, actions: int, limit: int = BLOCK_BYTES) -> int:
    """Return the number of batches of `size` transitions that fit `limit` bytes, at least 1."""
    return max(1, limit // (4 * size * (2 * features + actions + 2)))
