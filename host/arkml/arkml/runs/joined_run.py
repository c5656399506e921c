"""The search for an existing run that a training joins, instead of starting a new one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING

from arkml.base.short_reprs import cut_repr
from arkml.errors import NotTrainable
from arkml.hive.protocol.parts import in_words
from arkml.hive.protocol.runs import OVER, RunInfo, RunRequest, find_run
from arkml.hive.protocol.settings import Settings

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient


def run_to_join(
    client: HiveClient, wanted: str, request: RunRequest, differing: Callable[[Settings], list[str]]
) -> RunInfo:
    """
    Return the run with an id or a name (the newest), if a guest can take part in it.

    Blocks while the hive is asked.

    Args:
        client: The client of the hive.
        wanted: The id of a run, or its name.
        request: The guest's request for a run; the run must have the same numbers of features and
            actions.
        differing: Returns texts on settings of this training that differ from the run's.

    Raises:
        NotTrainable: There is no such run, it is over, or it has other settings or parts.
        HiveError: The hive does not answer.

    """
    runs = client.runs().result()
    known = [run for run in runs if wanted in (run.id, run.name)]
    run = find_run([one for one in known if one.status not in OVER], wanted)
    if run is None:
        state = f"{cut_repr(wanted)} is {known[0].status}" if known else "there is none of that id"
        raise NotTrainable(
            f"run {cut_repr(wanted)} cannot be joined: {state}, and the hive has {len(runs)} runs"
            " (arkml hive list shows them)"
        )
    own = client.details(run.id).result().settings
    if own.sync:
        raise NotTrainable(f"run {run.name!r} learns in lockstep with one host: none can join it")
    if any(a != b for a, b in zip_longest(own.parts, request.settings.parts)):
        raise NotTrainable(
            f"run {run.name!r} has rows of {in_words(own.parts)}, and the guest has"
            f" {in_words(request.settings.parts)}"
        )
    if given := differing(own):
        raise NotTrainable(
            f"run {run.name!r} has its own settings, and others are given: {'; '.join(given)}."
            " Leave these out to join it"
        )
    return run
