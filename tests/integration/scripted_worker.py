"""
A worker program that plays nothing, run with `python -m`, as placements do.

The job's `arguments` are what it does and a directory. It writes its job there, under its number
and incarnation, and then waits for its end.
"""

import json
import os
import signal
import sys
from pathlib import Path

from arkml.workers.program import REFUSED, Program, run_program


def main(program: Program) -> int:
    job = program.job
    wish, _, directory = job["arguments"].partition(" ")
    if wish == "refuse":
        program.report({"event": "ended", "reason": "its module imports env.unknown"})
        return REFUSED
    if wish == "silent":
        program.is_stopping.wait()
    name = f"{job['worker']}-{job['incarnation']}"
    file = Path(directory, f"{name}.new")
    file.write_text(json.dumps({**job, "pid": os.getpid()}))
    file.rename(Path(directory, f"{name}.json"))
    if wish == "die":
        program.report({"event": "ended", "reason": "its guest trapped"})
        return 1
    if wish == "compile":
        os.kill(os.getpid(), signal.SIGXCPU)
    program.report({"event": "ready"})
    progress = {"frames": 9, "rows": 7, "rows_per_second": 3.5, "version": 2}
    program.report({"event": "progress", **progress})
    while not program.is_stopping.wait(0.02):
        if Path(directory, f"end-{name}").exists():
            program.report({"event": "ended", "reason": "it ran to its end"})
            return 0
    program.report({"event": "ended", "reason": "it was asked to end"})
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
