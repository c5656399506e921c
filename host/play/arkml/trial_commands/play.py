"""`arkml trials play`: a guest that people play in their browsers, one trial after another."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml import page_scripts
from arkml.base.host_names import bare_host
from arkml.cli import options
from arkml.cli.logs import LogOptions
from arkml.cli.values import LAST_PORT, whole_number
from arkml.errors import UsageError
from arkml.trial_commands.export import Data, require_trials
from arkml.trial_commands.guest_options import PlayedGuest
from arkml.trial_commands.server_ports import PAGE, TOKEN

if TYPE_CHECKING:
    from arkml.trials.server.web.web_options import WebOptions

_EPILOG = options.epilog(
    "arkml trials play game.wasm",
    "arkml trials play reach.wasm --policy reach.onnx --open",
    "arkml trials play game.wasm --watch",
    "arkml trials play chase.wasm --configure-numbers 4,{seed} --host 0.0.0.0",
    notes="""
The links to play, to watch and to invite others are printed; where other machines can reach the
port they have tokens, that of the variable ARKML_TRIALS_TOKEN or new ones. When a trial has ended
the next one begins. The exit codes are 1 if the guest fails again and again, and 130 and 143 after
Ctrl-C and SIGTERM, which end the trial.
""",
)
_PANEL = "Page"


def _web(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_PANEL, **settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayOptions:
    """The options of `arkml trials play`."""

    guest: options.GuestFile
    played: PlayedGuest
    host: Annotated[str, _web(metavar="HOST", help="The address to listen at.")] = "127.0.0.1"
    port: Annotated[
        int,
        _web(
            "--port",
            metavar="PORT",
            parser=whole_number("--port", 0, LAST_PORT),
            help="The port of the page; 0: a free one.",
            show_default=True,
        ),
    ] = 8080
    tls_cert: Annotated[
        Path | None, _web(metavar="FILE", help="The certificate of the page, PEM.")
    ] = None
    tls_key: Annotated[
        Path | None, _web(metavar="FILE", help="The key of the certificate, PEM.")
    ] = None
    allow_host: Annotated[
        list[str] | None,
        _web(metavar="NAME", help="Answer requests for that name too.", show_default=False),
    ] = None
    is_opened: Annotated[bool, _web("--open", help="Open the page in the browser.")] = False
    data: Data = Path("trials")
    no_record: Annotated[bool, typer.Option("--no-record", help="Keep no log of trials.")] = False
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Play on with the rebuilt guest, between two frames where only code has changed,"
            " whenever its file has changed.",
        ),
    ] = False
    debug: options.Debug = False
    log_level: options.LogLevel = None

    def web(self) -> WebOptions:
        """Return the options of the web port that serves the page. Raises TrialError."""
        from arkml.trials.server.web.web_options import WebOptions

        return WebOptions(
            host=bare_host(self.host),
            port=self.port,
            allow_hosts=tuple(self.allow_host or ()),
            token=os.environ.pop(TOKEN, ""),
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            page=PAGE,
            page_shared=page_scripts.FOLDER,
        )


def register(trials: typer.Typer) -> None:
    """Add the command `arkml trials play`."""
    options.add_command(trials, "play", PlayOptions, play, epilog=_EPILOG)


def play(options: PlayOptions) -> int:
    """
    Let people play a guest in their browsers until Ctrl-C.

    All actors are played by their policies, or take their default actions, until a person takes
    one over.
    """
    if options.no_record and options.played.learn is not None:
        raise UsageError("--no-record and --learn do not go together: the log is learned from")
    require_trials()
    from arkml.trial_commands import played

    web = options.web()
    LogOptions(options.log_level, debug=options.debug).start()
    settings = played.PlayedTrials(
        guest=options.guest,
        played=options.played,
        web=web,
        data=None if options.no_record else options.data,
        is_opened=options.is_opened,
        is_watched=options.watch,
    )
    return 128 + played.serve(settings, _print)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
