"""
A hive in a process of its own, for `operations`: `DIR seen` or `DIR unseen`.

Prints host and port as a line of JSON, and ends when its standard input is closed. An unseen hive
has neither counts of requests nor log lines.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from starlette.types import ASGIApp

from arkml.server import hive_app
from arkml.server.hive_service import serve
from arkml.server.monitoring.json_logs import start_logs
from arkml.server.serve_options import ServeOptions

LEARNER = ("-m", "tests.benchmarks.publisher")


def main() -> None:
    data, kind = sys.argv[1:]
    if kind == "seen":
        start_logs("json")
    else:
        logging.disable()
        hive_app.RequestCounts = _uncounted  # type: ignore[assignment, misc]
    options = ServeOptions(Path(data), port=0, spare=False, learner=LEARNER)
    serve(options, _announce, parent=os.getppid())


def _uncounted(inner: ASGIApp) -> ASGIApp:
    return inner


def _announce(host: str, port: int, _one_time: str) -> None:
    print(json.dumps({"host": host, "port": port}), flush=True)


if __name__ == "__main__":
    main()
