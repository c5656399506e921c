"""Random shifts of the images in rows, a data augmentation for updates."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from arkml.hive.protocol.parts import fields_of, images_of
from arkml.learning.encoders import Views


def shifted(views: Views, shifts: int, images: Any, key: Any) -> Any:
    """
    Return the images of rows, each row's shifted by a random distance of its own: [n, frames * B].

    Edges are replicated into the gaps, as in DrQ (arXiv:2004.13649). Grids and other parts are not
    shifted, because the position of a cell has a meaning.

    Args:
        views: The parts of a row.
        shifts: The most pixels, down or up, and right or left.
        images: Images of any dtype, [n, frames * B].
        key: The random key of the shifts: uint32, [2].

    """
    moved = []
    images = images.reshape(len(images), views.frames, -1)
    for number, field in enumerate(fields_of(images_of(views.parts))):
        each = images[:, :, field.columns].reshape(*images.shape[:2], *field.shape)
        ways = jax.random.randint(
            jax.random.fold_in(key, number), (2, len(each), 1), -shifts, shifts + 1
        )
        down, across = (
            jnp.clip(jnp.arange(side) + way, 0, side - 1)
            for side, way in zip(field.shape[:2], ways, strict=True)
        )
        each = jnp.take_along_axis(each, down[:, None, :, None, None], 2)
        each = jnp.take_along_axis(each, across[:, None, None, :, None], 3)
        moved.append(each.reshape(*images.shape[:2], -1))
    return jnp.concatenate(moved, -1).reshape(len(images), -1)
