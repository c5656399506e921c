"""
The hives that the guests of a host may use: permission, addresses, and a client for each hive.
"""

from __future__ import annotations

import ipaddress
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from msgspec.structs import replace

from arkml.base.closing import Closing
from arkml.base.host_names import authority_of, is_loopback
from arkml.base.loggers import SafeLogger
from arkml.base.output_files import path_of
from arkml.base.short_reprs import cut_repr, short_repr
from arkml.errors import (
    ArkmlError,
    HiveError,
    InvalidSettings,
    NotTrainable,
    RunGone,
    Unavailable,
    UsageError,
)
from arkml.hive import give_way
from arkml.hive.address import LAST_PORT, Address
from arkml.hive.protocol.learners import require_installed
from arkml.hive.protocol.run_origin import RunGoal, RunOrigin
from arkml.hive.protocol.runs import DEFAULT_PORT, OVER, OnConflict, RunInfo, RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.limits import whole_number
from arkml.runs.joined_run import run_to_join
from arkml.runs.learner_settings import LearnerSettings, differences, doubts, require_valid
from arkml.runs.request_line import RequestLine
from arkml.runs.run_origins import origin_of
from arkml.runtime.compiled_module import CompiledModule
from arkml.sessions.guest_run import mapped, settled
from arkml.sessions.run_request import HiveAddress
from arkml.sessions.text import on_one_line, presentable

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.hive.embedded import EmbeddedHive
    from arkml.policies.step_limit import StepLimit
    from arkml.runs.demonstrations import DemonstrationFeed
    from arkml.runs.membership import RunMembership

log = SafeLogger(__name__)

EMBEDDED: Final = "embedded"
"""Takes the place of an address, for a hive that the host starts itself."""

_LOCAL = "localhost"
_OWN = ((_LOCAL, DEFAULT_PORT), ("", 0))
"""Addresses that mean the hive that the guest's host is configured with."""

