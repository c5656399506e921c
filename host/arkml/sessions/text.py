"""Guest text: what a guest says, made harmless, cut, slowed down and handed to `logging`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from arkml.abi.codes import LogLevel
from arkml.terminal import harmless

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
_CONTEXTS = 32
_CONTEXT_BYTES = 256
_CONTINUATION = "\n    "


def presentable(text: str, limit: int) -> str:
    """`text` for people: harmless, at most `limit` bytes, and how many bytes are not shown."""
    if len(text) * 4 <= limit:
        shown, gone = text, 0
    else:
        shown, gone = _cut(text, limit)
    shown, more = _cut(harmless(shown), limit)
    return f"{shown}… [{gone + more} bytes cut]" if gone + more else shown


def _cut(text: str, limit: int) -> tuple[str, int]:
    """The first `limit` bytes of `text`, on a character's border, and how many bytes are gone."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit:
        return text, 0
    kept = data[:limit].decode("utf-8", "ignore")
    return kept, len(data) - len(kept.encode())


class Allowance:
    """A token bucket: `rate` lines a second, as many at once."""

    def __init__(self, rate: float, stopwatch: Callable[[], float]) -> None:
        self._rate = rate
        self._stopwatch = stopwatch
        self._left = rate
        self._then = stopwatch()

    def take(self) -> bool:
        """Whether one more line may pass."""
        now = self._stopwatch()
        self._left = min(self._rate, self._left + (now - self._then) * self._rate)
        self._then = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class GuestLog:
    """The log of one guest: the logger `arkml.guest.NAME`, reached only when something is said."""

    def __init__(
        self,
        name: str,
        *,
        limit: int,
        rate: float = LINES_PER_SECOND,
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = harmless(name).replace("\n", " ") or "guest"
        self._limit = limit
        self._allowance = Allowance(rate, stopwatch)
        self._contexts: list[tuple[str, str]] = []
        self._logger: logging.Logger | None = None
        self._dropped = 0
        self._told: set[str] = set()

    @property
    def logger(self) -> logging.Logger:
        if self._logger is None:
            self._logger = logging.getLogger(f"arkml.guest.{self._name}")
        return self._logger

    def say(self, level: int, text: str) -> None:
        """Log what the guest said."""
        if not self.logger.isEnabledFor(level):
            return
        if not self._allowance.take():
            self._dropped += 1
            return
        self.flush()
        line = presentable(text, self._limit).replace("\n", _CONTINUATION)
        self.logger.log(level, "%s%s", line, self.context())

    def tell_once(self, topic: str, level: int, text: str) -> None:
        """Log what the host has to say about the guest, the first time for each topic."""
        if topic not in self._told:
            self._told.add(topic)
            self.say(level, text)

    def flush(self) -> None:
        """Say how many lines were dropped since the last one that passed."""
        if self._dropped:
            self.logger.warning("dropped %d lines: more than a guest may log", self._dropped)
            self._dropped = 0

    def add_context(self, name: str, value: str) -> None:
        """Show `name=value` on every line until it is removed; a name's newest value counts."""
        if len(self._contexts) >= _CONTEXTS:
            self.tell_once("contexts", logging.WARNING, f"more than {_CONTEXTS} debug contexts")
            return
        self._contexts.append((_on_one_line(name), _on_one_line(value)))

    def remove_context(self, name: str) -> None:
        """Take back the newest value of `name`, if there is one."""
        shown = _on_one_line(name)
        for place in reversed(range(len(self._contexts))):
            if self._contexts[place][0] == shown:
                del self._contexts[place]
                return

    def context(self) -> str:
        """The live contexts as text to put behind a line: empty, or ` [name=value …]`."""
        if not self._contexts:
            return ""
        return f" [{' '.join(f'{name}={value}' for name, value in dict(self._contexts).items())}]"


def _on_one_line(text: str) -> str:
    return presentable(text, _CONTEXT_BYTES).replace("\n", " ")
