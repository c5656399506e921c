"""`arkml trials play`: a guest that people play in their browsers, one trial after another."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.base.host_names import bare_host
from arkml.cli import options
from arkml.cli.exits import Job
from arkml.cli.logs import LogOptions
from arkml.cli.values import LAST_PORT, whole_number
from arkml.errors import UsageError
from arkml.trial_commands import guest_options
from arkml.trial_commands.export import Data, require_trials
from arkml.trial_commands.guest_options import GuestChoice, GuestTrialsChoice
from arkml.trial_commands.learning_options import Learn, LearnRewards, TrialsHive, TrialsRuns
from arkml.trial_commands.ports import PAGE, TOKEN

if TYPE_CHECKING:
    from arkml.trials.server.web.options import WebOptions

_EPILOG = options.epilog(
    "arkml trials play game.wasm",
    "arkml trials play reach.wasm --policy reach.onnx --open",
    "arkml trials play chase.wasm --configure-numbers 4,{seed} --host 0.0.0.0",
    notes="""
The links to play, to watch and to invite others are printed; where other machines can reach the
port they have tokens, that of the variable ARKML_TRIALS_TOKEN or new ones. When a trial has ended
the next one begins. The exit codes are 1 if the guest fails again and again, and 130 and 143 after
Ctrl-C and SIGTERM, which end the trial.
""",
)
_PANEL = "Page"


def register(trials: typer.Typer) -> None:
    """Add the command."""
    trials.command("play", epilog=_EPILOG)(play)


def _web(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_PANEL, **settings)


def play(
    guest: options.GuestFile,
    entry: options.Entry = None,
    args: options.CmdletArguments = "",
    configure: options.Configure = None,
    configure_numbers: options.ConfigureNumbers = None,
    spec: options.Declaration = None,
    limit: guest_options.GuestLimits = None,
    wasi: guest_options.Wasi = False,
    policy: guest_options.Policies = None,
    policy_output: guest_options.PolicyOutputs = None,
    deterministic: guest_options.Deterministic = False,
    tick_rate: guest_options.TickRate = None,
    away: guest_options.Away = None,
    end_on: guest_options.EndOn = None,
    seed: guest_options.Seed = None,
    hive: TrialsHive = None,
    run: TrialsRuns = None,
    learn: Learn = None,
    learn_rewards: LearnRewards = None,
    host: Annotated[str, _web(metavar="HOST", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int,
        _web(
            "--port",
            metavar="PORT",
            parser=whole_number("--port", 0, LAST_PORT),
            help="The port of the page; 0: a free one.",
            show_default=True,
        ),
    ] = 8080,
    tls_cert: Annotated[
        Path | None, _web(metavar="FILE", help="The certificate of the page, PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, _web(metavar="FILE", help="The key of the certificate, PEM.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        _web(metavar="NAME", help="Answer requests for that name too.", show_default=False),
    ] = None,
    is_opened: Annotated[bool, _web("--open", help="Open the page in the browser.")] = False,
    data: Data = Path("trials"),
    no_record: Annotated[bool, typer.Option("--no-record", help="Keep no log of trials.")] = False,
    debug: options.Debug = False,
    log_level: options.LogLevel = None,
) -> Job:
    """
    Let people play a guest in their browsers until Ctrl-C.

    All actors are played by their policies, or take their default actions, until a person takes
    one over.
    """
    chosen = GuestTrialsChoice(
        GuestChoice(
            guest, entry, args, configure, configure_numbers, spec, tuple(limit or ()), wasi
        ),
        policy=tuple(policy or ()),
        policy_output=tuple(policy_output or ()),
        deterministic=deterministic,
        tick_rate=tick_rate,
        away=away,
        end_on=end_on,
        seed=seed,
        hive=hive,
        runs=tuple(run or ()),
        learn=learn,
        learn_rewards=learn_rewards,
    )
    if no_record and learn is not None:
        raise UsageError("--no-record and --learn do not go together: the log is learned from")

    def job() -> int:
        require_trials()
        from arkml.trial_commands import played

        web = _web_options(host, port, tls_cert, tls_key, tuple(allow_host or ()))
        LogOptions(log_level, debug=debug).start()
        settings = played.PlayedTrials(
            guest=chosen, web=web, data=None if no_record else data, is_opened=is_opened
        )
        return 128 + played.serve(settings, _print)

    return job


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _web_options(
    host: str, port: int, cert: Path | None, key: Path | None, hosts: tuple[str, ...]
) -> WebOptions:
    """Return the options of the port, with the page. Raises TrialError."""
    from arkml.trials.server.web.options import WebOptions

    return WebOptions(
        host=bare_host(host),
        port=port,
        allow_hosts=hosts,
        token=os.environ.pop(TOKEN, ""),
        tls_cert=cert,
        tls_key=key,
        page=PAGE,
    )
