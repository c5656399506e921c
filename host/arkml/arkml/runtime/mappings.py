"""
The machine's limits on memory, such as the number of mappings, of which each guest takes several.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import wasmtime

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


@contextmanager
def explained() -> Iterator[None]:
    """Raise InstanceLimitExceeded in a `with` block where wasmtime lacks memory or mappings."""
    try:
        yield
    except wasmtime.WasmtimeError as error:
        reason = refused_by_the_machine(error)
        if not reason:
            raise
        raise InstanceLimitExceeded(f"no guest can run in this process: {reason}") from None


def refused_by_the_machine(error: Exception) -> str:
    """Return why the machine refused memory, with advice; an empty text for any other error."""
    text = " ".join(str(error).split())
    if "make memory executable" in text:
        return (
            "the system forbids memory to become executable, which wasmtime needs for the code of"
            " guests: start it without MemoryDenyWriteExecute= (PR_SET_MDWE), or allow it execmem"
        )
    if "annot allocate memory" not in text:
        return ""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        return (
            f"its address space is limited to {most:,} bytes (ulimit -v), and wasmtime reserves"
            f" over 4 GiB of it for the memory of each guest ({text}): raise the limit, and bound"
            " memory by a cgroup"
        )
    return f"no memory mappings are left ({text}): raise vm.max_map_count or close guests"
