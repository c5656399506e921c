"""
The files of exact versions with hashes, and their agreement with the other files of versions.

    python -m tests.audit.hashes --write BIN

writes `.ci/release.txt`, what a release is built with, and `.ci/runtime.txt`, what it needs when it
runs, with pip-compile of the folder BIN.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
RELEASE, RUNTIME = ROOT / ".ci" / "release.txt", ROOT / ".ci" / "runtime.txt"

_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")
_BUILD = ("--only-build-deps", "--build-deps-for=wheel", "--build-deps-for=sdist")
_OPTIONS = (
    "--quiet", "--generate-hashes", "--strip-extras", "--no-annotate", "--no-header",
    "--no-emit-index-url", "--no-emit-find-links", "--constraint=constraints.txt",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pin:
    """A package at one version, with the SHA-256 of each of its files."""

    name: str
    version: str
    hashes: frozenset[str] = frozenset()


def normalized(name: str) -> str:
    """Return the name of a package as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, Pin]:
    """Return the pins in a file of requirements, by name."""
    found: dict[str, Pin] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if match := _PIN.match(line):
            name = normalized(match[1])
            found[name] = Pin(name, match[2], frozenset(_HASH.findall(line)))
    return found


def disagreements(hashed: str, constraints: str) -> list[str]:
    """Return a sentence for each pin that has no hash, or another version than the constraints."""
    expected = pins(constraints)
    sentences = []
    for pin in pins(hashed).values():
        if not pin.hashes:
            sentences.append(f"{pin.name} {pin.version} has no hash")
        other = expected.get(pin.name)
        if other is not None and other.version != pin.version:
            sentences.append(f"{pin.name} is {pin.version}, constraints.txt has {other.version}")
    return sentences


def missing(hashed: str, required: list[str]) -> list[str]:
    """Return a sentence for each requirement of `required` without a pin."""
    found = pins(hashed)
    names = [normalized(re.split(r"[\s\[<>=!~;]", each, maxsplit=1)[0]) for each in required]
    return [f"{name} has no pin" for name in names if name not in found]


def write(folder: Path) -> None:
    """Write both files with pip-compile of `folder`, from the public index and nothing else."""
    bare = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    bare |= {"ARKML_PLATFORM": "manylinux_2_17_x86_64"}  # of which the build needs ziglang
    for path, options in ((RELEASE, _BUILD), (RUNTIME, ())):
        command = [str(folder / "pip-compile"), *_OPTIONS, *options, f"--output-file={path}"]
        subprocess.run([*command, "pyproject.toml"], cwd=ROOT, env=os.environ | bare, check=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=Path, required=True, metavar="BIN")
    write(parser.parse_args().write)


if __name__ == "__main__":
    main()
