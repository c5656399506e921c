"""The numbers that a run gives to the names of metrics."""

from __future__ import annotations

from collections.abc import Sequence

from arkml.errors import HiveRefused
from arkml.server.run import Run

_MOST = 256
_LONGEST = 256


async def number(run: Run, names: Sequence[str]) -> dict[str, int]:
    """The number of each name, which stays. Raises HiveRefused, or OSError."""
    known = run.document.names
    new = [name for name in dict.fromkeys(names) if name not in known]
    if any(not name or len(name) > _LONGEST for name in names):
        raise HiveRefused(f"a metric's name has 1 to {_LONGEST} letters", 422)
    if len(known) + len(new) > _MOST:
        raise HiveRefused(f"a run has {_MOST} metrics at most", 422)
    if new:
        known += new
        try:
            await run.save()
        except OSError:
            known[:] = [name for name in known if name not in new]
            raise
        run.supervisor.send("names", names=known)
    return {name: known.index(name) for name in names}
