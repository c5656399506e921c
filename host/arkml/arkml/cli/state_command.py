"""
`arkml state`: saves guests to files, continues them from files, and shows the files' contents.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from arkml.base.terminal import harmless
from arkml.cli import options, run_command
from arkml.cli.exits import GOOD, print_json
from arkml.cli.units import size
from arkml.cli.user_files import read_module
from arkml.errors import UsageError

_SAVE = options.epilog(
    "arkml state save orc.state orc.wasm --frames 600 --policy walk.onnx",
    "arkml state save orcs.state orc.wasm --instances 1000",
    notes="""
Runs the guest as `arkml run` does, with the same options, and saves its state behind the last
frame. Without --frames an applet runs 600. Nothing is written if the guest fails.
""",
)
_LOAD = options.epilog(
    "arkml state load orc.state orc.wasm --frames 600 --policy walk.onnx",
    "arkml state load orc.state orc.wasm --instances 1000",
    notes="""
Runs the guest as `arkml run` does, with the same options, from the state in the file on: its
initializers do not run. A fleet goes on with as many guests as were saved; with --instances, each
guest of a fleet goes on from the state of one. The module has to be the one that was saved.
""",
)
_SHOW = options.epilog("arkml state show orc.state", "arkml state show orc.state --json")

_SHOWN = 6  # names of timers

File = Annotated[Path, typer.Argument(metavar="FILE", help="A state.", show_default=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRunOptions:
    """The options of a run that begins or ends with a state file."""

    file: File
    run: run_command.RunOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions:
    """The options of `arkml state show`."""

    file: File
    as_json: options.Json = False
    debug: options.Debug = False


def register(app: typer.Typer) -> None:
    """Add the commands of `arkml state` to the application."""
    state = options.add_group(
        app,
        "state",
        "Save a guest or a fleet between two frames, go on from the file, look into it.",
        epilog=options.epilog(
            "arkml state save orc.state orc.wasm --frames 600",
            "arkml state load orc.state orc.wasm --frames 600",
            "arkml state show orc.state",
        ),
    )
    add = options.add_command
    add(state, "save", StateRunOptions, save, epilog=_SAVE, takes_numbers=True)
    add(state, "load", StateRunOptions, load, epilog=_LOAD, takes_numbers=True)
    add(state, "show", ShowOptions, show, epilog=_SHOW)


def save(options: StateRunOptions) -> int:
    """Run a guest, and save its state after the last frame."""
    return run_command.run_from(options.run, saves=options.file)


def load(options: StateRunOptions) -> int:
    """Run a guest from a saved state on."""
    from arkml.guests.snapshots import FleetSnapshot, read_state, require_digest

    state, given, guest = read_state(options.file), options.run.instances, options.run.guest
    # Before all that this module may lack, which says nothing of the state.
    require_digest(state, guest.name, hashlib.sha256(read_module(guest)).hexdigest())
    if not isinstance(state, FleetSnapshot):
        return run_command.run_from(options.run, state=state)
    if given not in (1, len(state)):
        raise UsageError(
            f"--instances {given:,}: {options.file} has a fleet of {len(state):,}, which goes on"
            " with as many guests"
        )
    return run_command.run_from(replace(options.run, instances=len(state)), state=state)


def show(options: ShowOptions) -> int:
    """Show what is in the file of a state; no module is needed, and nothing runs."""
    from arkml.guests.snapshots import summary_of_file

    document = summary_of_file(options.file)
    if options.as_json:
        print_json(document)
        return GOOD
    from arkml.cli import tables

    rows = [
        ("module", document["module"]),
        ("memory", f"{size(document['memory_bytes'])}, {size(document['held_bytes'])} in use"),
        ("globals", f"{document['globals']:,} that change"),
        ("timers", _timers(document["timers"])),
        (
            "file",
            f"{size(document['file_bytes'])}, {size(document['unpacked_bytes'])} unpacked, in"
            f" version {document['version']} of its form",
        ),
    ]
    for what, counts in (
        ("results", document["futures"]),
        ("models of ark-ml-inference-v0", document["brains"]),
    ):
        if counts:
            texts = [f"{count:,} of {name}" for name, count in counts.items()]
            rows.insert(-1, (what, ", ".join(texts)))
    if document["kind"] == "fleet":
        guests = f"{document['guests']:,}"
        if lost := document["guests"] - document["saved"]:
            guests += f", {lost:,} of which had failed or were closed"
        rows.insert(1, ("guests", guests))
    title = f"{harmless(document['name'])}: the state of a {document['kind']}"
    tables.show(title, tables.facts(rows))
    cells = [
        (
            _width(each["features"]),
            _width(each["actions"]),
            each["policy"] or f"of the run {harmless(each['run'] or '-')}",
            f"{each['sessions']:,}",
            f"{each['agents']:,}",
            f"{each['remembered']:,}",
        )
        for each in document["sessions"]
    ]
    if cells:
        header = ("features", "actions", "policy", "sessions", "agents", "numbers remembered")
        tables.show("sessions", tables.grid(header, cells))
    return GOOD


def _timers(timers: dict[str, int]) -> str:
    """Return the timers that wait for their end, such as "2 waiting: load, think"."""
    if not timers:
        return "none waiting"
    names = ", ".join(harmless(name) for name in list(timers)[:_SHOWN])
    return f"{len(timers):,} waiting: {names}{', …' if len(timers) > _SHOWN else ''}"


def _width(count: int | None) -> str:
    return "of the policy" if count is None else f"{count:,}"
