"""HTTP requests to one hive: its address, errors of requests, and repeated refusals."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import ssl
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import TypeVar

import httpx

from arkml.base.host_names import proxy_of
from arkml.base.terminal import harmless
from arkml.errors import ArkmlError, HiveRefused, HiveUnreachable, ProtocolError
from arkml.hive.address import Address
from arkml.hive.protocol.runs import PROTOCOL, Refusal
from arkml.hive.protocol.wire import WireStruct, compact_json

Locate = Callable[[], Address]
"""Returns the address of a hive, with its token. May block, and may raise HiveUnreachable."""

Reply = TypeVar("Reply", bound=WireStruct)

RETRIED = frozenset({408, 429, 500, 502, 503, 504, 507})
"""The statuses after which a request is repeated, such as 503."""

GONE = (404, 410)
"""The statuses of a hive that does not know a session or a run."""

MAX_ANSWER = 256 << 20
"""The largest file that is read, in bytes: a policy or a module."""

MAX_OBJECT = 16 << 20
"""The largest answer in JSON that is read and parsed, which may take ten times the memory."""

_RATE = 16 << 10
"""Bytes a second at which a body is sent and an answer arrives, after the time-outs of a part."""

_PART = 256
"""The least mean size of the parts of an answer in bytes, since even tiny parts take time."""

_SENTENCE, _QUOTED = 1_000, 300  # characters of a sentence of the hive, and of other answers

_TIMEOUT_OF_PARTS = 10.0
_TIMEOUT = httpx.Timeout(_TIMEOUT_OF_PARTS, read=60.0, pool=None)
_FIRST = 10.0  # seconds for the first answer, of which nobody knows whether it will ever come
_REPEATED = ("rows", "beat", "names", "sessions")
"""The last words of the paths to which a session repeats a refused request, such as rows."""

_REFUSALS = 400
_GATEWAYS = (502, 504)
"""The first status of a refusal, and those of a proxy that does not reach its server."""

_PAGES = ("text/html", "application/xhtml+xml")
_KIND = 40  # characters of a content type
_PLACE = "arkml.place"

_FRESH = 6.0  # seconds that a refusal counts; a beat comes every five
_KEEP_ALIVE = 60.0  # seconds; less than the server's, or both would close at once

_KEY_HEADER = "Idempotency-Key"
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)
_LOST_PAUSES = (0.0, 0.25, 0.5, 1.0, 2.0, 2.0, 2.0)
"""Seconds before each repetition of a request whose answer was lost."""

_is_ours: ContextVar[bool] = ContextVar("_is_ours", default=False)


def _is_foreign(_: logging.LogRecord) -> bool:
    return not _is_ours.get()


for _name in ("httpcore.connection", "httpcore.http11"):
    # At DEBUG they write a dozen lines a request; other users of httpcore keep theirs.
    logging.getLogger(_name).addFilter(_is_foreign)


class HiveTransport:
    """
    Sends HTTP requests to one hive, on the event loop that uses it.

    A certificate must be signed by an authority that OpenSSL trusts: the system's authorities, or
    the files of SSL_CERT_FILE and SSL_CERT_DIR.

    Args:
        locate: Returns the address of the hive; called before the first request and after each one
            that failed.
        transport: Transport of httpx, by default real HTTP. It is used without an httpx client,
            which would log each request at INFO.
        max_answer: Largest size of an answer in bytes.
        fresh: Seconds for which a refusal such as 503 counts as current. `refusal` reports one that
            was repeated without a longer pause than this.
        protocol: Version of the protocol.

    Attributes:
        answered: Time of the last answer, by the monotonic clock.
        has_answered: True once an answer came from a hive.
        trouble: The reason why no answer has come since, or empty.
        protocol: Version of the protocol.
        place: Address of the hive.
        waiting: Number of requests that wait for an answer.
        on_request: Called for each request.

    """

    def __init__(
        self,
        locate: Locate,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        max_answer: int = MAX_ANSWER,
        fresh: float = _FRESH,
        protocol: int = PROTOCOL,
    ) -> None:
        self._locate = locate
        self._prefix = f"/v{protocol}"
        self._max_answer = max_answer
        self._fresh = fresh
        self._address: Address | None = None
        self._locating: asyncio.Future[Address] | None = None
        self.answered = time.monotonic()
        self.has_answered = False
        self.trouble = ""
        self.place = ""
        self.waiting = 0
        self.on_request: Callable[[], None] = lambda: None
        self._refusals: dict[str, tuple[float, float, str]] = {}  # first time, last time, reason
        self._given = transport
        self._made: dict[bool, httpx.AsyncBaseTransport] = {}  # without TLS, with it

    async def send(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        body: WireStruct | None = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
        is_file: bool = False,
    ) -> httpx.Response:
        """
        Send one request and return its answer, whatever its status.

        Args:
            method: The HTTP method.
            path: The path after the version, such as "/runs/RUN/policy".
            content: The body as bytes.
            body: The body as a message, instead of `content`.
            headers: Further headers.
            timeout: Seconds to wait for the answer, None for the default.
            is_file: Whether the answer may be as large as a policy or a module.

        Raises:
            HiveUnreachable: There was no answer. The next request locates the hive anew.
            ProtocolError: The answer is too large, or it grants the request and is not a hive's,
                such as the login page of a network.

        """
        try:
            answer = await self._sent(method, path, content, body, headers, timeout, is_file)
        except HiveUnreachable as error:
            self.trouble = str(error)
            raise
        self.answered, self.trouble = time.monotonic(), ""
        stranger = _stranger(answer)
        self.has_answered = self.has_answered or not stranger
        if stranger and answer.status_code < _REFUSALS:
            raise ProtocolError(stranger)
        before = self._refusals.pop(path, None)
        if answer.status_code in RETRIED and path.rpartition("/")[2] in _REPEATED:
            now = self.answered
            first = now if before is None or now - before[1] > self._fresh else before[0]
            self._refusals[path] = first, now, reason(answer)
        return answer

    def refusal(self, seconds: float) -> str:
        """Return the reason of a refusal that has been repeated for more than `seconds`, or ""."""
        since = time.monotonic() - self._fresh
        refusals = self._refusals.values()
        return next((why for a, b, why in refusals if b > since and b - a > seconds), "")

    async def ask(
        self,
        method: str,
        path: str,
        *,
        body: WireStruct | None = None,
        key: str = "",
        is_file: bool = False,
    ) -> httpx.Response:
        """
        Send a request that the hive has to grant, and return its answer.

        A request by GET, or with a `key`, is repeated if the connection breaks, the latter for some
        seconds. A request that timed out is not repeated: the hive would take as long again.

        Args:
            method: The HTTP method.
            path: The path after the version.
            body: The body, None for none.
            key: The Idempotency-Key of the request, or empty.
            is_file: Whether the answer may be as large as a policy or a module.

        Raises:
            HiveUnreachable: There was no answer.
            HiveRefused: The hive refused the request.
            ProtocolError: The answer is not a hive's.

        """
        headers = {_KEY_HEADER: key} if key else None
        try:
            answer = await self.send(method, path, body=body, headers=headers, is_file=is_file)
        except HiveUnreachable as error:
            if _is_late(error):
                raise
            if method == "GET":
                answer = await self.send(method, path, body=body, is_file=is_file)
            elif key and _is_lost(error):
                answer = await self._send_again(method, path, body, headers)
            else:
                raise
        if answer.status_code >= 400:
            raise HiveRefused(reason(answer), answer.status_code)
        return answer

    async def _send_again(
        self, method: str, path: str, body: WireStruct | None, headers: dict[str, str] | None
    ) -> httpx.Response:
        """Return the answer to a request whose answer was lost. Raises HiveUnreachable."""
        for pause in _LOST_PAUSES:
            await asyncio.sleep(pause)
            try:
                return await self.send(method, path, body=body, headers=headers)
            except HiveUnreachable as error:
                if _is_late(error):
                    raise
                lost = error
        raise lost

    async def fetch(
        self, method: str, path: str, kind: type[Reply], *, body: WireStruct | None = None
    ) -> Reply:
        """
        Send a request, and return the object in its answer.

        Args:
            method: The HTTP method.
            path: The path after the version.
            kind: Type of the object.
            body: The body, None for none.

        Raises:
            HiveUnreachable: There was no answer.
            HiveRefused: The hive refused the request.
            ProtocolError: The answer is not a hive's, or not of this type.

        """
        return read(await self.ask(method, path, body=body), kind)

    async def close(self) -> None:
        """Close every connection."""
        _is_ours.set(True)
        for transport in filter(None, (self._given, *self._made.values())):
            await transport.aclose()

    async def _sent(
        self,
        method: str,
        path: str,
        content: bytes | None,
        body: WireStruct | None,
        headers: dict[str, str] | None,
        timeout: float | None,
        is_file: bool,
    ) -> httpx.Response:
        address = await self._located()
        self.place = str(address)
        headers = dict(headers or {})
        if address.token is not None:
            headers["authorization"] = f"Bearer {address.token}"
        if body is not None:
            content = _json(body)
            headers["content-type"] = "application/json"
        limits = _TIMEOUT
        if timeout is not None:
            limits = httpx.Timeout(_TIMEOUT_OF_PARTS, read=timeout)
        seconds = _TIMEOUT_OF_PARTS + (limits.read or 0.0)
        if not self.has_answered:
            seconds = min(_FIRST, seconds)
        seconds += len(content or b"") / _RATE
        self.waiting += 1
        self.on_request()
        try:
            request = httpx.Request(
                method,
                f"{address.url}{self._prefix}{path}",
                content=content,
                headers=headers,
                extensions={"timeout": limits.as_dict()},
            )
            return await self._exchanged(request, self._reached(address), seconds, is_file)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if self._address == address:
                self._address = None
            raise HiveUnreachable(_unreachable(address, error)) from error
        finally:
            self.waiting -= 1

    def _reached(self, address: Address) -> httpx.AsyncBaseTransport:
        """Return the transport for an address, made when it is first needed."""
        if self._given is not None:
            return self._given
        if address.is_secure not in self._made:
            self._made[address.is_secure] = httpx.AsyncHTTPTransport(
                # Plain HTTP needs no certificates, which take 20 ms to read.
                verify=ssl.create_default_context() if address.is_secure else False,
                limits=httpx.Limits(max_connections=None, keepalive_expiry=_KEEP_ALIVE),
                trust_env=False,
            )
        return self._made[address.is_secure]

    async def _exchanged(
        self,
        request: httpx.Request,
        transport: httpx.AsyncBaseTransport,
        seconds: float,
        is_file: bool,
    ) -> httpx.Response:
        """
        Return the whole answer, if its header arrives within `seconds` and the rest at `_RATE`.

        Raises httpx's errors, and ProtocolError for an answer that is too large or compressed.
        """
        token = _is_ours.set(True)
        try:
            async with asyncio.timeout(seconds) as limit:
                answer = await transport.handle_async_request(request)
                answer.request = request
                try:
                    return await self._complete(answer, limit, is_file)
                finally:
                    await answer.aclose()
        except TimeoutError:
            raise httpx.ReadTimeout("the whole answer did not arrive in time") from None
        finally:
            _is_ours.reset(token)

    async def _complete(
        self, answer: httpx.Response, limit: asyncio.Timeout, is_file: bool
    ) -> httpx.Response:
        """Return the answer with its content. Raises ProtocolError if that is too large."""
        packed = answer.headers.get("content-encoding", "identity")
        if packed != "identity":  # which was not asked for, and may be a thousand times as large
            raise ProtocolError(f"the hive answered in the encoding {packed[:_QUOTED]!r}")
        most = self._max_answer
        if not is_file or answer.status_code >= 400:
            most = min(most, MAX_OBJECT)
        content, parts = bytearray(), 0
        announced = answer.headers.get("content-length", "")
        if (announced.isdecimal() and int(announced) <= most) or not announced:
            async for part in answer.aiter_bytes():  # also of what was read already
                content += part
                parts += 1
                if len(content) > most:
                    break
                if parts > most // _PART:
                    raise ProtocolError(f"the hive answered in more than {most // _PART} parts")
                limit.reschedule((limit.when() or 0.0) + len(part) / _RATE)
            else:
                return httpx.Response(
                    answer.status_code,
                    headers=answer.headers,
                    content=bytes(content),
                    extensions={_PLACE: self.place},
                )
        raise ProtocolError(f"the hive answered with more than {most} bytes")

    async def _located(self) -> Address:
        """Return the address, located once for all waiting requests, even if one is canceled."""
        if self._address is None:
            locating = self._locating
            if locating is None or locating.done():
                loop = asyncio.get_running_loop()
                self._locating = locating = loop.run_in_executor(None, self._locate)
                locating.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._address = await asyncio.shield(locating)
        return self._address


def _json(body: WireStruct) -> bytes:
    """
    Return the body of a request as JSON in UTF-8, without escapes for letters such as é.

    Raises ProtocolError for text that is not Unicode.
    """
    try:
        return compact_json(body.as_json())
    except ValueError as error:
        raise ProtocolError(f"a request holds {error}") from None


def _unreachable(address: Address, error: Exception) -> str:
    """Return the reason why a request has no answer, with advice about TLS."""
    text = f"no hive answers at {address}: {type(error).__name__} {str(error)[:_QUOTED]}"
    text = harmless(text.rstrip())
    if proxy := proxy_of(address.host, "https" if address.is_secure else "http"):
        text += f"; hives are asked directly, not by the proxy of {proxy}"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        named = os.environ.get("SSL_CERT_FILE", "")
        is_gone = named and not os.path.isfile(named)  # noqa: PTH113  it raises for no name
        what = "which is no file" if is_gone else "a file with the certificates to trust"
        text += f"; SSL_CERT_FILE names {f'{harmless(named)}, ' if is_gone else ''}{what}"
    if isinstance(error, httpx.RemoteProtocolError) and not address.is_secure:
        text += f"; if it has TLS, its address is {replace(address, is_secure=True).url}"
    return text


def _is_lost(error: HiveUnreachable) -> bool:
    """Return whether the hive may have received a request, as it was sent at least in part."""
    cause = error.__cause__
    return isinstance(cause, httpx.HTTPError) and not isinstance(cause, _NOT_SENT)


def _is_late(error: HiveUnreachable) -> bool:
    """Return whether the time of a request is over: a hive that drips would hold the next one."""
    return isinstance(error.__cause__, httpx.TimeoutException)


def new_key() -> str:
    """Return a new idempotency key."""
    return secrets.token_urlsafe(18)


def read(answer: httpx.Response, kind: type[Reply]) -> Reply:
    """Return the object of type `kind` in an answer. Raises ProtocolError."""
    size = len(answer.content)
    if size > MAX_OBJECT:
        raise ProtocolError(f"the hive answered an object of {size} bytes: {MAX_OBJECT} at most")
    try:
        return kind.from_bytes(answer.content)
    except ArkmlError as error:
        raise ProtocolError(f"the hive answered what cannot be used: {error}") from None


def _stranger(answer: httpx.Response) -> str:
    """
    Return the sentence about an answer that is not a hive's, empty for any other.

    A hive answers its clients neither with pages nor with redirections, and is no gateway.
    """
    status = answer.status_code
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_page, is_redirection = kind in _PAGES, 300 <= status < _REFUSALS
    if not (is_page or is_redirection or status in _GATEWAYS):
        return ""
    place = answer.extensions.get(_PLACE, "the address")
    given = f" with {kind[:_KIND]}" if kind else ""
    return harmless(
        f"{place} answered {status}{given}: that is not a hive; is a proxy in between, or another"
        " server at that address?"
    )


def reason(answer: httpx.Response) -> str:
    """Return the hive's reason for a refusal, as a short sentence without control characters."""
    if stranger := _stranger(answer):
        return stranger
    # Not `text`: its decoder is one that the answer names, and may take the square of its length.
    text = answer.content[:_QUOTED].decode(errors="replace")
    try:
        return harmless(read(answer, Refusal).error[:_SENTENCE] or text)
    except ProtocolError:
        return harmless(f"the hive answered {answer.status_code}: {text}")
