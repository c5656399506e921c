"""The files of the page, open to all: they hold no data. Served at `/`, with plotly's script."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arkml import page_scripts
from arkml.base.release import RELEASE
from arkml.server.packing import takes_gzip

INDEX: Final = "index.html"
SHARED: Final = "shared/"
"""The folder of scripts and styles that other pages have, too."""

_ASK, _KEEP = "no-cache", "public, max-age=31536000, immutable"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_LEAST_PACKED = 1_000
_LEVEL = 6


class _File(NamedTuple):
    """A file of the page; `packed` is its content by gzip, empty if that is not worth it."""

    content: bytes
    packed: bytes
    kind: str
    etag: str
    caching: str


class Plotly(NamedTuple):
    """The script of the installed package plotly; `name` is its path on the page."""

    name: str
    path: Path


def find_plotly() -> Plotly | None:
    """Return the script of plotly without importing it, None if the package is not installed."""
    found = find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    try:
        release = version("plotly")
    except PackageNotFoundError:
        return None
    return Plotly(f"vendor/plotly-{release}.min.js", path) if path.is_file() else None


class SiteFiles:
    """
    The ASGI application of the page's files, which are listed when it is made.

    Plotly's script, of 5 MB, is read and packed in a thread at its first request. Its path has its
    version, so browsers keep it for a year; they ask for the other files every time.
    """

    def __init__(self) -> None:
        folder = Path(str(files("arkml.server"))) / "page" / "site"
        self._plotly = find_plotly()
        self._files = {
            prefix + path.relative_to(root).as_posix(): _read(path, self._inserted(path), _ASK)
            for prefix, root in (("", folder), (SHARED, page_scripts.FOLDER))
            for path in sorted(root.rglob("*"))
            if path.suffix in _TYPES and path.is_file()
        }
        self._packing = asyncio.Lock()

    @property
    def paths(self) -> frozenset[str]:
        """The paths of all files, and the path of the page itself."""
        vendored = {self._plotly.name} if self._plotly is not None else set[str]()
        return frozenset({"/", *(f"/{name}" for name in (*self._files, *vendored))})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        file = await self._find(request.path_params.get("path", "") or INDEX)
        if file is None:
            raise HTTPException(404)
        await _answered(file, request)(scope, receive, send)

    async def _find(self, name: str) -> _File | None:
        plotly = self._plotly
        if plotly is not None and name == plotly.name:
            async with self._packing:
                if name not in self._files:
                    content = await asyncio.to_thread(plotly.path.read_bytes)
                    self._files[name] = await asyncio.to_thread(_read, plotly.path, content, _KEEP)
        return self._files.get(name)

    def _inserted(self, path: Path) -> bytes:
        """Return the content of a file, with the path of plotly's script and the release."""
        content = path.read_bytes()
        if path.name != INDEX:
            return content
        script = self._plotly.name if self._plotly is not None else ""
        content = content.replace(b"{plotly}", script.encode())
        return content.replace(b"{release}", RELEASE.encode())


def _read(path: Path, content: bytes, caching: str) -> _File:
    packed = gzip.compress(content, _LEVEL, mtime=0) if len(content) >= _LEAST_PACKED else b""
    etag = hashlib.sha256(content).hexdigest()[:32]
    return _File(content, packed, _TYPES[path.suffix], etag, caching)


def _answered(file: _File, request: Request) -> Response:
    is_packed = bool(file.packed) and takes_gzip(request)
    etag = f'"{file.etag}-gzip"' if is_packed else f'"{file.etag}"'
    headers = {"vary": "accept-encoding", "cache-control": file.caching, "etag": etag}
    known = request.headers.get("if-none-match", "").split(",")
    if etag in (one.strip().removeprefix("W/") for one in known):
        return Response(status_code=304, headers=headers)
    headers["content-type"] = file.kind
    if is_packed:
        headers["content-encoding"] = "gzip"
    return Response(file.packed if is_packed else file.content, headers=headers)
