"""The process of a learner: `python -m arkml.learning.worker RUN_DIR` or `--spare`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from arkml.errors import HiveError, InvalidSettings
from arkml.hive.protocol.messages import Message
from arkml.learning.server_connection import LinkClosed, ServerConnection
from arkml.parent_watch import watch_parent

if TYPE_CHECKING:
    from arkml.learning.reporter import Reporter

STOPPED = 0
MISCONFIGURED = 3
DIVERGED = 4

_NICE = 10  # a frame of a host on the same machine comes before an update
_PROGRESS_EVERY = 1.0
_LIFE_LINE = 0
_LINK = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Learn for one run. Returns the exit status.

    Standard input is the life line: the process ends when that does, or its parent. File 3 is a
    socket to the server, with messages as `hive.protocol.messages` has them.
    """
    parser = argparse.ArgumentParser(prog="python -m arkml.learning.worker", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("run", nargs="?", type=Path, help="the directory of the run")
    what.add_argument("--spare", action="store_true", help="warm up, then wait for a run to adopt")
    parser.add_argument("--threads", type=int, default=1, help="threads for torch")
    options = parser.parse_args(arguments)
    watch_parent(_LIFE_LINE, os.getppid(), lambda: os._exit(STOPPED))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the host
    os.nice(_NICE)
    logging.basicConfig(level=logging.INFO, format="learner: %(message)s")
    link = ServerConnection(socket.socket(fileno=_LINK))
    try:
        if options.spare:
            return _spare(link, options.threads)
        _prepare(options.threads)
        return _learn(link, options.run, ())
    except LinkClosed:
        return STOPPED


def _prepare(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _spare(link: ServerConnection, threads: int) -> int:
    from arkml.learning.warmup import warm_up

    _prepare(threads)
    warm_up()
    while True:
        messages = link.receive(None)
        for number, message in enumerate(messages):
            if message["kind"] == "adopt":
                return _learn(link, Path(message["run_dir"]), messages[number + 1 :])


def _learn(link: ServerConnection, directory: Path, waiting: Sequence[Message]) -> int:
    from arkml.learning.algorithm import Diverged
    from arkml.learning.building import build
    from arkml.learning.export import ExportWrong
    from arkml.learning.reporter import Reporter
    from arkml.learning.trainer import Trainer

    try:
        learner = build(directory)
    except (HiveError, InvalidSettings, MemoryError) as error:
        link.send("fatal", reason=str(error) or "no memory for the rows", retry=False)
        return MISCONFIGURED
    reporter = Reporter(learner, link)
    _report_progress(reporter)
    try:
        Trainer(learner, link, reporter).run(waiting)
    except (Diverged, ExportWrong) as error:
        link.send("fatal", reason=str(error), retry=True)
        return DIVERGED
    except LinkClosed:
        raise
    except Exception as error:
        link.send("fatal", reason=f"{type(error).__name__}: {error}", retry=True)
        raise
    return STOPPED


def _report_progress(reporter: Reporter) -> None:
    """Send progress each second from a thread; end the process once the server is gone."""

    def report() -> None:
        while True:
            time.sleep(_PROGRESS_EVERY)
            try:
                reporter.tell()
            except LinkClosed:
                os._exit(STOPPED)

    Thread(target=report, name="arkml-progress", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
