"""Random shifts of the images in rows, by which updates see more of them than there were."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from arkml.hive.protocol.parts import fields_of, images_of
from arkml.learning.encoders import Views


def shifted(views: Views, shifts: int, images: Any, key: Any) -> Any:
    """
    Return the images of rows, each moved by a number of its own: [n, B].

    What comes in at an edge is like that edge, as in DrQ (arXiv:2004.13649). Grids and other parts
    stay: the place of a cell means something.

    Args:
        views: The parts of a row.
        shifts: The most pixels, down or up, and right or left.
        images: Of any type, [n, B].
        key: The random key of the moves: uint32, [2].

    """
    moved = []
    for number, field in enumerate(fields_of(images_of(views.parts))):
        each = images[:, field.columns].reshape(-1, *field.shape)
        ways = jax.random.randint(
            jax.random.fold_in(key, number), (2, len(each), 1), -shifts, shifts + 1
        )
        down, across = (
            jnp.clip(jnp.arange(side) + way, 0, side - 1)
            for side, way in zip(field.shape[:2], ways, strict=True)
        )
        each = jnp.take_along_axis(each, down[:, :, None, None], 1)
        each = jnp.take_along_axis(each, across[:, None, :, None], 2)
        moved.append(each.reshape(len(each), -1))
    return jnp.concatenate(moved, -1)
