"""The import of onnxruntime, which reports to its makers unless it is told not to."""

from __future__ import annotations

import os
from typing import Any


def import_onnxruntime() -> Any:
    """
    Return the package, without its telemetry if this process has not imported it before.

    With telemetry it starts a thread and leaves a file in the directory for temporary ones.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when the library is loaded
    import onnxruntime

    return onnxruntime
