"""Messages from actors to the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arkml.base.short_reprs import short_repr


@dataclass(frozen=True, slots=True)
class PushedItemMessage:
    """
    Items that an actor sampled, in order.

    Args:
        id: Number of the actor.
        pushed_items: The items.
        incarnation: Number of the actor's incarnation; a replacement of a dead actor is the next
            one.
        sequence: Number of the message within its incarnation, from 0.

    """

    __repr__ = short_repr

    id: int
    pushed_items: Sequence[Any]
    incarnation: int = 0
    sequence: int = 0
