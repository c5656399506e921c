"""Messages of actors to the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arkml.base.short_reprs import short_repr


@dataclass(frozen=True, slots=True)
class PushedItemMessage:
    """
    Items that an actor sampled, in their order.

    `id` is the number of the actor. An actor that replaces a dead one is its next `incarnation`;
    `sequence` counts the messages of an incarnation from 0.
    """

    __repr__ = short_repr

    id: int
    pushed_items: Sequence[Any]
    incarnation: int = 0
    sequence: int = 0
