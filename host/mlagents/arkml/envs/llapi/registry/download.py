"""Downloads over https, or copies from this machine, with a limit on bytes."""

from __future__ import annotations

import asyncio
import hashlib
import io
import ssl
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import IO, Any, BinaryIO
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx

from arkml.base.files import open_file
from arkml.base.host_names import is_this_machine, proxy_of
from arkml.base.short_reprs import cut_repr, cut_text
from arkml.envs.llapi.exception import UnityRegistryException

_REDIRECTS = 5
_BLOCK = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte
_SECONDS = 60.0
"""Seconds for one download, in addition to the time of its bytes at `_RATE`."""
_RATE = 16 << 10  # bytes a second


def read(url: str, limit: int, transport: httpx.AsyncBaseTransport | None = None) -> bytes:
    """Return the file at `url`, of at most `limit` bytes. Raises the errors of `copy`."""
    content = io.BytesIO()
    copy(url, content, limit, transport)
    return content.getvalue()


def copy(
    url: str, target: BinaryIO, limit: int, transport: httpx.AsyncBaseTransport | None = None
) -> str:
    """
    Write the file at `url` to `target`. Returns its SHA-256 in hexadecimal.

    Raises UnityRegistryException for a scheme other than https and file, for more than `limit`
    bytes and for a compressed answer, and ConnectionError or FileNotFoundError if the file is
    missing or does not arrive in time. A local file must be a regular one.
    """
    digest = hashlib.sha256()
    total = 0

    def take(block: bytes) -> int:
        nonlocal total
        total += len(block)
        if total > limit:
            raise UnityRegistryException(f"{cut_text(url)} has more than {limit} bytes.")
        digest.update(block)
        target.write(block)
        return total

    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        with _opened(url, Path(url2pathname(parts.path))) as file:
            while block := file.read(_BLOCK):
                take(block)
    else:
        _refuse_unless_https(url)
        _run(_fetch(url, take, transport))
    return digest.hexdigest()


def _opened(url: str, path: Path) -> IO[bytes]:
    try:
        return open_file(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnityRegistryException(
            f"{cut_text(url)} cannot be read: {error.strerror}."
        ) from error


async def _fetch(
    url: str, take: Callable[[bytes], int], transport: httpx.AsyncBaseTransport | None
) -> None:
    """Pass the body of an answer to `take`, within the time that its bytes may take."""
    try:
        async with asyncio.timeout(_SECONDS) as end, AsyncExitStack() as stack:
            began = asyncio.get_running_loop().time()
            response = await _response(url, _Clients(stack, transport))
            try:
                async for block in response.aiter_raw():
                    end.reschedule(began + _SECONDS + take(block) / _RATE)
            finally:
                await response.aclose()
    except TimeoutError as error:
        raise ConnectionError(f"{cut_text(url)} did not arrive in time.") from error
    except httpx.HTTPStatusError as error:
        raise FileNotFoundError(
            f"{cut_text(url)} answered {error.response.status_code}."
        ) from error
    except httpx.TransportError as error:
        note = _proxy_note(error.request.url.host)
        text = f"{cut_text(url)} could not be read: {cut_text(error)}{note}"
        raise ConnectionError(text) from error
    except httpx.InvalidURL as error:
        raise ConnectionError(f"{cut_text(url)} could not be read: {cut_text(error)}") from error


def _proxy_note(host: str) -> str:
    """Return the end of a sentence about an unreachable host: its proxy, if it has one."""
    if proxy := proxy_of(host, "https"):
        return f"; it was asked by the proxy of {proxy} (no_proxy names hosts without one)"
    return ""


class _Clients:
    """The clients of a download: one for this machine, without a proxy, and one for others."""

    def __init__(self, stack: AsyncExitStack, transport: httpx.AsyncBaseTransport | None) -> None:
        self._stack = stack
        self._transport = transport
        self._made: dict[bool, httpx.AsyncClient] = {}

    async def client_of(self, url: httpx.URL) -> httpx.AsyncClient:
        """Return the client for a URL, made when it is first needed."""
        is_here = is_this_machine(url.host)
        if is_here not in self._made:
            client = httpx.AsyncClient(
                timeout=_TIMEOUT,
                transport=self._transport,
                headers={"accept-encoding": "identity"},
                # Without trust in the environment, httpx would ignore SSL_CERT_FILE as well.
                verify=ssl.create_default_context() if is_here else True,
                trust_env=not is_here,
            )
            self._made[is_here] = await self._stack.enter_async_context(client)
        return self._made[is_here]


async def _response(url: str, clients: _Clients) -> httpx.Response:
    """Return the answer after redirections, all of them https, with its body unread."""
    client = await clients.client_of(httpx.URL(url))
    request = client.build_request("GET", url)
    for _ in range(_REDIRECTS):
        client = await clients.client_of(request.url)
        response = await client.send(request, stream=True, follow_redirects=False)
        if response.next_request is None:
            try:
                response.raise_for_status()
                _refuse_packed(url, response)
            except BaseException:
                await response.aclose()
                raise
            return response
        request = response.next_request
        await response.aclose()
        _refuse_unless_https(str(request.url))
    raise UnityRegistryException(f"{cut_text(url)} redirects more than {_REDIRECTS} times.")


def _refuse_packed(url: str, response: httpx.Response) -> None:
    """Refuse a compressed body, which was not requested: it may be large when unpacked."""
    packed = response.headers.get("content-encoding", "identity")
    if packed != "identity":
        raise UnityRegistryException(
            f"{cut_text(url)} answered in the encoding {cut_repr(packed)}."
        )


def _refuse_unless_https(url: str) -> None:
    if urlsplit(url).scheme != "https":
        raise UnityRegistryException(f"{cut_text(url)} is neither an https nor a file URL.")


def _run(work: Coroutine[Any, Any, None]) -> None:
    """
    Run a coroutine in a new thread, since the caller's may have a running loop.

    Raises its exception. Ctrl-C cancels it.
    """
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            loop.run_until_complete(task)
        except BaseException as error:  # noqa: BLE001 -- it is raised in the caller's thread
            failures.append(error)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    thread = threading.Thread(target=run, name="download", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    for error in failures:
        raise error
