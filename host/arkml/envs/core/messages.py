"""Messages that are handed to a guest between its calls."""

from __future__ import annotations

import logging
from collections import deque

from arkml.errors import EntryPointMissing
from arkml.guests.calls import CallLoop
from arkml.limits import RUN_SECONDS
from arkml.runtime.compiled_module import CompiledModule

log = logging.getLogger(__name__)

EXPORT = "arkml_side_channel"


class Messages:
    """
    Messages for the export `arkml_side_channel(ptr, len)` of a module, oldest first.

    Raises EntryPointMissing for such an export that does not take bytes.
    """

    def __init__(self, program: CompiledModule) -> None:
        functions = program.functions
        self.are_heard: bool = EXPORT in functions
        """True if the module has that export."""
        if self.are_heard and functions[EXPORT].params != ("i32", "i32"):
            raise EntryPointMissing(
                f"{EXPORT} of {program.name} is {functions[EXPORT]}: it takes the bytes of a"
                " message, (ptr: i32, len: i32)"
            )
        if self.are_heard and not program.info.takes_bytes:
            raise EntryPointMissing(
                f"{program.name} exports {EXPORT}, but no ark_alloc and ark_free for its bytes"
            )
        self._waiting: deque[bytes] = deque()

    def add(self, message: bytes) -> bool:
        """Queue a message for the next call. Returns False if the module has no such export."""
        if self.are_heard:
            self._waiting.append(message)
        return self.are_heard

    def hand_over(self, guest: CallLoop) -> None:
        """Call the export for each message. A refusal is logged. Raises GuestError for a trap."""
        while self._waiting:
            reply = guest.invoke(EXPORT, self._waiting.popleft(), RUN_SECONDS)
            if reply.status:
                log.warning("%s: %s answered %s", guest.name, EXPORT, reply.status)
