"""`arkml trials serve`: a server of trials by Cogment's protocol until it is ended."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.base.host_names import bare_host
from arkml.cli import options
from arkml.cli.exits import Job
from arkml.cli.logs import LogOptions, json_line
from arkml.cli.values import LAST_PORT, whole_number
from arkml.errors import UsageError
from arkml.trial_commands import guest_options as guests
from arkml.trial_commands.export import Data, require_trials
from arkml.trial_commands.server_ports import (
    WebPortOptions,
    check_ports,
    grpc_host,
    refuse_directory,
    refuse_tls,
)
from arkml.trial_commands.trial_limit_options import datalog_options, trials_options

if TYPE_CHECKING:
    from arkml.trial_commands.trial_service import ServedTrials

_EPILOG = options.epilog(
    "arkml trials serve --params params.yaml",
    "arkml trials serve --lifecycle-port 0 --data played",
    "arkml trials serve --pre-trial-hooks grpc://localhost:9010,grpc://localhost:9011",
    "arkml trials serve --actor-web-port 8080 --params params.yaml",
    "arkml trials serve --host 0.0.0.0 --grpc-open",
    "arkml trials serve --guest walkers.wasm --policy walker=walker.onnx --actor-web-port 8080",
    "arkml trials serve --guest c_reach.wasm --policy reach.onnx --tick-rate 0 --end-on all",
    "arkml trials serve --guest c_reach.wasm --hive localhost --run reach=reach --learn people",
    notes="""
