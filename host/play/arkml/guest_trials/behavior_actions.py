"""Conversion of one behavior's actions: floats for its guest, messages for its actors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from google.protobuf.message import DecodeError

from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.envs.core.specs import Actions
from arkml.trials.wire.guest_pb2 import Action


class ActionRule:
    """
    The rule that turns any action into a valid one.

    A continuous action is clipped to its bounds; a value that is not finite becomes the default,
    the number nearest to 0 within the bounds. A choice that does not exist or is not allowed
    becomes the lowest allowed choice. If a branch allows no choice, all its choices count as
    allowed.
    """

    def __init__(self, actions: Actions) -> None:
        self.branches: tuple[int, ...] = actions.branches
        """The number of choices of each branch."""
        self.width: int = actions.width
        """The number of columns of an action."""
        self._continuous = actions.continuous
        largest = np.finfo(np.float32).max
        bounds = np.array([actions.low, actions.high], np.float64).reshape(2, -1)
        self._low, self._high = np.clip(bounds, -largest, largest).astype(np.float32)
        self._starts = list(accumulate(actions.branches, initial=0))
        self.default: Floats = np.zeros(self.width, np.float32)
        """The action where no choice is masked, float32, [width]."""
        self.default[: self._continuous] = np.clip(np.float32(0), self._low, self._high)
        self.default.setflags(write=False)
        self.default_content: bytes = self.contents(self.default[None])[0]
        """The message of that action."""

    def defaults(self, count: int, allowed: Marks | None) -> Floats:
        """Return default actions, float32, [count, width]; for `allowed` see `settled`."""
        actions = np.tile(self.default, (count, 1))
        return actions if allowed is None else self.settled(actions, allowed)

    def settled(self, actions: Floats, allowed: Marks | None) -> Floats:
        """
        Return valid actions, float32, [n, width], made from actions of the same shape by the rule.

        allowed: bool, [n, choices of all branches], or None where all choices are allowed.
        """
        floats = self._continuous
        settled = np.empty((len(actions), self.width), np.float32)
        if floats:
            given = actions[:, :floats]
            finite = np.where(np.isfinite(given), given, self.default[:floats])
            np.minimum(np.maximum(finite, self._low), self._high, out=settled[:, :floats])
        for branch, choices in enumerate(self.branches):
            start = self._starts[branch]
            mask = None if allowed is None else allowed[:, start : start + choices]
            settled[:, floats + branch] = _chosen(actions[:, floats + branch], choices, mask)
        return settled

    def parse(self, content: bytes) -> Floats:
        """
        Return the action in a message, without applying the rule: float32, [width].

        A missing field is 0; a message that cannot be read gives the default action.
        """
        try:
            action = Action.FromString(content)
        except DecodeError:
            return self.default.copy()
        row = np.zeros(self.width, np.float32)
        floats, branches = self._continuous, len(self.branches)
        given = action.continuous[:floats]
        row[: len(given)] = given
        choices = action.choices[:branches]
        row[floats : floats + len(choices)] = choices
        return row

    def applied(self, content: bytes, allowed: Marks | None) -> Floats:
        """
        Return the valid action for a message: float32, [width].

        allowed: bool, [choices of all branches], or None where all choices are allowed.
        """
        mask = None if allowed is None else allowed[None]
        action: Floats = self.settled(self.parse(content)[None], mask)[0]
        return action

    def contents(self, actions: Floats) -> list[bytes]:
        """Return valid actions, float32, [n, width], as messages."""
        floats = self._continuous
        data = np.ascontiguousarray(actions[:, :floats], "<f4").tobytes()
        size = 4 * floats
        head = b"\x0a" + varint(size) if floats else b""
        starts = range(0, size * len(actions), size) if size else [0] * len(actions)
        values = [head + data[start : start + size] for start in starts]
        if not self.branches:
            return values
        chosen = actions[:, floats:].astype(np.int64).tolist()
        return [value + _choices(row) for value, row in zip(values, chosen, strict=True)]


def varint(number: int) -> bytes:
    """Return a number from 0 in protobuf's encoding (a varint)."""
    if number < 0x80:
        return bytes((number,))
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _choices(row: Sequence[int]) -> bytes:
    packed = bytes(row) if max(row) < 0x80 else b"".join(map(varint, row))
    return b"\x12" + varint(len(packed)) + packed


def _chosen(given: Floats, choices: int, mask: Marks | None) -> Floats:
    """Return valid choices of one branch, float32, [n]; mask: bool, [n, choices], or None."""
    exists = (given >= 0) & (given < choices) & (np.floor(given) == given)
    chosen = np.where(exists, given, np.float32(0))
    if mask is None:
        return chosen
    allowed = mask | ~mask.any(axis=1, keepdims=True)
    is_allowed = exists & allowed[np.arange(len(chosen)), chosen.astype(np.intp)]
    return np.where(is_allowed, chosen, allowed.argmax(axis=1).astype(np.float32))
