"""Many guests of one module, stepped together, their submits answered by one policy run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arkml.runtime.engine import Engine


class Fleet:
    def __init__(self, guests: Sequence[Any], engine: Engine) -> None:
        self.guests = list(guests)
