"""The protobuf messages of TensorBoard's event files, imported so that PyTorch is not loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Have imports of a package fail, unless it has been imported before."""
    is_imported = package in sys.modules
    if not is_imported:
        sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if not is_imported:
            del sys.modules[package]


# tensorboardX imports PyTorch wherever it is installed: seconds, and 170 MiB of a learner.
with _hidden("torch"):
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.record_writer import masked_crc32c
    from tensorboardX.summary import hparams, scalar

__all__ = ["Event", "Summary", "hparams", "masked_crc32c", "scalar"]
