"""The subjects of a hive's log lines, and the lines that learners and workers write."""

from __future__ import annotations

import logging
import re
from contextvars import ContextVar

from arkml.base.loggers import SafeLogger

_log = SafeLogger(__name__)

_LEVELS = {
    name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}
_LEVELED = re.compile(rf"(?:\w+: )?({'|'.join(_LEVELS)})\s*:? (.*)")
"""A line that begins with its level, after the word `learner:` or nothing."""

_LONGEST = 4_096
"""Letters of a line that are relayed."""


class LogContext:
    """
    The subject of the log lines of one task: a request, or a run.

    `session` is the index of a session in its run, None for none. Tasks that a request starts
    inherit its context, which adds nothing to lines once the request `is_over`.
    """

    __slots__ = ("is_over", "request", "run", "session", "trace")

    def __init__(self, request: bytes = b"", run: str = "") -> None:
        self.request = request
        self.run = run
        self.session: int | None = None
        self.trace = ""
        self.is_over = False

    def fields(self) -> dict[str, str | int]:
        """Return the known fields by name, in the order in which lines show them."""
        if self.is_over:
            return {}
        known: tuple[tuple[str, str | int | None], ...] = (
            ("run", self.run),
            ("session", self.session),
            ("request", self.request.decode("ascii", "replace")),
            ("trace", self.trace),
        )
        return {name: value for name, value in known if value is not None and value != ""}


_current: ContextVar[LogContext | None] = ContextVar("arkml_log_context", default=None)


def begin_request(request: bytes) -> LogContext:
    """Begin the context of the request with that id in the present task, and return it."""
    context = LogContext(request)
    _current.set(context)
    return context


def begin_run(run: str) -> None:
    """Begin the context of a run in the present task, which belongs to that run alone."""
    _current.set(LogContext(run=run))


def note_session(run: str, session: int | None = None) -> None:
    """Note the run, and the session, that the present request is about."""
    context = _current.get()
    if context is not None:
        context.run, context.session = run, session


def note_trace(trace: str) -> None:
    """Note the trace that the present request is part of: 32 hexadecimal digits."""
    context = _current.get()
    if context is not None:
        context.trace = trace


def known_fields() -> dict[str, str | int]:
    """Return the run, session, request and trace of the present task, without unknown ones."""
    context = _current.get()
    return {} if context is None else context.fields()


def relay_line(line: str, *, run: str, worker: str = "") -> None:
    """
    Log a line of a process as a line of its run. Any thread may call this.

    Args:
        line: The line, which may begin with a level. Without one, for example in a traceback, it is
            logged at INFO.
        run: The id of the run, empty if it is not known.
        worker: The name of a rollout worker, empty for a learner.

    """
    text = line[:_LONGEST]
    if not text:
        return
    level, process = logging.INFO, worker or "learner"
    if match := _LEVELED.fullmatch(text):
        level, text = _LEVELS[match[1]], match[2]
    about = {name: value for name, value in (("run", run), ("worker", worker)) if value}
    _log.log(level, "%s: %s", process, text, extra=about)
