"""Log lines of commands, on stderr or in a file: level, guest or host, and text."""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from arkml.base.terminal import harmless
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
_COLORS = {logging.ERROR: "31", logging.WARNING: "33", logging.INFO: "32", logging.DEBUG: "34"}
_GUEST = "arkml.guest."
_FLEET_MARK = "#"  # stands before the number of a guest of a fleet
_REMEMBERED = 1000  # lines


def print_echoes() -> None:
    """
    Write how many lines were suppressed because another guest of the fleet had logged the same.
    """
    for handler in logging.getLogger("arkml").handlers:
        if isinstance(handler, _Lines) and handler.echoes:
            sys.stderr.write(f"{handler.echoes:,} lines of other guests that say the same\n")


def print_note(text: str) -> None:
    """Write a line to stderr at once. Any thread may call it."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class LogOptions:
    """
    The options of a log: the lowest level shown, by name or by the number of `-v`, and the file.

    With `is_daily` there is a file for each day, such as `npc_2026-01-31.log`, which is appended
    to. With `as_json` lines are JSON objects with the keys of Cogment's services.
    """

    level: str | None = None
    verbosity: int = 0
    debug: bool = False
    file: Path | None = None
    is_daily: bool = False
    as_json: bool = False

    def lowest(self) -> int:
        """Return the lowest level, such as 20 for `info`. Raises UsageError for an unknown name."""
        if self.level is not None:
            if self.level.lower() not in _LEVELS:
                raise UsageError(
                    f"there is no log level {self.level!r}: there are {', '.join(_LEVELS)}"
                )
            return _LEVELS[self.level.lower()]
        if self.verbosity > 1:
            return TRACE
        return logging.DEBUG if self.verbosity or self.debug else logging.INFO

    def start(self) -> None:
        """Begin to write the log lines of guests and of the host."""
        logger = logging.getLogger("arkml")
        logger.setLevel(self.lowest())
        logger.propagate = False
        logger.handlers = [self._to_stderr() if self.file is None else self._to_file()]

    def _to_stderr(self) -> logging.Handler:
        if not self.as_json:
            return _Lines(debug=self.debug)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_JsonLine())
        return handler

    def _to_file(self) -> logging.Handler:
        """Return a handler for the file. Raises UsageError."""
        assert self.file is not None
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            handler = (_Daily if self.is_daily else logging.FileHandler)(
                self.file, "a" if self.is_daily else "w", "utf-8", errors="backslashreplace"
            )
        except OSError as error:
            raise UsageError(f"{self.file} cannot be written: {error.strerror}") from None
        text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
        handler.setFormatter(_JsonLine() if self.as_json else text)
        return handler


def json_line(component: str, level: str, text: str, error: str = "") -> str:
    """
    Return a log line with the present time, as a JSON object with the keys of Cogment's services.
    """
    now = datetime.now(tz=UTC).isoformat()
    line = {"component": component, "level": level, "msg": text, "time": now}
    return json.dumps(line | {"error": error} if error else line)


class _JsonLine(logging.Formatter):
    """Formats a line as a JSON object: `time`, `level`, `component`, `msg` and perhaps `error`."""

    def format(self, record: logging.LogRecord) -> str:
        level = "trace" if record.levelno < logging.DEBUG else record.levelname.lower()
        level = "error" if record.levelno > logging.ERROR else level
        error = self.formatException(record.exc_info) if record.exc_info else ""
        return json_line(record.name, level, record.getMessage(), error)


class _Daily(logging.FileHandler):
    """Writes lines to the file of the day, such as `npc_2026-01-31.log` for `npc.log`."""

    def __init__(self, path: Path, mode: str, encoding: str, errors: str) -> None:
        self._path = path
        super().__init__(self._of_today(), mode, encoding, errors=errors)

    def emit(self, record: logging.LogRecord) -> None:
        today = str(self._of_today().absolute())
        if today != self.baseFilename:
            self.close()
            self.baseFilename = today
        super().emit(record)

    def _of_today(self) -> Path:
        day = datetime.now(tz=UTC).astimezone().date().isoformat()
        return self._path.with_name(f"{self._path.stem}_{day}{self._path.suffix}")


class _Lines(logging.Handler):
    """
    Writes lines to the present stderr, which a progress bar may have replaced.

    A line that several guests of a fleet write is shown once.
    """

    def __init__(self, *, debug: bool) -> None:
        super().__init__()
        self._debug = debug
        self._color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self._seen: dict[str, str] = {}
        self.echoes = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._is_echo(record):
                self.echoes += 1
                return
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            self.handleError(record)

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname:<7}"
        if self._color:
            level = f"\x1b[{_COLORS.get(record.levelno, '2')}m{level}\x1b[0m"
        name = record.name.removeprefix(_GUEST) if record.name.startswith(_GUEST) else "host"
        text = f"{level} {name}: {harmless(record.getMessage())}"
        if record.exc_info and self._debug:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        return text

    def _is_echo(self, record: logging.LogRecord) -> bool:
        """Return whether another guest of the fleet has logged this text before."""
        if _FLEET_MARK not in record.name or not record.name.startswith(_GUEST):
            return False
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        return self._seen.setdefault(record.getMessage(), record.name) != record.name
