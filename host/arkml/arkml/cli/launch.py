"""The options of a command about its host, and the host that is made of them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from arkml.base.files import named
from arkml.cli.exits import UNREAD, leave
from arkml.cli.files import read_model
from arkml.cli.values import read_directory, read_limits
from arkml.errors import AbiError, ModelRejected, UsageError
from arkml.limits import Limits

if TYPE_CHECKING:
    from arkml.host import Host
    from arkml.runs.access import HiveGrant
    from arkml.runtime.wasi.linking import WasiGrant

_HIVE_NEEDS = ("jax", "optax", "safetensors", "starlette", "uvicorn", "tensorboardX")

TOKEN = "ARKML_HIVE_TOKEN"
"""Environment variable with the token of a hive."""


def read_token() -> str | None:
    """Return the token of a hive from the environment, None without one."""
    return os.environ.get(TOKEN)


def require_hive(*, embedded: bool = True) -> None:
    """Raise UsageError if an embedded hive is wanted and its packages are not installed."""
    missing = [name for name in _HIVE_NEEDS if embedded and find_spec(name) is None]
    if missing:
        raise UsageError(f"a hive needs {', '.join(missing)}: pip install 'arkml[hive]'")


@dataclass(frozen=True, slots=True)
class HostGrants:
    """The options of a command about its host; texts are as the user gave them."""

    policy: Path | None = None
    seed: int = 0
    deterministic: bool = False
    limits: tuple[str, ...] = ()
    wasi: bool = False
    directories: tuple[str, ...] = ()
    stub_missing: bool = False
    hive: HiveGrant | None = None
    outputs: tuple[str, ...] = ()

    @property
    def has_budget(self) -> bool:
        """True if the user set the time limit of a call."""
        return any(limit.replace("-", "_").startswith("run_seconds") for limit in self.limits)


def open_host(
    options: HostGrants, *, name: str = "guest", arguments: str = "", keep_stdout: bool = False
) -> Host:
    """
    Make the host of a command.

    `name` and `arguments` are the command line that a WASI command sees. With `keep_stdout` its
    output goes to stderr. Raises UsageError and ModelRejected.
    """
    limits = read_limits(options.limits)
    wasi = _wasi(options, name, arguments, keep_stdout=keep_stdout)
    if options.policy is None and options.outputs:
        raise UsageError("--policy-output is about a policy: it takes --policy")
    policy = (
        None if options.policy is None else read_policy(options.policy, limits, options.outputs)
    )
    if options.hive is not None:
        require_hive(embedded=options.hive.is_embedded)

    from arkml.host import Host

    return Host(
        policy=policy,
        outputs=options.outputs,
        seed=options.seed,
        deterministic=options.deterministic,
        limits=limits,
        wasi=wasi,
        stub_missing=options.stub_missing,
        hive=options.hive,
    )


def read_policy(path: Path, limits: Limits, outputs: tuple[str, ...] = ()) -> bytes:
    """
    Read the file of a policy that may act here, by the outputs of these names.

    Raises UsageError and ModelRejected.
    """
    from arkml.policies.describe import require_loadable
    from arkml.policies.files import PolicyFile
    from arkml.policies.model_cache import ModelCache

    data = read_model(path, limits)
    models = ModelCache(limits)
    try:
        require_loadable(PolicyFile(data, outputs), models, limits)
    except AbiError as error:
        raise ModelRejected(named(path, str(error))) from error
    finally:
        models.close()
    return data


def _wasi(options: HostGrants, name: str, arguments: str, *, keep_stdout: bool) -> WasiGrant | None:
    if not options.wasi and not options.directories:
        return None
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise UsageError(
            f"--cmdlet {arguments}: {str(error).lower()}; quotes and backslashes are those of a"
            " shell"
        ) from None
    from arkml.runtime.wasi.linking import WasiGrant

    return WasiGrant(
        arguments=[name.encode(errors="replace").decode(), *words],  # a file may have any name
        directories=[read_directory(text) for text in options.directories],
        stdin=_stdin(),
        stdout=_writer(sys.stderr.buffer if keep_stdout else sys.stdout.buffer),
        stderr=_writer(sys.stderr.buffer),
    )


def _stdin() -> BinaryIO | bytes:
    return b"" if sys.stdin is None else sys.stdin.buffer


def _writer(stream: BinaryIO) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        try:
            stream.write(data)
            stream.flush()
        except BrokenPipeError:  # the guest would get an I/O error, and run in vain
            leave(UNREAD)

    return write
