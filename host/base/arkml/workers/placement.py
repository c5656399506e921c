"""Interfaces of worker programs and of the machines or clusters where they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

RunnerName = Literal["processes", "ray"]


class Worker(Protocol):
    """A worker program that was started."""

    name: str

    @property
    def is_alive(self) -> bool:
        """True until the program has ended."""

    @property
    def reason(self) -> str:
        """A sentence about an unexpected end, otherwise empty."""

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs, or if it is unknown."""

    def events(self) -> list[dict[str, Any]]:
        """Return the JSON objects printed since the last call. Never waits."""

    def send(self, message: Mapping[str, Any]) -> None:
        """
        Queue a message, a JSON object, which the program reads after its job. Never waits.

        A program that has ended, or is being ended, does not get it.
        """

    def stop(self, seconds: float) -> None:
        """Ask the program to end, and kill it after `seconds`. Does not wait."""

    def kill(self) -> None:
        """Kill the program. Does not wait."""


class Placement(Protocol):
    """A place where worker programs run, such as this machine. Any thread may call it."""

    def start(self, module: str, job: Mapping[str, Any], name: str) -> Worker:
        """
        Start `python -m MODULE`, which reads `job` as a line of JSON from its standard input.

        A line for each message follows. The program prints events as lines of JSON, and ends when
        its standard input is closed.

        Args:
            module: Name of the module.
            job: JSON object.
            name: Name of the worker.

        Raises:
            Unavailable: The program cannot be started.

        """

    def close(self, seconds: float = 5.0) -> None:
        """End all programs, by force after `seconds`, and release resources. Idempotent."""
