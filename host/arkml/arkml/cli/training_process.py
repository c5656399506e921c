"""A training in a process of its own, which runs `arkml train`."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arkml.base.processors import usable_processors


class TrainingProcess:
    """
    The process of one training, which ends with this process.

    The training's files are in `folder`, its output with `--json` in `folder.json`, its log in
    `folder.log`. `words` are its command line. Ctrl-C does not reach the process.
    """

    def __init__(self, folder: Path, words: Sequence[str]) -> None:
        self.folder = folder
        self.status: int | None = None
        """The exit code, None until `poll` has found it."""
        with (
            folder.with_suffix(".json").open("wb") as out,
            folder.with_suffix(".log").open("wb") as log,
        ):
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, "train", *words, f"--out={folder}", "--json"],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process, which hands it on
            )

    @property
    def document(self) -> dict[str, Any]:
        """The JSON object that the training has printed; empty until then."""
        return document_of(self.folder)

    def poll(self) -> int | None:
        """Return the exit code, None while the training runs."""
        if self.status is None:
            self.status = self._process.poll()
            if self.status is not None:
                assert self._process.stdin is not None
                self._process.stdin.close()
        return self.status

    def interrupt(self) -> None:
        """Interrupt the training as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)


def document_of(folder: Path) -> dict[str, Any]:
    """Return the JSON object in the file beside a folder, such as `seed-3.json`; {} without one."""
    try:
        document = json.loads(folder.with_suffix(".json").read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def default_jobs() -> int:
    """
    Return how many trainings to run at a time: one for every two processors, as each uses two.
    """
    return max(1, usable_processors() // 2)


def _main() -> None:
    """Run a command line that is interrupted when the process that started it has ended."""
    from arkml.base.parent_watch import watch_parent

    watch_parent(0, os.getppid(), lambda: os.kill(os.getpid(), signal.SIGTERM))
    runpy.run_module("arkml", run_name="__main__")


if __name__ == "__main__":
    _main()
