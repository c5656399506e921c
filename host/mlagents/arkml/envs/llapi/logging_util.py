"""The log level of this package, under the names of `mlagents_envs.logging_util`."""

from __future__ import annotations

import logging

CRITICAL = logging.CRITICAL
FATAL = logging.FATAL
ERROR = logging.ERROR
WARNING = logging.WARNING
INFO = logging.INFO
DEBUG = logging.DEBUG
NOTSET = logging.NOTSET

_loggers: set[logging.Logger] = {logging.getLogger(__name__.rpartition(".")[0])}
_log_level = NOTSET


def get_logger(name: str) -> logging.Logger:
    """Return a logger at the level of `set_log_level`, without adding handlers."""
    logger = logging.getLogger(name)
    _loggers.add(logger)
    if _log_level != NOTSET:
        logger.setLevel(_log_level)
    return logger


def set_log_level(log_level: int) -> None:
    """
    Set the level of this package and of all loggers that `get_logger` returned.

    At DEBUG, players write to the terminal.
    """
    global _log_level
    _log_level = log_level
    for logger in _loggers:
        logger.setLevel(log_level)
