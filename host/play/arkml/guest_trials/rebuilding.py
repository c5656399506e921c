"""Replacing a guest's module by a rebuilt one in running trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from arkml.base.closing import Closing
from arkml.base.terminal import harmless
from arkml.envs.core.instance_factory import InstanceFactory
from arkml.errors import ArkmlError
from arkml.guests.file_watch import FileWatch, watch
from arkml.runtime.compiled_module import CompiledModule

Rebuild = Callable[[Path, Callable[[str], object]], str]
"""Has the module of a path take over, as `GuestHosting.rebuild`; returns its SHA-256."""


@dataclass(frozen=True, slots=True)
class RebuiltModule:
    """
    A rebuilt module that replaces the previous one in running trials.

    Attributes:
        factory: The factory of the module's instances, of which each trial makes a variant.
        say: Called with sentences about the replacement, from any thread.
        undo: Called if the module fails at once; lets the previous module play the next trials.

    """

    factory: InstanceFactory
    say: Callable[[str], object]
    undo: Callable[[CompiledModule], object]

    @property
    def module(self) -> CompiledModule:
        """The rebuilt module, compiled."""
        return self.factory.module


class GuestWatch(Closing):
    """
    Watches the file of a guest's module, and replaces the module in trials when it has changed.

    `rebuild` is called on a thread, and `say` gets a sentence about each change.
    """

    def __init__(self, path: Path, rebuild: Rebuild, say: Callable[[str], object]) -> None:
        self._path = path
        self._rebuild = rebuild
        self._announce = say
        self._ended = watch(FileWatch(path), GuestWatch._take, self)

    def close(self) -> None:
        """End the watch. Safe to call twice."""
        self._ended.set()

    def _take(self) -> None:
        began = perf_counter()
        try:
            digest = self._rebuild(self._path, self._say)
        except ArkmlError as error:
            self._say(f"not reloaded, the module before goes on: {error}")
        else:
            took = 1e3 * (perf_counter() - began)
            self._say(f"{digest[:12]} was compiled and tried in {took:.0f} ms, and takes over")

    def _say(self, text: str) -> None:
        self._announce(harmless(f"{self._path.name}: {text}"))
