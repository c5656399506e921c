"""
One fuzz target in a process of its own, which keeps the input that it is at.

    python -m tests.fuzz.process TARGET --seconds 60 --seed 0 --input FILE

A crash, a hang and a want of memory end this process; FILE holds the input then.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import resource
import time
import warnings
from pathlib import Path
from typing import Any

from tests.fuzz.targets import TARGETS, explore

SPACE = 6 << 30
"""Bytes of written memory: a model or a module that wants more has found something."""

HANG = 60.0
"""Seconds after which an input is taken for one that hangs."""

_PART = 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--examples", type=int, default=_PART)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--input", type=Path, required=True)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (SPACE, SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("error")
    logging.disable(logging.CRITICAL)
    target, number, checked = TARGETS[options.target], options.seed, 0
    started = time.monotonic()
    with options.input.open("wb", buffering=0) as file, target.opened() as check:

        def watched(case: Any) -> None:
            nonlocal checked
            checked += 1
            data = case if isinstance(case, bytes) else repr(case).encode()
            os.pwrite(file.fileno(), data, 0)
            os.ftruncate(file.fileno(), len(data))
            faulthandler.dump_traceback_later(HANG, exit=True)
            check(case)
            faulthandler.cancel_dump_traceback_later()

        while True:
            explore(target, watched, options.examples, number)
            number += 1
            if options.seconds is None or time.monotonic() - started > options.seconds:
                break
    print(checked)


if __name__ == "__main__":
    main()
