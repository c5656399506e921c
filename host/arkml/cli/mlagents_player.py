"""`arkml player`: a guest plays for a trainer of ML-Agents."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.cli import options
from arkml.cli.exits import GOOD, Job, print_json
from arkml.cli.launch import Grants, open_host
from arkml.cli.logs import LogOptions
from arkml.cli.values import LAST_PORT, rate, whole_number
from arkml.errors import UsageError

if TYPE_CHECKING:
    from arkml.envs.core.options import GuestEnvOptions
    from arkml.host import Host

_EPILOG = options.epilog(
    "arkml player npc.wasm --mlagents-port 5004",
    "arkml player pendulum.wasm --configure-numbers 16,{seed} --num-areas 4",
    "arkml player npc.wasm --bundle players/npc",
    notes="""
The trainer serves; the player calls it on 127.0.0.1, waits until it is there, and ends when it
closes or is gone. An executable that `--bundle` wrote takes the same options and those that
trainers add for Unity's players. --seed and --num-areas override what the trainer says.
""",
)
_UNITY, _GUEST = "As Unity's players take them", "How the guest plays"
_PORT = 5004


@dataclass(frozen=True, slots=True)
class Playing:
    """What a guest is called with; texts are as the user gave them."""

    guest: Path
    entry: str | None
    args: str
    configure: str | None
    numbers: str | None
    spec: Path | None
    grants: Grants
    areas: int | None
    seed: int | None

    def options(self) -> GuestEnvOptions:
        """Return the options of the environment. Raises UsageError."""
        return {
            "entry": self.entry,
            "args": self.args,
            "configure": self.configure if self.numbers is None else _numbers(self.numbers),
            "spec": self.spec,
        }

    def words(self) -> list[str]:
        """The command line that says the same."""
        given = {
            "--entry": self.entry,
            "--args": self.args or None,
            "--configure": self.configure,
            "--configure-numbers": self.numbers,
            "--num-areas": self.areas,
            "--seed": self.seed,
        }
        words = [f"{name}={value}" for name, value in given.items() if value is not None]
        words += ["--wasi"] if self.grants.wasi else []
        return words + [f"--limit={limit}" for limit in self.grants.limits]

    def host(self) -> Host:
        """One that grants what was asked for; what a guest prints goes to stderr."""
        return open_host(self.grants, program=self.guest.name, stdout_is_ours=True)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("player", epilog=_EPILOG)(command)


def _ignored(name: str) -> Any:
    return typer.Option(name, hidden=True)


def command(
    guest: options.GuestFile,
    port: Annotated[
        int,
        typer.Option(
            "--mlagents-port",
            metavar="N",
            parser=whole_number("--mlagents-port", 1, LAST_PORT),
            help="Where the trainer serves; 5004 is that of one that launches nothing.",
        ),
    ] = _PORT,
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a player to be launched there, and play nothing."),
    ] = None,
    num_areas: Annotated[
        int | None,
        typer.Option(
            metavar="K", parser=whole_number("--num-areas", 1), help="Step K instances as one."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number("--seed"), help="Seed of instance 0; k has N + k."
        ),
    ] = None,
    timeout_wait: Annotated[
        float,
        typer.Option(
            metavar="S",
            parser=rate("--timeout-wait", 0.1),
            help="How many seconds a trainer has to come up.",
        ),
    ] = 60.0,
    entry: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The export that plays, instead of an applet's frame or a cmdlet.",
            rich_help_panel=_GUEST,
        ),
    ] = None,
    args: Annotated[
        str,
        typer.Option(
            metavar='"ARGS"',
            help="What a cmdlet is run with; {seed} stands for the seed.",
            show_default=False,
            rich_help_panel=_GUEST,
        ),
    ] = "",
    configure: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="What its export configure gets.", rich_help_panel=_GUEST
        ),
    ] = None,
    configure_numbers: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="The same as whole numbers, {seed} among them.",
            rich_help_panel=_GUEST,
        ),
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A JSON file that says what observations and actions mean.",
            rich_help_panel=_GUEST,
        ),
    ] = None,
    limit: options.LimitValues = None,
    wasi: options.Wasi = False,
    log_file: Annotated[
        Path | None,
        typer.Option(
            "-logFile", "-logfile", metavar="FILE", help="Log there.", rich_help_panel=_UNITY
        ),
    ] = None,
    no_graphics: Annotated[bool, _ignored("-nographics")] = False,
    batch_mode: Annotated[bool, _ignored("-batchmode")] = False,
    width: Annotated[str | None, _ignored("-screen-width")] = None,
    height: Annotated[str | None, _ignored("-screen-height")] = None,
    quality: Annotated[str | None, _ignored("-screen-quality")] = None,
    full_screen: Annotated[str | None, _ignored("-screen-fullscreen")] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
    verbose: options.Verbose = 0,
    log_level: options.LogLevel = None,
) -> Job:
    """Play for a trainer of ML-Agents, as a Unity player does."""
    del no_graphics, batch_mode, width, height, quality, full_screen  # there is nothing to draw
    if configure is not None and configure_numbers is not None:
        raise UsageError("--configure and --configure-numbers do not go together")
    playing = Playing(
        guest,
        entry,
        args,
        configure,
        configure_numbers,
        spec,
        Grants(limits=tuple(limit or ()), wasi=wasi),
        num_areas,
        seed,
    )
    logs = LogOptions(log_level, verbose, debug, log_file)
    if bundle is not None:
        return partial(_write, playing, bundle, logs, as_json)
    return partial(_play, playing, port, timeout_wait, logs, as_json)


def _play(playing: Playing, port: int, patience: float, logs: LogOptions, as_json: bool) -> int:
    require_grpc()
    logs.start()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # it tells of every line that ends
    from arkml.envs.llapi.player import PlayerSettings, play

    settings = PlayerSettings(port, playing.areas, playing.seed, patience, playing.options())
    with playing.host() as host:
        played = play(host, playing.guest, settings)
    if as_json:
        print_json({"guest": playing.guest.name, **asdict(played)})
    return GOOD


def _write(playing: Playing, folder: Path, logs: LogOptions, as_json: bool) -> int:
    """Check that the guest plays with these options, and write the folder."""
    logs.start()
    from arkml.cli.files import keep_apart
    from arkml.envs.core.guest_env import GuestEnv
    from arkml.envs.llapi.player_bundle import SPEC, write_bundle

    with playing.host() as host:
        options: GuestEnvOptions = {**playing.options(), "host": host}
        GuestEnv(playing.guest, **options).close()
    keep_apart(folder / f"{playing.guest.stem}.wasm", playing.guest)
    keep_apart(folder / SPEC, playing.spec)
    program = write_bundle(folder, playing.guest, playing.words(), playing.spec)
    if as_json:
        print_json({"executable": str(program)})
    else:
        sys.stdout.write(f"{program}\n")
    return GOOD


def require_grpc() -> None:
    """Raise UsageError if what players speak with is not installed."""
    missing = [name for name in ("grpc",) if find_spec(name) is None]
    if missing:
        raise UsageError(f"a player needs {', '.join(missing)}: pip install 'arkml[unity]'")


def _numbers(text: str) -> list[int | str]:
    found: list[int | str] = []
    for part in text.split(","):
        word = part.strip()
        try:
            found.append(word if word == "{seed}" else int(word))
        except ValueError:
            raise UsageError(
                f"--configure-numbers {text}: it takes whole numbers and {{seed}}, with commas"
            ) from None
    return found
