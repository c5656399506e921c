"""
The wasm module of a rollout worker: its bytes, checked by their hash and compiled within limits.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from arkml.errors import HiveRefused, ModuleRejected
from arkml.limits import GIB
from arkml.training.tasks import compile_module

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.worker_jobs import WorkerJob
    from arkml.host import Host
    from arkml.runtime.compiled_module import CompiledModule

COMPILE_SECONDS = 60
"""Seconds of processor time that the compilation of a downloaded module may take."""

COMPILE_BYTES = 4 * GIB
"""Bytes of address space that the compilation of a downloaded module may take."""


def module_bytes(job: WorkerJob, client: HiveClient) -> bytes:
    """
    Return the bytes of the module that a job names, downloaded from the hive if necessary.

    Raises HiveUnreachable, and ModuleRejected for bytes with another hash, or if the hive refuses
    the download.
    """
    try:
        data = job.module_data or client.module(job.module_hash).result()
    except HiveRefused as error:
        raise ModuleRejected(
            f"{job.module_name} ({job.module_hash}) cannot be downloaded from the hive: {error}"
        ) from error
    found = hashlib.sha256(data).hexdigest()
    if found != job.module_hash:
        raise ModuleRejected(
            f"{job.module_name} has the SHA-256 {found}, and {job.label} is to play"
            f" {job.module_hash}: upload the module again"
        )
    return data


def compile_for(job: WorkerJob, host: Host, data: bytes) -> CompiledModule:
    """
    Compile the module that a job names. Raises ModuleError.

    A downloaded module is compiled under limits. If it exceeds them, a signal ends this process:
    SIGXCPU for the time, SIGABRT for the memory.
    """
    if job.module_data:
        return compile_module(host, data, job.module_name)
    with limited_compilation():
        try:
            return compile_module(host, data, job.module_name)
        except MemoryError:
            raise ModuleRejected(
                f"{job.module_name} takes more than {COMPILE_BYTES:,} bytes to compile"
            ) from None


@contextmanager
def limited_compilation() -> Iterator[None]:
    """
    Limit the processor time and the address space of this process in a `with` block.

    If the limits are exceeded, a signal ends the process: SIGXCPU for the time, SIGABRT for the
    memory.
    """
    if sys.platform == "win32":
        yield
        return
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    wanted = {resource.RLIMIT_CPU: int(used.ru_utime + used.ru_stime) + COMPILE_SECONDS}
    if (mapped := _mapped_bytes()) is not None:
        wanted[resource.RLIMIT_AS] = mapped + COMPILE_BYTES
    before = {kind: resource.getrlimit(kind) for kind in wanted}
    try:
        for kind, soft in wanted.items():
            _, hard = before[kind]
            least = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
            resource.setrlimit(kind, (least, hard))
        yield
    finally:
        for kind, limits in before.items():
            resource.setrlimit(kind, limits)


def _mapped_bytes() -> int | None:
    """Return the size of this process's address space, None without /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return None
    import resource

    return pages * resource.getpagesize()
