"""The choice of a runner, which runs actors in threads, in processes or on a Ray cluster."""

from __future__ import annotations

from importlib import import_module
from typing import Literal, cast

from arkml.async_trainer.runners.runner import Runner
from arkml.async_trainer.runners.threads import ThreadRunner

RunnerChoice = Literal["threads", "processes", "ray"]

# Imported on choice: threads need neither processes nor Ray.
_LATE = {
    "processes": ("arkml.async_trainer.runners.processes", "ProcessRunner"),
    "ray": ("arkml.async_trainer.runners.ray", "RayRunner"),
}


def make_runner(name: RunnerChoice, *, ray_address: str | None = None) -> Runner:
    """
    Return a runner of actors.

    `ray_address` is the address of a cluster to join; without one, "ray" starts a cluster on this
    machine. Raises UsageError or Unavailable if the runner is not available.
    """
    if name == "threads":
        return ThreadRunner()
    module, kind = _LATE[name]
    make = getattr(import_module(module), kind)
    return cast("Runner", make(ray_address) if name == "ray" else make())
