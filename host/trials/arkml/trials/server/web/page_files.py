"""The files of the web page for players, which a web port serves under /play/."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arkml.trials.core.error import TrialError
from arkml.trials.server.web.connections import connection_in
from arkml.trials.server.web.rates import ReadingPaces

INDEX: Final = "index.html"
SCRIPTS: Final = "js/"
"""Folder of the JavaScript SDK within the page."""

SHARED: Final = "shared/"
"""Folder of files that the page shares with others."""

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src {own}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS: Final = {
    "cache-control": "no-cache",  # browsers ask every time, which the ETag makes cheap
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_AUTHORITY: Final = re.compile(r"[A-Za-z0-9._-]+(:\d+)?|\[[0-9A-Fa-f:.]+\](:\d+)?")


class PageFile(NamedTuple):
    """A file of the page, with its content type and its ETag."""

    content: bytes
    kind: str
    etag: str


class PageFiles:
    """
    The ASGI application that serves `folder`, and the JavaScript SDK below it in SCRIPTS.

    The files of `shared`, if it is given, are below it in SHARED. The list of files is read once,
    at the start, so no path leads to other files. The files hold no data and need no token. Raises
    TrialError for a folder without an INDEX.
    """

    def __init__(self, folder: Path, shared: Path | None, paces: ReadingPaces) -> None:
        sdk = Path(str(files("arkml.trials"))) / "js"
        self._files = {SCRIPTS + name: file for name, file in _files_in(sdk)}
        self._files |= dict(_files_in(folder))
        if shared is not None:
            self._files |= {SHARED + name: file for name, file in _files_in(shared)}
        if INDEX not in self._files:
            raise TrialError(f"{folder} is not the folder of a page: it has no {INDEX}")
        self._paces = paces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await self._paces.of(connection_in(scope).address).admit(0)
        file = self._files.get(request.path_params["path"] or INDEX)
        if file is None:
            answer = Response("there is no such file\n", 404, media_type="text/plain")
        else:
            headers = {**_HEADERS, "etag": file.etag, "content-security-policy": _policy(request)}
            if file.etag in _etags(request):
                answer = Response(status_code=304, headers=headers)
            else:
                answer = Response(file.content, headers={**headers, "content-type": file.kind})
        await answer(scope, receive, send)


async def to_folder(_: Request) -> Response:
    """Redirect from /play to /play/ by a relative path, which preserves a token before it."""
    return Response(status_code=308, headers={"location": "play/"})


def _files_in(folder: Path) -> Iterator[tuple[str, PageFile]]:
    """Yield each file of a known type in a folder, with its relative path."""
    for path in sorted(folder.rglob("*")):
        kind = _TYPES.get(path.suffix)
        if kind is not None and path.is_file():
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            yield path.relative_to(folder).as_posix(), PageFile(content, kind, etag)


def _policy(request: Request) -> str:
    """Return the Content-Security-Policy, which names this port's websockets by address."""
    host = request.headers.get("host", "")
    # Older browsers do not count websockets of the same address as 'self'.
    sockets = f" ws://{host} wss://{host}" if _AUTHORITY.fullmatch(host) else ""
    return _POLICY.format(own=f"'self'{sockets}")


def _etags(request: Request) -> list[str]:
    values = request.headers.getlist("if-none-match")
    return [one.strip().removeprefix("W/") for value in values for one in value.split(",")]


def page_link(origin: str, slot: str = "", token: str = "") -> str:
    """
    Return a link to the page of a web port.

    Args:
        origin: Origin of the port, such as "http://localhost:9000".
        slot: Name of the actor to play, empty for none.
        token: Token of the player, empty for none.

    """
    given = {"slot": slot, "token": token}
    fields = urlencode({name: value for name, value in given.items() if value})
    return f"{origin}/play/" + (f"#{fields}" if fields else "")
