"""The handler of module `env`, which AssemblyScript guests import."""

from __future__ import annotations

from collections.abc import Callable

from arkml.runtime.memory import GuestMemory


class EnvironmentCalls:
    """Failed assertions, reported as panics by `report(message, file, line, column)`."""

    def __init__(self, memory: GuestMemory, report: Callable[[str, str, int, int], None]) -> None:
        self._text = memory.assembly_script_text
        self._report = report

    def abort(self, message_ptr: int, file_ptr: int, line: int, column: int) -> None:
        """Report a failed assertion; the shim traps when this returns."""
        self._report(self._text(message_ptr), self._text(file_ptr), line, column)
