"""Loaded models, shared by the hash of their bytes."""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from threading import Lock
from weakref import WeakValueDictionary

from arkml.base.loggers import SafeLogger
from arkml.errors import ModelRejected
from arkml.limits import Limits
from arkml.policies.blocks import BlockModel
from arkml.policies.demands import Snapshot
from arkml.policies.kernel.reading import NOT_ONNX
from arkml.policies.kernel.row_model import LoadModule, RowModel
from arkml.policies.load_time import LoadTime
from arkml.policies.model import Model
from arkml.policies.nnef import NnefModel
from arkml.policies.nnef_process import ChildPlaces
from arkml.policies.onnx_model import KnownVersion, OnnxFile
from arkml.policies.ports import Layout, Port

SECONDS = 2.0
"""Seconds of the processor to load a model and to run it on a row, and of a clock for one batch."""

_LIMITS = Limits()
_RECENT = 16
_RECENT_BYTES = 64 << 20
_LAYOUTS = 64
_VERSIONS = 8  # graphs of runs whose next versions need no vetting
_LOGGED = 256  # policies whose outputs are logged

log = SafeLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelFile:
    """
    A model file that passed vetting: its layout, and a function that loads the model.

    `load` takes the names of the outputs to be used, None for all, and raises ModelRejected or
    Unavailable.
    """

    layout: Layout
    load: Callable[[Collection[str] | None], Model]


class ModelCache:
    """
    A cache of the models in use and of the last few used ones. Any thread may load.

    `seconds` limits the processor time to load a model and to run it on a row, and the wall time to
    answer a batch. With `load_module`, ONNX files run as WebAssembly, except policy versions.
    """

    def __init__(
        self,
        limits: Limits = _LIMITS,
        *,
        seconds: float = SECONDS,
        load_module: LoadModule | None = None,
    ) -> None:
        self._limits = limits
        self._load_module = load_module
        self._seconds = seconds
        self._places = ChildPlaces(limits.nnef_processes, limits.run_seconds)
        self._lock = Lock()
        self._models: WeakValueDictionary[bytes, Model] = WeakValueDictionary()
        self._recent: OrderedDict[bytes, tuple[Model, int]] = OrderedDict()
        self._logged: set[bytes] = set()
        self._layouts: OrderedDict[bytes, Layout] = OrderedDict()
        self._versions: deque[KnownVersion] = deque(maxlen=_VERSIONS)
        self._snapshots: WeakValueDictionary[bytes, Snapshot] = WeakValueDictionary()

    def onnx(self, data: bytes, digest: bytes | None = None) -> ModelFile:
        """
        Return the vetted model of an ONNX file. Raises ModelRejected or Unavailable.

        `digest` is the SHA-256 of the bytes where the caller knows it.
        """
        digest = hashlib.sha256(data).digest() if digest is None else digest
        with self._lock:
            layout = self._layouts.get(digest)
        files: list[OnnxFile] = []  # vetted once for its layout and the first model
        if layout is None:
            files.append(self._file(data))
            layout = files[0].layout
        with self._lock:
            self._layouts[digest] = layout
            self._layouts.move_to_end(digest)
            while len(self._layouts) > _LAYOUTS:
                self._layouts.popitem(last=False)

        def load(outputs: Collection[str] | None) -> Model:
            names = [p.name for p in layout.outputs if outputs is None or p.name in outputs]

            def loaded() -> Model:
                file = files.pop() if files else self._file(data)
                if self._load_module is None:
                    return file.load(names)
                time_left = LoadTime(self._seconds)
                graph = file.of_one_row(names)
                outputs = [port for port in layout.outputs if port.name in names]
                return RowModel(graph, layout.inputs, outputs, self._load_module, time_left)

            return self._load(b"onnx", digest + repr(names).encode(), loaded)

        return ModelFile(layout, load)

    def version(self, data: bytes) -> ModelFile:
        """
        Return the model of a policy version, an ONNX file, without caching it. Raises as `onnx`.
        """
        with self._lock:
            known = [one for one in self._versions if one.outline.fits(data)]
        file = None if known else self._file(data)
        layout = known[0].layout if file is None else file.layout

        def load(outputs: Collection[str] | None) -> Model:
            names = [p.name for p in layout.outputs if outputs is None or p.name in outputs]
            for one in known:
                if one.outputs == names:
                    return one.load(data, self._seconds)
            model, found = (file or self._file(data)).load_version(data, names)
            if found is not None:
                with self._lock:
                    self._versions.appendleft(found)
            return model

        return ModelFile(layout, load)

    def _file(self, data: bytes) -> OnnxFile:
        return OnnxFile(data, self._limits, seconds=self._seconds)

    def nnef(self, data: bytes) -> ModelFile:
        """
        Return the model of an NNEF archive, given its bytes. Raises ModelRejected or Unavailable.
        """
        if self._load_module is not None:
            raise ModelRejected(NOT_ONNX)

        def load() -> Model:
            with self._lock:  # each idle one has a process, of which there may be few
                for key in [key for key in self._recent if key.startswith(b"nnef")]:
                    del self._recent[key]
            model = NnefModel(data, self._limits, seconds=self._seconds, places=self._places)
            inputs = [Port(port.name, port.shape) for port in model.inputs]
            outputs = [Port(port.name, port.shape) for port in model.outputs]
            # It pads its blocks itself.
            return BlockModel(inputs, outputs, model.run, session_bytes=model.session_bytes)

        kept = self._load(b"nnef", data, load)
        layout = Layout(tuple(kept.inputs), tuple(kept.outputs))

        def all_outputs(outputs: Collection[str] | None) -> Model:
            del outputs  # it has them all
            return kept

        return ModelFile(layout, all_outputs)

    def keep(self, data: bytes, digest: bytes) -> Snapshot:
        """Return the snapshot with these bytes, the same object while it is in use somewhere."""
        with self._lock:
            return self._snapshots.setdefault(digest, Snapshot(data, digest))

    def log_once(self, digest: bytes, sentence: str) -> None:
        """Log which outputs of a policy hold its actions, once for each policy and sentence."""
        key = digest + sentence.encode()
        with self._lock:
            is_new = key not in self._logged
            if is_new and len(self._logged) < _LOGGED:
                self._logged.add(key)
        if is_new and len(self._logged) <= _LOGGED:
            log.info("policy %s: of its outputs, %s", digest.hex()[:8], sentence)

    def close(self) -> None:
        """Drop all models that are not in use."""
        with self._lock:
            self._recent.clear()
            self._layouts.clear()
            self._versions.clear()

    def _load(self, kind: bytes, key: bytes, load: Callable[[], Model]) -> Model:
        key = kind + hashlib.sha256(key).digest()
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
