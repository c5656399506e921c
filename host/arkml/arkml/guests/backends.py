"""The backends that run models for a host: onnxruntime, or models compiled to WebAssembly."""

from __future__ import annotations

from arkml.limits import Backend, Limits
from arkml.policies.model_cache import ModelCache
from arkml.runtime.row_modules import RowModule


def model_cache(limits: Limits, backend: Backend) -> ModelCache:
    """Return a new cache of models that a backend, onnxruntime or wasm, runs."""
    return ModelCache(limits, load_module=RowModule if backend == "wasm" else None)
