"""HTTP to one hive: where it is, who asks, and which errors come of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx

from arkml.errors import HiveRefused, HiveUnreachable, ProtocolError

Locate = Callable[[], tuple[str, int, str | None]]
"""Host, port and token of a hive. May block, and may raise HiveUnreachable."""

RETRIED = frozenset({408, 429, 500, 502, 503, 504, 507})
"""What a request is made again for."""

GONE = (404, 410)
"""What a hive answers when it does not know a session or a run."""

_TIMEOUT = httpx.Timeout(10.0, read=60.0, pool=None)
_KEEP_ALIVE = 60.0  # seconds; less than the server's, or both would close at once


class Link:
    """Requests to one hive, on the event loop it is used from."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate
        self._where: tuple[str, int, str | None] | None = None
        self._finding = asyncio.Lock()
        self._http = httpx.AsyncClient(
            timeout=_TIMEOUT,
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

        Raises HiveUnreachable; the hive is located anew the next time then.
        """
        where = host, port, token = await self._find()
        sent = dict(headers or {})
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        if body is not None:
            content, sent["content-type"] = json.dumps(body).encode(), "application/json"
        name = f"[{host}]" if ":" in host else host
        try:
            return await self._http.request(
                method,
                f"http://{name}:{port}/v1{path}",
                content=content,
                headers=sent,
                timeout=_TIMEOUT if timeout is None else httpx.Timeout(10.0, read=timeout),
            )
        except httpx.HTTPError as error:
            if self._where == where:
                self._where = None
            raise HiveUnreachable(
                f"no hive answers at {host}:{port}: {type(error).__name__} {error}".rstrip()
            ) from error

    async def ask(
        self, method: str, path: str, *, body: Any = None, timeout: float | None = None
    ) -> httpx.Response:
        """
        The answer to one request that the hive granted.

        Raises HiveUnreachable and HiveRefused.
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
        """The JSON object that answers a request. Raises ProtocolError too."""
        return parsed(await self.ask(method, path, body=body))

    async def close(self) -> None:
        """End every connection."""
        await self._http.aclose()

    async def _find(self) -> tuple[str, int, str | None]:
        async with self._finding:
            if self._where is None:
                loop = asyncio.get_running_loop()
                self._where = await loop.run_in_executor(None, self._locate)
            return self._where


def parsed(answer: httpx.Response) -> dict[str, Any]:
    """The JSON object in an answer. Raises ProtocolError."""
    try:
        found = answer.json()
    except ValueError as error:
        raise ProtocolError(f"the hive answered with no JSON: {answer.content[:80]!r}") from error
    if not isinstance(found, dict):
        raise ProtocolError(f"the hive answered with {found!r}")
    return found


def reason(answer: httpx.Response) -> str:
    """What the hive says of its refusal."""
    try:
        return str(parsed(answer).get("error") or answer.text[:300])
    except ProtocolError:
        return f"the hive answered {answer.status_code}: {answer.text[:300]}"
