"""`arkml hive label`: notes of people about a run, and the texts on a run's origin for `show`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from arkml.cli import options
from arkml.cli.exits import Job
from arkml.cli.units import counted
from arkml.errors import UsageError
from arkml.hive_commands.run_client import HERE, RunName, find, print_result, run_with_client

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.runs import RunDetails, RunInfo


def label(
    run: RunName,
    hive: options.HiveAt = HERE,
    title: Annotated[
        str | None,
        typer.Option("--title", metavar="T", help="Show it by this title; empty for its name."),
    ] = None,
    note: Annotated[
        str | None,
        typer.Option("--note", metavar="TEXT|-", help="Replace its note; - reads standard input."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="T", help="Add a tag; may be given more than once."),
    ] = None,
    untag: Annotated[
        list[str] | None,
        typer.Option("--untag", metavar="T", help="Take a tag away; may be given more than once."),
    ] = None,
    star: Annotated[
        bool | None, typer.Option("--star/--no-star", help="Put it before others.")
    ] = None,
    archive: Annotated[
        bool | None,
        typer.Option("--archive/--restore", help="Hide it in lists, or show it again."),
    ] = None,
    as_json: options.Json = False,
) -> Job:
    """Note something about a run: title, note, tags, star, archive. Its name stays."""

    def change(client: HiveClient) -> int:
        from arkml.hive.protocol.labels import MAX_NOTE_BYTES, LabelsChange

        info = find(client, run)
        given = {
            "title": title,
            "note": None if note is None else _note(note, MAX_NOTE_BYTES),
            "tags": _tags(info, tag or [], untag or []) if tag or untag else None,
            "starred": star,
            "archived": archive,
        }
        given = {name: value for name, value in given.items() if value is not None}
        if not given:
            raise UsageError(f"say what to note about {run}: --title, --note, --tag, --star, …")
        changed = LabelsChange.from_json(given)
        reply = client.label(info.id, changed).result()
        text = f"run {reply.run.shown_name} ({info.id}): {', '.join(given)} changed"
        return print_result(text, reply.as_json(), as_json)

    return partial(run_with_client, hive, change)


def _tags(run: RunInfo, added: list[str], removed: list[str]) -> list[str]:
    """Return the tags of a run after a change. Raises UsageError for one that it does not have."""
    before = list(run.tags or ())
    for tag in removed:
        if tag not in before:
            have = ", ".join(before) or "none"
            raise UsageError(f"--untag {tag!r:.80}: {run.shown_name} has the tags {have}")
    return [tag for tag in before if tag not in removed] + added


def _note(text: str, most: int) -> str:
    """Return a note, or the text of standard input for "-". Raises UsageError for a longer one."""
    if text != "-":
        return text
    read = sys.stdin.read(most + 1)
    if len(read) > most:
        raise UsageError(f"--note -: standard input has more than {most} letters")
    return read


def shown_goal(run: RunInfo) -> str | None:
    """Return a text on the goal of a run's command, None if it is unknown."""
    goal = run.goal
    if not goal:
        return None
    asked = (
        f"{goal.seconds:g} s" if goal.seconds else "",
        counted(goal.frames, "frame") if goal.frames else "",
        f"a mean return of {goal.mean_return:g}" if goal.mean_return is not None else "",
    )
    return ", ".join(filter(None, asked)) or None


def origin_rows(details: RunDetails) -> Iterator[tuple[str, str]]:
    """Yield facts about the origin of a run as pairs (name, value)."""
    origin = details.origin
    values = {"by": details.owner_name}
    if origin is not None:
        versions = ", ".join(f"{name} {version}" for name, version in origin.versions.items())
        values |= {
            "command": origin.command,
            "host": origin.host,
            "guest": origin.guest_file,
            "guest_sha256": origin.guest_sha256,
            "versions": versions,
            "git": origin.git,
        }
    return ((name, value) for name, value in values.items() if value)
