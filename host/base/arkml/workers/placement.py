"""Places where worker programs run: this machine, or the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

RunnerName = Literal["processes", "ray"]


class Worker(Protocol):
    """A program that was started, and its end."""

    name: str

    @property
    def is_alive(self) -> bool:
        """True until the program has ended."""

    @property
    def reason(self) -> str:
        """A sentence on an end that was not asked for, empty before and otherwise."""

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None before the end, or where it is not known."""

    def events(self) -> list[dict[str, Any]]:
        """Return the JSON objects that the program has printed since the last call. Never waits."""

    def stop(self, seconds: float) -> None:
        """Ask the program to end, and end it by force after `seconds`. Does not wait."""

    def kill(self) -> None:
        """End the program by force. Does not wait."""


class Placement(Protocol):
    """A place where worker programs run. Any thread may call it."""

    def start(self, module: str, job: Mapping[str, Any], name: str) -> Worker:
        """
        Start `python -m MODULE`, which reads `job` as a line of JSON from its standard input.

        The program prints events as JSON, one a line, and ends when its standard input is closed.
        Raises Unavailable with a sentence if it cannot be started.
        """

    def close(self, seconds: float = 5.0) -> None:
        """End all programs, by force after `seconds`, and free everything. Safe to call again."""
