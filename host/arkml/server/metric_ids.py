"""The numbers that a run gives to the names of metrics."""

from __future__ import annotations

from collections.abc import Sequence

from arkml.hive.protocol.runs import MAX_NAMES
from arkml.server.run import Run

MOST_AT_ONCE = 4 * MAX_NAMES

_LONGEST = 256


async def number(run: Run, names: Sequence[str]) -> tuple[dict[str, int], dict[str, str]]:
    """
    Return the number of each name, which stays, and why the others are refused.

    Raises OSError if they cannot be written down, and then none of them is new.
    """
    async with run.naming:
        known = _numbers(run)
        new: list[str] = []
        refused: dict[str, str] = {}
        for name in dict.fromkeys(names):
            if name in known:
                continue
            if not 1 <= len(name) <= _LONGEST:
                refused[name] = f"a name has 1 to {_LONGEST} letters, this one {len(name)}"
            elif len(known) + len(new) >= MAX_NAMES:
                refused[name] = f"the run has {MAX_NAMES} metrics already, and takes no more"
            else:
                new.append(name)
        if new:
            await _add(run, new)
            known = _numbers(run)
        return {name: known[name] for name in names if name not in refused}, refused


def _numbers(run: Run) -> dict[str, int]:
    return {name: place for place, name in enumerate(run.document.names)}


async def _add(run: Run, new: list[str]) -> None:
    known = run.document.names
    known += new
    try:
        await run.save()
    except OSError:
        del known[-len(new) :]
        raise
    run.supervisor.send("names", names=known)
