"""
The process of a learner: `python -m arkml.learning.worker RUN_DIR`, `--spare` or `--find DEVICE`.
"""

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

from arkml.base.loggers import SafeLogger
from arkml.base.parent_watch import watch_parent
from arkml.base.processors import come_after_parent, usable_processors
from arkml.errors import HiveError, InvalidSettings
from arkml.hive.protocol.wire import Message
from arkml.learning.jax_engine import find_devices, limit_threads, widen
from arkml.learning.server_connection import ServerConnection, ServerGone

if TYPE_CHECKING:
    from arkml.learning.reporter import Reporter

STOPPED = 0
MISCONFIGURED = 3
DIVERGED = 4

log = SafeLogger(__name__)

_STEPS = 5  # of niceness after its hive, and so after the frames of a host (decision 9)
_PROGRESS_SECONDS = 1.0
_PARENT_PIPE = 0
_SERVER_SOCKET = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run a learner process for one run, and return its exit status.

    The process ends when standard input is closed or its parent has ended. File 3 is a socket to
    the server, with messages as in `hive.protocol.messages`.
    """
    parser = argparse.ArgumentParser(prog="python -m arkml.learning.worker", description=__doc__)
    run_or_spare = parser.add_mutually_exclusive_group(required=True)
    run_or_spare.add_argument("run", nargs="?", type=Path, help="the directory of the run")
    run_or_spare.add_argument(
        "--spare", action="store_true", help="warm up, then wait for a run to adopt"
    )
    run_or_spare.add_argument("--find", metavar="DEVICE", help="look for a device, and end")
    parser.add_argument(
        "--threads", type=int, help="the most threads for JAX: all processors by default"
    )
    options = parser.parse_args(arguments)
    come_after_parent(_STEPS)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # learners share a GPU
    if options.find is not None:
        return _find(options.find)
    limit_threads(1)
    widen(options.threads or usable_processors())
    watch_parent(_PARENT_PIPE, os.getppid(), lambda: os._exit(STOPPED))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the host
    logging.basicConfig(level=logging.INFO, format="learner: %(levelname)s: %(message)s")
    server = ServerConnection(socket.socket(fileno=_SERVER_SOCKET))
    try:
        if options.spare:
            return _wait_for_a_run(server)
        return _learn(server, options.run, ())
    except ServerGone:
        return STOPPED


def _find(device: str) -> int:
    """Look for a device, and print why it cannot be used."""
    try:
        find_devices(device)
    except InvalidSettings as error:
        sys.stdout.write(f"{error}\n")
        sys.stdout.flush()
        return MISCONFIGURED
    return STOPPED


def warm_up() -> None:
    """Import everything, and make one update and one export of a tiny learner."""
    import numpy as np

    from arkml.hive.protocol.rows import RowColumns, RowKind
    from arkml.hive.protocol.settings import Settings
    from arkml.learning import learner_loop  # noqa: F401  imports the rest
    from arkml.learning.learner import make_algorithm
    from arkml.learning.normalizer import Normalizer

    settings = Settings(1, 1, hidden=8, layers=1, memory_max_size=1_000, batch_size=2, sync=True)
    algorithm = make_algorithm(settings, Normalizer(1, active=False))
    algorithm.policy()
    rows = RowColumns.empty(3, 1, 1)
    rows.step[:] = np.arange(3)
    algorithm.buffer.add(0, RowKind.TRAINING, rows)
    algorithm.train(1)


def _wait_for_a_run(server: ServerConnection) -> int:
    warm_up()
    while True:
        messages = server.receive(None)
        for number, message in enumerate(messages):
            if message["kind"] == "adopt":
                return _learn(server, Path(message["run_dir"]), messages[number + 1 :])


def _learn(server: ServerConnection, directory: Path, waiting: Sequence[Message]) -> int:
    from arkml.learning.algorithm import Diverged
    from arkml.learning.learner import Learner
    from arkml.learning.learner_loop import Trainer
    from arkml.learning.policy_graph import ExportWrong
    from arkml.learning.reporter import Reporter

    try:
        learner = Learner.open(directory)
    except (HiveError, InvalidSettings, MemoryError) as error:
        server.send("fatal", reason=str(error) or "no memory for the rows", retry=False)
        return MISCONFIGURED
    except Exception as error:
        server.send("fatal", reason=_described(error), retry=True)
        raise
    reporter = Reporter(learner, server)
    _report_progress(reporter)
    try:
        Trainer(learner, server, reporter).run(waiting)
    except (Diverged, ExportWrong) as error:
        server.send("fatal", reason=str(error), retry=True)
        return DIVERGED
    except MemoryError as error:  # a restart would come to the same row
        server.send("fatal", reason=str(error) or "no memory for the rows", retry=False)
        return MISCONFIGURED
    except ServerGone:
        raise
    except Exception as error:
        learner.leave_gpu()  # which may be what has failed
        server.send("fatal", reason=_described(error), retry=True)
        raise
    return STOPPED


def _described(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _report_progress(reporter: Reporter) -> None:
    """Send progress each second from a thread; end the process once the server is gone."""

    def report() -> None:
        while True:
            time.sleep(_PROGRESS_SECONDS)
            try:
                reporter.send_progress()
            except ServerGone:
                os._exit(STOPPED)

    Thread(target=report, name="arkml-progress", daemon=True).start()


def _run() -> int:
    try:
        return main()
    except SystemExit as error:  # argparse has printed its message
        return error.code if isinstance(error.code, int) else 1
    except BaseException:
        log.exception("the learner ends")
        return 1
    finally:
        logging.shutdown()


if __name__ == "__main__":
    os._exit(_run())  # a normal exit would abort a running compilation (decision 16)
