"""Log lines of a hive on stderr: as text, or as one JSON object each."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from arkml.base.terminal import harmless
from arkml.server.request_context import known_fields

LogFormat = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)

_FIELDS = ("run", "session", "worker", "request", "trace")
"""The fields that a line may have besides time, level, logger and message, in their order."""


def start_logs(log_format: LogFormat, *, debug: bool = False) -> None:
    """
    Write the log lines of this process to stderr, including lines of all packages that it imports.

    Lines of this package are shown from INFO on, or with `debug` from DEBUG on and with tracebacks;
    lines of other packages from WARNING on. JSON lines always have tracebacks.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine() if log_format == "json" else TextLine(tracebacks=debug))
    root, own = logging.getLogger(), logging.getLogger("arkml")
    root.handlers, own.handlers = [handler], []
    root.setLevel(logging.WARNING)
    own.setLevel(logging.DEBUG if debug else logging.INFO)
    own.propagate = True
    logging.captureWarnings(capture=True)


def fields_of(record: logging.LogRecord) -> dict[str, str | int]:
    """Return the run, session, worker, request and trace of a log record, as far as it has them."""
    given = {name: vars(record)[name] for name in _FIELDS if name in vars(record)}
    known = known_fields() | given
    return {name: known[name] for name in _FIELDS if name in known}


class JsonLine(logging.Formatter):
    """
    Formats log records as JSON objects: `time`, `level`, `logger`, `message`, and known fields.

    `exception` is a traceback. Everything but ASCII is escaped, so that a record is one line.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line of JSON, without a line break at its end."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextLine(logging.Formatter):
    """Formats log records as `TIME LEVEL MESSAGE run=ID session=INDEX request=ID`."""

    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__()
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as a line, and the traceback after it if tracebacks are shown."""
        message = harmless(record.getMessage()).replace("\n", "\\n")
        words = [_time(record), f"{record.levelname:<7}", message]
        words += [f"{name}={value}" for name, value in fields_of(record).items()]
        text = " ".join(words)
        if record.exc_info and self._tracebacks:
            text += "\n" + harmless(self.formatException(record.exc_info))
        return text


def _time(record: logging.LogRecord) -> str:
    """Return the time of a line, in UTC to the millisecond."""
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