Options may be written with underscores, as Cogment does. There is no directory, model registry or
datastore, and no TLS of gRPC. The exit codes are 130 and 143 after Ctrl-C and SIGTERM,
which end all trials.
""",
)

_LOG_FORMATS = ("text", "json")
_COGMENT, _ACCESS, _LOG = "Cogment's options", "Access", "Log of trials"
_NOT_HERE = {
    "launch": "start the processes of a project with a supervisor or a shell script",
    "directory": "name environments and actors by grpc://HOST:PORT",
    "model_registry": "`arkml hive` keeps the versions of policies",
    "trial_datastore": "the server logs trials itself: `arkml trials list`, `show` and `export`",
    "web_proxy": "`arkml trials serve --actor-web-port` serves browsers itself",
}


def register(trials: typer.Typer) -> None:
    """Add the command, and commands of Cogment that are refused."""
    settings = {"token_normalize_func": lambda word: word.replace("_", "-")}
    options.add_command(
        trials, "serve", ServeTrialsOptions, serve, epilog=_EPILOG, settings=settings
    )
    for name in _NOT_HERE:
        trials.command(
            name,
            hidden=True,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )(_refusal(name))


def _refusal(name: str) -> Any:
    def refuse() -> Job:
        raise UsageError(f"there is no {name.replace('_', ' ')} here: {_NOT_HERE[name]}")

    return refuse


def _port(name: str, *variables: str, text: str) -> Any:
    return typer.Option(
        name,
        metavar="PORT",
        parser=whole_number(name, 0, LAST_PORT),
        envvar=list(variables),
        help=text,
        show_default=True,
        rich_help_panel=_COGMENT,
    )


def _web(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=text, show_default=False, rich_help_panel=_ACCESS)


def _refused(name: str, variable: str) -> Any:
    return typer.Option(name, hidden=True, envvar=variable)


def _unused(name: str) -> Any:
    """Return an option about a directory that has no effect, as in Cogment without a directory."""
    return typer.Option(name, hidden=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeTrialsOptions:
    """The options of `arkml trials serve`."""

    lifecycle_port: Annotated[
        int,
        _port(
            "--lifecycle-port",
            "COGMENT_LIFECYCLE_PORT",
            "TRIAL_LIFECYCLE_PORT",
            text="For controllers; 0: free.",
        ),
    ] = 9000
    actor_port: Annotated[
        int,
        _port(
            "--actor-port",
            "COGMENT_ACTOR_PORT",
            "TRIAL_ACTOR_PORT",
            text="For actors that join; 0: a free one.",
        ),
    ] = 9000
    actor_web_port: Annotated[
        int, _port("--actor-web-port", "COGMENT_WEB_PROXY_PORT", text="For browsers; 0: off.")
    ] = 0
    prometheus_port: Annotated[
        int,
        _port(
            "--prometheus-port",
            "COGMENT_ORCHESTRATOR_PROMETHEUS_PORT",
            "PROMETHEUS_PORT",
            text="For Prometheus; 0: off.",
        ),
    ] = 0
    params: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="COGMENT_DEFAULT_PARAMS_FILE",
            help="Default parameters: YAML with a section `trial_params`.",
            show_default=False,
            rich_help_panel=_COGMENT,
        ),
    ] = None
    pre_trial_hooks: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ENDPOINT[,...]",
            envvar="COGMENT_PRE_TRIAL_HOOKS",
            help="Hooks that change parameters, in order; may be given more than once.",
            show_default=False,
            rich_help_panel=_COGMENT,
        ),
    ] = None
    status_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="COGMENT_STATUS_FILE",
            help="Add I, R and T to it: initializing, ready, terminated.",
            show_default=False,
            rich_help_panel=_COGMENT,
        ),
    ] = None
    gc_frequency: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole_number("--gc-frequency", 1),
            envvar="COGMENT_GC_FREQUENCY",
            help="Changes nothing: what is over is freed at once.",
            rich_help_panel=_COGMENT,
        ),
    ] = 10
    log_level: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            envvar="COGMENT_LOG_LEVEL",
            help="Lowest level to log: off, error, warning, info, debug, trace.",
            rich_help_panel=_COGMENT,
        ),
    ] = "info"
    log_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="COGMENT_LOG_FILE",
            help="Log to a file a day, whose name ends with the date.",
            show_default=False,
            rich_help_panel=_COGMENT,
        ),
    ] = None
    log_format: Annotated[
        str,
        typer.Option(
            metavar="text|json",
            envvar="COGMENT_LOG_FORMAT",
            help="Log lines as text, or a JSON object each.",
            rich_help_panel=_COGMENT,
        ),
    ] = "text"
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address to listen at.", rich_help_panel=_ACCESS)
    ] = "127.0.0.1"
    guest: guests.Guest = None
    played: guests.PlayedGuest
    grpc_open: Annotated[
        bool,
        typer.Option(
            "--grpc-open",
            help="Serve gRPC, which has no login, to other machines too.",
            rich_help_panel=_ACCESS,
        ),
    ] = False
    tls_cert: Annotated[Path | None, _web("FILE", "The certificate of the web port, PEM.")] = None
    tls_key: Annotated[Path | None, _web("FILE", "The key of the certificate, PEM.")] = None
    allow_host: Annotated[
        list[str] | None, _web("NAME", "Answer requests of browsers for that name too.")
    ] = None
    allow_origin: Annotated[
        list[str] | None, _web("ORIGIN", "Let pages of that origin use the web port.")
    ] = None
    allow_endpoint: Annotated[
        list[str] | None,
        _web("ENDPOINT", "Let parameters from browsers name it, as those of --params."),
    ] = None
    data: Data = Path("trials")
    kept_trials: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole_number("--kept-trials", 1),
            help="Ended trials in the log; the oldest are removed.",
            rich_help_panel=_LOG,
        ),
    ] = 10_000
    most_bytes: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Bytes of the log; the oldest ended trials are removed.",
            rich_help_panel=_LOG,
        ),
    ] = "8GiB"
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Change a limit: live_trials=100, message_bytes=1MiB, ... (any number of times).",
            show_default=False,
        ),
    ] = None
    debug: options.Debug = False
    directory_endpoint: Annotated[
        str | None, _refused("--directory-endpoint", "COGMENT_DIRECTORY_ENDPOINT")
    ] = None
    private_key: Annotated[str | None, _refused("--private-key", "COGMENT_PRIVATE_KEY_FILE")] = None
    root_cert: Annotated[str | None, _refused("--root-cert", "COGMENT_ROOT_CERT_FILE")] = None
    trust_chain: Annotated[str | None, _refused("--trust-chain", "COGMENT_TRUST_CHAIN_FILE")] = None
    actor_http_port: Annotated[
        int,
        typer.Option(
            "--actor-http-port",
            hidden=True,
            parser=whole_number("--actor-http-port", 0, LAST_PORT),
        ),
    ] = 0
    directory_authentication_token: Annotated[
        str | None, _unused("--directory-authentication-token")
    ] = None
    directory_auto_register: Annotated[str | None, _unused("--directory-auto-register")] = None
    directory_registration_host: Annotated[str | None, _unused("--directory-registration-host")] = (
        None
    )
    directory_registration_properties: Annotated[
        list[str] | None, _unused("--directory-registration-properties")
    ] = None

    @property
    def web_port(self) -> int:
        """
        The port for browsers, whether given by its present or its deprecated option; 0 for none.
        """
        return self.actor_web_port or self.actor_http_port

    def settings(self) -> ServedTrials:
        """Return the settings of the service, without a guest. Raises UsageError."""
        refuse_directory(self.directory_endpoint)
        refuse_tls(self.private_key or self.root_cert or self.trust_chain)
        from arkml.trial_commands.trial_service import ServedTrials, TrialPorts

        address = grpc_host(bare_host(self.host), is_open=self.grpc_open, has_web=self.web_port > 0)
        ports = TrialPorts(address, self.lifecycle_port, self.actor_port, self.prometheus_port)
        check_ports(ports, self.web_port)
        hooks = tuple(
            one for given in self.pre_trial_hooks or () for one in given.split(",") if one
        )
        return ServedTrials(
            ports=ports,
            trials=trials_options(self.params, hooks, tuple(self.limit or ())),
            datalog=datalog_options(self.kept_trials, self.most_bytes),
            data=self.data,
            status_file=self.status_file,
        )

    def web(self) -> WebPortOptions:
        """Return the options of the web port."""
        return WebPortOptions(
            bare_host(self.host),
            self.web_port,
            self.tls_cert,
            self.tls_key,
            self.allow_host,
            self.allow_origin,
            self.allow_endpoint,
        )


def serve(options: ServeTrialsOptions) -> int:
    """
    Serve trials until Ctrl-C, which ends them.

    gRPC has no login: it is served to this machine alone, unless --grpc-open says otherwise. The
    web port needs a token in the path of its endpoint if others can reach it: the token of the
    variable ARKML_TRIALS_TOKEN, or a new one, which is shown.

    With --guest a guest is the environment. By default, its trials have all of its slots as actors:
    policies act for the classes that have one, and actors join in the others.
    """
    if options.log_format not in _LOG_FORMATS:
        raise UsageError(f"--log-format {options.log_format}: it takes {' or '.join(_LOG_FORMATS)}")
    guest, played = options.guest, options.played
    if guest is None:
        played.require_none()
    require_trials()
    from arkml.trial_commands import trial_service

    settings = options.settings()
    as_json = options.log_format == "json"
    logs = LogOptions(
        options.log_level,
        debug=options.debug,
        file=options.log_file,
        is_daily=True,
        as_json=as_json,
    )
    logs.start()
    with ExitStack() as stack:
        if guest is not None:
            # People play in browsers, so without the web port ticks wait for their players.
            people = options.web_port > 0
            hosting = stack.enter_context(played.open_hosting(guest, people=people))
            given = None if options.params is None else settings.trials.params
            learning = stack.enter_context(guests.open_learning(played, hosting))
            wanted = guests.hosted_params(hosting, given)
            trials = replace(settings.trials, params=wanted)
            settings = replace(settings, trials=trials, hosting=hosting, learning=learning)
        port = options.web().options(settings.trials.params, has_page=guest is not None)
        settings = replace(settings, web=port)
        return 128 + trial_service.serve(settings, partial(_announce, as_json=as_json))


def _announce(text: str, *, as_json: bool) -> None:
    """Write a line like a log line, at any log level."""
    line = json_line("arkml.trials", "info", text) if as_json else text
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
