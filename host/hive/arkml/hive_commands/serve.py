"""`arkml hive serve`: a hive that serves until it is ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arkml.base.loggers import SafeLogger
from arkml.cli import options
from arkml.cli.exits import GOOD, Job, exit_code, sentence
from arkml.cli.launch import TOKEN, require_hive
from arkml.cli.values import whole_number
from arkml.errors import ArkmlError, UsageError
from arkml.hive_commands.limit_options import (
    BodyTimeout,
    HeaderTimeout,
    MaxDisk,
    MaxLearners,
    MaxMemory,
    MaxRuns,
    MaxSessions,
    MaxSessionsARun,
    SessionHours,
    Watches,
    server_limits,
)
from arkml.hive_commands.tls_options import PublicUrl, TlsCert, TlsKey, TrustedProxy

if TYPE_CHECKING:
    from arkml.server.serve_options import ServeOptions, WorkerOptions
    from arkml.workers.placement import RunnerName

_MOST_WORKERS = 100_000
_FINDING = 120.0  # seconds in which JAX says whether it finds a device

_log = SafeLogger(__name__)


def serve(
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address to listen at.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(metavar="PORT", parser=whole_number("--port", 0, 65_535), help="0 picks one."),
    ] = 12356,
    data: Annotated[
        Path,
        typer.Option(
            "--data", metavar="DIR", help="The directory that keeps the runs.", readable=False
        ),
    ] = Path("hive"),
    device: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda", help="The device of the learners.")
    ] = "auto",
    idle_stop: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Stop a run that was not used for that long."),
    ] = 600.0,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Answer requests for that name too; may be given more than once."
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole_number("--workers", 0, _MOST_WORKERS),
            help="Remote workers that guests may ask for, in all runs together.",
        ),
    ] = 0,
    workers_a_run: Annotated[
        int | None,
        typer.Option(
            metavar="M",
            parser=whole_number("--workers-a-run", 1, _MOST_WORKERS),
            help="Those that one run may have.",
            show_default="N",
        ),
    ] = None,
    runner: Annotated[
        str, typer.Option(metavar="processes|ray", help="The place of remote workers.")
    ] = "processes",
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="The Ray cluster of the workers; none: one of this machine."
        ),
    ] = None,
    worker_minutes: Annotated[
        float,
        typer.Option(
            metavar="M", help="Minutes that workers continue after the last host has left."
        ),
    ] = 60.0,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    public_url: PublicUrl = None,
    trusted_proxy: TrustedProxy = None,
    max_learners: MaxLearners = None,
    max_memory: MaxMemory = None,
    max_runs: MaxRuns = 1_024,
    max_disk: MaxDisk = None,
    max_sessions: MaxSessions = 1_024,
    max_sessions_a_run: MaxSessionsARun = 256,
    session_hours: SessionHours = 24.0,
    watches: Watches = 4,
    header_timeout: HeaderTimeout = 10.0,
    body_timeout: BodyTimeout = 30.0,
    log_format: Annotated[
        str, typer.Option(metavar="text|json", help="Log lines as text, or a JSON object each.")
    ] = "text",
    notify: options.Notify = None,
    notify_command: options.NotifyCommand = None,
    debug: options.Debug = False,
) -> Job:
    """
    Serve a hive until Ctrl-C.

    Clients need one of the tokens that `arkml hive token` has made for the directory, or the
    operator's, which is read from the variable ARKML_HIVE_TOKEN; without any token only this
    machine may be served. At a loopback address, requests are refused unless they name loopback, an
    --allow-host or the --public-url; at another address they are refused only if one of these two
    options is given.

    With --workers guests that ask for remote workers get them, if their host uploads their module:
    the hive then runs modules of others, in processes without WASI and network. So it does, up to
    --watches of them, for people who watch a run whose host has the hive keep its guest.

    A request beyond a limit is refused with a sentence (429, 503 or 507), and clients try again;
    runs beyond --max-learners and --max-memory wait, in order.
    """
    names, proxies = tuple(allow_host or ()), tuple(trusted_proxy or ())

    def job() -> int:
        token = os.environ.pop(TOKEN, "")  # so that learners and workers do not inherit it
        _check_serve_options(device, idle_stop)
        per_run = workers_a_run or 0
        allowed = _worker_options(workers, per_run, runner, ray_address, worker_minutes)
        limits = server_limits(
            max_learners, max_memory, max_runs, max_disk,
            (max_sessions, max_sessions_a_run, session_hours), (header_timeout, body_timeout),
        )  # fmt: skip
        require_hive()
        _require_device(device)
        _start_logs(log_format, debug=debug)
        from arkml.hive.notifier import NotifyOptions
        from arkml.server.serve_options import ServeOptions, Timeouts, WatchOptions

        notices = NotifyOptions(tuple(notify or ()), notify_command or "")
        return _serve(
            ServeOptions(
                data=data,
                host=host,
                port=port,
                token=token,
                allow_hosts=names,
                tls_cert=tls_cert,
                tls_key=tls_key,
                public_url=public_url or "",
                trusted_proxies=proxies,
                device=device,
                timeouts=Timeouts(idle_stop=idle_stop),
                workers=allowed,
                watches=WatchOptions(watches),
                limits=limits,
                notify=notices,
            ),
            as_json=log_format == "json",
        )

    return job


def _check_serve_options(device: str, idle_stop: float) -> None:
    """Raise UsageError for an option that is out of range."""
    from arkml.hive.protocol.settings import DEVICES

    if device not in DEVICES:
        raise UsageError(f"--device {device}: it takes one of {', '.join(DEVICES)}")
    if not idle_stop > 0:
        raise UsageError(f"--idle-stop {idle_stop:g}: it takes a number of seconds above 0")


def _require_device(device: str) -> None:
    """Raise UsageError if learners could not use the device, of which another process is asked."""
    from arkml.server.serve_options import LEARNER
    from arkml.workers.process_environment import environment

    if device != "cuda":  # the others are anywhere
        return
    command, learners = [sys.executable, *LEARNER, "--find", device], environment()
    try:
        found = subprocess.run(
            command, env=learners, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=_FINDING,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--device {device}: JAX did not say within {_FINDING:g} s whether it finds one"
        ) from None
    if found.returncode:
        ended = f"JAX ended with status {found.returncode}"
        why = found.stdout.strip() or ": ".join([ended, *found.stderr.strip().splitlines()[-1:]])
        raise UsageError(f"--device {device}: {why}")


def _worker_options(
    workers: int, per_run: int, runner: str, ray_address: str | None, minutes: float
) -> WorkerOptions:
    """Return the options of remote workers. Raises UsageError for one that is out of range."""
    from arkml.server.serve_options import WorkerOptions

    if runner not in ("processes", "ray"):
        raise UsageError(f"--runner {runner}: it takes one of processes, ray")
    if ray_address is not None and runner != "ray":
        raise UsageError(f"--ray-address {ray_address}: it takes --runner ray")
    if not minutes > 0:
        raise UsageError(f"--worker-minutes {minutes:g}: it takes a number of minutes above 0")
    if per_run > workers:
        raise UsageError(f"--workers-a-run {per_run}: it is above --workers {workers}")
    name: RunnerName = "ray" if runner == "ray" else "processes"
    return WorkerOptions(workers, per_run, name, ray_address, minutes)


def _start_logs(log_format: str, *, debug: bool) -> None:
    """Begin to show the log lines of the hive. Raises UsageError for an unknown format."""
    from arkml.server.monitoring.json_logs import LOG_FORMATS, start_logs

    for known in LOG_FORMATS:
        if log_format == known:
            start_logs(known, debug=debug)
            return
    raise UsageError(f"--log-format {log_format}: it takes one of {', '.join(LOG_FORMATS)}")


def _serve(options: ServeOptions, *, as_json: bool) -> int:
    """
    Serve until SIGINT or SIGTERM, with `as_json` without a line that is not a JSON object.

    Raises UsageError and HiveError if that cannot begin.
    """
    from arkml.hive.address import Address
    from arkml.server.access.token_file import TOKENS_NAME, TokenFile
    from arkml.server.hive_service import serve as serve_hive

    def announce(host: str, port: int, _: str) -> None:
        secret = "with the token" if options.token else "without a token"
        if TokenFile(options.data).path.exists():
            secret = f"with the tokens in {TOKENS_NAME}"
        address = Address(host, port, is_secure=options.tls_cert is not None).url
        known = f" ({options.public_url})" if options.public_url else ""
        text = f"{address} {secret}{known}, runs in {options.data.resolve()}"
        if as_json:
            _log.info("%s", text)
            return
        sys.stderr.write(f"hive: {text}\n")
        sys.stderr.flush()

    try:
        serve_hive(options, announce)
    except (ArkmlError, OSError) as error:
        if not as_json:
            raise
        _log.critical("%s", sentence(error))
        return exit_code(error)
    return GOOD
