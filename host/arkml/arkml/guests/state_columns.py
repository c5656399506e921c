"""Saved states of many guests, with each part of the state kept for all guests together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from arkml.guests.instance import (
    NO_COMPILER,
    RANDOM_BYTES,
    STATE_BYTES,
    CompilerState,
    InstanceState,
    StartupProgress,
    bytes_of_rows,
)
from arkml.runtime.columns.region import SavedRows
from arkml.runtime.sandbox import WasmState
from arkml.runtime.saved_memory import SavedMemories
from arkml.runtime.tables import SavedTables
from arkml.sessions.saved_sessions import SavedServices


@dataclass(frozen=True, slots=True)
class StateColumns:
    """
    Copies of the states of instances of one module; `columns[3]` is the state of the fourth.

    Attributes:
        memories: The memories of the instances.
        globals: The globals, instance by instance.
        tables: The tables that can change, empty if there are none.
        services: Handles and sessions.
        rows: Rows that wait for a submit, of instances that have any.
        compilers: Random numbers and timers, of instances that have any.
        startups: How far the startup of each instance has come.

    """

    memories: SavedMemories
    globals: bytes
    tables: Sequence[SavedTables]
    services: Sequence[SavedServices]
    rows: Mapping[int, Mapping[int, SavedRows]]
    compilers: Mapping[int, CompilerState]
    startups: Sequence[StartupProgress]

    @classmethod
    def of(cls, states: Sequence[InstanceState]) -> Self:
        """Return columns made of states that were saved one by one."""
        return cls(
            SavedMemories.of([each.wasm.memory for each in states]),
            b"".join([each.wasm.globals for each in states]),
            tables if any(tables := [each.wasm.tables for each in states]) else [],
            [each.services for each in states],
            {index: each.rows for index, each in enumerate(states) if each.rows},
            {
                index: each.compiler
                for index, each in enumerate(states)
                if each.compiler is not NO_COMPILER
            },
            [each.startup for each in states],
        )

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.services)

    def __getitem__(self, index: int) -> InstanceState:
        """Return the state of one instance."""
        width = len(self.globals) // len(self)
        return InstanceState(
            WasmState(
                self.memories[index], self.globals[index * width :][:width], self.tables_of(index)
            ),
            self.services[index],
            self.rows.get(index, {}),
            self.compilers.get(index, NO_COMPILER),
            self.startups[index],
        )

    def tables_of(self, index: int) -> SavedTables:
        """Return the tables of one instance."""
        return self.tables[index] if self.tables else ()

    @property
    def nbytes(self) -> list[int]:
        """The bytes that each copy takes, without the models of sessions."""
        each = STATE_BYTES + len(self.globals) // max(1, len(self))
        sizes = [
            each + memory + services.nbytes
            for memory, services in zip(self.memories.nbytes, self.services, strict=True)
        ]
        for index, tables in enumerate(self.tables):
            sizes[index] += sum(map(len, tables))
        for index, rows in self.rows.items():
            sizes[index] += bytes_of_rows(rows)
        for index in self.compilers:
            sizes[index] += RANDOM_BYTES
        return sizes
