"""The enabled levels of guests' loggers, published to the guests' shims."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from arkml.runtime.columns.arena import Arena
from arkml.runtime.shim import control_block as at

ROOT = logging.getLogger("arkml.guest")
"""The parent of all guests' loggers."""

MARK = -1_203_641
"""A level that only `refresh` asks for."""

KNOWN: Mapping[int, Any] = getattr(ROOT, "_cache", {})
"""
A mapping that has MARK unless a level may have changed since `refresh`.

`logging` caches the results of `isEnabledFor` in it, and clears the caches of all loggers when the
level of one changes. Where `logging` has no such cache, levels are checked in each call.
"""


class _Guest(NamedTuple):
    control: int  # the offset of its control block
    name: str  # of its logger below ROOT
    levels: tuple[int, ...]


class LogLevels:
    """
    The enabled log levels of guests that share column memory, by their places in the lockstep.

    A log line of a disabled level costs the guest a comparison in its shim, and the host nothing.
    """

    _all: ClassVar[weakref.WeakSet[LogLevels]] = weakref.WeakSet()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, arena: Arena) -> None:
        self._words = arena.words
        self._guests: dict[int, _Guest] = {}
        with self._lock:
            self._all.add(self)

    def add(self, place: int, control: int, name: str, levels: tuple[int, ...]) -> None:
        """
        Publish the enabled levels of a guest's logger to the shim at `control`, from now on.

        `name` is the logger's, below `arkml.guest`, such as "npc.wasm". `levels` has the levels of
        `logging` in the order of the guest's numbers, highest first.
        """
        guest = self._guests[place] = _Guest(control, name, levels)
        self._set(guest)

    def remove(self, place: int) -> None:
        """Forget a guest, whose control block is freed."""
        self._guests.pop(place, None)

    def set_all(self) -> None:
        """Publish the levels enabled now to the shims of these guests. Any thread may call it."""
        for guest in list(self._guests.values()):
            self._set(guest)

    def _set(self, guest: _Guest) -> None:
        level = _level_of(f"{ROOT.name}.{guest.name}")
        least = max(level, logging.root.manager.disable + 1)
        self._words[(guest.control + at.LOGGED) >> 2] = _enabled(guest.levels, least) + 1

    @classmethod
    def refresh(cls) -> None:
        """Publish the levels enabled now to the shims of all guests of the process."""
        ROOT.isEnabledFor(MARK)  # before: a change from now on takes it out of KNOWN again
        with cls._lock:
            everyone = list(cls._all)
        for levels in everyone:
            levels.set_all()


@lru_cache(maxsize=64)
def _enabled(levels: tuple[int, ...], least: int) -> int:
    """Return how many levels are `least` or more."""
    return sum(level >= least for level in levels)


def _level_of(name: str) -> int:
    """Return the level of a logger; if it does not exist, of its nearest ancestor that does."""
    loggers = logging.root.manager.loggerDict
    while name:
        found = loggers.get(name)
        if isinstance(found, logging.Logger):
            return found.getEffectiveLevel()
        name = name.rpartition(".")[0]
    return logging.root.getEffectiveLevel()
