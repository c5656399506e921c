"""`arkml inspect`: what a module is, what it asks for and what of that is missing here."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from arkml.cli import options
from arkml.cli.exits import GOOD, Job, print_json
from arkml.cli.logs import LogOptions

if TYPE_CHECKING:
    from arkml.cli.inspection import Inspection

_EXAMPLES = """
Examples:

    arkml inspect npc.wasm

    arkml inspect npc.wasm --json
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("inspect", epilog=_EXAMPLES)(command)


def command(
    guest: options.GuestFile,
    limit: options.LimitValues = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> Job:
    """Show kind, required APIs, imports and exports of a module, and what is missing here."""
    return partial(inspect, guest, tuple(limit or ()), LogOptions(debug=debug), as_json)


def inspect(path: Path, limits: tuple[str, ...], logs: LogOptions, as_json: bool) -> int:
    """Look at one module, without running or linking it."""
    from arkml.cli.inspection import look_at
    from arkml.cli.values import read_limits

    logs.start()
    found = look_at(path, read_limits(limits))
    if as_json:
        print_json(_document(found))
    else:
        _show(found)
    return GOOD


def _document(found: Inspection) -> dict[str, Any]:
    info = found.info
    return {
        "guest": found.name,
        "kind": info.kind.value,
        "bytes": info.size,
        "crate_version": info.crate_version,
        "memory": None if info.memory is None else str(info.memory),
        "takes_bytes": info.takes_bytes,
        "refused": found.refused,
        "required": [
            {"name": api.name, "id": api.id, "module": api.module} for api in info.required
        ],
        "entry_points": [
            {"name": entry.name, "kind": entry.kind.value, "type": str(entry.type)}
            for entry in info.entry_points
        ],
        "imports": [
            {
                "module": each.module,
                "name": each.name,
                "wants": each.wants,
                "has": each.has,
                "met": each.is_met,
            }
            for each in found.imports
        ],
        "missing": [f"{each.module}.{each.name}" for each in found.missing],
        "exports": [{"name": export.name, "type": str(export.type)} for export in info.exports],
    }


def _show(found: Inspection) -> None:
    from arkml.cli.inspection import memory_text
    from arkml.cli.tables import facts, grid, show
    from arkml.cli.units import size

    info = found.info
    entries = "\n".join(f"{e.name} {e.type}, {e.kind.value}" for e in info.entry_points)
    rows = [
        ("kind", info.kind.value),
        ("size", size(info.size)),
        ("ark-api crate", info.crate_version or "not named"),
        ("memory", memory_text(info.memory)),
        ("takes bytes", "yes" if info.takes_bytes else "no: it has no ark_alloc and ark_free"),
        ("entry points", entries or "none"),
        ("missing", "\n".join(f"{m.module}.{m.name}" for m in found.missing) or "nothing"),
    ]
    if found.refused:
        rows.append(("refused", found.refused))
    show(found.name, facts(rows))
    if info.required:
        apis = [
            (api.name, "" if api.id is None else f"{api.id:#018x}", api.module or "unknown here")
            for api in info.required
        ]
        show("Required APIs", grid(("name", "id", "import module"), apis))
    if found.imports:
        header = ("import", "the guest wants", "the host has")
        cells = [
            (f"{i.module}.{i.name}", i.wants, i.has if i.is_met else f"{i.has}  ← missing")
            for i in found.imports
        ]
        show("Imports", grid(header, cells))
    if info.exports:
        show("Exports", grid(("name", "type"), [(e.name, str(e.type)) for e in info.exports]))
