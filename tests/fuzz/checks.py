"""The checks of inputs that are bytes, without hypothesis, so that Atheris can make the inputs."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import wasmtime

from arkml.envs.core.world import Pace
from arkml.envs.llapi.exception import UnityEnvironmentException
from arkml.envs.llapi.guest_channels import GuestChannels
from arkml.envs.llapi.side_channel import IncomingMessage
from arkml.envs.llapi.side_channel.side_channel_manager import frames
from arkml.errors import (
    MemoryLimitExceeded,
    ModelRejected,
    ModuleError,
    ModuleRejected,
    SnapshotTooLarge,
    TableLimitExceeded,
)
from arkml.limits import Limits
from arkml.policies.cervo import AssetKind, unpack
from arkml.policies.nnef_archive import read_archive
from arkml.policies.vetting import vet
from arkml.runtime.module.description import describe
from arkml.runtime.module.normalize import Normalized, global_export, normalize
from arkml.runtime.shared_engine import shared_engine

LIMITS = Limits()
MOST_SECONDS = 2.0
"""Seconds of CPU for one input of at most 64 KiB, a hundred times what any of them takes."""

REFUSALS = (
    "shared memory", "64-bit memory", "has pages of", r"has \d+ memories", "a name that this host",
    "the limits of a table", "more than .* custom sections", "operators", "more than there are",
    "a page size of",
)  # fmt: skip
"""Sentences of refusals of valid modules: each names what this host does not run."""


@contextmanager
def bounded() -> Iterator[None]:
    """Raise AssertionError if the block takes more than MOST_SECONDS of CPU."""
    started = time.thread_time()
    yield
    seconds = time.thread_time() - started
    assert seconds < MOST_SECONDS, f"took {seconds:.1f} s of CPU"


def check_model(data: bytes) -> None:
    """Vet a model, which must pass or be refused."""
    with bounded():
        try:
            vet(data, LIMITS)
        except (ModelRejected, SnapshotTooLarge):
            return


def check_module(data: bytes) -> None:
    """
    Compare what we read of a module, and what we make of it, with wasmtime.

    A module that we take is valid exactly if it is valid rewritten, and has the exports and imports
    that we have read. A valid one that we refuse is refused for what this host does not run.
    """
    refused: str | None = None
    with bounded():
        try:
            normalized = normalize(data, LIMITS)
            info = describe(normalized.binary)
        except (ModuleError, MemoryLimitExceeded, TableLimitExceeded) as error:
            refused = str(error) if type(error) is ModuleRejected else ""
    if refused is not None:
        is_known = not refused or any(re.search(refusal, refused) for refusal in REFUSALS)
        assert is_known or not is_valid(data), f"a valid module is refused: {refused}"
        return
    was_valid, is_still = is_valid(data), is_valid(normalized.wasm)
    assert was_valid == is_still, f"valid: {was_valid}, rewritten: {is_still}"
    if was_valid:
        _compare(normalized, [entry.name for entry in info.exports])


def _compare(normalized: Normalized, exports: list[str]) -> None:
    module = wasmtime.Module(_engine(), normalized.wasm)
    theirs = [entry.name for entry in module.exports]
    variables = map(global_export, range(len(normalized.state.kinds)))
    ours = [*exports, *normalized.added, *variables]
    assert theirs == ours, f"exports {theirs}, read as {exports}"
    binary = normalized.binary
    imports = [(entry.module, entry.name) for entry in module.imports]
    wanted = [(entry.module, entry.name) for entry in binary.imports]
    if normalized.memory is None:
        assert imports == wanted
    else:
        assert ("arkml", "memory") in imports
        assert len(imports) == len(wanted) + (not normalized.memory.imported)


def is_valid(data: bytes) -> bool:
    """Return True if wasmtime takes a module, with the features that the host has on."""
    try:
        wasmtime.Module.validate(_engine(), data)
    except wasmtime.WasmtimeError:
        return False
    return True


@cache
def _engine() -> wasmtime.Engine:
    return shared_engine(LIMITS.wasm_stack).engine


def check_container(data: bytes) -> None:
    """Read a container of Cervo, and the archive or the model in it."""
    with bounded():
        try:
            kind, content = unpack(data)
            if kind is AssetKind.NNEF:
                archive = read_archive(content, LIMITS)
                assert archive.inputs
                assert archive.outputs
            else:
                vet(content, LIMITS)
        except (ModelRejected, SnapshotTooLarge):
            return


def check_side_channel(data: bytes) -> None:
    """Take a block of side channels apart, and have a guest's channels take its messages."""
    heard: list[bytes] = []
    with bounded():
        try:
            parts = list(frames(data))
        except UnityEnvironmentException:
            return
        assert sum(20 + len(message) for _, message in parts) == len(data)

        def hear(message: bytes) -> bool:
            heard.append(message)
            return True

        channels = GuestChannels(hear, Pace())
        channels.hear(data)
        channels.attend(anew=False)
        assert sum(map(len, heard)) <= len(data)
        for _, message in parts:
            _read_everything(message)


def _read_everything(message: bytes) -> None:
    for method in ("read_bool", "read_int32", "read_float32", "read_float32_list", "read_string"):
        reader = IncomingMessage(message)
        try:
            for _ in range(4):
                getattr(reader, method)()
        except (struct.error, UnicodeDecodeError):
            continue
