"""Updates a second beside SBX, the JAX form of stable-baselines3: `make bench-sbx`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from tests.benchmarks import report
from tests.benchmarks.bench import Bench
from tests.benchmarks.rows import AtLeast, Row, Verdict
from tests.benchmarks.updates import LIMITS, companion, row

LIMIT = AtLeast(0.95)
"""As fast, within 5 %: both are near what a core computes."""

MOST_HIDDEN = 256


def rows(bench: Bench, python: str) -> Iterator[Row]:
    """Measure ours and SBX's `train` in turn; `python` is an interpreter that has SBX."""
    for size in LIMITS:
        if size.hidden > MOST_HIDDEN:
            continue
        bench.say(f"updates beside SBX, {size.name}")
        with (
            companion("ours", size, bench.quick) as ours,
            companion("sbx", size, bench.quick, python=python) as sbx,
        ):
            blocks = {"ours": ours.measure, "SBX train()": sbx.measure}
            yield row(bench, size, LIMIT, blocks)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-sbx", description=__doc__)
    parser.add_argument("python", help="an interpreter that has SBX")
    parser.add_argument("--quick", action="store_true", help="less time, more noise")
    options = parser.parse_args()
    found = list(rows(Bench(None, options.quick), options.python))
    print(report.table(found))
    return int(any(one.verdict is Verdict.MISSED for one in found))


if __name__ == "__main__":
    sys.exit(main())
