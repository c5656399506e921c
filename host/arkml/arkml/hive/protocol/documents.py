"""JSON objects from peers, checked before they are used."""

from __future__ import annotations

import json
import math
from typing import Any

from arkml.errors import ProtocolError

MAX_DEPTH = 64
_MOST_DIGITS = 400  # more than the largest float has


def parse_object(data: bytes | str) -> dict[str, Any]:
    """
    Return the JSON object in `data`.

    All of its numbers are finite and fit a float, its texts can be encoded, and it is not nested
    deeper than MAX_DEPTH. Raises ProtocolError.
    """
    try:
        values = json.loads(data, parse_int=_whole, parse_float=_real, parse_constant=_no_number)
        json.dumps(values, ensure_ascii=False).encode()
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ProtocolError(f"not a JSON object but {json.dumps(values)[:80]}")
    check_depth(values)
    return values


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise _too_large(text)
    number = int(text)
    try:
        float(number)
    except OverflowError:
        raise _too_large(text) from None
    return number


def _real(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _too_large(text)
    return number


def _no_number(text: str) -> float:
    raise ProtocolError(f"{text} is not a number in JSON")


def _too_large(text: str) -> ProtocolError:
    return ProtocolError(f"the number {_shown(text)} is beyond what a float holds")


def _too_deep() -> ProtocolError:
    return ProtocolError(f"it is nested deeper than {MAX_DEPTH} levels")


def _shown(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:20]}... of {len(text)} digits"


def check_depth(values: dict[str, Any]) -> None:
    """Raise ProtocolError for an object that is nested deeper than MAX_DEPTH."""
    level: list[Any] = [values]
    for _ in range(MAX_DEPTH):
        below = (one.values() if isinstance(one, dict) else one for one in level)
        level = [value for each in below for value in each if isinstance(value, dict | list)]
        if not level:
            return
    raise _too_deep()
