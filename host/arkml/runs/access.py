"""The hives that a host may use: who grants them, where they are, one client for each."""

from __future__ import annotations

import ipaddress
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from arkml.closing import Closing
from arkml.errors import ArkmlError, InvalidSettings, NotTrainable, Unavailable, UsageError
from arkml.hive import give_way
from arkml.hive.protocol.runs import DEFAULT_PORT, OnConflict, RunInfo, RunRequest
from arkml.sessions.run import mapped
from arkml.sessions.run_request import HiveAddress

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.hive.embedded import EmbeddedHive

EMBEDDED = "embedded"

_LOCAL = "localhost"
_OWN = ((_LOCAL, DEFAULT_PORT), ("", 0))
"""What a guest says for the hive that its host is configured with."""

_THREADS = 8
_LOADERS = 2
_LEAVING = 10.0  # seconds that a host which closes waits for the rows on their way
_LEAVING_GONE = 1.0  # the same where no hive is there: one may be back


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Game, name and widths of a run: what guests must agree in to train it one after another."""

    game: str
    name: str
    features: int
    actions: int

    def __str__(self) -> str:
        shape = f"{self.features} features, {self.actions} actions"
        return f"run {self.name!r} of {self.game!r} ({shape})"


@dataclass(frozen=True, slots=True)
class HiveGrant:
    """
    What the guests of a host may train on.

    `hive` is "embedded", a hive that starts with the first use and ends with this process, or
    "HOST:PORT" of one that `arkml hive serve` runs, with its `token`. `allowed` are further
    "HOST:PORT" that guests may name. `data` is where an embedded hive keeps its runs; without it
    they are gone with the host. `settings` override what guests ask for (the keys of
    `hive.protocol.settings.Settings`). `block` says whether a submit waits while the learner's
    pace admits no more rows; None lets applets drop rows instead and everything else wait.
    With `shared` all guests of the host that start a run of one game and name take part in one
    run, which goes on from where it was with `resume`; otherwise each starts its own. `expected`
    is the run that the first of them has to start, any other one is NotTrainable.
    """

    hive: str = EMBEDDED
    token: str | None = None
    allowed: tuple[str, ...] = ()
    data: str | os.PathLike[str] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    block: bool | None = None
    shared: bool = False
    resume: bool = False
    expected: RunIdentity | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for an address that is none."""
        for text in (*self.allowed, *(() if self.hive == EMBEDDED else (self.hive,))):
            read_address(text)


def read_address(text: str) -> tuple[str, int]:
    """Host and port of "HOST:PORT", or of "HOST" with the usual port. Raises UsageError."""
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) <= 0xFFFF:
        raise UsageError(f"{text!r} is no address of a hive: HOST:PORT, such as localhost:12356")
    return host, int(port)


def named_address(url: str, port: int) -> tuple[str, int]:
    """
    Return the host and the port that a guest means by `url`, a host name or a URL, and `port`.

    The host is in lower case, and every name of this machine's loopback is "localhost". A port in
    the URL wins; port 0 beside a host is the usual one. Raises Unavailable for text that is not an
    address.
    """
    try:
        bare = f"[{url}]" if ipaddress.ip_address(url).version == 6 else url
    except ValueError:
        bare = url
    try:
        parts = urlsplit(bare if "//" in bare else f"//{bare}")
        host, given = (parts.hostname or "").removesuffix("."), parts.port
    except ValueError:
        raise Unavailable(f"{url!r} is not an address of a hive") from None
    if not host:
        return "", port
    return canonical(host), given or port or DEFAULT_PORT


def canonical(host: str) -> str:
    """Return a host name in lower case, "localhost" for any name of the loopback."""
    host = host.lower()
    try:
        return _LOCAL if ipaddress.ip_address(host).is_loopback else host
    except ValueError:
        return host


