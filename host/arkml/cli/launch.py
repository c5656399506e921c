"""The host of a command: what its options grant, made into a Host."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from arkml.cli.exits import UNREAD, leave
from arkml.cli.files import named, read_model
from arkml.cli.values import read_directory, read_limits
from arkml.errors import ModelRejected, UsageError
from arkml.limits import Limits

if TYPE_CHECKING:
    from arkml.host import Host
    from arkml.runs.access import HiveGrant, RunIdentity
    from arkml.runtime.wasi.linking import WasiGrant

_HIVE_NEEDS = ("torch", "stable_baselines3", "starlette", "uvicorn", "tensorboardX")

TOKEN = "ARKML_HIVE_TOKEN"
"""The variable of the environment that holds the token of a hive."""


@dataclass(frozen=True, slots=True)
class HiveWish:
    """
    What guests may train on: "embedded" or HOST:PORT, and how they do.

    `block` is whether submits wait for the learner's pace. The rest is as in `HiveGrant`.
    """

    hive: str
    allowed: tuple[str, ...] = ()
    data: Path | None = None
    block: bool | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    shared: bool = False
    resume: bool = False
    expected: RunIdentity | None = None

    def grant(self) -> HiveGrant:
        """For a host. Raises UsageError."""
        require_hive(embedded=self.hive == "embedded")
        from arkml.runs.access import HiveGrant

        return HiveGrant(
            hive=self.hive,
            token=os.environ.get(TOKEN),
            allowed=self.allowed,
            data=self.data,
            settings=self.settings,
            block=self.block,
            shared=self.shared,
            resume=self.resume,
            expected=self.expected,
        )


def require_hive(*, embedded: bool = True) -> None:
    """Raise UsageError if a hive is to run here and its packages are not installed."""
    missing = [name for name in _HIVE_NEEDS if embedded and find_spec(name) is None]
    if missing:
        raise UsageError(
            f"a hive needs {', '.join(missing)}: pip install 'arkml[hive]' (PyTorch comes along;"
            " the README says how to take its small CPU build)"
        )


@dataclass(frozen=True, slots=True)
class Grants:
    """What the guests of one command get; texts are as the user gave them."""

    policy: Path | None = None
    seed: int = 0
    deterministic: bool = False
    limits: tuple[str, ...] = ()
    wasi: bool = False
    directories: tuple[str, ...] = ()
    stub_missing: bool = False
    hive: HiveWish | None = None

    @property
    def has_budget(self) -> bool:
        """Whether the user said how long a call may run."""
        return any(limit.replace("-", "_").startswith("run_seconds") for limit in self.limits)


def open_host(
    grants: Grants, *, program: str = "guest", arguments: str = "", stdout_is_ours: bool = False
) -> Host:
    """
    Make the host.

    `program` and `arguments` are what a WASI command sees of its command line. With
    `stdout_is_ours` what it prints goes to stderr. Raises UsageError and ModelRejected.
    """
    limits = read_limits(grants.limits)
    wasi = _wasi(grants, [program, *shlex.split(arguments)], stdout_is_ours=stdout_is_ours)
    policy = None if grants.policy is None else read_policy(grants.policy, limits)

    from arkml.host import Host

    return Host(
        policy=policy,
        seed=grants.seed,
        deterministic=grants.deterministic,
        limits=limits,
        wasi=wasi,
        stub_missing=grants.stub_missing,
        hive=None if grants.hive is None else grants.hive.grant(),
    )


def read_policy(path: Path, limits: Limits) -> bytes:
    """The bytes of a policy file that may act here. Raises UsageError and ModelRejected."""
    from arkml.policies.describe import ACCEPTED, describe

    data = read_model(path, limits)
    verdict = describe(data, limits).verdict
    if verdict != ACCEPTED:
        raise ModelRejected(named(path, verdict))
    return data


def _wasi(grants: Grants, arguments: list[str], *, stdout_is_ours: bool) -> WasiGrant | None:
    if not grants.wasi and not grants.directories:
        return None
    from arkml.runtime.wasi.linking import WasiGrant

    return WasiGrant(
        arguments=arguments,
        directories=[read_directory(text) for text in grants.directories],
        stdin=_stdin(),
        stdout=_writer(sys.stderr.buffer if stdout_is_ours else sys.stdout.buffer),
        stderr=_writer(sys.stderr.buffer),
    )


def _stdin() -> BinaryIO | bytes:
    return b"" if sys.stdin is None else sys.stdin.buffer


def _writer(stream: BinaryIO) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        try:
            stream.write(data)
            stream.flush()
        except BrokenPipeError:  # the guest would be told of an I/O error and go on in vain
            leave(UNREAD)

    return write
