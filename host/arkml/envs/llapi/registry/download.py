"""Fetches files, over https or from this machine, up to a number of bytes."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx

from arkml.envs.llapi.exception import UnityRegistryException

_REDIRECTS = 5
_BLOCK = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte


def read(url: str, limit: int, client: httpx.Client | None = None) -> bytes:
    """Return the file at `url`, of at most `limit` bytes. Raises as `copy`."""
    content = io.BytesIO()
    copy(url, content, limit, client)
    return content.getvalue()


def copy(url: str, target: BinaryIO, limit: int, client: httpx.Client | None = None) -> str:
    """
    Write the file at `url` to `target`. Returns its SHA-256, in hexadecimal.

    Raises UnityRegistryException for any scheme but https and file and for more than `limit`
    bytes, and ConnectionError or FileNotFoundError if there is no such file.
    """
    digest = hashlib.sha256()
    total = 0
    with _opened(url, client) as blocks:
        for block in blocks:
            total += len(block)
            if total > limit:
                raise UnityRegistryException(f"{url} has more than {limit} bytes.")
            digest.update(block)
            target.write(block)
    return digest.hexdigest()


@contextmanager
def _opened(url: str, client: httpx.Client | None) -> Iterator[Iterator[bytes]]:
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        with open(url2pathname(parts.path), "rb") as file:  # noqa: PTH123 - as the URL spells it
            yield iter(lambda: file.read(_BLOCK), b"")
        return
    _refuse_unless_https(url)
    if client is not None:
        with _response(url, client) as response:
            yield response.iter_bytes(_BLOCK)
        return
    with httpx.Client(timeout=_TIMEOUT) as own, _response(url, own) as response:
        yield response.iter_bytes(_BLOCK)


@contextmanager
def _response(url: str, client: httpx.Client) -> Iterator[httpx.Response]:
    """Return the answer after redirections, none of which leaves https."""
    request = client.build_request("GET", url)
    try:
        for _ in range(_REDIRECTS):
            response = client.send(request, stream=True, follow_redirects=False)
            try:
                if response.next_request is None:
                    response.raise_for_status()
                    yield response
                    return
                request = response.next_request
            finally:
                response.close()
            _refuse_unless_https(str(request.url))
    except httpx.HTTPStatusError as error:
        raise FileNotFoundError(f"{url} answered {error.response.status_code}.") from error
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise ConnectionError(f"{url} could not be read: {error}") from error
    raise UnityRegistryException(f"{url} redirects more than {_REDIRECTS} times.")


def _refuse_unless_https(url: str) -> None:
    if urlsplit(url).scheme != "https":
        raise UnityRegistryException(f"{url} is neither an https nor a file URL.")
