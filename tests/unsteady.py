"""
Tests that fail side by side with others and pass alone, told from those that fail.

    python -m tests.unsteady OPTIONS OF PYTEST ...

What fails is run again, each test in a process of its own. One that passes then is listed as
unsteady, and does not fail the run before its third time within the last runs, which are kept below
$XDG_CACHE_HOME or ~/.cache.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

RUNS = 20
"""The number of runs that are remembered."""

MOST = 20
"""Tests that are run again; if more fail, it is not for want of a quiet machine."""

TIMES = 3
FAILED = 1  # the status of pytest


def history_file():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "arkml-tests" / "unsteady.json"


def read_history(path):
    """Return the tests that were unsteady in each of the last runs."""
    return json.loads(path.read_text()) if path.exists() else []


def write_history(path, history):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(history[-RUNS:], indent=1))


def too_often(history):
    """Return the tests that were unsteady in three of the last runs."""
    counts = Counter(test for run in history[-RUNS:] for test in run)
    return sorted(test for test, count in counts.items() if count >= TIMES)


def run(options, cache):
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *options]
    return subprocess.run(command, check=False).returncode


def failed_in(cache):
    path = Path(cache) / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def markers_in(options):
    """Return the option that chooses tests by their markers: others are not run by their name."""
    place = options.index("-m") if "-m" in options else len(options)
    return options[place : place + 2]


def main(options):
    with tempfile.TemporaryDirectory(prefix="arkml-unsteady-") as cache:
        status = run(options, cache)
        failed = failed_in(cache)
        if status not in (0, FAILED) or len(failed) > MOST or (status and not failed):
            return status
        chosen = markers_in(options)
        unsteady = [test for test in failed if run([*chosen, test], f"{cache}/alone") == 0]
    path = history_file()
    history = [*read_history(path), unsteady]
    write_history(path, history)
    for test in unsteady:
        print(f"unsteady: {test} failed beside others and passed alone")
    often = [test for test in too_often(history) if test in unsteady]
    for test in often:
        print(f"unsteady {TIMES} times within {RUNS} runs: {test}")
    return FAILED if often or len(unsteady) < len(failed) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
