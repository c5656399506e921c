"""The calls of an environment, of which there is one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arkml.errors import GuestBusy


class OneCall:
    """Whether a call is in progress, from whichever thread."""

    __slots__ = ("_is_busy",)

    def __init__(self) -> None:
        self._is_busy = False

    @contextmanager
    def taken(self, name: str) -> Iterator[None]:
        """Keep other calls out. Raises GuestBusy, before anything is touched, if there is one."""
        if self._is_busy:
            raise GuestBusy(f"the environment of {name} is in a call: one call at a time")
        self._is_busy = True  # no thread and no SIGINT gets between: neither is looked for here
        try:
            yield
        finally:
            self._is_busy = False
