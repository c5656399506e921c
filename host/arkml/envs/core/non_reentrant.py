"""The calls of an environment, of which there is one at a time."""

from __future__ import annotations

from arkml.errors import GuestBusy


class NonReentrant:
    """Entered with `with`, it keeps other calls out, from whichever thread."""

    __slots__ = ("_is_busy", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_busy = False

    def __enter__(self) -> None:
        """Raise GuestBusy, before anything is touched, if a call is in progress."""
        if self._is_busy:
            raise GuestBusy(f"the environment of {self._name} is in a call: one call at a time")
        self._is_busy = True  # no thread and no SIGINT gets between: nothing is called here

    def __exit__(self, *error: object) -> None:
        self._is_busy = False
