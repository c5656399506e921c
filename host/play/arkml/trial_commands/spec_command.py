"""`arkml trials spec`: writes the files about a guest that programs of players need."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import GOOD, print_json
from arkml.cli.logs import LogOptions
from arkml.cli.units import counted
from arkml.trial_commands.export import require_trials
from arkml.trial_commands.guest_options import open_guest_host

_EPILOG = options.epilog(
    "arkml trials spec c_reach.wasm",
    "arkml trials spec walkers.wasm --configure-numbers 4,{seed} -o players",
    notes="""
The directory gets cogment.yaml and guest.proto, from which Cogment's SDKs generate their files, and
those of our own SDKs: python/cog_settings.py and javascript/CogSettings.js. One that this command
wrote before is written anew; no other file is replaced.
""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecOptions:
    """The options of `arkml trials spec`."""

    guest: options.GuestFile
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="The directory to write; by default one with the name of the guest, here.",
            show_default=False,
        ),
    ] = None
    environment: options.EnvironmentOptions
    limit: options.LimitValues = None
    wasi: options.Wasi = False
    imports: options.GameImports = None
    as_json: options.Json = False
    debug: options.Debug = False


def register(trials: typer.Typer) -> None:
    """Add the command `arkml trials spec`."""
    options.add_command(trials, "spec", SpecOptions, spec, epilog=_EPILOG)


def spec(options: SpecOptions) -> int:
    """Write the spec file of a guest's trials, its messages, and the settings of the SDKs."""
    require_trials()
    LogOptions(debug=options.debug).start()
    from arkml.envs.core.guest_env import GuestEnv
    from arkml.guest_trials.probe import probe
    from arkml.guest_trials.spec import write_spec

    guest = options.guest
    folder = Path(guest.stem) if options.output is None else options.output
    with open_guest_host(
        guest, options.limit, "--limit", wasi=options.wasi, imports=options.imports
    ) as host:
        with GuestEnv(guest, **options.environment.keywords(host)) as env:
            classes = probe(env)
        files = write_spec(guest.name, classes, folder)
    slots = {one.name: one.slots for one in classes}
    if options.as_json:
        print_json({"classes": slots, "files": [str(file) for file in files]})
        return GOOD
    listed = ", ".join(f"{counted(count, 'actor')} {name}" for name, count in slots.items())
    sys.stdout.write(f"{harmless(str(folder))}: {listed}\n")
    return GOOD
