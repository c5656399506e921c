"""
Loggers whose handlers cannot fail a guest's call, and texts that are logged once in a process.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any

from arkml.base.handler_errors import is_of_handler

_shown: set[type[Exception]] = set()
_MOST_NOTICES = 1_000  # texts that are remembered; a text may come again beyond them
_noticed: set[tuple[str, str]] = set()


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """
    A wrapper of the logger `name` that does not raise exceptions of handlers and filters.

    Handlers of the standard library write their own errors to stderr, by `Handler.handleError`; an
    embedder's may raise anything from `emit`. The first exception of each type is written to
    stderr, unless `logging.raiseExceptions` is False. KeyboardInterrupt, SystemExit and exceptions
    of signal handlers are raised all the same.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), None)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log like `logging.Logger.log`; all other methods call this one."""
        if not self.logger.isEnabledFor(level):
            return
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        try:
            self.logger.log(level, msg, *args, **kwargs)
        except Exception as error:  # of any kind, and it is shown
            if is_of_handler(error):
                raise
            _show(self.logger.name, error)


def _show(name: str, error: Exception) -> None:
    """Write a handler's exception to stderr, the first time for its type."""
    stderr = getattr(sys, "stderr", None)
    if type(error) in _shown or not logging.raiseExceptions or stderr is None:
        return
    _shown.add(type(error))
    lines = traceback.format_exception(error)
    try:
        stderr.write(f"a handler of {name} raised, its message is lost:\n{''.join(lines)}")
    except (OSError, ValueError):  # stderr is closed
        return


def notice(
    logger: logging.Logger | logging.LoggerAdapter[logging.Logger], level: int, text: str
) -> None:
    """Log a text unless this process has logged it before."""
    name = logger.name
    if (name, text) in _noticed or not logger.isEnabledFor(level):
        return
    if len(_noticed) >= _MOST_NOTICES:
        _noticed.clear()
    _noticed.add((name, text))
    logger.log(level, "%s", text, stacklevel=2)


def forget_notices() -> None:
    """Forget which texts `notice` has logged, as in a new process."""
    _noticed.clear()
