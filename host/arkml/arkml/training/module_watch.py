"""Watching the file of a module, which is reloaded while it runs whenever the file has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from arkml.base.terminal import harmless
from arkml.errors import ArkmlError
from arkml.guests.file_watch import FileWatch, watch
from arkml.host import Host
from arkml.runtime.compiled_module import CompiledModule
from arkml.training.module_reloader import ModuleChange, ModuleReloader
from arkml.training.task_runner import TaskRunner


class ModuleWatch(ModuleReloader):
    """
    Compiles a module after each change of its file, on a thread, and reloads it between two steps.

    Args:
        path: The file of the module.
        host: The host of the runner.
        runner: The guest or the fleet.
        say: Gets the sentences of `ModuleReloader`, from any thread.
        vet: Checks a module before it is reloaded, on the thread, and raises ArkmlError to refuse
            it.
        taken: As for `ModuleReloader`.
        settled: As for `ModuleReloader`.

    Example:
        watch = ModuleWatch(path, host, runner, print)
        while True:
            watch.step()

    """

    def __init__(
        self,
        path: Path,
        host: Host,
        runner: TaskRunner,
        say: Callable[[str], object],
        *,
        vet: Callable[[CompiledModule], object] = lambda _: None,
        taken: Callable[[ModuleChange], object] = lambda _: None,
        settled: Callable[[CompiledModule], object] = lambda _: None,
    ) -> None:
        def named(text: str) -> None:
            say(harmless(f"{path.name}: {text}"))

        super().__init__(runner, named, taken=taken, settled=settled)
        self._path = path
        self._host = host
        self._vet = vet
        self._ended = watch(FileWatch(path), ModuleWatch._compile, self)

    def close(self) -> None:
        """End the watch."""
        self._ended.set()

    def _compile(self) -> None:
        try:
            module = self._host.compile(self._path)
            self._vet(module)
        except ArkmlError as error:
            self._say(f"not reloaded, the module before goes on: {error}")
        else:
            self.offer(module)
