"""
A command beside busy loops, two for each processor, as often as it is asked for.

    python -m tests.under_load [--times 2] COMMAND ...

No test may depend on how fast the machine is; this is how that is found out.
"""

import argparse
import os
import subprocess
import sys

LOOP = "while True: pass"


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.under_load")
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    count = max(4, 2 * os.cpu_count())
    loops = [subprocess.Popen([sys.executable, "-I", "-S", "-c", LOOP]) for _ in range(count)]
    try:
        for _ in range(options.times):
            status = subprocess.run(options.command, check=False).returncode
            if status:
                return status
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
