"""`arkml player`: runs a guest for a trainer of ML-Agents, as a Unity player."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.cli import options
from arkml.cli.exits import GOOD, print_json
from arkml.cli.launch import HostOptions
from arkml.cli.values import LAST_PORT, rate, whole_number
from arkml.errors import UsageError
from arkml.limits import PLAYER_AREAS

if TYPE_CHECKING:
    from arkml.envs.core.env_options import GuestEnvOptions
    from arkml.host import Host

_EPILOG = options.epilog(
    "arkml player npc.wasm --mlagents-port 5004",
    "arkml player pendulum.wasm --configure-numbers 16,{seed} --num-areas 4",
    "arkml player npc.wasm --bundle players/npc",
    notes="""
The trainer is the server: the player connects to it on 127.0.0.1, waits until it answers, and ends
when it closes the connection. An executable of `--bundle` takes these options and those that
trainers add for Unity's players. --seed and --num-areas override the trainer's.
""",
)
_UNITY = "Unity's options"
_PORT = 5004


def _ignored(name: str) -> Any:
    return typer.Option(name, hidden=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerOptions:
    """The options of the command `arkml player`."""

    guest: options.GuestFile
    port: Annotated[
        int,
        typer.Option(
            "--mlagents-port",
            metavar="N",
            parser=whole_number("--mlagents-port", 1, LAST_PORT),
            help="Port of the trainer; 5004 is that of a trainer that launches no player.",
        ),
    ] = _PORT
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a player to launch into this directory, and end."),
    ] = None
    num_areas: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            parser=whole_number("--num-areas", 1, PLAYER_AREAS),
            help="Step K instances of the guest.",
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--seed"),
            help="Seed of instance 0; instance k has N + k.",
        ),
    ] = None
    timeout_wait: Annotated[
        float,
        typer.Option(
            metavar="S",
            parser=rate("--timeout-wait", 0.1),
            help="Seconds to wait for the trainer.",
        ),
    ] = 60.0
    environment: options.EnvironmentOptions
    max_episode_steps: options.MaxEpisodeSteps = None
    limit: options.LimitValues = None
    wasi: options.Wasi = False
    imports: options.GameImports = None
    log_file: Annotated[
        Path | None,
        typer.Option(
            "-logFile", "-logfile", metavar="FILE", help="Log to this file.", rich_help_panel=_UNITY
        ),
    ] = None
    # A guest does not draw, so nothing reads these.
    no_graphics: Annotated[bool, _ignored("-nographics")] = False
    batch_mode: Annotated[bool, _ignored("-batchmode")] = False
    width: Annotated[str | None, _ignored("-screen-width")] = None
    height: Annotated[str | None, _ignored("-screen-height")] = None
    quality: Annotated[str | None, _ignored("-screen-quality")] = None
    full_screen: Annotated[str | None, _ignored("-screen-fullscreen")] = None
    output: options.OutputOptions

    def keywords(self, host: Host | None = None) -> GuestEnvOptions:
        """Return keyword arguments for the environment, including its host. Raises UsageError."""
        keywords = self.environment.keywords(host)
        keywords["max_episode_steps"] = self.max_episode_steps
        return keywords

    def words(self) -> list[str]:
        """Return the options that a player bundle stores, as words of a command line."""
        given = {
            "--entry": self.environment.entry,
            "--args": self.environment.args or None,
            "--configure": self.environment.configure,
            "--configure-numbers": self.environment.configure_numbers,
            "--max-episode-steps": self.max_episode_steps,
            "--num-areas": self.num_areas,
            "--seed": self.seed,
            "--imports": self.imports,
        }
        words = [f"{name}={value}" for name, value in given.items() if value is not None]
        words += ["--wasi"] if self.wasi else []
        return words + [f"--limit={limit}" for limit in self.limit or ()]

    def open_host(self) -> Host:
        """Make the host of the guest, whose output goes to stderr."""
        host = HostOptions(limit=self.limit, wasi=self.wasi, imports=self.imports)
        return host.open_host(name=self.guest.name, keep_stdout=True)


def register(app: typer.Typer) -> None:
    """Add the command `arkml player` to the application."""
    options.add_command(app, "player", PlayerOptions, player, epilog=_EPILOG)


def player(options: PlayerOptions) -> int:
    """Run a guest for a trainer of ML-Agents, as a Unity player."""
    keywords = options.keywords()
    if options.bundle is None:
        require_grpc()
    output = options.output
    output.start_logs(file=options.log_file)
    if options.bundle is not None:
        return _write(options, options.bundle)
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # by default it logs every closed connection
    from arkml.envs.llapi.player import PlayerSettings, play

    settings = PlayerSettings(
        options.port, options.num_areas, options.seed, options.timeout_wait, keywords
    )
    with options.open_host() as host:
        played = play(host, options.guest, settings)
    if output.as_json:
        print_json({"guest": options.guest.name, **asdict(played)})
    return GOOD


def _write(options: PlayerOptions, folder: Path) -> int:
    """Check that the guest runs with these options, and write the folder of the player."""
    from arkml.cli.user_files import keep_apart
    from arkml.envs.core.guest_env import GuestEnv
    from arkml.envs.llapi.player_bundle import SPEC, write_bundle

    with options.open_host() as host:
        GuestEnv(options.guest, **options.keywords(host)).close()
    spec = options.environment.spec
    keep_apart(folder / f"{options.guest.stem}.wasm", options.guest)
    keep_apart(folder / SPEC, spec)
    program = write_bundle(folder, options.guest, options.words(), spec)
    if options.output.as_json:
        print_json({"executable": str(program)})
    else:
        sys.stdout.write(f"{program}\n")
    return GOOD


def require_grpc() -> None:
    """Raise UsageError if the packages of a player are not installed."""
    missing = [name for name in ("grpc",) if find_spec(name) is None]
    if missing:
        raise UsageError(f"a player needs {', '.join(missing)}: pip install 'arkml[unity]'")
