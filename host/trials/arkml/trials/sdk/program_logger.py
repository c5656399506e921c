"""Loggers of programs that take part in trials, with the levels and methods of Cogment's."""

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
    Return the logger of that name, at the level that a variable names, or at the default.

    It is a `logging.Logger` with two methods more: `trace`, below DEBUG, and `deprecated`, a
    warning that is given once. "OFF" leaves critical lines. Raises TrialError for an unknown level.
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
    """Warns of each thing once."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._warned: set[str] = set()

    def __call__(self, msg: str) -> None:
        if msg not in self._warned:
            self._warned.add(msg)
            self._logger.warning(msg)
