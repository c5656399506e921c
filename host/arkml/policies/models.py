"""Loaded models, shared by the hash of their bytes."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Protocol
from weakref import WeakValueDictionary

from arkml.batches import Floats
from arkml.limits import Limits
from arkml.policies.blocks import BlockModel
from arkml.policies.signature import Port

Call = Callable[[], object]

SECONDS = 2.0
"""A model may take so long to load, to run on a row, or to answer one batch."""

ALIKE = 1_024
"""Of an input whose rows are all alike so many are made: no model reads more at once."""

_LIMITS = Limits()
_RECENT = 16
_RECENT_BYTES = 64 << 20


class Model(Protocol):
    """A network with named float32 inputs and outputs."""

    @property
    def inputs(self) -> Sequence[Port]: ...

    @property
    def outputs(self) -> Sequence[Port]: ...

    def prepare(
        self, count: int, feeds: Mapping[str, Floats], fetches: Mapping[str, Floats]
    ) -> Sequence[Call]:
        """
        Calls that together run the model from `feeds` into `fetches`.

        Both are contiguous float32, [count, *shape], and are used in place by every call. The
        caller keeps them alive. A feed may have `ALIKE` rows only where `count` is more: then all
        its rows are alike.
        """


class ModelCache:
    """
    Every model that is in use, and the few that were last. Any thread may load.

    `seconds` is what a model may take to load, to run on a row, or to answer one batch.
    """

    def __init__(self, limits: Limits = _LIMITS, *, seconds: float = SECONDS) -> None:
        self._limits = limits
        self._seconds = seconds
        self._lock = Lock()
        self._models: WeakValueDictionary[bytes, Model] = WeakValueDictionary()
        self._recent: OrderedDict[bytes, tuple[Model, int]] = OrderedDict()

    def onnx(self, data: bytes) -> Model:
        """The model in the bytes of an ONNX file. Raises ModelRejected."""
        from arkml.policies.session import load_onnx

        return self._load(
            b"onnx", data, lambda: load_onnx(data, self._limits, seconds=self._seconds)
        )

    def version(self, data: bytes) -> Model:
        """The same for a model that nobody else will load: it is not kept."""
        from arkml.policies.session import load_onnx

        return load_onnx(data, self._limits, seconds=self._seconds)

    def nnef(self, data: bytes) -> Model:
        """The model in the bytes of an NNEF archive. Raises ModelRejected or Unavailable."""
        from arkml.policies.nnef import NnefModel

        def load() -> Model:
            model = NnefModel(data, self._limits, seconds=self._seconds)
            inputs = [Port(port.name, port.shape) for port in model.inputs]
            outputs = [Port(port.name, port.shape) for port in model.outputs]
            return BlockModel(inputs, outputs, model.run, None)  # it fills up blocks itself

        return self._load(b"nnef", data, load)

    def close(self) -> None:
        """Forget all models. Those in use live on."""
        with self._lock:
            self._recent.clear()

    def _load(self, kind: bytes, data: bytes, load: Callable[[], Model]) -> Model:
        key = kind + hashlib.sha256(data).digest()
        with self._lock:
            model = self._models.get(key)
        if model is None:
            # Outside of the lock: a slow model holds up nobody else. Two threads may both load
            # it; one result stays.
            loaded = load()
            with self._lock:
                model = self._models.setdefault(key, loaded)
        with self._lock:
            self._recent[key] = model, len(data)
            self._recent.move_to_end(key)
            size = sum(size for _, size in self._recent.values())
            while len(self._recent) > _RECENT or size > _RECENT_BYTES:
                _, (_, dropped) = self._recent.popitem(last=False)
                size -= dropped
        return model
