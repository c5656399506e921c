"""Pausing of Python's garbage collector while many lasting objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_IMMORTAL = 2_000
"""
More than the objects that Python moves to the frozen ones by itself.

CPython 3.12 does so with immortal objects that a collection meets, some 400. An embedder freezes
all that is alive, which with this package imported are tens of thousands.
"""

_has_frozen = False
"""True once the embedder was seen to have frozen objects: to count them is to walk them all."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """
    Pause the garbage collector in a `with` block that makes many lasting objects.

    A thousand guests, for example, are 90,000 objects. After the block all live objects are moved
    to the oldest generation, so that new ones are not examined twice on their way there; unless the
    embedder has frozen objects, which cannot be told apart, or had some when a process first made
    guests.
    """
    global _has_frozen
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            _has_frozen = _has_frozen or gc.get_freeze_count() > _IMMORTAL
            if not _has_frozen:
                gc.freeze()
                gc.unfreeze()
            gc.enable()
