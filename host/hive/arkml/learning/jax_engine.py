"""JAX as learners use it: its device, its threads, and ahead-of-time compilation of functions."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import math
import os
import pkgutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from threading import Lock, Thread
from typing import Any

from arkml.errors import InvalidSettings
from arkml.learning.compilation_cache import open_cache

_configuring = Lock()
_THREADS = "PJRT_NPROC"
_widest = 0
PATIENCE = 30.0
"""Seconds within which a device that is tried has to answer."""

_SIGN_EVERY = 1.0  # seconds
_REASON = 200  # characters
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


def find_devices(device: str) -> tuple[str, ...]:
    """
    Return the devices that "auto", "cpu" or "cuda" means on this machine, one to begin on first.

    JAX is asked for its devices; for "auto" only where a plug-in of JAX is installed, since its
    import takes seconds. Where it finds a GPU, "auto" begins on the processor, which has compiled
    its programs sooner, and the GPU is tried then. Raises InvalidSettings if "cuda" is asked for
    and there is none.
    """
    if device == "cpu" or (device == "auto" and not _has_plugins()):
        return ("cpu",)
    try:
        if _jax().devices("cuda"):
            return ("cuda",) if device == "cuda" else ("cpu", "cuda")
        reason = "it has no devices of this kind"
    except RuntimeError as error:
        reason = reason_of(error)
    if device == "cuda":
        raise InvalidSettings(
            f"device is 'cuda', and JAX finds none here ({reason}): use 'cpu' or 'auto', or"
            " install arkml[cuda] on Linux with an NVIDIA GPU"
        )
    return ("cpu",)


def reason_of(error: Exception) -> str:
    """Return the beginning of what JAX, or the driver of a device, says."""
    return str(error).strip().partition("\n")[0][:_REASON]


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Compilable:
    """
    What a function is compiled from.

    Attributes:
        load: Imports and returns the function.
        shapes: Examples of its arguments, numpy arrays in tuples and lists.
        wide: Whether it computes on all threads of `widen`, on a processor.
        is_exact: Whether products are of float32 on every device. On a GPU they are of TF32 else,
            numbers of float32 that are rounded to 10 bits before they are multiplied.
        donated: Numbers of arguments whose memory the results take over.

    """

    load: Callable[[], Callable[..., Any]]
    shapes: Any
    wide: bool
    is_exact: bool
    donated: tuple[int, ...] = ()


class CompiledAhead:
    """
    A function that a thread compiles ahead of its first call, for one shape of arguments.

    The thread starts with `begin` or the first call on a device; calls wait for it, and raise the
    error of a failed compilation. It may be compiled for all of `devices`, and computes on the
    first. `at_work` is called every second while a call waits.
    """

    def __init__(
        self,
        program: Compilable,
        devices: tuple[str, ...],
        *,
        at_work: Callable[[], None] = nothing,
    ) -> None:
        self._at_work = at_work
        self._program = program
        self._device = devices[0]
        self._is_alone = devices == ("cpu",)
        self._compiled: dict[str, Future[Callable[..., Any]]] = {}

    def begin(self, device: str = "") -> None:
        """Start the compilation for a device, the function's own by default, unless it was."""
        device = device or self._device
        if device not in self._compiled:
            self._compiled[device] = _in_thread(
                "arkml-compile", _compile, self._program, device, self._is_alone
            )

    def is_compiled(self, device: str) -> bool:
        """Return whether the compilation for a device has ended, well or not."""
        return device in self._compiled and self._compiled[device].done()

    def use(self, device: str) -> None:
        """Compute on a device from now on, and forget the programs for others."""
        self._device = device
        self._compiled = {name: one for name, one in self._compiled.items() if name == device}

    def __call__(self, *arguments: Any) -> Any:
        """Call the function, and return its results once they are computed, as arrays of JAX."""
        return self.on(self._device, *arguments)

    def on(self, device: str, *arguments: Any) -> Any:
        """Call the function on a device."""
        self.begin(device)
        function = self._result(self._compiled[device])
        return _jax().block_until_ready(function(*arguments))

    def seconds_on(self, device: str, *arguments: Any) -> float:
        """
        Return the seconds that a device takes for the function, whose results are not used.

        Raises TimeoutError if there are none within PATIENCE, which a thread waits for then.
        """
        began = time.monotonic()
        self._result(_in_thread("arkml-try", self.on, device, *arguments), PATIENCE)
        return time.monotonic() - began

    def _result(self, awaited: Future[Any], seconds: float = math.inf) -> Any:
        """Return what a thread returns, or raise its error; TimeoutError after so many seconds."""
        until = time.monotonic() + seconds
        while not wait([awaited], timeout=_SIGN_EVERY).done:
            self._at_work()
            if time.monotonic() > until:
                raise TimeoutError(f"it has not answered for {seconds:g} seconds")
        return awaited.result()


def _in_thread(name: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call a function in a thread that the process does not wait for at its end."""
    ended: Future[Any] = Future()

    def call() -> None:
        try:
            ended.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001  raised where the result is asked for
            ended.set_exception(error)

    Thread(target=call, name=name, daemon=True).start()
    return ended


def _compile(program: Compilable, device: str, is_alone: bool) -> Callable[..., Any]:
    with _configuring:
        if program.wide and device == "cpu":
            _open_widely()
        jax = _configured(is_alone)
    function = program.load()
    shape = jax.ShapeDtypeStruct
    structs = jax.tree.map(lambda value: shape(value.shape, value.dtype), program.shapes)
    precision = "tensorfloat32" if device == "cuda" and not program.is_exact else "float32"
    with jax.default_device(_device(device)), jax.default_matmul_precision(precision):
        donating = jax.jit(function, donate_argnums=program.donated)
        compiled: Callable[..., Any] = donating.lower(*structs).compile()
    _trim_memory()
    return compiled


def _device(name: str) -> Any:
    """Return a device of JAX."""
    return _jax().devices(name)[0]


@cache
def _configured(is_alone: bool) -> Any:
    """Return JAX, configured to keep its programs; `is_alone` for processors and nothing else."""
    jax = _jax()
    if is_alone:
        jax.config.update("jax_platforms", "cpu")
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
