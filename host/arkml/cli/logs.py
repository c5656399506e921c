"""What is logged, on stderr: the level, who says it, and the text."""

from __future__ import annotations

import logging
import os
import sys

from arkml.errors import UsageError
from arkml.sessions.text import TRACE

_LEVELS = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
_COLOURS = {logging.ERROR: "31", logging.WARNING: "33", logging.INFO: "32", logging.DEBUG: "34"}
_GUEST = "arkml.guest."


def start_logging(level: str | None, verbosity: int, *, debug: bool) -> None:
    """Show what guests and the host log. Raises UsageError for a level that is none."""
    if level is not None and level.lower() not in _LEVELS:
        raise UsageError(f"there is no log level {level!r}: there are {', '.join(_LEVELS)}")
    if level is not None:
        lowest = _LEVELS[level.lower()]
    elif verbosity:
        lowest = logging.DEBUG if verbosity == 1 else TRACE
    else:
        lowest = logging.DEBUG if debug else logging.INFO
    logger = logging.getLogger("arkml")
    logger.setLevel(lowest)
    logger.propagate = False
    logger.handlers = [_Lines(debug=debug)]


class _Lines(logging.Handler):
    """Writes to whatever stderr is at the moment: a progress bar may stand in front of it."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__()
        self._debug = debug
        self._colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            self.handleError(record)

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname:<7}"
        if self._colour:
            level = f"\x1b[{_COLOURS.get(record.levelno, '2')}m{level}\x1b[0m"
        who = record.name.removeprefix(_GUEST) if record.name.startswith(_GUEST) else "host"
        text = f"{level} {who}: {record.getMessage()}"
        if record.exc_info and self._debug:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        return text
