"""The log of a guest: its texts are sanitized, shortened, rate-limited and passed to `logging`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from arkml.abi.codes import LogLevel
from arkml.abi.guest_buffers import DisplayText
from arkml.base.loggers import SafeLogger
from arkml.base.terminal import harmless
from arkml.sessions.revision import Revision

TRACE = 5
logging.addLevelName(TRACE, "TRACE")

LEVELS = {
    LogLevel.ERROR: logging.ERROR,
    LogLevel.WARN: logging.WARNING,
    LogLevel.INFO: logging.INFO,
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.TRACE: TRACE,
}

LINES_PER_SECOND = 1000
LINE_BYTES = 256
"""Bytes of a line, with its contexts, that count as one: 600 bytes count as three lines."""
_CONTEXTS = 32
_CONTEXT_BYTES = 256
_MARK_BYTES = 64  # the mark of a text that was cut takes less
_CONTINUATION = "\n    "


def presentable(text: str | DisplayText, limit: int) -> str:
    """
    Return `text` without control characters, cut to `limit` bytes, such as "abc… [9 bytes cut]".

    No more than `limit` bytes of text in a guest's memory are read.
    """
    kept, removed = _cut(text, limit) if isinstance(text, str) else text.read(limit)
    kept, more = _cut(harmless(kept), limit)
    return f"{kept}… [{removed + more} bytes cut]" if removed + more else kept


def _cut(text: str, limit: int) -> tuple[str, int]:
    """Return the first `limit` bytes of `text`, in whole characters, and the number removed."""
    if len(text) * 4 <= limit:
        return text, 0
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit:
        return text, 0
    kept = data[:limit].decode("utf-8", "ignore")
    return kept, len(data) - len(kept.encode())


class Allowance:
    """
    A token bucket of `rate` lines a second, with bursts of up to `rate` lines.

    The last line of a burst may take more tokens than remain; the following line then has to wait.
    Any thread may use it.
    """

    __slots__ = ("_last", "_left", "_lock", "_rate", "_refused", "_stopwatch")

    def __init__(self, rate: float, stopwatch: Callable[[], float]) -> None:
        self._rate = rate
        self._stopwatch = stopwatch
        self._left = rate
        self._last = stopwatch()
        self._refused = 0
        self._lock = threading.RLock()  # a finalizer may find it taken

    def take(self, lines: int = 1) -> bool:
        """Take `lines` tokens and return True, or return False if there is none."""
        with self._lock:
            now = self._stopwatch()
            self._left = min(self._rate, self._left + (now - self._last) * self._rate)
            self._last = now
            if self._left < 1:
                self._refused += 1
                return False
            self._left -= lines
            return True

    def take_more(self, lines: int) -> None:
        """Take `lines` more tokens for a line that was admitted already."""
        with self._lock:
            self._left -= lines

    def forget_refused(self) -> int:
        """Return how often `take` has returned False since the last call."""
        with self._lock:
            refused, self._refused = self._refused, 0
            return refused


def logger_name(guest: str) -> str:
    """Return the name, below `arkml.guest`, of the logger of a guest."""
    return harmless(guest).replace("\n", " ") or "guest"


class GuestLog:
    """
    The log of one guest, the logger `arkml.guest.NAME`, created at the first line.

    Any thread may use it; only the guest's own thread adds and removes debug contexts.
    """

    __slots__ = (
        "_allowance", "_contexts", "_limit", "_logged", "_logger", "_name", "_rate", "_revision",
        "_stopwatch", "_suffix", "_suffix_bytes", "is_logged", "is_muted", "on_line",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        *,
        limit: int,
        rate: float = LINES_PER_SECOND,
        stopwatch: Callable[[], float] = time.monotonic,
        revision: Revision | None = None,
    ) -> None:
        self._revision = Revision() if revision is None else revision
        self._name = logger_name(name)
        self._limit = limit
        self._rate = rate
        self._stopwatch = stopwatch
        self._allowance: Allowance | None = None  # until the first line
        self._contexts: tuple[tuple[str, str], ...] = ()  # one object while empty
        self._suffix, self._suffix_bytes = "", 0
        self._logger: SafeLogger | None = None
        self._logged: tuple[str, ...] = ()
        self.is_muted = False
        """True while the guest does again what it has done, and logged, before."""
        self.on_line: Callable[[int, str], None] | None = None
        """Gets the level and the text of each line, also of those below the level of the logger."""
        self.is_logged = True
        """False if lines are for `on_line` alone."""

    @property
    def contexts(self) -> tuple[tuple[str, str], ...]:
        """The debug contexts, names and values, oldest first."""
        return self._contexts

    @contexts.setter
    def contexts(self, contexts: Sequence[tuple[str, str]]) -> None:
        # They may come from a file; those of a guest stay as they are, also ones that were cut.
        most = _CONTEXT_BYTES + _MARK_BYTES
        self._contexts = tuple(
            (on_one_line(name, most), on_one_line(value, most))
            for name, value in contexts[:_CONTEXTS]
        )
        self._renew_suffix()

    def count_by(self, stopwatch: Callable[[], float]) -> None:
        """Measure the rate of lines by another clock, which returns seconds."""
        self._stopwatch = stopwatch
        self._allowance = None

    @property
    def name(self) -> str:
        """Name of the logger below `arkml.guest`, which need not exist yet."""
        return self._name

    @property
    def logger(self) -> SafeLogger:
        if self._logger is None:
            self._logger = SafeLogger(f"arkml.guest.{self._name}")
        return self._logger

    def say(self, level: int, text: str | DisplayText) -> None:
        """Log `text` of the guest, with its debug contexts, unless the rate is exceeded."""
        if self.on_line is None and not self.logger.isEnabledFor(level):
            return
        if admitted := self.admits(text):
            self.write(level, presentable(text, self._limit), admitted)

    def admits(self, *texts: str | DisplayText) -> int:
        """
        Ask the rate limit to admit one line, before its text is read from the guest's memory.

        The line consists of `texts` and the guest's debug contexts. Returns the number of lines
        that it counts as, or 0 if it exceeds the rate and is dropped.
        """
        if self.is_muted:
            return 0
        sizes = (len(text) if isinstance(text, str) else text.size for text in texts)
        size = self._suffix_bytes + sum(min(size, self._limit) for size in sizes)
        lines = _lines_of(size)
        return lines if self._allowed().take(lines) else 0

    def _allowed(self) -> Allowance:
        """
        Return the allowance, which is made for the first line.

        Two threads that log it at once may each make one; the first line of one is not counted.
        """
        if self._allowance is None:
            self._allowance = Allowance(self._rate, self._stopwatch)
        return self._allowance

    def write(self, level: int, line: str, admitted: int) -> None:
        """
        Log a presentable line that `admits` counted as `admitted` lines, with the debug contexts.

        The bytes that are written count toward the rate: escaped control characters and indentation
        make text longer than it was in the guest.
        """
        self.flush()
        text = line.replace("\n", _CONTINUATION)
        written = len(text.encode("utf-8", "surrogatepass")) + self._suffix_bytes
        if (more := _lines_of(written) - admitted) > 0:
            self._allowed().take_more(more)
        self._put(level, f"{text}{self.context()}")

    def say_once(self, topic: str, level: int, text: str) -> None:
        """
        Log a message of the host about the guest, unless one on the same topic was logged before.
        """
        if topic not in self._logged:
            self._logged += (topic,)
            self.say(level, text)

    def flush(self) -> None:
        """Log the number of lines dropped since the last line, in a line that counts as one."""
        if self._allowance is not None and (dropped := self._allowance.forget_refused()):
            self._allowance.take_more(1)
            text = f"dropped {dropped} lines: the guest exceeds its log rate"
            self._put(logging.WARNING, text)

    def add_context(self, name: str | DisplayText, value: str | DisplayText) -> None:
        """Add `name=value`, such as `level=3`, to every line; a name shows its newest value."""
        if len(self._contexts) >= _CONTEXTS:
            self.say_once("contexts", logging.WARNING, f"more than {_CONTEXTS} debug contexts")
            return
        added = on_one_line(name, _CONTEXT_BYTES), on_one_line(value, _CONTEXT_BYTES)
        self._contexts += (added,)
        self._renew_suffix()

    def remove_context(self, name: str | DisplayText) -> None:
        """Remove the newest value of `name`, if there is one."""
        added = on_one_line(name, _CONTEXT_BYTES)
        for index in reversed(range(len(self._contexts))):
            if self._contexts[index][0] == added:
                self._contexts = self._contexts[:index] + self._contexts[index + 1 :]
                self._renew_suffix()
                return

    def context(self) -> str:
        """Return the contexts as the suffix of a line: empty, or ` [name=value …]`."""
        return self._suffix

    def _put(self, level: int, text: str) -> None:
        if self.on_line is not None:
            self.on_line(level, text)
        if self.is_logged:
            self.logger.log(level, "%s", text)

    def _renew_suffix(self) -> None:
        self._revision.number += 1
        newest = dict(self._contexts)
        texts = " ".join(f"{name}={value}" for name, value in newest.items())
        self._suffix = f" [{texts}]" if newest else ""
        self._suffix_bytes = len(self._suffix.encode())


def _lines_of(size: int) -> int:
    return max(1, -(-size // LINE_BYTES))


def on_one_line(text: str | DisplayText, limit: int) -> str:
    """Return `text` as `presentable` does, without line breaks."""
    return presentable(text, limit).replace("\n", " ")
