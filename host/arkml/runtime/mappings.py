"""The limit of the machine on memory mappings, of which each guest takes several."""

from __future__ import annotations

from pathlib import Path

from arkml.errors import InstanceLimitExceeded

MAPPINGS_PER_GUEST = 5  # memory and its guards, fiber stack and its guard
_LIMIT = Path("/proc/sys/vm/max_map_count")
_USED = Path("/proc/self/maps")


def require_mappings(guests: int) -> None:
    """Raise InstanceLimitExceeded if too few mappings are left for `guests` more guests."""
    try:
        limit = int(_LIMIT.read_text())
        used = _USED.read_bytes().count(b"\n")
    except OSError:  # not Linux: running out of mappings fails later
        return
    needed = guests * MAPPINGS_PER_GUEST
    if used + needed > limit:
        raise InstanceLimitExceeded(
            f"{guests} guests need about {needed} memory mappings, but {used} of {limit} are used."
            f" Raise vm.max_map_count (sysctl -w vm.max_map_count={2 * (used + needed)}) or"
            f" make at most {max(0, (limit - used) // MAPPINGS_PER_GUEST)} guests"
        )
