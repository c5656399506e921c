"""Where a run came from, who started it, and what was asked for: a file in its directory."""

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
    The start of a run.

    Attributes:
        owner_name: Name of the token that started it, empty for a hive without tokens.
        origin: Where it came from, None if its host did not say so.
        goal: What the last command that started or resumed it has asked for, None for nothing.

    """

    owner_name: Annotated[str, Meta(max_length=128)] = ""
    origin: RunOrigin | None = None
    goal: RunGoal | None = None


class StartFile:
    """
    The start of one run, as its file has it. A damaged file counts as none, and is logged.

    `frames` are those of its goal so far, None before a host has told this process.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / START_NAME
        self.now = read_kept(self._path, RunStart) or RunStart()
        self.frames: int | None = None

    async def resume(self, request: RunRequest) -> None:
        """Note what a request asks for that resumes the run. Raises OSError."""
        self.frames = None
        start = replace(self.now, goal=_begun(request))
        if start != self.now:
            await asyncio.to_thread(write_start, self._path.parent, start)
            self.now = start


def start_of(request: RunRequest, owner_name: str) -> RunStart:
    """Return the start of a run that a request creates now, for the token of that name."""
    return RunStart(owner_name, request.origin or None, _begun(request))


def write_start(directory: Path, start: RunStart) -> None:
    """Replace the file in the directory of a run. Raises OSError."""
    write_atomic(directory / START_NAME, start.as_bytes(), durable=True)


def _begun(request: RunRequest) -> RunGoal | None:
    """Return the goal of a request, which begins now."""
    return replace(request.goal, since=time.time_ns()) if request.goal else None
