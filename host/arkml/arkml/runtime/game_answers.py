"""A record of the answers that a game's functions gave to one guest, to repeat them for a copy."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from arkml.errors import GameFunctionFailed, StateRefused
from arkml.runtime.game_functions import BoundFunction
from arkml.runtime.memory import GuestMemory

_ANSWER_BYTES = 200  # of an answer, about


class GameAnswer(NamedTuple):
    """
    One answer of a function of the game.

    Attributes:
        number: The index of the function in the list of functions that the module imports.
        results: The results, 8 bytes each.
        writes: What the function wrote into the guest's memory: addresses and bytes.
        error: The exception that the function raised, or None.

    """

    number: int
    results: bytes
    writes: tuple[tuple[int, bytes], ...]
    error: GameFunctionFailed | None


class GameAnswers:
    """
    Answers one guest's calls of the game's functions, and records the answers.

    Between `repeat` and `end_repeat` the functions are not called: the guest repeats the calls of
    another guest, and gets the recorded answers, which are recorded again.
    """

    __slots__ = ("_again", "kept", "size")

    def __init__(self) -> None:
        self.kept: list[GameAnswer] = []
        """The answers since the last `forget`, in order."""
        self.size = 0
        """The bytes that they take, about."""
        self._again: deque[GameAnswer] | None = None

    def forget(self) -> None:
        """Drop all answers recorded so far."""
        self.kept, self.size = [], 0

    def repeat(self, answers: Iterable[GameAnswer]) -> None:
        """Give recorded answers to the next calls, instead of calling the game."""
        self._again = deque(answers)

    def end_repeat(self) -> None:
        """Call the game's functions again. Raises StateRefused if a recorded answer is left."""
        left, self._again = self._again, None
        if left:
            raise StateRefused(
                f"the guest asked the game {len(left):,} times less than before: it did not do the"
                " same again"
            )

    def answer(
        self,
        number: int,
        function: BoundFunction,
        caller: tuple[str, int],
        memory: GuestMemory,
        words: memoryview,
        at: int,
    ) -> None:
        """
        Answer a call; see `BoundFunction.answer`.

        Args:
            number: The number of the function among those that the module imports.
            function: The function.
            caller: The name of the guest, and its index.
            memory: The guest's memory.
            words: The bytes with the arguments, and then with the results.
            at: Where they are in these bytes.

        Raises:
            GameFunctionFailed: The function failed, now or when it was recorded.
            StateRefused: The guest calls something else than was recorded.

        """
        end = at + 8 * function.counts[1]
        if self._again is not None:
            answer = self._next(number, function)
            for pointer, data in answer.writes:
                memory.write(pointer, data)
            words[at:end] = answer.results
            self._keep(answer)
            if answer.error is not None:
                raise answer.error
            return
        noted = _NotedMemory(memory) if function.takes_memory else None
        error: GameFunctionFailed | None = None
        try:
            function.answer(*caller, noted or memory, words, at)
        except GameFunctionFailed as raised:
            error = raised
            raise
        finally:
            writes = () if noted is None else tuple(noted.writes)
            self._keep(GameAnswer(number, bytes(words[at:end]), writes, error))

    def _next(self, number: int, function: BoundFunction) -> GameAnswer:
        answer = self._again.popleft() if self._again else None
        if answer is None or answer.number != number:
            raise StateRefused(
                f"the guest asks {function.label} of the game, which it did not ask before: it does"
                " not do the same again"
            )
        return answer

    def _keep(self, answer: GameAnswer) -> None:
        self.kept.append(answer)
        self.size += _ANSWER_BYTES
        for _, data in answer.writes:
            self.size += len(data)


class _NotedMemory(GuestMemory):
    """The memory of a guest, for a function of the game, with notes of what that writes."""

    __slots__ = ("_memory", "writes")

    def __init__(self, memory: GuestMemory) -> None:
        self._memory = memory
        self.pages = memory.pages
        self.writes: list[tuple[int, bytes]] = []

    def read(self, pointer: int, size: int) -> bytes:
        """Read as the memory does."""
        return self._memory.read(pointer, size)

    def c_string(self, pointer: int) -> bytes:
        """Read as the memory does."""
        return self._memory.c_string(pointer)

    def write(self, pointer: int, data: bytes) -> None:
        """Write as the memory does, and note it."""
        self._memory.write(pointer, data)
        if data:
            self.writes.append((pointer, data))
