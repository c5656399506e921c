"""What the answers of a hive hold, checked before anything is changed for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from arkml.errors import ProtocolError

T = TypeVar("T")

MAX_VERSION = (1 << 32) - 1
"""Of a policy: rows carry it in 32 bits."""

_MAX_NUMBER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Standing:
    """What every answer to a session says."""

    credit: int
    hold: bool
    policy_version: int

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Standing:
        """Raises ProtocolError."""
        return cls(
            whole(answer, "credit"),
            bool(answer.get("hold", False)),
            whole(answer, "policy_version", most=MAX_VERSION),
        )


def whole(answer: Mapping[str, Any], name: str, *, least: int = 0, most: int = _MAX_NUMBER) -> int:
    """The whole number of that name. Raises ProtocolError."""
    found = answer.get(name)
    if type(found) is not int or not least <= found <= most:
        raise ProtocolError(f"the hive answered with {name} = {str(found)[:80]}")
    return found


def refused_rows(answer: Mapping[str, Any], count: int) -> tuple[int, npt.NDArray[np.bool_]]:
    """
    How many of so many rows were refused, and which are not known to be: bool, [count].

    The hive names the first ones only. Raises ProtocolError.
    """
    refused = whole(answer, "refused_n", most=count)
    kept = np.ones(count, bool)
    named = understood(lambda: [row for row, _ in answer["refused"]]) if refused else []
    for row in named:
        if type(row) is not int or not 0 <= row < count:
            raise ProtocolError(f"the hive refused row {str(row)[:80]} of {count}")
        kept[row] = False
    return refused, kept


def understood(read: Callable[[], T]) -> T:
    """What `read` makes of an answer. Raises ProtocolError if that is nothing."""
    try:
        return read()
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ProtocolError(
            f"the hive's answer makes no sense: {type(error).__name__} {error}"
        ) from error
