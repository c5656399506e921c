"""What guests have in common that one thread steps together."""

from __future__ import annotations

from typing import NamedTuple

from arkml.closing import Unclosed
from arkml.runtime.call_guard import Flight
from arkml.runtime.columns.slabs import Columns


class Berth(NamedTuple):
    """Their column memory, their flight, and the warning if they are dropped without `close`."""

    columns: Columns
    flight: Flight
    unclosed: Unclosed
