"""Loggers for programs in trials, with the levels and methods of Cogment's SDK."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import Any, Final

from arkml.trials.core.error import TrialError

TRACE: Final = 5

_LEVELS: Final = {"TRACE": TRACE, "OFF": logging.CRITICAL}


def make_logger(name: str, env_name: str | None = None, default_level: str = "INFO") -> Any:
    """
    Return a logger for a program.

    Args:
        name: Name of the logger.
        env_name: Environment variable that may set the level.
        default_level: Level if the variable is not set, such as "INFO"; "OFF" leaves only critical
            lines.

    Returns:
        A `logging.Logger` with two more methods: `trace`, a level below DEBUG, and `deprecated`,
        which gives each warning once.

    Raises:
        TrialError: The level is unknown.

    """
    level = (os.environ.get(env_name, default_level) if env_name else default_level).upper()
    known = _LEVELS | logging.getLevelNamesMapping()
    if level not in known:
        raise TrialError(f"there is no log level {level!r}: there are {', '.join(sorted(known))}")
    logger: Any = logging.getLogger(name)
    logger.TRACE = TRACE
    logger.trace = partial(logger.log, TRACE)
    logger.deprecated = _Once(logger)
    logger.setLevel(known[level])
    return logger


class _Once:
    """Gives each warning once."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._warned: set[str] = set()

    def __call__(self, msg: str) -> None:
        if msg not in self._warned:
            self._warned.add(msg)
            self._logger.warning(msg)
