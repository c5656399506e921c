"""The choice of the place where actors run."""

from __future__ import annotations

from importlib import import_module
from typing import Literal, cast

from arkml.async_trainer.runners.runner import Runner
from arkml.async_trainer.runners.threads import ThreadRunner

RunnerChoice = Literal["threads", "processes", "ray"]

# Imported when they are chosen: threads need neither processes nor Ray.
_LATE = {
    "processes": ("arkml.async_trainer.runners.processes", "ProcessRunner"),
    "ray": ("arkml.async_trainer.runners.ray", "RayRunner"),
}


def make_runner(name: RunnerChoice, *, ray_address: str | None = None) -> Runner:
    """
    Return a runner of actors.

    `ray_address` is that of a cluster to join; without one "ray" starts its own on this machine.
    Raises UsageError or Unavailable with a sentence if there is none.
    """
    if name == "threads":
        return ThreadRunner()
    module, kind = _LATE[name]
    make = getattr(import_module(module), kind)
    return cast("Runner", make(ray_address) if name == "ray" else make())