_HTTPS_PORT = 443
_THREADS = 8
_LOADERS = 2
_NAME_BYTES = 200  # of the name of a run in a line of the log
_WARNING_BYTES = 1_024
_LEAVING = 10.0  # seconds that a host which closes waits for the rows on their way
_LEAVING_GONE = 1.0  # the wait where no hive is there: one may be back


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """
    The game, name, features and actions of a run, such as "arena", "walker", 8, 2.

    A guest that resumes the run must have the same.
    """

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
    The permission to train, and the hive to train on.

    Attributes:
        hive: "embedded" for a hive that starts with its first use and ends with this process, or
            the address of a hive that `arkml hive serve` runs, "HOST:PORT" or a URL.
        token: The token of the hive at that address.
        allowed: Addresses of further hives that guests may name, such as ("localhost:12356",).
        data: Directory in which an embedded hive keeps its runs; None deletes them with the host.
        settings: Settings of the learner, such as {"gamma": 0.995}, which override the guests'.
        wait_for_learner: True lets a submit wait while the learner's pace admits no more rows;
            False drops the rows. None drops rows of applets only.
        shared: True lets all guests of the host that start a run of one game and name take part in
            one run; an embedded hive then keeps no spare learner. False gives each guest its own
            run.
        resume: True continues the run of that game and name, if the hive has one. Its settings are
            kept: `settings` with other values are refused as NotTrainable.
        checkpoint: "RUN" or "RUN@UPDATES" of the hive, from which runs start instead of the guest's
            choice; with `shared`, only the first run.
        expect_run: The run that the first guest has to start. Any other run is refused as
            NotTrainable.
        join_run: Id of a run of the hive in which all guests take part, whatever run and hive they
            name; they get no remote workers.
        upload_modules: True allows guests to have remote workers, for which the hive gets their
            module.
        keep_module: True lets the hive keep a copy of the guest's module with each run that it
            starts, so that people who look at the run can watch its policies play. None does so
            with an embedded hive only.
        page: Port at which an embedded hive shows its page, 0 for any free port, None for no page.

    Example:
        grant = arkml.HiveGrant(data="runs", settings={"gamma": 0.995}, shared=True)
        with arkml.Host(hive=grant) as host:
            guest = host.load("walker.wasm")
            for _ in range(10_000):
                guest.update()

    """

    __repr__ = short_repr

    hive: Literal["embedded"] | str = EMBEDDED  # noqa: PYI051  the one word that is no address
    token: str | None = field(default=None, repr=False)
    allowed: tuple[str, ...] = ()
    data: str | os.PathLike[str] | None = None
    settings: LearnerSettings = field(default_factory=LearnerSettings)
    wait_for_learner: bool | None = None
    shared: bool = False
    resume: bool = False
    checkpoint: str = ""
    expect_run: RunIdentity | None = None
    join_run: str = ""
    upload_modules: bool = False
    keep_module: bool | None = None
    page: int | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for values of a wrong type, and InvalidSettings."""
        for name in ("hive", "checkpoint", "join_run"):
            self._require(name, isinstance(getattr(self, name), str), "a text")
        self._require(
            "token", isinstance(self.token, str | None), "a text, or None", is_shown=False
        )
        is_several = isinstance(self.allowed, tuple | list)
        is_several = is_several and all(isinstance(text, str) for text in self.allowed)
        self._require("allowed", is_several, "a tuple of addresses, as ('localhost:12356',)")
        for text in (*self.allowed, *(() if self.is_embedded else (self.hive,))):
            Address.parse(text)
        if self.data is not None:
            path_of(self.data, "data")
        self._require("settings", isinstance(self.settings, Mapping), "a dict, as {'gamma': 0.9}")
        require_valid(self.settings)
        for name in ("shared", "resume", "upload_modules"):
            self._require(name, isinstance(getattr(self, name), bool), "True or False")
        is_choice = isinstance(self.wait_for_learner, bool | None)
        self._require("wait_for_learner", is_choice, "True, False or None")
        is_choice = isinstance(self.keep_module, bool | None)
        self._require("keep_module", is_choice, "True, False or None")
        is_run = isinstance(self.expect_run, RunIdentity | None)
        self._require("expect_run", is_run, "a RunIdentity, or None")
        if self.page is not None:
            page = whole_number(self.page)
            is_port = page is not None and 0 <= page <= LAST_PORT
            self._require("page", is_port, f"a port from 0 to {LAST_PORT}, or None")
            object.__setattr__(self, "page", page)

    def _require(self, name: str, is_valid: bool, expected: str, *, is_shown: bool = True) -> None:
        """Raise UsageError for a field with an invalid value."""
        if not is_valid:
            value = getattr(self, name)
            shown = cut_repr(value) if is_shown else f"a {type(value).__name__}"
            raise UsageError(f"{name} is {shown}: it takes {expected}")

    @property
    def is_embedded(self) -> bool:
        """True for a hive that the host starts."""
        return self.hive == EMBEDDED

    @property
    def keeps_module(self) -> bool:
        """True if the hive gets a copy of the guest's module for each run that it starts."""
        is_kept = self.is_embedded if self.keep_module is None else self.keep_module
        return is_kept and not self.join_run


