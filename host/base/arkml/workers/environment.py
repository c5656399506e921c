"""Environment variables of the processes that this package starts."""

from __future__ import annotations

import os

from arkml.base.source_roots import source_roots

ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    ),
    "1",
)
"""
Variables by which numerical libraries compute in the thread that calls them.

They are read when a library is loaded. Sessions of onnxruntime are made with one thread anyway.
"""


PARENT = "ARKML_PARENT"
"""Variable with the process id of the process that started a worker."""


def environment() -> dict[str, str]:
    """Return the environment of a process of this package, which imports it from here."""
    path = os.pathsep.join(filter(None, (source_roots(), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def worker_environment() -> dict[str, str]:
    """Return the environment of a process that runs beside others of its kind, with one thread."""
    return {**environment(), **ONE_THREAD, PARENT: str(os.getpid())}
