"""Notices about runs, sent to webhooks and to a command without making the caller wait."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import Full, Queue
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from arkml.base.closing import Closing
from arkml.base.host_names import proxy_of
from arkml.base.loggers import SafeLogger
from arkml.base.release import RELEASE
from arkml.base.short_reprs import cut_repr
from arkml.base.terminal import harmless
from arkml.errors import ArkmlError, UsageError
from arkml.hive.protocol.page_messages import NoticeKind
from arkml.hive.protocol.wire import WireStruct

if TYPE_CHECKING:
    import httpx

_log = SafeLogger(__name__)

_MOST_URLS = 16
_MOST_WAITING = 64
"""Notices that wait for one receiver; further ones are lost, and counted."""

_LONGEST = 512  # characters of a text in a notice
_NANOSECONDS = 1_000_000_000


class WebhookNotice(WireStruct, frozen=True):
    """
    A notice about a run, as receivers get it in JSON.

    Attributes:
        run: Id of the run.
        name: Name of the run.
        game: Name of the game.
        kind: What has happened.
        text: One sentence for people.
        at: The time, such as "2026-11-23T03:52:19.072Z".
        link: Address of the run on the page of its hive, empty if that is not known.

    """

    run: str
    name: str
    game: str
    kind: NoticeKind
    text: str
    at: str
    link: str = ""


def notice_of(
    run: tuple[str, str, str], kind: NoticeKind, text: str, at: int, page: str = ""
) -> WebhookNotice:
    """
    Return a notice, with texts that are harmless to show, and short.

    Args:
        run: Id, name and game of the run.
        kind: What has happened.
        text: One sentence for people.
        at: Nanoseconds since the Unix epoch.
        page: URL of the page of the hive, empty if it has none.

    """
    identity, name, game, sentence = (harmless(one)[:_LONGEST] for one in (*run, text))
    when = datetime.fromtimestamp(at / _NANOSECONDS, UTC).isoformat(timespec="milliseconds")
    link = f"{page.rstrip('/')}/#runs={identity}" if page else ""
    return WebhookNotice(identity, name, game, kind, sentence, when.replace("+00:00", "Z"), link)


@dataclass(frozen=True, slots=True)
class NotifyOptions:
    """
    The receivers of notices, which an operator names and no request does.

    Attributes:
        urls: URLs that get each notice as JSON, by POST. Redirects are not followed.
        command: Command line of a program that gets each notice as JSON on standard input. It is
            split as a shell would, and run without one; empty for none.
        timeout: Seconds that a webhook has to answer.
        pauses: Seconds before the second and before each further try of a webhook.
        command_seconds: Seconds that the command may take, after which it is killed.

    """

    urls: tuple[str, ...] = ()
    command: str = ""
    timeout: float = 5.0
    pauses: tuple[float, ...] = (1.0, 4.0)
    command_seconds: float = 10.0

    def __post_init__(self) -> None:
        """Raise UsageError for a URL that is not HTTP's, and for a command that is not there."""
        if len(self.urls) > _MOST_URLS:
            raise UsageError(f"notify has {len(self.urls)} URLs: it takes {_MOST_URLS} at most")
        for url in self.urls:
            _require_url(url)
        if self.command:
            is_text = isinstance(self.command, str) and "\0" not in self.command
            words = self.words if is_text else []
            if not words or shutil.which(words[0]) is None:
                raise UsageError(
                    f"notify_command is {cut_repr(self.command)}: it takes the command line of a"
                    " program that there is"
                )

    @property
    def words(self) -> list[str]:
        """The words of the command. Raises UsageError if a quote is missing."""
        try:
            return shlex.split(self.command)
        except ValueError as error:
            raise UsageError(f"notify_command is {cut_repr(self.command)}: {error}") from None

    @property
    def is_empty(self) -> bool:
        """True if there is neither a webhook nor a command."""
        return not self.urls and not self.command


class _NotSent(ArkmlError):
    """A notice that its receiver has not taken; the text is the reason."""


class _Receiver(Protocol):
    @property
    def name(self) -> str: ...

    def send(self, body: bytes) -> None:
        """Send a notice. Raises _NotSent."""


