"""JAX as learners use it: its device, its threads, and ahead-of-time compilation of functions."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import cache
from importlib.metadata import entry_points
from threading import Lock, Thread
from typing import Any

from arkml.errors import InvalidSettings
from arkml.learning.compilation_cache import open_cache

_configuring = Lock()
_THREADS = "PJRT_NPROC"
_widest = 0
_SIGN_EVERY = 1.0  # seconds
_REASON = 200  # characters of JAX's own reason
_PLUGINS = "jax_plugins"
"""The package in which JAX finds its devices beside the processor, and a group of entry points."""


def limit_threads(count: int) -> None:
    """
    Limit JAX to `count` threads. Call it before JAX is imported for the first time.

    XLA takes the size of its pools from PJRT_NPROC when it opens the processor as a device; without
    pools for Eigen a matrix product of one thread stays on the thread that computes.
    """
    os.environ[_THREADS] = str(count)
    flags = os.environ.get("XLA_FLAGS", "")
    if count == 1:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()


def widen(count: int) -> None:
    """
    Let programs that are compiled as wide compute on `count` threads from now on.

    The first wide program opens the processor again as a device, which makes all earlier arrays of
    JAX unusable. So this is for a process in which only one algorithm uses JAX.
    """
    global _widest
    _widest = count


def find_device(device: str) -> str:
    """
    Return the device that "auto", "cpu" or "cuda" means on this machine: "cpu" or "cuda".

    JAX is asked for its devices; for "auto" only where a plug-in of JAX is installed, since its
    import takes seconds. Raises InvalidSettings if "cuda" is asked for and there is none.
    """
    if device == "cpu" or (device == "auto" and not _has_plugins()):
        return "cpu"
    try:
        if _jax().devices("cuda"):
            return "cuda"
        reason = "it has no devices of this kind"
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0][:_REASON]
    if device == "cuda":
        raise InvalidSettings(
            f"device is 'cuda', and JAX finds none here ({reason}): use 'cpu' or 'auto', or"
            " install arkml[cuda] on Linux with an NVIDIA GPU"
        )
    return "cpu"


def nothing() -> None:
    """Do nothing."""


class CompiledAhead:
    """
    A function that a thread compiles ahead of its first call, for one shape of arguments.

    `load` imports and returns the function; `shapes` are examples of its arguments, numpy arrays in
    tuples and lists. The thread starts with `begin` or the first call; calls wait for it, and raise
    the error of a failed compilation. A `wide` function computes on all threads of `widen`.
    `at_work` is called every second while a call waits.
    """

    def __init__(
        self,
        load: Callable[[], Callable[..., Any]],
        shapes: Any,
        device: str,
        *,
        wide: bool = False,
        at_work: Callable[[], None] = nothing,
    ) -> None:
        self._at_work = at_work
        self._compiled: Future[Callable[..., Any]] = Future()
        self._arguments = (load, shapes, device, wide)
        self._has_begun = False

    def begin(self) -> None:
        """Start the compilation, unless it was started before."""
        if not self._has_begun:
            self._has_begun = True
            Thread(target=self._compile, name="arkml-compile", daemon=True).start()

    def __call__(self, *arguments: Any) -> Any:
        """Call the function, and return its results once they are computed, as arrays of JAX."""
        self.begin()
        while not wait([self._compiled], timeout=_SIGN_EVERY).done:
            self._at_work()
        function = self._compiled.result()
        return _jax().block_until_ready(function(*arguments))

    def _compile(self) -> None:
        try:
            self._compiled.set_result(_compile(*self._arguments))
        except Exception as error:  # noqa: BLE001  raised where the function is called
            self._compiled.set_exception(error)


def _compile(
    load: Callable[[], Callable[..., Any]], shapes: Any, device: str, wide: bool
) -> Callable[..., Any]:
    with _configuring:
        if wide and device == "cpu":
            _open_widely()
        jax = _configured(device)
    function = load()
    structs = jax.tree.map(lambda value: jax.ShapeDtypeStruct(value.shape, value.dtype), shapes)
    with jax.default_device(jax.devices(device)[0]):
        compiled: Callable[..., Any] = jax.jit(function).lower(*structs).compile()
    _trim_memory()
    return compiled


@cache
def _configured(device: str) -> Any:
    """Return JAX, configured to keep the programs that it compiles for a device."""
    jax = _jax()
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_default_matmul_precision", "float32")  # no TF32
    open_cache(jax, os.environ.get(_THREADS, ""))
    return jax


def _open_widely() -> None:
    """Have JAX open the processor with as many threads as `widen` allows, unless it has."""
    if not _widest or os.environ.get(_THREADS) == str(_widest):
        return
    os.environ[_THREADS] = str(_widest)
    if "jax" in sys.modules:
        from jax.extend.backend import clear_backends

        clear_backends()  # type: ignore[no-untyped-call]
    _configured.cache_clear()


def _trim_memory() -> None:
    """Give memory that is free back to the system: a compilation leaves more than 100 MiB."""
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _jax() -> Any:
    import jax

    return jax


def _has_plugins() -> bool:
    """Return whether a plug-in of JAX is installed, in any version."""
    found = importlib.util.find_spec(_PLUGINS)
    places = [] if found is None else found.submodule_search_locations or []
    return any(True for _ in pkgutil.iter_modules(places)) or bool(entry_points(group=_PLUGINS))
