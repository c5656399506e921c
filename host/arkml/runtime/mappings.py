"""How many more guests the machine has memory mappings for."""

from __future__ import annotations

from pathlib import Path

from arkml.errors import InstanceLimitExceeded

MAPPINGS_PER_GUEST = 5  # memory and its guards, fiber stack and its guard
_LIMIT = Path("/proc/sys/vm/max_map_count")
_USED = Path("/proc/self/maps")


def require_mappings(guests: int) -> None:
    """Raise InstanceLimitExceeded if `guests` more would need more mappings than are left."""
    try:
        limit = int(_LIMIT.read_text())
        used = _USED.read_bytes().count(b"\n")
    except OSError:  # not Linux: the failure itself will tell
        return
    needed = guests * MAPPINGS_PER_GUEST
    if used + needed > limit:
        raise InstanceLimitExceeded(
            f"{guests} guests need about {needed} memory mappings; {used} of vm.max_map_count"
            f" {limit} are used. Raise it (sysctl -w vm.max_map_count={2 * (used + needed)}) or"
            f" make at most {max(0, (limit - used) // MAPPINGS_PER_GUEST)} guests"
        )