class Notifier(Closing):
    """
    Sends notices to all receivers, each on a thread of its own.

    `tell` never waits. When a receiver fails, `warn` is called with one sentence, and not again
    until the receiver has accepted a notice. By default `warn` writes to the log.
    """

    def __init__(self, options: NotifyOptions, warn: Callable[[str], object] | None = None) -> None:
        told = warn or (lambda sentence: _log.warning("%s", sentence))
        receivers: list[_Receiver] = [_Webhook(url, options) for url in options.urls]
        if options.command:
            receivers.append(_Command(options.words, options.command_seconds))
        self._lines = [_Line(one, told) for one in receivers]

    def tell(self, notice: WebhookNotice) -> None:
        """Queue a notice for all receivers. Any thread may call this."""
        body = notice.as_bytes()
        for line in self._lines:
            line.put(body)

    def close(self, seconds: float = 0.0) -> None:
        """End the threads, which have `seconds` to send waiting notices. Safe to call twice."""
        until = time.monotonic() + seconds
        for line in self._lines:
            line.end()
        for line in self._lines:
            line.join(max(0.0, until - time.monotonic()))


class _Line:
    """The notices that wait for one receiver, and the thread that sends them."""

    def __init__(self, receiver: _Receiver, warn: Callable[[str], object]) -> None:
        self._receiver = receiver
        self._warn = warn
        self._waiting: Queue[bytes | None] = Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._has_failed = False

    def put(self, body: bytes) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="arkml-notices", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(body)
        except Full:
            self._fail(f"{_MOST_WAITING} notices wait for it already")

    def end(self) -> None:
        if self._thread is not None:
            with suppress(Full):
                self._waiting.put_nowait(None)

    def join(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while (body := self._waiting.get()) is not None:
            try:
                self._receiver.send(body)
                self._has_failed = False
            except _NotSent as error:
                self._fail(str(error))

    def _fail(self, reason: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._warn(
                f"notices to {self._receiver.name} are lost: {reason}; this is said once, until one"
                " has arrived again"
            )


class _Webhook:
    """A URL that gets notices by POST."""

    def __init__(self, url: str, options: NotifyOptions) -> None:
        parts = urlsplit(url)
        self.name = f"{parts.scheme}://{parts.netloc}"
        """Scheme, host and port: the rest of a URL is often a secret."""
        self._url, self._options = url, options
        self._scheme, self._host = parts.scheme, parts.hostname or ""

    def send(self, body: bytes) -> None:
        for pause in (*self._options.pauses, None):
            try:
                asyncio.run(self._post(body))
            except _NotSent:
                if pause is None:
                    raise
                time.sleep(pause)
            else:
                return

    async def _post(self, body: bytes) -> None:
        headers = {
            "content-type": "application/json",
            "user-agent": f"arkml/{RELEASE}",
            "connection": "close",
        }
        timeout = self._options.timeout
        import httpx  # a hive without webhooks does without it

        try:
            request = httpx.Request("POST", self._url, headers=headers, content=body)
            # The transport by itself: a client would log the URL, and follow the environment.
            async with asyncio.timeout(timeout), self._transport() as transport:
                answer = await transport.handle_async_request(request)
                await answer.aclose()  # whatever it says, it is not read
        except TimeoutError:
            raise _NotSent(f"it has not answered within {timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reason = harmless(f"{type(error).__name__} {error}"[:_LONGEST]).rstrip()
            raise _NotSent(reason) from None
        if not answer.is_success:
            raise _NotSent(f"it answered with status {answer.status_code}")

    def _transport(self) -> httpx.AsyncHTTPTransport:
        import httpx

        proxy = os.environ.get(proxy_of(self._host, self._scheme) or "-")
        is_secure = self._scheme == "https"
        return httpx.AsyncHTTPTransport(
            verify=ssl.create_default_context() if is_secure else False,
            trust_env=False,
            proxy=proxy,
        )


class _Command:
    """A program that gets notices on standard input, a process for each."""

    def __init__(self, words: Sequence[str], seconds: float) -> None:
        self.name = f"the command {harmless(words[0])}"
        self._words, self._seconds = list(words), seconds

    def send(self, body: bytes) -> None:
        try:
            process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise _NotSent(f"it cannot be run: {error.strerror}") from None
        with process:
            try:
                process.communicate(body + b"\n", self._seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
                raise _NotSent(f"it took over {self._seconds:g} s, and was killed") from None
        if process.returncode:
            raise _NotSent(f"it ended with status {process.returncode}")


def _require_url(url: str) -> None:
    """Raise UsageError unless a text is a URL of HTTP with a host."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_whole = is_whole and "@" not in parts.netloc
    except ValueError:
        is_whole = False
    if not is_whole:
        raise UsageError(
            f"notify is {cut_repr(url)}: it takes a URL, such as https://hooks.example/training,"
            " without a user and a password"
        )