def named_address(url: str, port: int) -> tuple[str, int]:
    """
    Return the host and the port that a guest means by `url`, a host name or a URL, and `port`.

    The host is in lower case, and every name of this machine's loopback becomes "localhost":
    "127.0.0.1" and 0, for example, become ("localhost", 12356). A port in the URL wins; port 0
    beside a host means the default port, 443 for https. Raises Unavailable for text that is not an
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
    default = _HTTPS_PORT if parts.scheme == "https" else DEFAULT_PORT
    return _canonical(host), given or port or default


def _canonical(host: str) -> str:
    """Return a host name in lower case, "localhost" for any name of the loopback."""
    host = host.lower()
    return _LOCAL if is_loopback(host) else host


class HiveAccess(Closing):
    """
    A host's access to hives, with a client for each, made when a guest first asks for that hive.

    Attributes:
        grant: The permission of the host.
        threads: Threads that wait for hives.
        loaders: Threads that load policies.
        farewells: Sessions that are being left; `close` waits some seconds for them.
        is_asked: True once a guest has asked for a run.
        is_training: True once a guest has had a session of a policy that learns.
        failure: The error of the last guest that was refused such a session.
        feed: Demonstrations for the first run, or None.
        limit: Cuts off the episodes of training, or None.
        kept: Memberships in runs that are kept until `close`, for guests that replace others that
            were cut off.
        beginning: Memberships of guests that wait for the first policy of their run.
        join: Id or name of the run that the first run of the guests joins, empty to start one.
        folder: Folder of the file of guests that are given as bytes, None if it is not known.
        goal: The goal of the training, which the hive gets with each run, or None.
        page: Link to the page of the embedded hive, empty before `open_page`.
        warn: Called with warnings about declarations of guests that runs ignore; by default they
            are logged.

    """

    def __init__(self, grant: HiveGrant) -> None:
        self.grant = grant
        self.warn: Callable[[str], object] = partial(log.warning, "%s")
        self.threads = RequestLine(_THREADS)
        # Loading a version takes a core, and frames go first (decision 9).
        self.loaders = ThreadPoolExecutor(
            _LOADERS, thread_name_prefix="arkml-loader", initializer=give_way
        )
        self.farewells: set[Future[Any]] = set()
        self.is_asked = self.is_training = False
        self.failure: ArkmlError | None = None
        self.feed: DemonstrationFeed | None = None
        self.limit: StepLimit | None = None
        self.kept: list[RunMembership] = []
        self.beginning: list[RunMembership] = []
        self.join = ""
        self.folder: Path | None = None
        self.goal: RunGoal | None = None
        self.page = ""
        self.misfit = ""
        self.takes_no_more = False
        """True if guests start no further runs, as a rebuilt guest joins those of before."""
        self._origins: dict[str, RunOrigin] = {}  # by the SHA-256 of a module
        self._told: set[str] = set()  # names of settings, and "bounds"
        self._allowed = {
            (_canonical(one.host), one.port): one for one in map(Address.parse, grant.allowed)
        }
        self._embedded: EmbeddedHive | None = None
        self._clients: dict[Address | None, HiveClient] = {}
        self._asked: dict[tuple[HiveClient, str, str], None] = {}  # in the order of the calls
        self._started: dict[tuple[HiveClient, str, str], Future[RunInfo]] = {}
        self._training: set[str] = set()  # ids of runs in which guests have had a session
        self._lock = threading.Lock()
        self._is_closed = False

    def client(self, address: HiveAddress | None = None) -> HiveClient:
        """
        Return the client of the hive at an address, or of the configured hive for None.

        Raises Unavailable for an address that is not allowed.
        """
        grant = self.grant
        configured = None if grant.is_embedded else Address.parse(grant.hive, grant.token)
        place = None if address is None else self._granted(address, configured)
        with self._lock:
            if self._is_closed:
                raise Unavailable("the host is closed")
            if place not in self._clients:
                self._clients[place] = self._connect(place, configured)
            return self._clients[place]

    def ask(self, client: HiveClient, request: RunRequest) -> None:
        """
        Note that a guest is about to start a run, because several threads start runs in any order.
        """
        if self.grant.shared and not self.grant.join_run:
            with self._lock:
                self._asked.setdefault((client, request.game, request.name))

    def refuse(self, client: HiveClient, request: RunRequest) -> None:
        """Forget a run that a guest failed to start, so that no one waits for it."""
        with self._lock:
            key = client, request.game, request.name
            if key not in self._started or _has_failed(self._started[key]):
                self._asked.pop(key, None)

    def with_origin(self, request: RunRequest, module: CompiledModule) -> RunRequest:
        """
        Return a request with information added on where its run comes from, and on its goal.

        Blocks for a second at most, the first time for a module.
        """
        if self.grant.join_run:
            return request
        known = self._origins.get(module.digest)
        if known is None:
            file = module.file
            name, folder = (file.name, file.parent) if file else (module.name, self.folder)
            known = origin_of(name, module.digest, folder)
            self._origins[module.digest] = known
        return replace(request, origin=known, goal=self.goal or request.goal)

    def start(self, client: HiveClient, request: RunRequest) -> Future[RunInfo]:
        """
        Create a run; with `shared`, return the run created earlier for this game and name.

        With the grant's `join_run`, return that run; the future raises RunGone if it is over. With
        `join`, the first run is that one. Blocks while the hive is asked for the settings of a run
        that is resumed or joined. Raises NotTrainable if another run is expected, or the run has
        other settings or another shape, InvalidSettings for an algorithm that the embedded hive
        does not have, and HiveError.
        """
        if self.grant.join_run:
            found = client.run(self.grant.join_run)
            return mapped(found, lambda run: _require_shape(_require_open(run), request))
        self._require_expected(request)
        if self._embedded is not None and client is self._clients.get(None):
            require_installed(request.settings.algorithm)  # the same packages are there and here
        self._tell_doubts(request)
        if self.grant.resume:
            if (client, request.game, request.name) not in self._started:
                self._require_same(client, request)
            request = replace(request, on_conflict=OnConflict.JOIN)
        if self.grant.checkpoint and self._is_first(request):
            request = replace(request, checkpoint=self.grant.checkpoint)
        if not self.grant.shared:
            return client.create(request)
        key = (client, request.game, request.name)
        self._require_known(key)
        self.ask(client, request)
        joined = None
        if self.join and key not in self._started and key in list(self._asked)[:1]:
            joined = self._joined(client, request)
        with self._lock:
            started = self._started.get(key)
            if started is None or _has_failed(started):
                self._started = {
                    one: run for one, run in self._started.items() if not _has_failed(run)
                }
                self._started[key] = settled(joined) if joined else client.create(request)
                return self._started[key]
        return mapped(started, lambda run: self._fitting(run, request))

    def _joined(self, client: HiveClient, request: RunRequest) -> RunInfo:
        """Return the run to join. Raises NotTrainable if the request does not fit it; HiveError."""
        run = run_to_join(client, self.join, request, self._differing)
        try:
            return _require_shape(run, request)
        except InvalidSettings as error:
            raise NotTrainable(str(error)) from None

    def _require_known(self, key: tuple[HiveClient, str, str]) -> None:
        """Raise NotTrainable, which `misfit` keeps, for a new run where there may be no more."""
        if self.takes_no_more and self._started and key not in self._started:
            known = ", ".join(repr(name) for _, _, name in self._started)
            self.misfit = f"it starts the run {key[2]!r}, and this training is of {known}"
            raise NotTrainable(self.misfit)

    def _fitting(self, run: RunInfo, request: RunRequest) -> RunInfo:
        """Return the run if the request fits it. Raises InvalidSettings, which `misfit` keeps."""
        try:
            return _require_shape(run, request)
        except InvalidSettings as error:
            self.misfit = str(error)
            raise

    def take_misfit(self) -> str:
        """Return once why a guest could not join the run that it started last; else ""."""
        misfit, self.misfit = self.misfit, ""
        return misfit

    def tell_bounds(self, module: str, bounds: str) -> None:
        """Warn, once for all guests, of declared `bounds`, such as "[0, 1] for 'car'"."""
        if self.grant.join_run or "bounds" in self._told:  # whoever has started that run is told
            return
        self._told.add("bounds")
        sentence = (
            f"{module} declares actions in {bounds}: they hold in environments and trials, and not"
            " here, where a run gives actions in [-1, 1]; have the guest scale these"
        )
        self.warn(presentable(sentence, _WARNING_BYTES))

    def note_training(self, run_id: str) -> None:
        """Note that a guest has got a session of a policy that learns in a run."""
        self._training.add(run_id)
        self.is_training = True

    @property
    def awaits_runs(self) -> bool:
        """True while guests have had no session of a run that they have asked for."""
        runs = self.started
        return len(runs) < len(self._asked) or any(run.id not in self._training for _, run in runs)

    @property
    def started(self) -> list[tuple[HiveClient, RunInfo]]:
        """
        The runs that `shared` guests have started, in that order, each with its client.

        A run is listed only after all earlier ones have been created.
        """
        found = []
        for key in list(self._asked):
            run = self._started.get(key)
            if run is None or not run.done():
                break
            if not run.cancelled() and run.exception() is None:
                found.append((key[0], run.result()))
        return found

    @property
    def names(self) -> list[str]:
        """The names by which `shared` guests have started runs, in that order."""
        return [name for _, _, name in list(self._asked)]

    def find_refusal(self) -> str:
        """
        Return a sentence that says why no guest has got a training session.

        The text is empty if a guest has got one, or if no guest was refused and the configured hive
        takes the token: the hive is asked once more, since the answer to a guest may be on its way.
        Blocks for some seconds at most.
        """
        if self.is_training:
            return ""
        if self.failure is not None:
            return str(self.failure)
        if self.grant.is_embedded or not self._clients:
            return ""
        try:
            self.client().caller().result()  # unlike `health`, it takes the token
        except HiveError as error:
            return str(error)
        return ""

    @property
    def absence(self) -> str:
        """
        A sentence that says why no hive has ever answered, empty if one has or none was asked.
        """
        if any(one.has_answered for one in list(self._clients.values())):
            return ""
        return str(self.failure) if isinstance(self.failure, HiveError) else self.silence

    @property
    def silence(self) -> str:
        """A sentence about a hive that has not answered for seconds, or ""."""
        return next(filter(None, (one.silence for one in list(self._clients.values()))), "")

    def open_page(self, run: str) -> str:
        """
        Start the embedded hive, and return its `page`: a link that is good for one login.

        The page opens the run with this id, or with "first" the first run as soon as it exists.

        Raises HiveUnreachable if the hive does not start, for example because the port is in use.
        """
        self.client()
        assert self._embedded is not None
        self._embedded.locate()
        self.page = f"{self._embedded.page_link}&runs={run}"
        return self.page

    def close(self) -> None:
        """Wait for the last rows, end the clients and the embedded hive. Safe to call twice."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        with ExitStack() as stack:  # all of it also where Ctrl-C ends the wait
            if self._embedded is not None:
                stack.callback(self._embedded.close)
            stack.callback(self.loaders.shutdown, wait=False, cancel_futures=True)
            stack.callback(self.threads.close)
            for client in self._clients.values():
                stack.callback(client.close)
            for membership in (*self.kept, *self.beginning):
                membership.leave(stop=False)
            is_gone = self._clients and all(one.is_gone for one in self._clients.values())
            wait(list(self.farewells), timeout=_LEAVING_GONE if is_gone else _LEAVING)

    def _granted(self, address: HiveAddress, configured: Address | None) -> Address | None:
        """Return the allowed address that a guest means, None for the configured hive."""
        if self.grant.join_run:
            return None
        host, port = named_address(address.url, address.port)
        own = [] if configured is None else [(_canonical(configured.host), configured.port)]
        if (host, port) in (*_OWN, *own):
            return None
        if (host, port) not in self._allowed:
            place = authority_of(host, port)
            raise Unavailable(
                f"the hive {place} is not allowed here; --allow-hive {place} allows it"
            )
        return self._allowed[host, port]

    def _tell_doubts(self, request: RunRequest) -> None:
        """Log doubtful settings of a run, each setting once for all guests."""
        for setting, doubt in doubts(request.settings).items():
            if setting not in self._told:
                self._told.add(setting)
                log.warning("run %s: %s", on_one_line(request.name, _NAME_BYTES), doubt)

    def _require_expected(self, request: RunRequest) -> None:
        expected, widths = self.grant.expect_run, request.settings
        asked = RunIdentity(request.game, request.name, widths.features, widths.actions)
        if expected is not None and asked != expected and self._is_first(request):
            raise NotTrainable(
                f"{expected} is to be resumed here, and the guest starts {asked}: train it in"
                " another directory"
            )

    def _is_first(self, request: RunRequest) -> bool:
        """Return whether guests have asked for no run before this one, which threads start."""
        first = next(iter(list(self._asked)), None)
        return first is None or first[1:] == (request.game, request.name)

    def _require_same(self, client: HiveClient, request: RunRequest) -> None:
        """Raise NotTrainable if the run to be resumed has other settings than the grant."""
        asked = request.game, request.name
        same = [run for run in client.runs().result() if (run.game, run.name) == asked]
        if not same:
            return
        run = max(same, key=lambda one: one.started_at)
        own = client.details(run.id).result().settings
        if found := self._differing(own):
            raise NotTrainable(
                f"run {run.name!r} goes on with its own settings, and others are given:"
                f" {'; '.join(found)}. Leave these out, or begin another run: without resume, and"
                " in another directory (--out DIR, directory=DIR)"
            )
        if own.max_episode_steps and self.limit is None:
            self.warn(
                f"run {on_one_line(run.name, _NAME_BYTES)} began with max_episode_steps"
                f" {own.max_episode_steps}, and here its episodes have no limit"
            )

    def _differing(self, own: Settings) -> list[str]:
        """Return settings of the grant that a run has with other values, as "NAME VALUE, …"."""
        found = differences(self.grant.settings, own)
        most = 0 if self.limit is None else self.limit.most
        if most and most != own.max_episode_steps:
            found.append(f"max_episode_steps {most}, it has {own.max_episode_steps or None}")
        return found

    def _connect(self, place: Address | None, configured: Address | None) -> HiveClient:
        from arkml.hive.client import HiveClient

        if place is None and configured is None:
            from arkml.hive.embedded import EmbeddedHive

            data = None if self.grant.data is None else Path(self.grant.data)
            settings: dict[str, Any] = {"port": self.grant.page} if self.grant.page else {}
            if self.grant.shared:  # one run: a learner for the next would never have work
                settings["spare"] = False
            self._embedded = embedded = EmbeddedHive(data, settings)
            return HiveClient(embedded.locate)
        address = place or configured  # without the token for hives that guests name
        assert address is not None
        return HiveClient(lambda: address)


def _has_failed(started: Future[RunInfo]) -> bool:
    return started.done() and started.exception() is not None


def _require_open(run: RunInfo) -> RunInfo:
    """Return a run that has not ended. Raises RunGone for others: to join one would resume it."""
    if run.status in OVER:
        raise RunGone(f"run {run.name!r} is over: it is {run.status}")
    return run


def _require_shape(run: RunInfo, request: RunRequest) -> RunInfo:
    """Return the run if it has the widths of the request. Raises InvalidSettings."""
    wanted = request.settings
    if (run.features, run.actions) != (wanted.features, wanted.actions):
        raise InvalidSettings(
            f"run {run.name!r} has {run.features} features and {run.actions} actions;"
            f" another guest starts it with {wanted.features} and {wanted.actions}"
        )
    if run.branches != wanted.branches:
        raise InvalidSettings(
            f"run {run.name!r} has branches of {list(run.branches)} choices; another guest starts"
            f" it with {list(wanted.branches)}"
        )
    return run
