"""Runs the benchmarks: `python -m tests.benchmarks.run`, or `make bench`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks import (
    actors,
    arrays,
    async_learning,
    costs,
    environments,
    fleet,
    frame,
    functions,
    guest_trials,
    learner_start,
    learning,
    live,
    operations,
    page,
    policy_changes,
    population,
    push,
    report,
    startup,
    states,
    stored,
    suite_learned,
    threads,
    tracing,
    training_costs,
    trials,
    updates,
    walks,
    workers,
)
from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.peer import Peer, PeerError
from tests.benchmarks.rows import Row, Verdict

TOPICS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    module.TOPIC: module.rows
    for module in (
        push,
        frame,
        fleet,
        arrays,
        functions,
        population,
        threads,
        states,
        tracing,
        startup,
        training_costs,
        updates,
        learner_start,
        learning,
        actors,
        async_learning,
        workers,
        operations,
        live,
        walks,
        page,
        policy_changes,
        suite_learned,
        environments,
        guest_trials,
        trials,
        costs,
    )
}
PEERED = {push.TOPIC, frame.TOPIC, fleet.TOPIC, costs.TOPIC}
"""The topics that compare with a peer."""
DOCS = ROOT / "docs"


def main() -> int:
    options = _options()
    bench = Bench(Peer(options.peer.resolve()) if options.peer else None, options.quick)
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"other work keeps this machine busy (load {load:.1f})", file=sys.stderr)
    start = time.perf_counter()
    try:
        rows = [row for topic in options.only or TOPICS for row in TOPICS[topic](bench)]
    except PeerError as error:
        print(error, file=sys.stderr)
        return 2
    print(report.table(rows))
    for topic, lines in bench.notes.items():
        print(f"\n{topic}: {' '.join(lines)}")
    print(f"\n{time.perf_counter() - start:.0f} s", file=sys.stderr)
    _write(options, rows, bench)
    return _judge(rows)


def _write(options: argparse.Namespace, rows: list[Row], bench: Bench) -> None:
    result = stored.Result(stored.machine(), bench.notes, rows)
    _write_json(options.json, result)
    if options.write:
        if options.only:
            there = stored.from_json(json.loads((DOCS / "bench.json").read_text()))
            result = there.with_topics(result, TOPICS)
        _write_json(DOCS / "bench.json", result)
        (DOCS / "benchmarks.md").write_text(report.page(result))


def _write_json(path: Path, result: stored.Result) -> None:
    text = json.dumps(stored.as_json(result), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n")


def _judge(rows: list[Row]) -> int:
    """Say what was not asserted and what was missed; the exit status."""
    for verdict, text in (
        (Verdict.NO_PEER, "not asserted, because no peer was given (make bench PEER=PROGRAM)"),
        (Verdict.NOT_ASSERTED, "not asserted on this machine now"),
        (Verdict.MISSED, "limits missed"),
    ):
        found = [
            f"{row.topic}: {row.name} ({row.competitor or row.unit})"
            for row in rows
            if row.verdict is verdict and row.limit is not None
        ]
        if found:
            print(f"{text}: {'; '.join(found)}", file=sys.stderr)
    return int(any(row.verdict is Verdict.MISSED for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--peer", type=Path, metavar="PROGRAM", help="the native host to compare with"
    )
    parser.add_argument("--quick", action="store_true", help="a few minutes, more noise")
    parser.add_argument(
        "--only", action="append", choices=TOPICS, help="one topic; may be repeated"
    )
    parser.add_argument("--json", type=Path, default=Path("bench.json"), metavar="FILE")
    parser.add_argument(
        "--write", action="store_true", help="write the topics to docs/benchmarks.md"
    )
    options = parser.parse_args()
    if options.write:
        _require_publishable(parser, options)
    return options


def _require_publishable(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Leave the page to whole measurements."""
    if options.quick:
        parser.error("--write needs a whole run, without --quick")
    if options.peer is None and PEERED & set(options.only or TOPICS):
        parser.error(f"--write needs a --peer for {', '.join(sorted(PEERED))}")


if __name__ == "__main__":
    sys.exit(main())
