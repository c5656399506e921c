"""What guests have in common that one thread steps together."""

from __future__ import annotations

from typing import NamedTuple

from arkml.runtime.columns.slabs import Columns
from arkml.runtime.flight import Flight


class Berth(NamedTuple):
    """Their column memory and their flight."""

    columns: Columns
    flight: Flight
