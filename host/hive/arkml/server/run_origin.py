"""The origin of a run, the token that started it and the goal of its command, in a file."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from arkml.base.files import write_atomic
from arkml.hive.protocol.run_origin import RunGoal, RunOrigin
from arkml.hive.protocol.runs import START_NAME, RunRequest
from arkml.hive.protocol.wire import WireStruct
from arkml.server.hive_files import read_kept


class RunStart(WireStruct, frozen=True):
    """
    The circumstances in which a run was started.

    Attributes:
        owner_name: Name of the token that started the run, empty for a hive without tokens.
        origin: The machine and command that started the run, None if the host did not say so.
        goal: The goal of the last command that started or resumed the run, None without one.

    """

    owner_name: Annotated[str, Meta(max_length=128)] = ""
    origin: RunOrigin | None = None
    goal: RunGoal | None = None


class StartFile:
    """
    The file with the circumstances in which a run was started.

    A damaged file counts as missing, and is logged. `frames` are the frames played towards the goal
    so far, None until a host reports them to this process.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / START_NAME
        self.now = read_kept(self._path, RunStart) or RunStart()
        self.frames: int | None = None

    async def resume(self, request: RunRequest) -> None:
        """Store the goal of a request that resumes the run. Raises OSError."""
        self.frames = None
        await self._write(replace(self.now, goal=_begun(request)))

    async def begin(self) -> None:
        """Count the time of the goal from now on: the run has its first policy. Raises OSError."""
        if goal := self.now.goal:
            await self._write(replace(self.now, goal=replace(goal, since=time.time_ns())))

    async def _write(self, start: RunStart) -> None:
        if start != self.now:
            await asyncio.to_thread(write_start, self._path.parent, start)
            self.now = start


def start_of(request: RunRequest, owner_name: str) -> RunStart:
    """
    Return the circumstances of a run that a request creates now.

    `owner_name` is the name of the token that makes the request.
    """
    return RunStart(owner_name, request.origin or None, _begun(request))


def write_start(directory: Path, start: RunStart) -> None:
    """Replace the file with a run's circumstances in the run's directory. Raises OSError."""
    write_atomic(directory / START_NAME, start.as_bytes(), durable=True)


def _begun(request: RunRequest) -> RunGoal | None:
    """Return the goal of a request, which begins now."""
    return replace(request.goal, since=time.time_ns()) if request.goal else None
