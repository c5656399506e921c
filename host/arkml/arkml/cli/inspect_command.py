"""`arkml inspect`: shows a module, its imports, and the imports that are missing here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.cli import options
from arkml.cli.exits import GOOD, print_json
from arkml.cli.logs import LogOptions

if TYPE_CHECKING:
    from arkml.cli.inspection import ImportReport, Inspection

_EPILOG = options.epilog(
    "arkml inspect npc.wasm",
    "arkml inspect npc.wasm --json",
    notes="The exit code is 0 also if imports are missing; `arkml smoke` fails then.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOptions:
    """The options of `arkml inspect`."""

    guest: options.GuestFile
    limit: options.ModuleLimits = None
    as_json: options.Json = False
    debug: options.Debug = False
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Name the parameters of the imports.")
    ] = False


def register(app: typer.Typer) -> None:
    """Add the command `arkml inspect` to the application."""
    options.add_command(app, "inspect", InspectOptions, inspect, epilog=_EPILOG)


def inspect(options: InspectOptions) -> int:
    """Show kind, required APIs, imports and exports of a module, and missing imports."""
    from arkml.cli.inspection import inspect_file
    from arkml.cli.values import read_limits

    LogOptions(debug=options.debug).start()
    inspection = inspect_file(options.guest, read_limits(options.limit or ()))
    if options.as_json:
        print_json(_document(inspection))
    else:
        _show(inspection, verbose=options.verbose)
    return GOOD


def _document(inspection: Inspection) -> dict[str, Any]:
    info = inspection.info
    return {
        "guest": inspection.name,
        "kind": info.kind.value,
        "bytes": info.size,
        "crate_version": info.crate_version,
        "memory": None if info.memory is None else str(info.memory),
        "takes_bytes": info.takes_bytes,
        "startup": {
            "functions": list(info.startup.functions),
            "deferred": info.startup.deferred,
            "note": info.startup.note,
            "loses_state": info.startup.loses_state,
        },
        "refused": inspection.refused,
        "spec": {
            "refused": inspection.undeclared,
            "behaviors": {
                each.name: {
                    "observations": list(each.observations),
                    "continuous": each.continuous,
                    "discrete": list(each.branches),
                    "names": list(each.names),
                    "choices": [list(names) for names in each.choices],
                    "partial": each.is_partial,
                    "copies": each.copies,
                }
                for each in inspection.declared
            },
        },
        "required": [
            {"name": api.name, "id": api.id, "module": api.module} for api in info.required
        ],
        "entry_points": [
            {"name": entry.name, "kind": entry.kind.value, "type": str(entry.type)}
            for entry in info.entry_points
        ],
        "misfits": list(info.misfits),
        "imports": [
            {
                "module": each.module,
                "name": each.name,
                "wants": each.wants,
                "has": each.has,
                "met": each.is_met,
            }
            for each in inspection.imports
        ],
        "of_game": [f"{each.module}.{each.name}" for each in inspection.of_game],
        "missing": [f"{each.module}.{each.name}" for each in inspection.missing],
        "exports": [{"name": export.name, "type": str(export.type)} for export in info.exports],
    }


def _show(inspection: Inspection, *, verbose: bool) -> None:
    from arkml.cli.inspection import memory_text
    from arkml.cli.tables import facts, grid, show
    from arkml.cli.units import size
    from arkml.runtime.module.imports import WASI_MODULE

    info = inspection.info
    entries = [f"{e.name} {e.type}, {e.kind.value}" for e in info.entry_points]
    rows = [
        ("kind", info.kind.value),
        ("size", size(info.size)),
        ("ark-api crate", info.crate_version or "not named"),
        ("memory", memory_text(info.memory)),
        ("takes bytes", "yes" if info.takes_bytes else "no: it has no ark_alloc and ark_free"),
        ("started by", "\n".join(filter(None, (str(info.startup), info.startup.note)))),
        ("entry points", "\n".join([*entries, *info.misfits]) or "none"),
        ("from the game", "\n".join(f"{m.module}.{m.name}" for m in inspection.of_game)),
        ("missing", "\n".join(f"{m.module}.{m.name}" for m in inspection.missing) or "nothing"),
    ]
    rows = [row for row in rows if row[1]]
    if inspection.undeclared:
        rows.append(("declares", inspection.undeclared))
    elif inspection.declared:
        rows.append(("declares", "\n".join(map(str, inspection.declared))))
    if inspection.refused:
        rows.append(("refused", inspection.refused))
    show(inspection.name, facts(rows))
    if info.required:
        apis = [
            (api.name, "" if api.id is None else f"{api.id:#018x}", api.module or "unknown here")
            for api in info.required
        ]
        show("Required APIs", grid(("name", "id", "import module"), apis))
    for module in dict.fromkeys(each.module for each in inspection.imports):
        cells = [(i.name, _type(i, verbose)) for i in inspection.imports if i.module == module]
        granted = " (granted by --wasi)" if module == WASI_MODULE else ""
        show(f"Imports from {module}{granted}", grid(("name", "type"), cells))
    if info.exports:
        show("Exports", grid(("name", "type"), [(e.name, str(e.type)) for e in info.exports]))


def _type(entry: ImportReport, verbose: bool) -> str:
    """Return the type of an import, with the host's type if that does not meet it."""
    from arkml.cli.inspection import OF_GAME

    if not entry.is_met:
        return f"{entry.wants}  ← missing, the host has {entry.has}"
    if entry.has == OF_GAME:
        return f"{entry.wants}  ← from the game (--imports)"
    return entry.has if verbose else entry.wants
