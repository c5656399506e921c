"""What guests have in common that one thread steps together."""

from __future__ import annotations

from typing import NamedTuple

from arkml.closing import Unclosed
from arkml.runtime.call_guard import CallGuard
from arkml.runtime.columns.slabs import Columns
from arkml.runtime.lockstep import Lockstep


class SharedResources(NamedTuple):
    """Their column memory, their guard, and the warning if they are dropped without `close`."""

    columns: Columns
    call_guard: CallGuard
    lockstep: Lockstep
    unclosed: Unclosed
