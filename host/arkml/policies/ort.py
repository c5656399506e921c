"""onnxruntime, set up without telemetry, with one thread, capped memory and no output."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from arkml.errors import ModelRejected

ARENA_BYTES = 512 << 20
"""Bytes that all models of the process together may use while they run, without weights."""

_FOLDED_BYTES = 16 << 20
_SILENT = 4  # only fatal errors are logged; the others are raised

_lock = Lock()
_loaded: Any = None
_empty_folder = ""


def onnxruntime() -> Any:
    """Return the package, set up on the first call."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _set_up()
        return _loaded


def open_session(data: bytes, seconds: float) -> Any:
    """
    Return the raw session of a vetted model, the one inside of `onnxruntime.InferenceSession`.

    Raises ModelRejected if onnxruntime refuses the model, or needs more than `seconds` to load it.
    """
    ort = onnxruntime()
    options = _session_options(ort)
    with deadline(seconds, lambda: options.set_load_cancellation_flag(True)) as is_late:
        try:
            session = ort.InferenceSession(
                data, options, providers=["CPUExecutionProvider"], enable_fallback=0
            )
        except Exception as error:
            if is_late():
                raise ModelRejected(f"the model did not load in {seconds:.3g} s") from error
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


@contextmanager
def deadline(seconds: float, cancel: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """
    Call `cancel` from another thread if the block takes longer than `seconds`.

    Yields a function that returns True once that has happened.
    """
    late = False

    def expire() -> None:
        nonlocal late
        late = True
        cancel()

    timer = Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield lambda: late
    finally:
        timer.cancel()


def reason(error: Exception) -> str:
    """Return the first line of an onnxruntime error, without its prefix."""
    text = str(error).strip().split("\n", 1)[0]
    return text.removeprefix("[ONNXRuntimeError] : ")[:300]


def _set_up() -> Any:
    global _empty_folder
    # Read when the library is loaded; without it a thread sends reports.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime as ort
    from onnxruntime.capi import _pybind_state as raw

    ort.set_default_logger_severity(_SILENT)
    memory = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    ort.create_and_register_allocator(memory, raw.OrtArenaCfg(ARENA_BYTES, -1, -1, -1))
    _empty_folder = tempfile.mkdtemp(prefix="arkml-")
    atexit.register(_remove_empty_folder)
    return ort


def _remove_empty_folder() -> None:
    with suppress(OSError):  # a forked process may have removed it
        Path(_empty_folder).rmdir()


def _session_options(ort: Any) -> Any:
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
        "session.model_external_initializers_file_folder_path": _empty_folder,
        "optimization.constant_folding_max_output_size_in_bytes": str(_FOLDED_BYTES),
    }.items():
        options.add_session_config_entry(key, value)
    return options
