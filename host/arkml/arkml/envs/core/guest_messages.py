"""Messages that a guest gets through an export, delivered between its calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from arkml.base.loggers import SafeLogger
from arkml.errors import EntryPointMissing
from arkml.guests.call_loop import CallLoop
from arkml.limits import RUN_SECONDS
from arkml.runtime.compiled_module import CompiledModule

log = SafeLogger(__name__)

EXPORT = "arkml_side_channel"

Handed = Callable[[bytes, str], object]
"""Is told of a message that a guest is handed, and of its sender."""

MOST_ANSWERED = 16 << 20
"""Bytes of answers that are kept until they are taken; a guest makes them of nothing."""


class Messages:
    """
    Messages for the export `arkml_side_channel(ptr, len)` of a module, oldest first.

    A message may name its sender, for whom the guest's answer is kept: the bytes that the export
    returns. Raises EntryPointMissing if the module has that export and it does not take bytes.
    """

    def __init__(self, module: CompiledModule) -> None:
        functions = module.functions
        self.is_exported: bool = EXPORT in functions
        """True if the module has that export."""
        if self.is_exported and functions[EXPORT].params != ("i32", "i32"):
            raise EntryPointMissing(
                f"{EXPORT} of {module.name} is {functions[EXPORT]}: it takes the bytes of a"
                " message, (ptr: i32, len: i32)"
            )
        if self.is_exported and not module.info.takes_bytes:
            raise EntryPointMissing(
                f"{module.name} exports {EXPORT}, but no ark_alloc and ark_free for its bytes"
            )
        self.waiting: deque[tuple[bytes, str]] = deque()
        """Those that wait for the next call, with their senders."""
        self.answers: list[tuple[str, bytes]] = []
        """The guest's answers that `take_answers` has not returned yet."""
        self._answered = 0  # bytes of those
        self._has_dropped = False

    def add(self, message: bytes, sender: str = "") -> bool:
        """Queue a message for the next call. Returns False if the module has no such export."""
        if self.is_exported:
            self.waiting.append((message, sender))
        return self.is_exported

    def take_answers(self) -> list[tuple[str, bytes]]:
        """Return the guest's answers since the last call, each as (sender, answer)."""
        if not self.answers:
            return []
        taken, self.answers, self._answered = self.answers, [], 0
        return taken

    def be_as(self, other: Messages) -> None:
        """Replace the waiting messages and answers by copies of another object's."""
        self.waiting = deque(other.waiting)
        self.answers, self._answered = list(other.answers), other._answered
        self._has_dropped = other._has_dropped

    def hand_over(self, guest: CallLoop, handed: Handed) -> None:
        """
        Call the export with each waiting message, after passing the message to `handed`.

        A refusal is logged. Raises GuestError for a trap.
        """
        while self.waiting:
            message, sender = self.waiting.popleft()
            handed(message, sender)
            reply = guest.invoke(EXPORT, message, RUN_SECONDS)
            if sender and reply.data:
                self._keep(guest.name, sender, reply.data)
            if reply.status:
                log.warning("%s: %s answered %s", guest.name, EXPORT, reply.status)

    def _keep(self, name: str, sender: str, answer: bytes) -> None:
        """Keep an answer; one that would be too much is dropped, and the first of these logged."""
        if self._answered + len(answer) <= MOST_ANSWERED:
            self.answers.append((sender, answer))
            self._answered += len(answer)
        elif not self._has_dropped:
            self._has_dropped = True
            log.warning(
                "%s: answers to messages are dropped: over %d bytes between two calls",
                name, MOST_ANSWERED,
            )  # fmt: skip
