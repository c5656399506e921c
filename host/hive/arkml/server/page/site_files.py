"""The files of the hive's web page. They hold no data, so anyone may fetch them. Served at `/`."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
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
SITE: Final = Path(str(files("arkml.server"))) / "page" / "site"
"""The folder of the page's files."""

SHARED: Final = "shared/"
"""The folder of scripts and styles that other pages have, too."""

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
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


class SiteFiles:
    """
    The ASGI application of the page's files, which it reads and compresses once, at its start.
    """

    def __init__(self) -> None:
        self._files = {
            prefix + path.relative_to(root).as_posix(): _read(path)
            for prefix, root in (("", SITE), (SHARED, page_scripts.FOLDER))
            for path in sorted(root.rglob("*"))
            if path.suffix in _TYPES and path.is_file()
        }

    @property
    def paths(self) -> frozenset[str]:
        """The paths of all files, and the path of the page itself."""
        return frozenset({"/", *(f"/{name}" for name in self._files)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        file = self._files.get(request.path_params.get("path", "") or INDEX)
        if file is None:
            raise HTTPException(404)
        await _answered(file, request)(scope, receive, send)


def _read(path: Path) -> _File:
    content = path.read_bytes()
    if path.name == INDEX:
        content = content.replace(b"{release}", RELEASE.encode())
    packed = gzip.compress(content, _LEVEL, mtime=0) if len(content) >= _LEAST_PACKED else b""
    etag = hashlib.sha256(content).hexdigest()[:32]
    return _File(content, packed, _TYPES[path.suffix], etag)


def _answered(file: _File, request: Request) -> Response:
    is_packed = bool(file.packed) and takes_gzip(request)
    etag = f'"{file.etag}-gzip"' if is_packed else f'"{file.etag}"'
    headers = {"vary": "accept-encoding", "cache-control": "no-cache", "etag": etag}
    known = request.headers.get("if-none-match", "").split(",")
    if etag in (one.strip().removeprefix("W/") for one in known):
        return Response(status_code=304, headers=headers)
    headers["content-type"] = file.kind
    if is_packed:
        headers["content-encoding"] = "gzip"
    return Response(file.packed if is_packed else file.content, headers=headers)
