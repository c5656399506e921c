"""The script of calls of a guest in an environment, from its initializers to its frames."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from arkml.base.loggers import SafeLogger, notice
from arkml.base.short_reprs import cut_repr
from arkml.base.texts import utf8
from arkml.envs.core.guest_messages import Handed, Messages
from arkml.envs.core.world import Calls
from arkml.errors import CmdletFailed, EntryPointMissing, UsageError
from arkml.guests.call_loop import CallLoop
from arkml.guests.guest import SEED_EXPORT, seeded_initializers
from arkml.guests.reloading import RESTORE_EXPORT
from arkml.limits import whole_number
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.exported_function import ExportedFunction
from arkml.runtime.module.description import ModuleKind
from arkml.runtime.module.imports import WASI_MODULE
from arkml.training.tasks import CONFIGURE, SEED, warn_refused

log = SafeLogger(__name__)

_RANDOM = (WASI_MODULE, "random_get")
_SEEDS = {("env", "seed"), ("env", "Math.random")}  # of AssemblyScript
_MOST_I32 = (1 << 32) - 1  # without a sign
_FRAME, _CMDLET = "ark_applet_update", "ark_cmdlet_run"

Configuration = str | Sequence[int | str] | None


class Script:
    """
    The calls of an instance and their arguments, checked against the module's exports.

    Raises UsageError and EntryPointMissing.
    """

    def __init__(
        self, module: CompiledModule, entry: str | None, args: str, configure: Configuration
    ) -> None:
        functions = module.functions
        self._module = module
        self._entry = entry or _default_entry(module)
        if self._entry not in functions:
            raise EntryPointMissing(f"{module.name} exports no function {cut_repr(self._entry)}")
        if configure is not None and CONFIGURE not in functions:
            raise EntryPointMissing(f"{module.name} exports no function 'configure'")
        if not isinstance(args, str):
            raise UsageError(f"args is {cut_repr(args)}: it takes a text")
        utf8(args, "args")
        if isinstance(configure, str):
            utf8(configure, "configure")
        elif configure is not None:
            _require_numbers(configure)
        self._args = args
        self._configure = configure
        self._takes_bytes = functions[self._entry].params == ("i32", "i32")
        if functions[self._entry].params and not self._takes_bytes:
            raise UsageError(
                f"{self._entry} of {module.name} is {functions[self._entry]}: an environment calls"
                " functions that take nothing, or bytes"
            )
        if args and not self._takes_bytes:
            raise UsageError(
                f"args is {cut_repr(args)}: {self._entry} of {module.name} takes no arguments;"
                " configure (--configure, --configure-numbers) reaches its export 'configure'"
            )
        self.frame: str | None = None if self._takes_bytes else self._entry
        """The export that is called again and again, None where one call is all."""
        self.messages: Messages = Messages(module)
        """Messages for the guest before the next of these calls."""

    @property
    def is_seedable(self) -> bool:
        """True if the guest takes the seed, through one of its exports or arguments."""
        texts = [self._args] if self._configure is None else [self._args, *self._configure]
        if isinstance(self._configure, str):
            texts = [self._args, self._configure]
        return (
            SEED_EXPORT in self._module.functions
            or _RANDOM in self._module.linkage.wasi
            or not _SEEDS.isdisjoint(self._module.linkage.shim)
            or any(isinstance(text, str) and SEED in text for text in texts)
        )

    def warn_unseedable(self) -> None:
        """Log a warning, once in a process, if the guest takes no seed."""
        if not self.is_seedable:
            notice(
                log,
                logging.WARNING,
                f"{self._module.name} takes no seed: it exports no {SEED_EXPORT}, draws no random"
                f" numbers through WASI, and {SEED} is neither in args nor in configure; every"
                " instance may begin alike",
            )

    def require_seed(self, seed: int) -> None:
        """Raise UsageError for a seed that is too large for a number that `configure` takes."""
        if self._configure is None or isinstance(self._configure, str):
            return
        kinds = self._module.functions[CONFIGURE].params
        for number, kind in zip(self._configure, kinds, strict=False):
            if number == SEED and kind == "i32" and seed > _MOST_I32:
                raise UsageError(
                    f"seed is {seed}: an i32 of configure takes it, so a whole number from 0 to"
                    f" {_MOST_I32}"
                )

    def calls(
        self, guest: CallLoop, seed: int, handed: Handed, state: bytes | None = None
    ) -> Calls:
        """
        Yield the calls of a new instance, one after another; see `Messages.hand_over`.

        `state`, saved by another instance, is restored before the first frame.
        """
        for name in seeded_initializers(self._module, self._entry):
            yield partial(guest.begin, name, (seed,) if name == SEED_EXPORT else ())
        yield from self._configuring(guest, seed)
        if state is not None:
            yield from self._restoring(guest, state)
        if self._takes_bytes:
            self.messages.hand_over(guest, handed)
            yield partial(guest.begin_bytes, self._entry, _filled(self._args, seed))
        else:
            yield from self.frames(guest, handed)

    def frames(self, guest: CallLoop, handed: Handed) -> Calls:
        """Yield calls of the frame function without end, each after handing over messages."""
        while True:
            self.messages.hand_over(guest, handed)
            yield partial(guest.begin_frame, self._entry)

    def _configuring(self, guest: CallLoop, seed: int) -> Iterator[partial[ExportedFunction]]:
        argument = self._configure
        if isinstance(argument, str):
            yield partial(guest.begin_bytes, CONFIGURE, _filled(argument, seed))
        elif argument is not None:
            numbers = tuple(seed if number == SEED else int(number) for number in argument)
            yield partial(guest.begin, CONFIGURE, numbers)
        if argument is not None:
            code = guest.instance.entry(CONFIGURE).result()
            warn_refused(self._module.name, argument, code)

    def _restoring(self, guest: CallLoop, state: bytes) -> Iterator[partial[ExportedFunction]]:
        """Yield the call that takes a state. Raises CmdletFailed if it is not taken."""
        yield partial(guest.begin_bytes, RESTORE_EXPORT, state)
        status = guest.instance.entry(RESTORE_EXPORT).result()
        if isinstance(status, int) and status:
            raise CmdletFailed(
                f"{self._module.name}: {RESTORE_EXPORT} answered {status}", status=status
            )


def _default_entry(module: CompiledModule) -> str:
    kind = module.info.kind
    if kind is ModuleKind.APPLET:
        return _FRAME
    if kind is ModuleKind.CMDLET:
        return _CMDLET
    raise UsageError(
        f"{module.name} is of kind {kind.value}: name the function that plays, with entry= or"
        " --entry"
    )


def _filled(text: str, seed: int) -> bytes:
    return text.replace(SEED, str(seed)).encode()


def kept_configuration(configure: Configuration) -> str | tuple[int | str, ...] | None:
    """Return the argument for the export `configure`, as text or a tuple. Raises UsageError."""
    if isinstance(configure, str | None):
        return configure
    if not isinstance(configure, Iterable):
        raise UsageError(
            f"configure is {cut_repr(configure)}: it takes text, or whole numbers and '{SEED}', as"
            f" (1, '{SEED}')"
        )
    return tuple(configure)


def _require_numbers(arguments: Sequence[int | str]) -> None:
    for number in arguments:
        if number != SEED and whole_number(number) is None:
            raise UsageError(
                f"configure holds {cut_repr(number)}: text, or whole numbers and '{SEED}'"
            )
