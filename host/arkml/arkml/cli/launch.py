"""The options of a command about its host, and the making of a host from them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from arkml.base.ending import leave
from arkml.base.files import named
from arkml.cli import options
from arkml.cli.exits import UNREAD
from arkml.cli.values import read_directory, read_limits, read_policies
from arkml.errors import AbiError, ModelRejected, UsageError
from arkml.limits import Backend, Limits

if TYPE_CHECKING:
    from arkml.host import Host
    from arkml.runs.hive_access import HiveGrant
    from arkml.runtime.wasi.linking import WasiGrant

_HIVE_NEEDS = ("jax", "optax", "safetensors", "starlette", "uvicorn", "tensorboardX")

TOKEN = "ARKML_HIVE_TOKEN"
"""Environment variable with the token of a hive."""


def read_token() -> str | None:
    """Return the token of a hive from the environment variable, or None."""
    return os.environ.get(TOKEN)


def require_hive(*, embedded: bool = True) -> None:
    """Raise UsageError if an embedded hive is wanted and its packages are not installed."""
    missing = [name for name in _HIVE_NEEDS if embedded and find_spec(name) is None]
    if missing:
        raise UsageError(f"a hive needs {', '.join(missing)}: pip install 'arkml[hive]'")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """The options of a command that are about its host, as the user gave them."""

    policy: options.Policies = None
    policy_output: options.PolicyOutputs = None
    seed: options.Seed = 0
    deterministic: options.Deterministic = False
    backend: options.ModelBackend = "onnxruntime"
    limit: options.LimitValues = None
    wasi: options.Wasi = False
    directory: options.Directories = None
    stub_missing: options.StubMissing = False
    threads: options.ThreadCount = "auto"
    imports: options.GameImports = None

    @property
    def policy_files(self) -> list[Path]:
        """The files of all policies. Raises UsageError."""
        return list(read_policies(self.policy or ()).values())

    @property
    def has_budget(self) -> bool:
        """True if the user set the time limit of a call."""
        return sets_budget(self.limit)

    def open_host(
        self,
        *,
        name: str = "guest",
        arguments: str = "",
        hive: HiveGrant | None = None,
        keep_stdout: bool = False,
        trace: Path | None = None,
    ) -> Host:
        """
        Make the host of a command.

        Args:
            name: First word of the command line that a WASI command sees, such as `npc.wasm`.
            arguments: The words after the first, quoted as for a shell, for example `--map "two
                rooms"`.
            hive: The permission to train, or None.
            keep_stdout: True lets the output of a WASI command go to stderr.
            trace: The file that guests are recorded in, or None.

        Raises:
            UsageError: An option has a wrong value.
            ModelRejected: The policy cannot act here.

        """
        limits, outputs = read_limits(self.limit or ()), tuple(self.policy_output or ())
        wasi = self._wasi(name, arguments, keep_stdout=keep_stdout)
        files = read_policies(self.policy or ())
        file = files.pop(None, None)
        if file is None and outputs:
            raise UsageError("--policy-output is about a policy: it takes --policy FILE")
        policy = None if file is None else read_policy(file, limits, outputs, self.backend)
        named = {
            name: read_policy(path, limits, backend=self.backend)
            for name, path in files.items()
            if name is not None
        }
        if hive is not None:
            require_hive(embedded=hive.is_embedded)

        from arkml.host import Host

        return Host(
            policy=policy,
            policies=named or None,
            outputs=outputs,
            seed=self.seed,
            deterministic=self.deterministic,
            backend=self.backend,
            limits=limits,
            wasi=wasi,
            stub_missing=self.stub_missing,
            hive=hive,
            threads="auto" if self.threads == "auto" else int(self.threads),
            imports=self.imports,
            trace=trace,
        )

    def watch_policy(self, host: Host) -> None:
        """Let a host reload the policy without a name whenever its file has changed."""
        files = read_policies(self.policy or ())
        file = files.pop(None, None)
        if file is not None:
            host.use(file, outputs=tuple(self.policy_output or ()), watch=True).result()
        if files:
            sys.stderr.write("--watch loads no policy with a name again: these stay as they are\n")

    def _wasi(self, name: str, arguments: str, *, keep_stdout: bool) -> WasiGrant | None:
        if not self.wasi and not self.directory:
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
            directories=[read_directory(text) for text in self.directory or ()],
            stdin=_stdin(),
            stdout=_writer(sys.stderr.buffer if keep_stdout else sys.stdout.buffer),
            stderr=_writer(sys.stderr.buffer),
        )


def sets_budget(limits: Sequence[str] | None) -> bool:
    """Return whether a value of --limit sets the time of a call, such as `run_seconds=2s`."""
    return any(limit.replace("-", "_").startswith("run_seconds") for limit in limits or ())


def read_policy(
    path: Path, limits: Limits, outputs: tuple[str, ...] = (), backend: Backend = "onnxruntime"
) -> bytes:
    """
    Return the bytes of a policy file, after checking that it can act with these outputs.

    Raises UsageError and ModelRejected.
    """
    from arkml.guests.backends import model_cache
    from arkml.policies.describe import require_loadable
    from arkml.policies.policy_files import PolicyFile, read_policy_file

    name, _, file = str(path).partition("=")
    if file and not path.is_file() and Path(file).is_file():
        raise UsageError(
            f"--policy {path}: here it is FILE, for the agents of --behavior {name}; --other"
            f" {path} is for agents that are not rated"
        )
    data = read_policy_file(path, limits)
    models = model_cache(limits, backend)
    try:
        require_loadable(PolicyFile(data, outputs), models, limits)
    except AbiError as error:
        raise ModelRejected(named(path, str(error))) from error
    finally:
        models.close()
    return data


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
