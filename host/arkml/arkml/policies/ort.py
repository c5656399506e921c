"""onnxruntime, set up with one thread, capped memory and no output."""

from __future__ import annotations

import os
from threading import Lock
from typing import Any

from arkml.base.handler_errors import is_of_handler
from arkml.base.native_imports import import_onnxruntime
from arkml.errors import ModelRejected
from arkml.policies.load_time import LoadTime

ARENA_BYTES = 512 << 20
"""Bytes that all models of the process together may use while they run, without weights."""

_NO_FOLDER = os.devnull  # where models look for further files: no file can be there
_SHOWN = 400  # characters of an error
_SILENT = 4  # only fatal errors are logged; the others are raised

_lock = Lock()
_loaded: Any = None


def onnxruntime() -> Any:
    """Return the package, set up on the first call."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _set_up()
        return _loaded


def open_session(data: bytes, time: LoadTime, *, folded_bytes: int) -> Any:
    """
    Return the raw session of a vetted model, the one inside of `onnxruntime.InferenceSession`.

    Constants that can be computed are kept up to `folded_bytes` each, and larger ones computed in
    each run. Raises ModelRejected if onnxruntime refuses the model, or as `LoadTime.late`.
    """
    ort = onnxruntime()
    options = _session_options(ort, folded_bytes)
    with time.watched(lambda: options.set_load_cancellation_flag(True)) as watch:
        try:
            session = ort.InferenceSession(
                data, options, providers=["CPUExecutionProvider"], enable_fallback=0
            )
        except Exception as error:
            if is_of_handler(error):
                raise
            if watch.reason is not None:
                raise time.late(watch.reason, "load") from error
            raise ModelRejected(f"onnxruntime refuses the model: {reason(error)}") from error
    # The wrapper keeps the bytes of the model, the session inside of it does not.
    return session._sess  # noqa: SLF001


def run_options() -> Any:
    """Return options for a run. A run without options makes its own, which is slower."""
    options = onnxruntime().RunOptions()
    options.log_severity_level = _SILENT
    return options


def bindings() -> Any:
    """Return the module with the raw classes SessionIOBinding and OrtDevice."""
    onnxruntime()
    from onnxruntime.capi import _pybind_state

    return _pybind_state


def reason(error: Exception) -> str:
    """Return the beginning of an onnxruntime error in one line, without its prefix."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.removeprefix("[ONNXRuntimeError] : ")[:_SHOWN]


def _set_up() -> Any:
    ort = import_onnxruntime()
    from onnxruntime.capi import _pybind_state as raw

    ort.set_default_logger_severity(_SILENT)
    memory = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    ort.create_and_register_allocator(memory, raw.OrtArenaCfg(ARENA_BYTES, -1, -1, -1))
    return ort


def _session_options(ort: Any, folded_bytes: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = _SILENT
    for key, value in {
        "session.intra_op.allow_spinning": "0",
        "session.inter_op.allow_spinning": "0",
        "session.use_env_allocators": "1",
        "session.load_model_format": "ONNX",
        "session.model_external_initializers_file_folder_path": _NO_FOLDER,
        "optimization.constant_folding_max_output_size_in_bytes": str(folded_bytes),
    }.items():
        options.add_session_config_entry(key, value)
    return options
