"""Environment variables for processes of this package."""

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
Variables that make numerical libraries compute in the calling thread.

Libraries read them when they are loaded. Sessions of onnxruntime have one thread anyway.
"""


PARENT = "ARKML_PARENT"
"""Variable with the process id of a worker's parent."""


def environment() -> dict[str, str]:
    """Return the environment for a process that imports this package from the same folders."""
    path = os.pathsep.join(filter(None, (source_roots(), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def worker_environment() -> dict[str, str]:
    """Return the environment for one of several parallel processes, with one thread each."""
    return {**environment(), **ONE_THREAD, PARENT: str(os.getpid())}
