"""The checkpoints that learners have written, found by the names of their files."""

from __future__ import annotations

import re
from pathlib import Path

from arkml.base.files import read_plain
from arkml.hive.protocol.result_messages import CheckpointInfo
from arkml.hive.protocol.runs import ORIGIN_FILE

_SUFFIX = ".safetensors"
_FORMER_SUFFIX = ".zip"  # of arkml 0.1, which a learner refuses with the reason
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,63})(?:@(\d{1,12}))?", re.ASCII)


def list_checkpoints(run: Path) -> list[CheckpointInfo]:
    """Return the checkpoints of the run whose directory is `run`, oldest first."""
    numbers = _numbers(run)
    try:
        best = int(read_plain(run / "checkpoints" / "best", follow=False))
    except (OSError, ValueError):
        best = -1
    return [
        CheckpointInfo(checkpoint_name(run.name, number), number, number == best)
        for number in numbers
    ]


def checkpoint_name(run: str, n_opts: int) -> str:
    """Return the name of the checkpoint that a run wrote after `n_opts` updates."""
    return f"{run}@{n_opts}"


def checkpoint_exists(runs: Path, name: str) -> bool:
    """
    Return whether a run can start from the checkpoint of that name.

    It is `run_id` or `run_id@n_opts` of a run below `runs`, or the file that the hive was started
    with.
    """
    if name == ORIGIN_FILE:
        return (runs.parent / ORIGIN_FILE).is_file()
    match = _NAME.fullmatch(name)
    if match is None:
        return False
    run = runs / match[1]
    numbers = _numbers(run) or _numbers(run, _FORMER_SUFFIX)
    return bool(numbers) if match[2] is None else int(match[2]) in numbers


def _numbers(run: Path, suffix: str = _SUFFIX) -> list[int]:
    files = (run / "checkpoints").glob(f"*{suffix}")
    return sorted(int(path.stem) for path in files if path.stem.isdecimal())
