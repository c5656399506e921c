"""First imports of packages in native code, which an exception may not cut off."""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module
from typing import Any


def import_onnx() -> Any:
    """Return the package onnx."""
    return _whole("onnx")


def import_onnxruntime() -> Any:
    """
    Return the package, without its telemetry if this process has not imported it before.

    With telemetry it starts a thread and leaves a file in the directory for temporary ones.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when the library is loaded
    return _whole("onnxruntime")


def _whole(name: str) -> Any:
    """
    Import a package, on a thread of its own where a signal could come in between.

    Python runs signal handlers on the main thread only. What one of them raises there, as Ctrl-C
    does, leaves half an extension module behind, and the next import of that ends the process.
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
