"""The models that guests have brought for inference, as bytes."""

from __future__ import annotations

import hashlib
from weakref import WeakValueDictionary

from arkml.abi.codes import SnapshotFormat


class ModelSource:
    """
    A model that a guest started inference with: its bytes, their SHA-256 and their format.

    `ModelSources` makes one object of equal bytes.
    """

    __slots__ = ("__weakref__", "data", "digest", "format")

    def __init__(self, data: bytes, digest: bytes, snapshot_format: SnapshotFormat) -> None:
        self.data = data
        self.digest = digest
        self.format = snapshot_format


class ModelSources:
    """The models that sessions were opened with, each kept as long as one of its sessions."""

    def __init__(self) -> None:
        self._sources: WeakValueDictionary[tuple[bytes, SnapshotFormat], ModelSource] = (
            WeakValueDictionary()
        )

    def of(self, data: bytes, snapshot_format: SnapshotFormat) -> ModelSource:
        """Return the source with these bytes."""
        key = hashlib.sha256(data).digest(), snapshot_format
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = ModelSource(data, *key)
        return source
