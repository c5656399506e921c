"""The memories, globals and tables of many instances of one module, read and written at once."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from itertools import chain

from arkml.runtime import bindings, native
from arkml.runtime.memory import PAGE
from arkml.runtime.sandbox import Sandbox
from arkml.runtime.tables import SavedTables

_READ = bindings.address_of(bindings.read_global)
_WRITE = bindings.address_of(bindings.set_global)
_PAGES = bindings.address_of(bindings.memory_size)


class Sandboxes:
    """
    Readers and writers of many live instances of one module, by the addresses of their contents.

    The addresses are valid while `Lockstep.stores` stays the same. No instance may run or be freed
    during a method.
    """

    def __init__(self, sandboxes: Sequence[Sandbox]) -> None:
        self._sandboxes = sandboxes
        self.bases: list[bindings.Address] = [each.base for each in sandboxes]
        """The addresses of the memories."""
        contexts = [each.context for each in sandboxes]
        self._contexts = array("Q", contexts)
        self._memories = array("Q", [each.raw_memory for each in sandboxes])
        self._pages = array("Q", bytes(8 * len(sandboxes)))
        found = [each.raw_globals for each in sandboxes]
        self._globals = array("Q", chain.from_iterable(found))
        of_globals = zip(contexts, found, strict=True)
        self._owners = array("Q", [context for context, of in of_globals for _ in of])
        self._width = bindings.VALUE_SIZE * (len(self._globals) // max(1, len(sandboxes)))

    def sizes(self) -> list[int]:
        """Return the present size in bytes of each memory."""
        if native.LIBRARY is None:
            return [each.pages * PAGE for each in self._sandboxes]
        native.LIBRARY.memory_pages(
            _PAGES, _start(self._contexts), _start(self._memories),
            len(self._pages), _start(self._pages),
        )  # fmt: skip
        return [pages * PAGE for pages in self._pages]

    def read_globals(self) -> bytes:
        """Return the values of the mutable globals, instance by instance."""
        if native.LIBRARY is None:
            return b"".join([each.read_globals() for each in self._sandboxes])
        values = ctypes.create_string_buffer(len(self._globals) * bindings.VALUE_SIZE)
        native.LIBRARY.read_globals(
            _READ, _start(self._owners), _start(self._globals),
            len(self._globals), bindings.VALUE_SIZE, values,
        )  # fmt: skip
        return values.raw

    def write_globals(self, values: bytes) -> None:
        """Set the mutable globals to a result of `read_globals`."""
        if native.LIBRARY is None:
            for index, each in enumerate(self._sandboxes):
                each.write_globals(values[index * self._width :][: self._width])
            return
        bindings.check(
            native.LIBRARY.write_globals(
                _WRITE, _start(self._owners), _start(self._globals),
                len(self._globals), bindings.VALUE_SIZE, values,
            )
        )  # fmt: skip

    def read_tables(self) -> list[SavedTables]:
        """Return the elements of the tables of each instance; empty if the tables cannot change."""
        if not any(each.program.state.tables for each in self._sandboxes[:1]):
            return []
        return [each.read_tables() for each in self._sandboxes]

    def write_tables(self, tables: Sequence[SavedTables]) -> None:
        """Set the elements of tables to a result of `read_tables`."""
        if tables:
            for each, saved in zip(self._sandboxes, tables, strict=True):
                each.write_tables(saved)


def _start(numbers: array[int]) -> int:
    return numbers.buffer_info()[0]
