"""Notes on the calls of a guest: refused imports, and numbers that are not finite."""

from __future__ import annotations

from collections import Counter

from arkml.errors import AbiError, GuestError, GuestExit
from arkml.runtime.linker import Handlers
from arkml.runtime.sandbox import Sandbox
from arkml.runtime.shim import control_block as at
from arkml.runtime.shim.control_block import RefusalReason


class GuestNews:
    """Reader of the notes that the shim of one guest has made; make it anew for each use."""

    __slots__ = ("_handlers", "_sandbox", "_word", "_words")

    def __init__(self, sandbox: Sandbox, handlers: Handlers) -> None:
        self._word = (sandbox.control + at.NOTED) >> 2
        self._words = sandbox.engine.arena.words
        self._sandbox = sandbox
        self._handlers = handlers

    def tell(self) -> None:
        """Log the notes that the shim has made since the last call, once for each kind."""
        news, self._words[self._word] = self._words[self._word], 0
        owner = self._handlers.owner
        if news & at.NON_FINITE:
            text = "the policy gave non-finite actions or values: answered as zeros"
            owner.warn_once("actions", text)
        if not news & ~at.NON_FINITE:
            return
        refusals = self._sandbox.refusals
        for reason in refusals.reasons():  # the last one may follow from one before it
            kind = f"{reason.name} {refusals.by_host if reason is RefusalReason.HOST else ''}"
            if not owner.has_warned(kind):  # a sentence takes long in each of many frames
                owner.warn_once(kind, refusals.sentence(reason))

    def note(self, error: AbiError) -> None:
        """Note the error by which a submit is refused, and count it if a limit was reached."""
        self._handlers.count(error)
        self._sandbox.refusals.note(error)

    def counts(self) -> Counter[str]:
        """
        Return how often pushes, submits, and other imports with invalid arguments were refused.

        Keys are sentences that explain a refusal.
        """
        counts = self._sandbox.refusal_counts()
        for sentence, count in self._handlers.invalid.values():
            counts[sentence] += count
        return counts

    def explain(self, error: GuestError) -> GuestError:
        """Return the error of a call with the last import that was refused in the call added."""
        refusal = self._handlers.refusal
        if number := self._words[self._word] & ~at.NON_FINITE:
            refusal = self._sandbox.refusals.sentence(RefusalReason(number))
        if refusal and not (isinstance(error, GuestExit) and error.status == 0):
            error.args = (f"{error}\n  before it {refusal}",)
        return error

    def forget_call(self) -> None:
        """Forget the imports that were refused in the previous call."""
        self._handlers.refusal = ""
