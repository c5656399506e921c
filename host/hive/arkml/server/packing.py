"""HTTP answers that are compressed by gzip, for clients that accept it."""

from __future__ import annotations

import asyncio
import gzip

from starlette.requests import Request
from starlette.responses import Response

_LEAST = 4_096
_LEVEL = 1


def takes_gzip(request: Request) -> bool:
    """Return whether a client accepts answers that are compressed by gzip."""
    for part in request.headers.get("accept-encoding", "").split(","):
        name, _, quality = part.strip().partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return quality.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


async def packed(response: Response, request: Request) -> Response:
    """Return a long response compressed by gzip, in a thread, or a short one as it is."""
    if len(response.body) < _LEAST or not takes_gzip(request):
        return response
    content = await asyncio.to_thread(gzip.compress, bytes(response.body), _LEVEL)
    headers = {"content-encoding": "gzip", "vary": "accept-encoding"}
    return Response(content, response.status_code, headers, response.media_type)
