"""Policies of runs, fetched and written as files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from arkml.errors import HiveRefused, NotFound

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.results import SnapshotKind

_ABSENT = (404, 503)  # there is none yet; there is no learner


def fetch(
    client: HiveClient,
    run_id: str,
    kinds: tuple[SnapshotKind, ...],
    wait: Callable[[Future[bytes]], bytes] = Future.result,
) -> tuple[str, bytes]:
    """
    The first of the kinds "now", "best", "latest" that a run has; `wait` waits for an answer.

    Raises HiveError and NotFound.
    """
    for kind in kinds:
        try:
            return kind, wait(client.snapshot(run_id, kind))
        except HiveRefused as error:
            if error.status not in _ABSENT:
                raise
    raise NotFound(f"run {run_id} has no policy yet")


def packed(data: bytes, target: Path) -> bytes:
    """The bytes for a file of that name: .crvo is a Cervo container, anything else ONNX."""
    if target.suffix != ".crvo":
        return data
    from arkml.policies.cervo import pack_onnx

    return pack_onnx(data)
