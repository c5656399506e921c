"""Reasons of refused pushes and submits, which the shim notes in a guest's control block."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import assert_never

from arkml.abi.codes import EpisodeState, ErrorCode
from arkml.errors import AbiError
from arkml.runtime.columns.arena import Arena
from arkml.runtime.linker import error_code
from arkml.runtime.shared_engine import TABLES
from arkml.runtime.shim import control_block as at
from arkml.runtime.shim.control_block import Kind, RefusalReason
from arkml.runtime.shim.render import export_name, noted

_MOST_TEXT = 1_000  # letters of the text of an error
_KINDS = {Kind.INFERENCE: "an inference session", Kind.TRAINING: "a training session"}
_OTHERS = {Kind.INFERENCE: Kind.TRAINING, Kind.TRAINING: Kind.INFERENCE}


class RefusalNotes:
    """
    The refusals of one guest's pushes and submits; `control` is the offset of its control block.

    `by_host` is the name of the error by which the host last refused a submit, "" for none.
    """

    __slots__ = ("_code_of_host", "_control", "_numbers", "_text_of_host", "_words", "by_host")

    def __init__(self, arena: Arena, control: int) -> None:
        self._words, self._numbers, self._control = arena.words, arena.numbers, control
        self.by_host = ""
        self._code_of_host = ErrorCode.INTERNAL_ERROR
        self._text_of_host = "the host could not answer"

    def note(self, error: AbiError) -> None:
        """
        Note the text of the host's error, not the error, which would keep refused objects alive.
        """
        self.by_host, self._code_of_host = type(error).__name__, error_code(error)
        self._text_of_host = str(error)[:_MOST_TEXT]

    def sentence(self, reason: RefusalReason) -> str:
        """
        Return a sentence about the last refusal for a reason, with the function, code and numbers.
        """
        start = self._start(reason)
        function = _names()[self._words[(start + at.REFUSED_FUNCTION) >> 2]]
        given = self._numbers[(start + at.REFUSED_GIVEN) >> 3]
        wanted = self._numbers[(start + at.REFUSED_WANTED) >> 3]
        return f"{function} answered {self._code(reason).name}: {self._why(reason, given, wanted)}"

    def counts(self) -> Counter[str]:
        """Return the number of refused calls for each reason; a reason's key is its `sentence`."""
        found: Counter[str] = Counter()
        for reason in self.reasons():
            found[self.sentence(reason)] += self._count(reason)
        return found

    def reasons(self) -> list[RefusalReason]:
        """Return the reasons for which a call was refused so far."""
        return [reason for reason in RefusalReason if self._count(reason)]

    def _count(self, reason: RefusalReason) -> int:
        return self._words[(self._start(reason) + at.REFUSED_COUNT) >> 2]

    def _start(self, reason: RefusalReason) -> int:
        return self._control + at.REFUSALS + (reason - 1) * at.REFUSAL_SIZE

    def _code(self, reason: RefusalReason) -> ErrorCode:
        if reason is RefusalReason.HOST:
            return self._code_of_host
        is_missing = reason in (RefusalReason.SESSION, RefusalReason.KIND)
        return ErrorCode.NOT_FOUND if is_missing else ErrorCode.INVALID_ARGUMENTS

    def _why(self, reason: RefusalReason, given: int, wanted: int) -> str:
        match reason:
            case RefusalReason.SESSION:
                return f"no session has the handle {given:#x}"
            case RefusalReason.KIND:
                kind = Kind(wanted)
                return f"the handle {given:#x} is of {_KINDS[_OTHERS[kind]]}, not {_KINDS[kind]}"
            case RefusalReason.STATE:
                names = ", ".join(f"{state.value} {state.name}" for state in EpisodeState)
                return f"{given} is not an episode state, which are {names}"
            case RefusalReason.FEATURES:
                return f"{given} features, the session has {wanted}"
            case RefusalReason.GIVEN:
                return f"{given} supplied actions, the session has {wanted}"
            case RefusalReason.METADATA:
                return f"{given} items of metadata, {wanted} are allowed"
            case RefusalReason.OUTSIDE:
                return f"an argument ends at byte {given} of a memory of {wanted} bytes"
            case RefusalReason.ACTIONS:
                return f"room for {given} actions, the pushed rows need {wanted}"
            case RefusalReason.VALUES:
                return f"room for {given} values, {wanted} rows are pushed"
            case RefusalReason.HOST:
                return self._text_of_host
            case _:
                assert_never(reason)


@cache
def _names() -> tuple[str, ...]:
    """Return the names of the functions in the order of the shim's numbers for them."""
    return tuple(export_name(api.module, api.symbol(function)) for api, function in noted(TABLES))
