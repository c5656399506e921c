"""First imports of native packages, which an exception must not interrupt."""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module
from typing import Any


def import_onnx() -> Any:
    """Import the package onnx completely, and return it."""
    return _whole("onnx")


def import_onnxruntime() -> Any:
    """
    Import the package onnxruntime, with telemetry disabled unless it was imported before.

    Telemetry would start a thread and leave a file in the temporary directory.
    """
    without_telemetry()
    return _whole("onnxruntime")


def without_telemetry() -> None:
    """Disable the telemetry of onnxruntime; call it before the library is loaded."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"


def _whole(name: str) -> Any:
    """
    Import a package, in another thread if a signal could interrupt it.

    Python runs signal handlers in the main thread only. An exception there, for example of Ctrl-C,
    leaves a half-initialized extension module, and importing that again crashes the process.
    """
    if threading.current_thread() is not threading.main_thread() or _is_imported(name):
        return import_module(name)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            import_module(name)
        except BaseException as error:  # noqa: BLE001  raised below, on the thread that asked
            failures.append(error)

    thread = threading.Thread(target=work, name=f"arkml-import-{name}")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return import_module(name)


def _is_imported(name: str) -> bool:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)
