"""The choice of a placement for worker programs."""

from __future__ import annotations

from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError
from arkml.workers.local import LocalPlacement, OnLine
from arkml.workers.placement import Placement, RunnerName


def make_placement(
    runner: RunnerName,
    address: str | None = None,
    *,
    cpus: int = 1,
    on_line: OnLine | None = None,
) -> Placement:
    """
    Return a placement for worker programs: this machine, or a Ray cluster.

    The environment variable RAY_ADDRESS is ignored.

    Args:
        runner: Name of the placement, "processes" or "ray".
        address: Address of a Ray cluster to join, such as "10.0.0.5:6379"; without one, "ray"
            starts a cluster on this machine.
        cpus: Free processors that the cluster must have, one for each worker.
        on_line: Function that gets the lines of workers on this machine; on other nodes Ray writes
            them to files.

    Raises:
        UsageError: Ray is not installed, or the address is not used.
        Unavailable: The cluster cannot be joined within ten seconds.

    """
    if runner == "ray":
        from arkml.workers.ray_placement import RayPlacement

        return RayPlacement(address, cpus=cpus)
    if runner != "processes":
        raise UsageError(f"runner is {cut_repr(runner)}, expected 'processes' or 'ray'")
    if address is not None:
        raise UsageError(
            f"the address of a Ray cluster is {cut_repr(address)}, which the runner 'processes'"
            " does not use: choose the runner 'ray'"
        )
    return LocalPlacement(on_line)
