"""Loaded models, shared by the hash of their bytes."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from weakref import WeakValueDictionary

from arkml.limits import Limits
from arkml.policies.blocks import BlockModel
from arkml.policies.model import Model
from arkml.policies.nnef import NnefModel
from arkml.policies.nnef_process import ChildPlaces
from arkml.policies.onnx_model import load_onnx
from arkml.policies.signature import Port

SECONDS = 2.0
"""Seconds of the processor to load a model and to run it on a row, and of a clock for one batch."""

_LIMITS = Limits()
_RECENT = 16
_RECENT_BYTES = 64 << 20


class ModelCache:
    """
    Holds the models in use and the last few that were. Any thread may load.

    `seconds` is the processor's time to load a model and to run it on a row, and the time by the
    clock to answer one batch.
    """

    def __init__(self, limits: Limits = _LIMITS, *, seconds: float = SECONDS) -> None:
        self._limits = limits
        self._seconds = seconds
        self._places = ChildPlaces(limits.nnef_processes, limits.run_seconds)
        self._lock = Lock()
        self._models: WeakValueDictionary[bytes, Model] = WeakValueDictionary()
        self._recent: OrderedDict[bytes, tuple[Model, int]] = OrderedDict()

    def onnx(self, data: bytes) -> Model:
        """Return the model in the bytes of an ONNX file. Raises ModelRejected."""
        return self._load(
            b"onnx", data, lambda: load_onnx(data, self._limits, seconds=self._seconds)
        )

    def version(self, data: bytes) -> Model:
        """Load a policy version, an ONNX file, without keeping it. Raises ModelRejected."""
        return load_onnx(data, self._limits, seconds=self._seconds)

    def nnef(self, data: bytes) -> Model:
        """Return the model in the bytes of an NNEF archive. Raises ModelRejected or Unavailable."""

        def load() -> Model:
            with self._lock:  # each idle one has a process, of which there may be few
                for key in [key for key in self._recent if key.startswith(b"nnef")]:
                    del self._recent[key]
            model = NnefModel(data, self._limits, seconds=self._seconds, places=self._places)
            inputs = [Port(port.name, port.shape) for port in model.inputs]
            outputs = [Port(port.name, port.shape) for port in model.outputs]
            # It pads its blocks itself.
            return BlockModel(inputs, outputs, model.run, session_bytes=model.session_bytes)

        return self._load(b"nnef", data, load)

    def close(self) -> None:
        """Drop all models that are not in use."""
        with self._lock:
            self._recent.clear()

    def _load(self, kind: bytes, data: bytes, load: Callable[[], Model]) -> Model:
        key = kind + hashlib.sha256(data).digest()
        with self._lock:
            model = self._models.get(key)
        if model is None:
            # Without the lock, so that a slow model does not delay others. If two threads load
            # one model, one result stays.
            loaded = load()
            with self._lock:
                model = self._models.setdefault(key, loaded)
        with self._lock:
            self._recent[key] = model, model.session_bytes
            self._recent.move_to_end(key)
            size = sum(size for _, size in self._recent.values())
            while len(self._recent) > _RECENT or size > _RECENT_BYTES:
                _, (_, dropped) = self._recent.popitem(last=False)
                size -= dropped
        return model