class HiveAccess(Closing):
    """
    The clients of one host, each made when a guest first asks for its hive.

    `threads` waits for hives and `loaders` loads policies, for which others wait. `farewells` are
    sessions on their way out, which `close` gives some seconds. `is_training` says whether a guest
    has been given a policy that learns, `failure` why the last one that wanted one was not.
    """

    def __init__(self, grant: HiveGrant) -> None:
        self.grant = grant
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="arkml-hive")
        self.loaders = ThreadPoolExecutor(
            _LOADERS, thread_name_prefix="arkml-loader", initializer=give_way
        )
        self.farewells: set[Future[Any]] = set()
        self.is_training = False
        self.failure: ArkmlError | None = None
        self._allowed = {
            (canonical(host), port): (host, port) for host, port in map(read_address, grant.allowed)
        }
        self._embedded: EmbeddedHive | None = None
        self._clients: dict[tuple[str, int] | None, HiveClient] = {}
        self._started: dict[tuple[HiveClient, str, str], Future[RunInfo]] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def client(self, address: HiveAddress | None = None) -> HiveClient:
        """
        The client of the hive at an address; None is the one the host is configured with.

        Raises Unavailable for an address that is not allowed.
        """
        configured = None if self.grant.hive == EMBEDDED else read_address(self.grant.hive)
        where = None if address is None else self._granted(address, configured)
        with self._lock:
            if self._is_closed:
                raise Unavailable("the host is closed")
            if where not in self._clients:
                self._clients[where] = self._connect(where, configured)
            return self._clients[where]

    def start(self, client: HiveClient, request: RunRequest) -> Future[RunInfo]:
        """
        Create a run, or take the one that was created before for the same game and name.

        Raises NotTrainable if another one is expected.
        """
        self._require_expected(request)
        if self.grant.resume:
            request = replace(request, on_conflict=OnConflict.JOIN)
        if not self.grant.shared:
            return client.create(request)
        key = (client, request.game, request.name)
        with self._lock:
            found = self._started.get(key)
            if found is None or (found.done() and found.exception() is not None):
                self._started[key] = client.create(request)
                return self._started[key]
        return mapped(found, lambda run: _same_shape(run, request))

    @property
    def started(self) -> list[tuple[HiveClient, RunInfo]]:
        """The runs that `shared` guests have begun, in that order, each with the client to ask."""
        return [
            (client, run.result())
            for (client, _, _), run in list(self._started.items())
            if run.done() and not run.cancelled() and run.exception() is None
        ]

    def close(self) -> None:
        """Let the last rows arrive, end the clients and the embedded hive. Safe to call again."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        with ExitStack() as stack:  # all of it also where Ctrl-C ends the wait
            if self._embedded is not None:
                stack.callback(self._embedded.close)
            for pool in (self.threads, self.loaders):
                stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            for client in self._clients.values():
                stack.callback(client.close)
            is_gone = self._clients and all(one.is_gone for one in self._clients.values())
            wait(list(self.farewells), timeout=_LEAVING_GONE if is_gone else _LEAVING)

    def _granted(
        self, address: HiveAddress, configured: tuple[str, int] | None
    ) -> tuple[str, int] | None:
        """Return the allowed address that a guest means, None for the configured hive."""
        host, port = named_address(address.url, address.port)
        own = _OWN if configured is None else (*_OWN, (canonical(configured[0]), configured[1]))
        if (host, port) in own:
            return None
        if (host, port) not in self._allowed:
            raise Unavailable(
                f"the hive {host}:{port} is not allowed here; --allow-hive {host}:{port} allows it"
            )
        return self._allowed[host, port]

    def _require_expected(self, request: RunRequest) -> None:
        expected, widths = self.grant.expected, request.settings
        found = RunIdentity(request.game, request.name, widths.features, widths.actions)
        if expected is not None and found != expected and not self._started:
            raise NotTrainable(
                f"{expected} is to go on here, and the guest starts {found}: that one takes a"
                " directory of its own"
            )

    def _connect(
        self, where: tuple[str, int] | None, configured: tuple[str, int] | None
    ) -> HiveClient:
        from arkml.hive.client import HiveClient

        if where is None and configured is None:
            from arkml.hive.embedded import EmbeddedHive

            data = None if self.grant.data is None else Path(self.grant.data)
            self._embedded = embedded = EmbeddedHive(data)
            return HiveClient(embedded.locate)
        address = where or configured
        assert address is not None
        # A token is for the configured hive: no other one is told of it.
        token = self.grant.token if where is None else None
        return HiveClient(lambda: (*address, token))


def _same_shape(run: RunInfo, request: RunRequest) -> RunInfo:
    wanted = request.settings
    if (run.features, run.actions) != (wanted.features, wanted.actions):
        raise InvalidSettings(
            f"run {run.name!r} has {run.features} features and {run.actions} actions;"
            f" another guest starts it with {wanted.features} and {wanted.actions}"
        )
    return run
