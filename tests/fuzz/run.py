"""
The fuzz targets, one after another, each in a process of its own: `make fuzz`.

    python -m tests.fuzz.run --seconds 60 [--seed 0] [--atheris PYTHON] [TARGET ...]

Prints a line for each target. The input of a finding is kept in build/fuzz. With `--atheris`, a
Python that has it, the targets that are bytes run a second time, guided by coverage of our Python.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.corpus import CORPUS

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "build" / "fuzz"
TARGETS = [
    "modules", "models", "runs", "kernels", "containers", "side_channels", "boundary", "hive",
    "connections", "answers", "yaml", "player", "states",
]  # fmt: skip
BYTE_TARGETS = {
    "modules": "modules", "models": "models", "containers": "containers",
    "side_channels": "side_channels",
}  # fmt: skip
"""Targets that Atheris runs, and the folders of their seeds."""

_ENDING = 120.0  # seconds that a process may take beyond its time: one input, made smaller
_TAIL = 4_000


_COUNT = re.compile(r"^(?:stat::number_of_executed_units: )?(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    The end of a target.

    `status` is 0 if nothing was found, and None if it did not end. `inputs` is the number of those
    that it has checked, None if it did not say. `text` is the end of what it printed.
    """

    status: int | None
    inputs: int | None
    text: str

    def line(self, name: str) -> str:
        """Return the row of this target in the table."""
        state = "nothing found" if self.status == 0 else f"FOUND (status {self.status})"
        count = "" if self.inputs is None else f"{self.inputs:,}"
        return f"{name:24}{count:>12} inputs   {state}"


def run(command: list[str], seconds: float) -> Outcome:
    """Run one target. Its status is None if it was ended for taking too long."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds + _ENDING,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(None, None, "it did not end")
    counts = _COUNT.findall(done.stdout + done.stderr)
    text = (done.stdout + done.stderr)[-_TAIL:]
    return Outcome(done.returncode, int(counts[-1]) if counts else None, text)


def command_of(target: str, seconds: float, number: int) -> list[str]:
    """Return the command that runs a target with hypothesis."""
    words = [sys.executable, "-m", "tests.fuzz.process", target]
    kept = FOUND / f"{target}.input"
    return [*words, f"--seconds={seconds}", f"--seed={number}", f"--input={kept}"]


def atheris_command(python: str, target: str, seconds: float) -> list[str]:
    """Return the command that runs a target with Atheris, whose corpus grows in build/fuzz."""
    grown = FOUND / "corpus" / target
    grown.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_total_time={round(seconds)}", "-timeout=20", "-rss_limit_mb=4096"]
    kept = [f"-artifact_prefix={FOUND}/{target}-", "-print_final_stats=1", "-max_len=16384"]
    seeds = CORPUS / BYTE_TARGETS[target]
    return [python, "-m", "tests.fuzz.with_atheris", target, *limits, *kept, str(grown), str(seeds)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--atheris")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"{', '.join(sorted(unknown))}: the targets are {', '.join(TARGETS)}")
    FOUND.mkdir(parents=True, exist_ok=True)
    chosen = options.targets or TARGETS
    commands = [(name, command_of(name, options.seconds, options.seed)) for name in chosen]
    if options.atheris:
        commands += [
            (f"{name}, Atheris", atheris_command(options.atheris, name, options.seconds))
            for name in chosen
            if name in BYTE_TARGETS
        ]
    findings = 0
    print(f"seed {options.seed}, {options.seconds:g} s for each target", flush=True)
    for name, command in commands:
        outcome = run(command, options.seconds)
        findings += outcome.status != 0
        print(outcome.line(name), flush=True)
        if outcome.status != 0:
            print(outcome.text, flush=True)
    if findings:
        print(f"{findings} findings; their inputs are in {FOUND.relative_to(ROOT)}")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
