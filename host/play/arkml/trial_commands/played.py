"""A server on which people play trials of one guest, one trial after another, and its links."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import webbrowser
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from arkml.base.host_names import authority_of
from arkml.base.terminal import harmless
from arkml.errors import GuestError
from arkml.guest_trials.guest_hosting import GuestHosting
from arkml.guest_trials.learning.trial_learning import TrialLearning
from arkml.guest_trials.rebuilding import GuestWatch
from arkml.trial_commands.guest_options import PlayedGuest, open_learning
from arkml.trial_commands.trial_service import EndingSignals, open_log
from arkml.trials.core.error import TrialError
from arkml.trials.core.hosting import HOSTED
from arkml.trials.datalog.datalog import DatalogOptions
from arkml.trials.server.orchestrator import TrialLog
from arkml.trials.server.server import Server
from arkml.trials.server.web.page_files import page_link
from arkml.trials.server.web.port import WebPort
from arkml.trials.server.web.web_options import WebOptions
from arkml.trials.wire.common_pb2 import EnvironmentParams, TrialParams
from arkml.trials.wire.lifecycle_pb2 import TrialStartRequest

MOST_FAILURES: Final = 3
"""Trials in a row that may end without a tick."""

_PAUSE: Final = 0.5  # seconds before the trial that follows one without a tick
_LEAST: Final = 1.0  # seconds from the beginning of one trial to the next's
_MOST_INVITED: Final = 15  # links to invite others
_ANYWHERE: Final = ("0.0.0.0", "::")
_ELSEWHERE: Final = {  # addresses for documentation, to which nothing is sent
    socket.AF_INET: "192.0.2.1",
    socket.AF_INET6: "2001:db8::1",
}


@dataclass(frozen=True, slots=True)
class PlayedTrials:
    """The settings of `arkml trials play`; without `data` there is no log."""

    guest: Path
    played: PlayedGuest
    web: WebOptions
    data: Path | None
    is_opened: bool = False
    is_watched: bool = False


class PlayedTrial(NamedTuple):
    """How one trial ended: the number of its last tick, -1 if there was none, and the reason."""

    trial_id: str
    tick: int
    reason: str


def serve(options: PlayedTrials, announce: Callable[[str], object]) -> int:
    """
    Serve one trial after another until SIGINT, SIGTERM or SIGHUP; return the signal's number.

    `announce` gets lines with the links, and with the ends of trials. Call `serve` on the main
    thread. Raises GuestError if the guest fails MOST_FAILURES times in a row before its first tick,
    and TrialError and UsageError if the server cannot begin.
    """
    with (
        options.played.open_hosting(options.guest, people=True) as hosting,
        open_learning(options.played, hosting) as learning,
        _watched(options, hosting, announce),
    ):
        return asyncio.run(_serve(options, hosting, learning, announce))


def _watched(
    options: PlayedTrials, hosting: GuestHosting, announce: Callable[[str], object]
) -> contextlib.AbstractContextManager[object]:
    """Return a watch of the guest's file for the time of its trials, if there is to be one."""
    if not options.is_watched:
        return contextlib.nullcontext()
    return GuestWatch(options.guest, hosting.rebuild, announce)


async def _serve(
    options: PlayedTrials,
    hosting: GuestHosting,
    learning: TrialLearning | None,
    announce: Callable[[str], object],
) -> int:
    ending = EndingSignals()
    async with _open(options, hosting, learning) as (server, web):
        links = _links(web, options.web.host, hosting)
        for what, link in links:
            announce(f"{what:<7} {link}")
        if options.is_opened:
            await asyncio.to_thread(webbrowser.open, links[0][1])
        playing = asyncio.create_task(_play_on(server, announce))
        await asyncio.wait((playing, ending.first), return_when=asyncio.FIRST_COMPLETED)
        if not ending.first.done():
            playing.result()  # raises
        playing.cancel()
        await ending.end(server)
    return ending.first.result()


@contextlib.asynccontextmanager
async def _open(
    options: PlayedTrials, hosting: GuestHosting, learning: TrialLearning | None
) -> AsyncIterator[tuple[Server, WebPort]]:
    """Open the log, the server and its web port."""
    async with contextlib.AsyncExitStack() as stack:
        trial_log: TrialLog | None = None
        running: list[Server] = []
        if options.data is not None:
            opening = open_log(options.data, DatalogOptions())
            log, running = await stack.enter_async_context(opening)
            trial_log = log if learning is None else learning.learned_log(log)
        server = await stack.enter_async_context(Server(trial_log=trial_log, hosting=hosting))
        running.append(server)
        web = WebPort(server, options.web)
        stack.push_async_callback(web.close)
        await web.open()
        yield server, web


async def _play_on(server: Server, announce: Callable[[str], object]) -> None:
    """Play one trial after another. Raises GuestError once they end without a tick."""
    failures = 0
    loop = asyncio.get_running_loop()
    while True:
        next_at = loop.time() + _LEAST  # guests of one submit would fill the log
        played = await _play_one(server)
        reason = harmless(played.reason) or "its guest was done"
        announce(f"trial {played.trial_id} ended after {played.tick + 1:,} ticks: {reason}")
        failures = failures + 1 if played.tick < 0 else 0
        if failures == MOST_FAILURES:
            raise GuestError(f"{failures} trials in a row ended before their first tick: {reason}")
        await asyncio.sleep(max(failures * _PAUSE, next_at - loop.time()))


async def _play_one(server: Server) -> PlayedTrial:
    """Start a trial whose actors all begin as stand-ins, and follow it to its end."""
    environment = EnvironmentParams(name="guest", endpoint="local://", implementation=HOSTED)
    request = TrialStartRequest(params=TrialParams(environment=environment))
    trial_id = (await server.trials.start(request)).trial_id
    tick, reason = -1, ""
    try:
        async for view in server.players.look(trial_id):
            tick = view.tick_id if view.HasField("observations") else tick
            reason = view.reason or reason
    except TrialError as error:
        reason = str(error)
    return PlayedTrial(trial_id, tick, reason)


def _links(web: WebPort, host: str, hosting: GuestHosting) -> list[tuple[str, str]]:
    """Return the purpose and the URL of each link: to play, to watch, to invite others."""
    slots = [one.actor(slot) for one in hosting.classes for slot in range(one.slots)]
    origin = _reachable(web.endpoint(), host)
    needs_token = bool(web.access.token)

    def link(slot: str, endpoint: str) -> str:
        return page_link(origin, slot, endpoint.rpartition("/j/")[2] if needs_token else "")

    invited = slots[1 : 1 + _MOST_INVITED]
    return [
        ("play", link(slots[0], web.link_to_play(slots))),
        ("watch", link("", web.link_to_watch())),
        *(("invite", link(slot, web.link_to_play([slot]))) for slot in invited),
    ]


def _reachable(endpoint: str, host: str) -> str:
    """Return an endpoint as other machines reach it, where they can."""
    if host not in _ANYWHERE:
        return endpoint
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_ELSEWHERE[family], 9))
        except OSError:  # this machine has no network
            return endpoint
        own = probe.getsockname()[0]
    scheme, _, authority = endpoint.partition("://")
    return f"{scheme}://{authority_of(own, int(authority.rpartition(':')[2]))}"
