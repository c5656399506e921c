"""HTTP to one hive: where it is, who asks, and which errors come of it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import httpx

from arkml.errors import HiveRefused, HiveUnreachable, ProtocolError

Locate = Callable[[], tuple[str, int, str | None]]
"""Host, port and token of a hive. May block, and may raise HiveUnreachable."""

RETRIED = frozenset({408, 429, 500, 502, 503, 504, 507})
"""What a request is made again for."""

GONE = (404, 410)
"""What a hive answers when it does not know a session or a run."""

MAX_ANSWER = 256 << 20
"""Bytes of an answer; policies are the largest ones."""

_TIMEOUT = httpx.Timeout(10.0, read=60.0, pool=None)
_REPEATED = ("rows", "beat", "names", "sessions")
"""Last words of the paths that a session posts to again after a refusal."""

_FRESH = 6.0  # seconds that a refusal counts; a beat comes every five
_KEEP_ALIVE = 60.0  # seconds; less than the server's, or both would close at once

_is_ours: ContextVar[bool] = ContextVar("_is_ours", default=False)


def _is_of_others(_: logging.LogRecord) -> bool:
    return not _is_ours.get()


for _name in ("httpcore.connection", "httpcore.http11"):
    # At DEBUG they write a dozen lines a request; what others send with httpcore is logged as ever.
    logging.getLogger(_name).addFilter(_is_of_others)


class HiveTransport:
    """
    Requests to one hive, on the event loop it is used from.

    `answered` is when an answer came last, by the monotonic clock, and `trouble` why none did
    since. They go through httpx's transport and not its client, which logs every request at INFO.
    """

    def __init__(self, locate: Locate, *, max_answer: int = MAX_ANSWER) -> None:
        self._locate = locate
        self._max_answer = max_answer
        self._where: tuple[str, int, str | None] | None = None
        self._finding: asyncio.Future[tuple[str, int, str | None]] | None = None
        self.answered = time.monotonic()
        self.trouble = ""
        self._refusals: dict[str, tuple[float, float, str]] = {}  # first and last time, why
        self._transport = httpx.AsyncHTTPTransport(
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_KEEP_ALIVE),
            trust_env=False,
        )

    async def send(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> httpx.Response:
        """
        The answer to one request, whatever its status.

        Raises HiveUnreachable, and the hive is located anew the next time then; and ProtocolError
        for an answer that is too large.
        """
        try:
            answer = await self._sent(method, path, content, body, headers, timeout)
        except HiveUnreachable as error:
            self.trouble = str(error)
            raise
        self.answered, self.trouble = time.monotonic(), ""
        before = self._refusals.pop(path, None)
        if answer.status_code in RETRIED and path.rpartition("/")[2] in _REPEATED:
            now = self.answered
            first = now if before is None or now - before[1] > _FRESH else before[0]
            self._refusals[path] = first, now, reason(answer)
        return answer

    def refusal(self, seconds: float) -> str:
        """Return why the hive refuses again and again what it is sent, longer than `seconds`."""
        fresh = time.monotonic() - _FRESH
        found = self._refusals.values()
        return next((why for a, b, why in found if b > fresh and b - a > seconds), "")

    async def _sent(
        self,
        method: str,
        path: str,
        content: bytes | None,
        body: Any,
        headers: dict[str, str] | None,
        timeout: float | None,
    ) -> httpx.Response:
        where = host, port, token = await self._find()
        sent = dict(headers or {})
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        if body is not None:
            content, sent["content-type"] = json.dumps(body).encode(), "application/json"
        name = f"[{host}]" if ":" in host else host
        allowed = _TIMEOUT if timeout is None else httpx.Timeout(10.0, read=timeout)
        try:
            request = httpx.Request(
                method,
                f"http://{name}:{port}/v1{path}",
                content=content,
                headers=sent,
                extensions={"timeout": allowed.as_dict()},
            )
            return await self._exchanged(request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if self._where == where:
                self._where = None
            raise HiveUnreachable(
                f"no hive answers at {host}:{port}: {type(error).__name__} {error}".rstrip()
            ) from error

    async def _exchanged(self, request: httpx.Request) -> httpx.Response:
        """The whole answer. Raises httpx's errors, and ProtocolError if it is too large."""
        token = _is_ours.set(True)
        try:
            answer = await self._transport.handle_async_request(request)
            answer.request = request
            try:
                return await self._read(answer)
            finally:
                await answer.aclose()
        finally:
            _is_ours.reset(token)

    async def ask(
        self, method: str, path: str, *, body: Any = None, timeout: float | None = None
    ) -> httpx.Response:
        """
        The answer to one request that the hive granted.

        Raises HiveUnreachable, HiveRefused and ProtocolError.
        """
        try:
            answer = await self.send(method, path, body=body, timeout=timeout)
        except HiveUnreachable:
            if method != "GET":
                raise
            answer = await self.send(method, path, body=body, timeout=timeout)
        if answer.status_code >= 400:
            raise HiveRefused(reason(answer), answer.status_code)
        return answer

    async def fetch(self, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
        """The JSON object that answers a request. Raises what `ask` does."""
        return parsed(await self.ask(method, path, body=body))

    async def close(self) -> None:
        """End every connection."""
        _is_ours.set(True)
        await self._transport.aclose()

    async def _read(self, answer: httpx.Response) -> httpx.Response:
        """The answer with its content. Raises ProtocolError if there is too much of it."""
        size, parts = 0, []
        announced = answer.headers.get("content-length", "")
        if (announced.isdecimal() and int(announced) <= self._max_answer) or not announced:
            async for part in answer.aiter_bytes():
                size += len(part)
                if size > self._max_answer:
                    break
                parts.append(part)
            else:
                headers = answer.headers.copy()
                headers.pop("content-encoding", None)  # of what was decoded here
                return httpx.Response(answer.status_code, headers=headers, content=b"".join(parts))
        raise ProtocolError(f"the hive answered with more than {self._max_answer} bytes")

    async def _find(self) -> tuple[str, int, str | None]:
        """Locate the hive, once for all who ask meanwhile, and also if one of them gives up."""
        if self._where is None:
            finding = self._finding
            if finding is None or finding.done():
                loop = asyncio.get_running_loop()
                self._finding = finding = loop.run_in_executor(None, self._locate)
                finding.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._where = await asyncio.shield(finding)
        return self._where


def parsed(answer: httpx.Response) -> dict[str, Any]:
    """The JSON object in an answer. Raises ProtocolError."""
    try:
        found = answer.json()
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the hive answered with no JSON: {answer.content[:80]!r}") from error
    if not isinstance(found, dict):
        raise ProtocolError(f"the hive answered with {str(found)[:80]}")
    return found


def reason(answer: httpx.Response) -> str:
    """What the hive says of its refusal."""
    try:
        return str(parsed(answer).get("error") or answer.text[:300])
    except ProtocolError:
        return f"the hive answered {answer.status_code}: {answer.text[:300]}"
