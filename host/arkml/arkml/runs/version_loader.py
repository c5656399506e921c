"""The loader of policy versions of a run, on another thread than the one on which they arrive."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock


class VersionLoader:
    """
    Loads policy versions by calling `load` on the threads `loaders`, one version after another.

    While one is being loaded, only the newest of the arriving versions is kept: of 4, 5 and 6, for
    example, only 6 is loaded next. `load` takes the number of a version, from 1, and its ONNX file;
    it does not raise.
    """

    def __init__(self, loaders: ThreadPoolExecutor, load: Callable[[int, bytes], object]) -> None:
        self._loaders = loaders
        self._load = load
        self._lock = Lock()
        self._newest: tuple[int, bytes] | None = None

    def receive(self, version: int, data: bytes) -> None:
        """Queue a newer version for loading, without waiting."""
        with self._lock:
            is_loading, self._newest = self._newest is not None, (version, data)
        if not is_loading:
            self._loaders.submit(self._run)

    def _run(self) -> None:
        done = 0
        while True:
            with self._lock:
                assert self._newest is not None
                version, data = self._newest
                if version == done:
                    self._newest = None
                    return
            self._load(version, data)
            done = version
