"""Settings of Python in a process that hosts trials of people, who wait for every tick."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH = 0.001  # seconds
_YOUNG = 20_000  # new objects that are not freed yet, before the collector looks at them


@contextmanager
def prompt_ticks() -> Iterator[None]:
    """
    Shorten delays of Python that people would notice, in a `with` block.

    Threads switch after a millisecond, not five. The cycle collector runs less often: a pass over
    the objects of 1,000 trials takes 0.2 s.
    """
    collected, switched = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(_YOUNG, *collected[1:])
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        gc.set_threshold(*collected)
        sys.setswitchinterval(switched)
