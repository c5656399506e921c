"""`arkml player`: runs a guest for a trainer of ML-Agents, as a Unity player."""

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
from arkml.cli.launch import HostGrants, open_host
from arkml.cli.logs import LogOptions
from arkml.cli.values import LAST_PORT, rate, read_configuration, whole_number
from arkml.errors import UsageError
from arkml.limits import PLAYER_AREAS

if TYPE_CHECKING:
    from arkml.envs.core.options import GuestEnvOptions
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


@dataclass(frozen=True, slots=True)
class PlayerOptions:
    """Options of a player; texts are as the user gave them."""

    guest: Path
    entry: str | None
    args: str
    configure: str | None
    numbers: str | None
    spec: Path | None
    max_episode_steps: int | None
    host_options: HostGrants
    areas: int | None
    seed: int | None

    def options(self) -> GuestEnvOptions:
        """Return options for the environment. Raises UsageError."""
        return {
            "entry": self.entry,
            "args": self.args,
            "configure": read_configuration(self.configure, self.numbers),
            "spec": self.spec,
            "max_episode_steps": self.max_episode_steps,
        }

    def words(self) -> list[str]:
        """Return the options as a command line."""
        given = {
            "--entry": self.entry,
            "--args": self.args or None,
            "--configure": self.configure,
            "--configure-numbers": self.numbers,
            "--max-episode-steps": self.max_episode_steps,
            "--num-areas": self.areas,
            "--seed": self.seed,
        }
        words = [f"{name}={value}" for name, value in given.items() if value is not None]
        words += ["--wasi"] if self.host_options.wasi else []
        return words + [f"--limit={limit}" for limit in self.host_options.limits]

    def host(self) -> Host:
        """Open the host. The output of the guest goes to stderr."""
        return open_host(self.host_options, name=self.guest.name, keep_stdout=True)


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
            help="Port of the trainer; 5004 is that of a trainer that launches no player.",
        ),
    ] = _PORT,
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a player to launch into this directory, and end."),
    ] = None,
    num_areas: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            parser=whole_number("--num-areas", 1, PLAYER_AREAS),
            help="Step K instances of the guest.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--seed"),
            help="Seed of instance 0; instance k has N + k.",
        ),
    ] = None,
    timeout_wait: Annotated[
        float,
        typer.Option(
            metavar="S",
            parser=rate("--timeout-wait", 0.1),
            help="Seconds to wait for the trainer.",
        ),
    ] = 60.0,
    entry: options.Entry = None,
    args: options.CmdletArguments = "",
    configure: options.Configure = None,
    configure_numbers: options.ConfigureNumbers = None,
    spec: options.Declaration = None,
    max_episode_steps: options.MaxEpisodeSteps = None,
    limit: options.LimitValues = None,
    wasi: options.Wasi = False,
    log_file: Annotated[
        Path | None,
        typer.Option(
            "-logFile", "-logfile", metavar="FILE", help="Log to this file.", rich_help_panel=_UNITY
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
    """Run a guest for a trainer of ML-Agents, as a Unity player."""
    del no_graphics, batch_mode, width, height, quality, full_screen  # a guest does not draw
    read_configuration(configure, configure_numbers)
    player = PlayerOptions(
        guest,
        entry,
        args,
        configure,
        configure_numbers,
        spec,
        max_episode_steps,
        HostGrants(limits=tuple(limit or ()), wasi=wasi),
        num_areas,
        seed,
    )
    logs = LogOptions(log_level, verbose, debug, log_file)
    if bundle is not None:
        return partial(_write, player, bundle, logs, as_json)
    return partial(_play, player, port, timeout_wait, logs, as_json)


def _play(
    player: PlayerOptions, port: int, patience: float, logs: LogOptions, as_json: bool
) -> int:
    require_grpc()
    logs.start()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # by default it logs every closed connection
    from arkml.envs.llapi.player import PlayerSettings, play

    settings = PlayerSettings(port, player.areas, player.seed, patience, player.options())
    with player.host() as host:
        played = play(host, player.guest, settings)
    if as_json:
        print_json({"guest": player.guest.name, **asdict(played)})
    return GOOD


def _write(player: PlayerOptions, folder: Path, logs: LogOptions, as_json: bool) -> int:
    """Check that the guest runs with these options, and write the folder of the player."""
    logs.start()
    from arkml.cli.files import keep_apart
    from arkml.envs.core.guest_env import GuestEnv
    from arkml.envs.llapi.player_bundle import SPEC, write_bundle

    with player.host() as host:
        options: GuestEnvOptions = {**player.options(), "host": host}
        GuestEnv(player.guest, **options).close()
    keep_apart(folder / f"{player.guest.stem}.wasm", player.guest)
    keep_apart(folder / SPEC, player.spec)
    program = write_bundle(folder, player.guest, player.words(), player.spec)
    if as_json:
        print_json({"executable": str(program)})
    else:
        sys.stdout.write(f"{program}\n")
    return GOOD


def require_grpc() -> None:
    """Raise UsageError if the packages of a player are not installed."""
    missing = [name for name in ("grpc",) if find_spec(name) is None]
    if missing:
        raise UsageError(f"a player needs {', '.join(missing)}: pip install 'arkml[unity]'")
