"""The origin of a host's runs: its command without secrets, its machine and its guest."""

from __future__ import annotations

import os
import platform
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from arkml.base.release import RELEASE
from arkml.hive.machine import host_name
from arkml.hive.protocol.run_origin import (
    MAX_COMMAND,
    MAX_FILE,
    MAX_WORD,
    RunOrigin,
)

_PACKAGES = ("wasmtime", "onnxruntime", "jax", "numpy")
_HIDDEN = "..."
_SECRET = r"[\w.-]*(?:token|passw|secret|credential|api[_-]?key|auth)[\w.-]*"
_OPTION = re.compile(rf"--?{_SECRET}", re.IGNORECASE)
_ASSIGNED = re.compile(rf"({_SECRET}=)[^\s&#;,]+", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=://)[^\s/@]+@")

_GIT = (
    "git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
    "describe", "--always", "--dirty",
)  # fmt: skip
_GIT_WITHIN = 1.0
"""Seconds that git gets to describe a folder."""


def origin_of(name: str, sha256: str, folder: Path | None) -> RunOrigin:
    """
    Return the origin of a run that a guest of this process starts now.

    Blocks for a second at most.

    Args:
        name: The file name of the guest.
        sha256: The SHA-256 of the guest's module, in hex.
        folder: The folder of the file, None if it is not known.

    """
    return RunOrigin(
        command=_bounded(command_line(sys.argv), MAX_COMMAND),
        host=host_name(),
        guest_file=_bounded(name, MAX_FILE),
        guest_sha256=sha256,
        versions=dict(_versions()),
        git="" if folder is None else _bounded(described_by_git(folder), MAX_WORD),
    )


def command_line(words: Sequence[str]) -> str:
    """Return words as a shell command line, with "..." in place of each secret."""
    if not words:
        return ""
    program = Path(words[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    return shlex.join([name, *_without_secrets(words[1:])])


def _without_secrets(words: Sequence[str]) -> Iterator[str]:
    is_value = False  # of an option that is a secret
    for word in words:
        if is_value and not word.startswith("--"):
            yield _HIDDEN
            is_value = False
            continue
        is_value = _OPTION.fullmatch(word) is not None
        yield _ASSIGNED.sub(rf"\1{_HIDDEN}", _IN_URL.sub(f"{_HIDDEN}@", word))


def described_by_git(folder: Path) -> str:
    """Return the output of `git describe` for a folder, "" without git, or if that takes long."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        process = subprocess.Popen(
            _GIT,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that what git starts ends with it
        )
    except OSError:
        return ""
    with process:
        try:
            said, _ = process.communicate(timeout=_GIT_WITHIN)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            return ""
    return said.decode(errors="replace").strip() if process.returncode == 0 else ""


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    """Return the version of arkml, of Python, and of each package that is installed."""
    found = [("arkml", RELEASE), ("python", platform.python_version())]
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found.append((package, version(package)))
    return tuple((name, _bounded(text, MAX_WORD)) for name, text in found)


def _bounded(text: str, most: int) -> str:
    """Return a text that can be sent, cut off at `most` letters."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= most else f"{text[: most - 1]}…"
