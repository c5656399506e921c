"""A program that does what its job says: run with `python -m`, as placements do."""

import os
import signal
import subprocess
import sys
import time

from arkml.workers.program import Program, run_program


def main(program: Program) -> int:
    job = program.job
    program.report({"event": "ready", "pid": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"]})
    match job["do"]:
        case "echo":
            program.report({"event": "echo", **job})
        case "hear":
            for _ in range(job["messages"]):
                program.report({"event": "heard", **program.messages.get()})
        case "end":
            print("this is not an event")
            program.report({"event": "ended", "reason": job["reason"]})
            return job["status"]
        case "raise":
            raise RuntimeError(job["message"])
        case "spawn":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
            program.report({"event": "child", "pid": child.pid})
        case "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(1)
    program.is_stopping.wait()
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
