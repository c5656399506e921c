"""A comparison of a module with the imports that this host provides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from arkml.abi.catalog import find
from arkml.abi.layout import results, slots
from arkml.abi.schema import Function
from arkml.base.files import named
from arkml.base.terminal import harmless
from arkml.cli.units import size
from arkml.cli.user_files import read_module
from arkml.errors import GuestError, ModuleError
from arkml.limits import Limits
from arkml.runtime.compiled_module import to_binary
from arkml.runtime.engine import Engine
from arkml.runtime.module.description import ImportInfo, ModuleInfo, describe
from arkml.runtime.module.imports import WASI_MODULE, may_be_of_a_game, unmet
from arkml.runtime.module.normalize import normalize
from arkml.runtime.module.parsing import parse
from arkml.runtime.module.wasm_types import PAGE, MemoryType
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.declarations import parts_of
from arkml.training.tasks import copies_fault

OF_GAME = "from the game"
"""What the host has for a function that the embedder's game gives."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """An import: its type in the guest and its type in the host, as text."""

    module: str
    name: str
    wants: str
    has: str
    is_met: bool


@dataclass(frozen=True, slots=True)
class DeclaredReport:
    """A behavior that is declared in a module's section `arkml.spec`."""

    name: str
    observations: tuple[str, ...]
    """The parts of an observation, in the order of the row, with their kinds and shapes."""
    continuous: int | None
    branches: tuple[int, ...]
    names: tuple[str, ...]
    """What people call each action, continuous ones first, or none."""
    choices: tuple[tuple[str, ...], ...]
    """What people call the choices of each branch; empty for one without names."""
    is_partial: bool
    copies: int | None
    """The copies of its game that it plays unless told their number, None if not declared."""
    game: str
    """What is declared of the game that people play, in a few words, or empty."""

    def __str__(self) -> str:
        parts = ", ".join(self.observations) or "features without names"
        choices = ", ".join(map(str, self.branches))
        kinds = [
            "" if self.continuous is None else f"{self.continuous} continuous actions",
            f"branches of {choices} choices" if choices else "",
        ]
        actions = " and ".join(kind for kind in kinds if kind) or "continuous actions"
        called = f", called {', '.join(self.names)}" if self.names else ""
        lists = ", ".join(f"({', '.join(names)})" for names in self.choices if names)
        called += f"; choices {lists}" if lists else ""
        partial = "; partial" if self.is_partial else ""
        partial += "" if self.copies is None else f"; copies {self.copies:,}"
        game = f"; {self.game}" if self.game else ""
        return f"{self.name}: {parts}; {actions}{called}{partial}{game}"


@dataclass(frozen=True, slots=True)
class Inspection:
    """The findings about a module: its imports, and why this host refuses it, or None."""

    name: str
    info: ModuleInfo
    imports: tuple[ImportReport, ...]
    refused: str | None
    declared: tuple[DeclaredReport, ...]
    undeclared: str | None
    """The sentence with which the section arkml.spec is refused, or None."""

    @property
    def of_game(self) -> list[ImportReport]:
        """The imports that the embedder's game provides."""
        return [each for each in self.imports if each.has == OF_GAME]

    @property
    def missing(self) -> list[ImportReport]:
        """The imports that this host does not provide even if WASI is granted."""
        return [each for each in self.imports if not each.is_met]


def inspect_file(path: Path, limits: Limits) -> Inspection:
    """Inspect the module in a file. Raises ModuleError if it cannot be parsed."""
    data = to_binary(read_module(path), path.name)
    try:
        binary = parse(data)
        info = describe(binary)
    except ModuleError as error:
        raise ModuleError(named(path, str(error))) from error
    engine = Engine(limits)
    try:
        wasi_type = engine.wasi.type_of
        missing = {(each.module, each.name): each for each in unmet(info.imports, wasi_type)}
        imports = []
        for entry in info.imports:
            lacks = missing.get((entry.module, entry.name))
            of_game = lacks is not None and may_be_of_a_game(entry)
            has = OF_GAME if of_game else lacks.provided if lacks else _has(entry)
            is_met = of_game or lacks is None
            imports.append(ImportReport(entry.module, entry.name, str(entry.type), has, is_met))
    finally:
        engine.close()
    return Inspection(path.name, info, tuple(imports), _refusal(data, limits), *_declared(info))


def _declared(info: ModuleInfo) -> tuple[tuple[DeclaredReport, ...], str | None]:
    """Return the behaviors in a section arkml.spec, and the sentence with which it is refused."""
    declared = DeclaredBranches(info.spec)
    reports = (
        DeclaredReport(
            name,
            tuple(map(str, parts_of(one.observations))),
            one.actions.continuous,
            tuple(one.actions.discrete),
            one.actions.action_names,
            tuple(tuple(map(harmless, names)) for names in one.actions.choices),
            one.partial,
            one.copies,
            one.game_text,
        )
        for name, one in declared.behaviors.items()
    )
    refused = copies_fault(info) if declared.fault is None else str(declared.fault)
    return tuple(reports), refused or None


def signature(function: Function) -> str:
    """Return the wasm type of an ABI function as text, with the names of its arguments."""
    named = ", ".join(f"{slot.name} {slot.wasm}" for slot in slots(function))
    return f"({named}) -> ({' '.join(results(function))})"


def _has(entry: ImportInfo) -> str:
    """Return the host's type that meets an import."""
    row = None if entry.module == WASI_MODULE else find(entry.module, entry.name)
    if row is not None:
        return signature(row[1])
    return "a memory" if isinstance(entry.type, MemoryType) else f"{entry.type}, with --wasi"


def _refusal(data: bytes, limits: Limits) -> str | None:
    try:
        normalize(data, limits)
    except (ModuleError, GuestError) as error:
        return str(error)
    return None


def memory_text(memory: MemoryType | None) -> str:
    """Return the size of a memory as text."""
    if memory is None:
        return "none"
    most = "" if memory.maximum is None else f", at most {size(memory.maximum * PAGE)}"
    return f"{size(memory.minimum * PAGE)} at start{most}"
