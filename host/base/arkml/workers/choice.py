"""The choice of the place where worker programs run."""

from __future__ import annotations

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
    Return a place for worker programs: this machine, or a Ray cluster.

    `address` is the "HOST:PORT" of a cluster to join, which must have `cpus` free processors, one a
    worker. Without one, "ray" starts a cluster of its own on this machine. The environment variable
    RAY_ADDRESS is not read. `on_line` gets the lines of workers on this machine; Ray has files of
    its own for those of others.

    Raises UsageError if Ray is not installed or an address is given that is not used, and
    Unavailable with a sentence, within ten seconds, if the cluster cannot be joined.
    """
    if runner == "ray":
        from arkml.workers.ray_placement import RayPlacement

        return RayPlacement(address, cpus=cpus)
    if runner != "processes":
        raise UsageError(f"runner is {runner!r}, expected 'processes' or 'ray'")
    if address is not None:
        raise UsageError(
            f"the address of a Ray cluster is {address!r}, which the runner 'processes' does not"
            " use: choose the runner 'ray'"
        )
    return LocalPlacement(on_line)
