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


def get_logger(name: str) -> logging.Logger:
    """Return the logger of that name. Handlers are left to the program."""
    return logging.getLogger(name)


def set_log_level(log_level: int) -> None:
    """Set the level of every logger of this package. At DEBUG, players write to the terminal."""
    logging.getLogger(__name__.rpartition(".")[0]).setLevel(log_level)
