"""The Ray cluster that this process uses: a private one, or one that it joins."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from typing import Any

from arkml.base.closing import Closing
from arkml.base.handler_errors import is_of_handler
from arkml.base.loggers import SafeLogger
from arkml.base.release import RELEASE
from arkml.errors import Unavailable, UsageError
from arkml.workers.local import LocalPlacement
from arkml.workers.process_environment import ONE_THREAD

_log = SafeLogger(__name__)

RAY = "2.60"
"""Minor version of Ray that this package supports."""

_STARTING = 60.0
_CONNECTING = 3.0
_JOINING = 9.5
_ENDING = 5.0
_HIGHEST_PORT = 65_535

_FAULTS = (signal.SIGILL, signal.SIGSEGV, signal.SIGFPE, signal.SIGBUS)
_MOST_ACTION = 1_024  # bytes of a struct sigaction, 152 with glibc

_AUTHENTICATION = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_ADDRESS = "RAY_ADDRESS"


class RayCluster(Closing):
    """
    A Ray cluster that this process has joined, shared by all users in it; there is one at a time.

    Without an address it is private to this process: it listens on loopback only, and its files and
    processes vanish with this process, however it ends. `ray` is the module. Each `open` needs a
    `close`; the last one leaves the cluster, or ends a private one.
    """

    _current: RayCluster | None = None
    _changing = threading.Lock()

    def __init__(
        self, address: str | None, host_and_port: tuple[str, int] | None, cpus: int
    ) -> None:
        """Start or join a cluster. Users call `open` instead."""
        self.address = address
        self._users = 1
        self._free = 0.0
        self._programs = LocalPlacement()
        try:
            if address is None or host_and_port is None:
                self._join_own()
            else:
                _check_listening(address, host_and_port)
                self._join_other(address, cpus)
        except BaseException:
            self._programs.close(_ENDING if self.is_own else 0.0)
            raise

    @classmethod
    def open(cls, address: str | None = None, *, cpus: int = 1) -> RayCluster:
        """
        Join the cluster at "HOST:PORT" with `cpus` free processors, or start a private one.

        The environment variable RAY_ADDRESS is ignored. Raises UsageError if Ray is not installed
        or this process uses another cluster, and Unavailable, within ten seconds, if the cluster
        does not answer, runs other versions or lacks free processors.
        """
        _check_installed()
        host_and_port = None if address is None else _host_and_port(address)
        with cls._changing:
            current = cls._current
            if current is None:
                current = cls._current = cls(address, host_and_port, cpus)
            elif current.address == address:
                current._users += 1
            else:
                raise UsageError(
                    f"this process uses {_named(current.address)}, and cannot use"
                    f" {_named(address)} meanwhile"
                )
            return current

    @property
    def is_own(self) -> bool:
        """True for a cluster that this process started."""
        return self.address is None

    def close(self) -> None:
        """Release one use of the cluster."""
        with RayCluster._changing:
            self._users -= 1
            if self._users == 0:
                RayCluster._current = None
                with _kept_fault_handlers():
                    self.ray.shutdown()
                _read_authentication()
                self._programs.close(_ENDING)

    def reserve(self, name: str) -> None:
        """Count a processor of a joined cluster as used. Raises Unavailable if none is free."""
        if self.is_own:
            return
        if self._free < 1:
            raise Unavailable(
                f"the Ray cluster has no free CPU for {name}: use fewer actors, or a larger cluster"
            )
        self._free -= 1

    def place(self, target: str, *arguments: Any, threads: int = 4) -> Any:
        """
        Start a Ray actor, never restarted, that creates a `target`, such as "my.module:MyClass".

        On a private cluster, modules are also imported from this process's folders. The actor's
        method `begin` returns an empty text, or a sentence if the object could not be created, for
        example because the node has another version of this package. `call` calls a method of the
        object, by name.
        """
        options: dict[str, Any] = {"num_cpus": 0}
        if not self.is_own:
            options = {"num_cpus": 1, "runtime_env": {"env_vars": ONE_THREAD}}
        actor = self.ray.remote(_host_class())
        return actor.options(
            max_restarts=0, max_task_retries=0, max_concurrency=threads, **options
        ).remote(RELEASE, sys.path if self.is_own else [], target, arguments)

    def _join_own(self) -> None:
        token = secrets.token_hex(16)
        head = self._programs.start("arkml.workers.ray_head", {"token": token}, "the Ray cluster")
        deadline = time.monotonic() + _STARTING
        while not (events := head.events()):
            if not head.is_alive:
                raise Unavailable(head.reason)
            if time.monotonic() > deadline:
                raise Unavailable(f"the Ray cluster does not start within {_STARTING:g} s")
            time.sleep(0.02)
        if "address" not in events[0]:
            raise Unavailable(str(events[0]["reason"]))
        authentication = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, _LOOPBACK: "0"}
        with _environment({**dict.fromkeys(_AUTHENTICATION), **authentication}):
            self._init(str(events[0]["address"]), _node_ip_address="127.0.0.1")

    def _join_other(self, address: str, cpus: int) -> None:
        began = time.monotonic()
        with _environment({_ADDRESS: None}):
            probe = self._programs.start("arkml.workers.ray_probe", {"address": address}, "Ray")
            found: dict[str, Any] = {}
            while not found and probe.is_alive:
                if time.monotonic() > began + _JOINING:
                    raise Unavailable(
                        f"the Ray cluster at {address} does not answer within {_JOINING:g} s"
                    )
                time.sleep(0.02)
                found = next(iter(probe.events()), {})
            found = found or next(iter(probe.events()), {})
            if found.get("event") != "ready":
                raise Unavailable(found.get("reason") or probe.reason)
            if found["free"] < cpus:
                raise Unavailable(
                    f"the Ray cluster at {address} has {found['free']:g} of {found['total']:g} CPUs"
                    f" free, and {cpus} are needed: use fewer actors, or a larger cluster"
                )
            self._free = found["free"]
            probe.kill()
            self._init(address)

    def _init(self, address: str, **options: Any) -> None:
        import ray
        from ray._private import ray_constants
        from ray._private import worker as ray_worker

        if ray.is_initialized():
            raise UsageError("this process uses Ray already: call ray.shutdown() before")
        ray_worker.print_to_stdstream = _log_lines  # it prints errors of nodes to standard output
        is_cluster = ray_constants.ENABLE_RAY_CLUSTER
        if self.is_own:
            ray_constants.ENABLE_RAY_CLUSTER = False  # read from the environment at import
        _read_authentication()
        try:
            with _kept_signal_handler(signal.SIGTERM), _kept_fault_handlers():
                ray.init(address, configure_logging=False, log_to_driver=False, **options)
        except Exception as error:
            if is_of_handler(error):
                raise
            words = " ".join(str(error).split())
            raise Unavailable(f"the Ray cluster cannot be joined: {words[:400]}") from error
        finally:
            ray_constants.ENABLE_RAY_CLUSTER = is_cluster
        self.ray = ray


def _named(address: str | None) -> str:
    return "a Ray cluster of its own" if address is None else f"the Ray cluster at {address}"


def lost(error: BaseException) -> str:
    """Return why a Ray actor was lost, as a text to follow "was lost: "."""
    text = " ".join(str(error).split())
    for mark, reason in (
        ("node has died", "its node has died"),
        ("node was terminated", "its node has died"),
        ("temporarily unavailable", "its node or its process does not answer"),
        ("worker process has died", "its process has died"),
    ):
        if mark in text:
            return reason
    return text[:300]


def _log_lines(data: Mapping[str, Any], **_: Any) -> None:
    """Log messages of the nodes."""
    for line in data["lines"]:
        _log.debug("%s: %s", data["pid"], line)


def _host_class() -> type[Any]:
    """
    Return the class of this package's Ray actors.

    It is pickled by value, so that nodes with another version of the package, or without it, can
    load it and report that.
    """

    class Host:
        def __init__(
            self, version: str, paths: list[str], target: str, arguments: tuple[Any, ...]
        ) -> None:
            import sys
            from importlib import import_module

            sys.path += [path for path in paths if path not in sys.path]

            try:
                from arkml.base.release import RELEASE

                here = f"arkml {RELEASE}"
            except ModuleNotFoundError:
                here = "no arkml"
            self.object: Any = None
            self.refusal = ""
            if here != f"arkml {version}":
                self.refusal = (
                    f"a node of the Ray cluster has {here}, and this process arkml {version}:"
                    " install one version everywhere"
                )
                return
            module, _, name = target.partition(":")
            try:
                self.object = getattr(import_module(module), name)(*arguments)
            except Exception as error:  # noqa: BLE001  it may be of a class of the node
                self.refusal = f"{type(error).__name__}: {error}"

        def pid(self) -> int:
            from os import getpid

            return getpid()

        def begin(self) -> str:
            return self.refusal

        def call(self, name: str, *arguments: Any) -> Any:
            return getattr(self.object, name)(*arguments)

    return Host


def _check_installed() -> None:
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        raise UsageError("Ray is not installed: pip install 'arkml[ray]'") from None
    if not version.startswith(f"{RAY}."):
        raise UsageError(
            f"Ray {version} is installed, and arkml {RELEASE} works with Ray {RAY}: pip"
            " install 'arkml[ray]'"
        )


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit() or int(port) > _HIGHEST_PORT:
        raise UsageError(
            f"the address of a Ray cluster is {address!r}, expected HOST:PORT of its GCS, such as"
            " 10.0.0.5:6379"
        )
    return host.strip("[]"), int(port)


def _check_listening(address: str, host_and_port: tuple[str, int]) -> None:
    try:
        socket.create_connection(host_and_port, _CONNECTING).close()
    except OSError as error:
        raise Unavailable(f"there is no Ray cluster at {address}: {error}") from error


def _read_authentication() -> None:
    """Make Ray reread its environment variables, which it cached when it was imported."""
    from ray._raylet import AuthenticationTokenLoader, Config

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def _environment(values: dict[str, str | None]) -> Iterator[None]:
    """Set environment variables, or remove them for None, and restore them at the end."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _kept_signal_handler(number: signal.Signals) -> Iterator[None]:
    """Restore the handler of a signal at the end, if this is the main thread."""
    handler = signal.getsignal(number)
    try:
        yield
    finally:
        with suppress(ValueError):
            signal.signal(number, handler)


@contextmanager
def _kept_fault_handlers() -> Iterator[None]:
    """
    Restore the handlers of faults at the end, which are not Python's.

    A trap of WebAssembly is a fault that the engine's handler takes. Ray sets others at its begin,
    which end the process instead, and leaves none at its end.
    """
    sigaction = ctypes.CDLL(None).sigaction
    before = {number: ctypes.create_string_buffer(_MOST_ACTION) for number in _FAULTS}
    for number, action in before.items():
        sigaction(int(number), None, action)
    try:
        yield
    finally:
        for number, action in before.items():
            sigaction(int(number), action, None)
