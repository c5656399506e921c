"""`arkml trials`: the commands that read and clean up the log of trials, and its subcommands."""

from __future__ import annotations

import base64
import math
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import GOOD, Job, print_json
from arkml.cli.units import counted, duration
from arkml.cli.values import whole_number
from arkml.errors import UsageError
from arkml.trial_commands import export, play, serve_command, spec_command
from arkml.trial_commands.export import Data, open_log

if TYPE_CHECKING:
    from arkml.trials.datalog.reader import DatalogReader, TrialRecord
    from arkml.trials.datalog.samples import TickSample

_TRIALS = ("trial", "user", "state", "ticks", "actors", "began", "duration", "reason")
_TICKS = ("tick", "actions", "rewards", "messages", "events")
_AGES = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

Last = Annotated[
    int,
    typer.Option(
        "--last", metavar="N", parser=whole_number("--last", 0), help="At most N, 0 for all."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of `arkml trials` to the application."""
    trials = options.add_group(
        app,
        "trials",
        "Serve trials by Cogment's protocol, and look at those that were played.",
        epilog=options.epilog(
            "arkml trials serve --params params.yaml",
            "arkml trials list",
            "arkml trials show 5d1c8f2e",
            "arkml trials export 5d1c8f2e --spec cogment.yaml -o human.npz",
            "arkml trials rm --user eve",
            "arkml trials generate cogment.yaml --python src",
            "arkml trials spec c_reach.wasm",
        ),
    )
    serve_command.register(trials)
    for command in (list_, show):
        trials.command(command.__name__.rstrip("_"))(command)
    play.register(trials)
    export.register(trials)
    spec_command.register(trials)
    trials.command("rm")(rm)


def list_(
    data: Data = Path("trials"),
    user: Annotated[
        str | None,
        typer.Option(metavar="USER", help="Those of one user only.", show_default=False),
    ] = None,
    last: Last = 100,
    as_json: options.Json = False,
) -> Job:
    """List the trials in the log, the newest first."""

    def job() -> int:
        with open_log(data) as reader:
            records = [one for one in reader.trials() if user is None or one.user_id == user]
            shown = records[:last] if last else records
            rows = [(record, len(reader.params(record).actors)) for record in shown]
        if as_json:
            print_json({"trials": [_json(record) | {"actors": actors} for record, actors in rows]})
            return GOOD
        from arkml.cli.tables import grid, show

        left = len(records) - len(shown)
        title = counted(len(records), "trial") + (f", {left:,} older not shown" if left else "")
        show(title, grid(_TRIALS, [_row(record, actors) for record, actors in rows]))
        return GOOD

    return job


def show(
    trial: Annotated[str, typer.Argument(metavar="ID", help="A trial.", show_default=False)],
    data: Data = Path("trials"),
    last: Last = 20,
    as_json: options.Json = False,
) -> Job:
    """Show one trial: its parameters, and what happened in its last ticks."""

    def job() -> int:
        from arkml.trials.datalog.samples import samples

        with open_log(data) as reader:
            record = reader.named(trial)[0]
            params = reader.params(record)
            first = max(0, record.ticks - last) if last else 0
            ticks = samples(reader, record, params, first)
            if as_json:
                _print_trial(record, params, ticks)
            else:
                _show_trial(record, params, ticks)
        return GOOD

    return job


def rm(
    trials: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Trials.", show_default=False)
    ] = None,
    data: Data = Path("trials"),
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="All of a user.", show_default=False)
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="All that ended before a time, as 2026-01-31T12:00, or an age, as 30d or 12h.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
) -> Job:
    """
    Remove trials from the log, also while a server writes to it.

    Asks for nothing. --user and --before together select trials for which both are true; running
    trials are kept.
    """
    return partial(_remove, data, tuple(trials or ()), user, before, as_json)


def _remove(
    data: Path, ids: tuple[str, ...], user: str | None, before: str | None, as_json: bool
) -> int:
    if bool(ids) == (user is not None or before is not None):
        raise UsageError("`arkml trials rm` takes trials, or --user and --before")
    until = None if before is None else _nanoseconds(before)
    with open_log(data):
        pass
    from arkml.trials.datalog.removal import remove

    running: list[str] = []

    def choose(reader: DatalogReader) -> list[TrialRecord]:
        if ids:
            return [record for one in dict.fromkeys(ids) for record in reader.named(one)]
        meant = [one for one in reader.trials() if user is None or one.user_id == user]
        running.extend(one.id for one in meant if one.ended_ns is None)
        ended = [(one, one.ended_ns) for one in meant if one.ended_ns is not None]
        return [one for one, at in ended if until is None or at < until]

    removed = remove(data, choose)
    if as_json:
        print_json({"removed": [one.id for one in removed], "running": running})
        return GOOD
    lines = [f"trial {one.id} of {one.user_id or 'no user'} is removed" for one in removed]
    lines.append(f"{counted(len(removed), 'trial')} removed")
    if running:
        lines.append(f"still running, and kept: {', '.join(running)}")
    sys.stdout.write("".join(f"{harmless(line)}\n" for line in lines))
    return GOOD


def _nanoseconds(text: str) -> int:
    """Return the time that `--before` names, in nanoseconds since 1970. Raises UsageError."""
    age = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if age is not None:
        return time.time_ns() - int(age[1]) * _AGES[age[2]] * 10**9
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 10**9)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--before {text}: it takes a time, as 2026-01-31T12:00, or an age, as 30d, 12h or 5m"
        ) from None


def _row(record: TrialRecord, actors: int) -> tuple[str, ...]:
    seconds = record.seconds
    return (
        record.id,
        record.user_id,
        _state(record),
        f"{record.ticks:,}",
        f"{actors:,}",
        _time(record.began_ns),
        "" if seconds is None else duration(max(0.0, seconds)),
        record.reason,
    )


def _json(record: TrialRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "user": record.user_id,
        "state": _state(record),
        "ticks": record.ticks,
        "began": _time(record.began_ns),
        "seconds": record.seconds,
        "reason": record.reason,
    }


def _state(record: TrialRecord) -> str:
    from arkml.trials.wire.common_pb2 import TrialState

    return str(TrialState.Name(record.state))


def _time(nanoseconds: int) -> str:
    try:
        moment = datetime.fromtimestamp(nanoseconds / 1e9, tz=UTC).astimezone()
    except (ValueError, OverflowError, OSError):  # the file may come from anywhere
        return f"{nanoseconds} ns"
    return moment.isoformat(" ", "seconds")


def _show_trial(record: TrialRecord, params: Any, ticks: Iterator[TickSample]) -> None:
    from arkml.cli.tables import facts, grid, show

    environment = params.environment
    rows = [
        *((name, str(value)) for name, value in _json(record).items() if name != "id"),
        ("environment", f"{environment.name} at {environment.endpoint}"),
        ("max_steps", str(params.max_steps or "none")),
        *((f"property {name}", value) for name, value in sorted(params.properties.items())),
    ]
    show(f"trial {record.id}", facts(rows))
    actors = [
        (one.name, one.actor_class, one.implementation, one.endpoint) for one in params.actors
    ]
    show(
        counted(len(actors), "actor"),
        grid(("actor", "class", "implementation", "endpoint"), actors),
    )
    show("ticks", grid(_TICKS, map(_tick_row, ticks)))


def _tick_row(sample: TickSample) -> tuple[str, ...]:
    actions = [
        f"{name}: {one.note if one.note != 'given' else counted(len(one.content), 'byte')}"
        for name, one in sample.actions.items()
    ]
    rewards = [f"{name}: {one.value:.6g}" for name, one in sample.rewards.items()]
    messages = [
        f"{one.sender_name} to {one.receiver_name}: {one.payload.type_url.rpartition('/')[2]}"
        for one in sample.messages
    ]
    events = [*sample.states, *sample.events]
    return (str(sample.tick), *("\n".join(lines) for lines in (actions, rewards, messages, events)))


def _print_trial(record: TrialRecord, params: Any, ticks: Iterator[TickSample]) -> None:
    from arkml.trials.datalog.samples import document

    print_json(
        {
            "trial": _json(record),
            "parameters": document(params),
            "ticks": [_tick_json(sample) for sample in ticks],
        }
    )


def _tick_json(sample: TickSample) -> dict[str, Any]:
    observed = sample.observations
    return {
        "tick": sample.tick,
        "time": _time(sample.timestamp),
        "observations": None if observed is None else [*map(_text, observed.observations)],
        "observed_by": None if observed is None else [*observed.actors_map],
        "actions": {
            name: {"content": _text(one.content), "note": one.note, "origin": one.origin}
            for name, one in sample.actions.items()
        },
        "rewards": {name: _number(one.value) for name, one in sample.rewards.items()},
        "messages": [
            {
                "sender": one.sender_name,
                "receiver": one.receiver_name,
                "type": one.payload.type_url,
                "content": _text(one.payload.value),
            }
            for one in sample.messages
        ],
        "states": sample.states,
        "events": sample.events,
    }


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
