"""Errors as HTTP answers: one sentence and a status."""

from __future__ import annotations

import errno
import sqlite3

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveRefused, InvalidSettings, ProtocolError
from arkml.hive.protocol.runs import Refusal

_log = SafeLogger(__name__)

_LONGEST = 1_000
"""The longest sentence: it may quote the request, which may be megabytes long."""

_PASSING = (429, 503, 507)
"""Statuses of refusals whose cause passes, such as a full disk: clients try again."""

_RETRY_AFTER = "2"
"""Seconds after which a client may try again, as text: the longest pause of our own clients."""

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def refusal(error: Exception) -> JSONResponse:
    """Return the HTTP response for an error: its status and one sentence."""
    match error:
        case HiveRefused():
            return sentence(str(error), error.status)
        case InvalidSettings() | ProtocolError():
            return sentence(str(error), 422)
        case ClientDisconnect():
            return sentence("the sender went away before the end of the body", 400)
        case OSError() if error.errno in FULL:
            _log.error("the disk is full: %s", error)
            return sentence(f"the disk of the hive is full: {error.strerror}", 507)
        case OSError():
            _log.error("a request failed: %s", error)
            return sentence(f"the hive cannot use its data directory: {error.strerror}", 503)
        case sqlite3.Error():
            _log.error("a request failed: %s", error)
            return sentence(f"the hive cannot read the metrics of the run: {error}", 503)
        case _:
            _log.error("a request failed", exc_info=error)
            return sentence(f"the hive failed: {type(error).__name__}", 500)


def sentence(text: str, status: int) -> JSONResponse:
    """Return the HTTP response that refuses a request with a sentence and a status."""
    headers = {"retry-after": _RETRY_AFTER} if status in _PASSING else None
    return JSONResponse(Refusal(text[:_LONGEST]).as_json(), status, headers)
