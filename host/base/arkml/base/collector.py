"""The garbage collector of Python, kept from looking at what stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """
    Pause the garbage collector: a thousand guests, for example, are 90,000 objects that all stay.

    They are moved to the oldest generation, as all that is alive, so that they are not looked at
    twice on their way there; unless the embedder has frozen objects, which cannot be told apart.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
