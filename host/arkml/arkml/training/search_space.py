"""The settings that a sweep chooses from, given as lists and ranges in a JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkml.base.files import MOST_OF_SETTINGS, read_file
from arkml.base.short_reprs import cut_repr
from arkml.errors import InvalidSettings, UsageError
from arkml.hive.protocol.settings import Settings
from arkml.runs.learner_settings import LearnerSettings, require_valid
from arkml.sessions.declarations import RepeatedKey, distinct

_KEYS = {"low", "high", "log", "int"}
_FIXED = ("features", "actions", "branches", "other")  # the guest decides

Choice = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Range:
    """
    A range of numbers from `low` to `high`.

    `is_log` draws evenly by logarithm, `is_int` draws whole numbers.
    """

    low: float
    high: float
    is_log: bool = False
    is_int: bool = False


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """
    The choices or the range of each setting, by name, and the JSON object that they came from.
    """

    settings: Mapping[str, tuple[Choice, ...] | Range]
    document: Mapping[str, Any]


def read_space(path: Path) -> SearchSpace:
    """
    Return the search space in a JSON file: a list of choices or a range for each setting.

    For example, {"tau": [0.005, 0.05], "gamma": {"low": 0.9, "high": 0.99}}. Raises UsageError for
    settings that no learner takes.
    """
    try:
        document = json.loads(read_file(path, most=MOST_OF_SETTINGS), object_pairs_hook=distinct)
    except OSError as error:
        raise UsageError(f"--space {path} cannot be read: {error.strerror}") from None
    except RepeatedKey as error:
        raise UsageError(f"--space {path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--space {path} is not JSON: {error}") from None
    if not isinstance(document, dict) or not document:
        raise UsageError(
            f"--space {path}: it takes an object of settings, as in"
            ' {"tau": [0.005, 0.05], "gamma": {"low": 0.9, "high": 0.99}}'
        )
    known = [name for name in Settings.__struct_fields__ if name not in _FIXED]
    settings: dict[str, tuple[Choice, ...] | Range] = {}
    for name, value in document.items():
        if name not in known:
            raise UsageError(f"--space {path}: there is no setting {name!r}: {', '.join(known)}")
        where = f"--space {path}: {name}"
        settings[name] = (
            _range(where, name, value) if isinstance(value, dict) else _choices(where, name, value)
        )
    return SearchSpace(settings, document)


def _choices(where: str, name: str, values: object) -> tuple[Choice, ...]:
    if not isinstance(values, list) or not values:
        raise UsageError(
            f"{where} is {cut_repr(values)}: it takes a list of choices, or a range"
            ' {"low": …, "high": …}'
        )
    for value in values:
        if not isinstance(value, Choice):
            raise UsageError(f"{where}: {cut_repr(value)} is not a number, a text or true or false")
        _require(where, name, value)
    return tuple(values)


def _range(where: str, name: str, values: dict[str, Any]) -> Range:
    if unknown := values.keys() - _KEYS:
        raise UsageError(f"{where} has {min(unknown)!r}: a range takes low, high, log and int")
    low, high = _number(values.get("low")), _number(values.get("high"))
    is_log, is_int = values.get("log", False), values.get("int", False)
    if low is None or high is None or low >= high:
        raise UsageError(
            f"{where} is from {values.get('low')!r} to {values.get('high')!r}: it takes two"
            " numbers, low < high"
        )
    if not (isinstance(is_log, bool) and isinstance(is_int, bool)):
        raise UsageError(f"{where}: log and int are true or false")
    if is_log and low <= 0:
        raise UsageError(f"{where} begins at {low!r}: a range with log begins above 0")
    default = getattr(Settings(1, 1), name)
    wants_int = isinstance(default, int) and not isinstance(default, bool)
    if wants_int and not is_int:
        raise UsageError(f'{where} takes whole numbers: add "int": true')
    if is_int and not (float(low).is_integer() and float(high).is_integer()):
        raise UsageError(f"{where} is from {low!r} to {high!r}: int takes whole numbers")
    for bound in (low, high):
        _require(where, name, int(bound) if is_int else bound)
    return Range(low, high, is_log, is_int)


def _number(value: object) -> float | None:
    """Return a finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def _require(where: str, name: str, value: Choice) -> None:
    """Raise UsageError if a learner does not take the value."""
    settings: dict[str, Any] = {name: value}
    try:
        require_valid(LearnerSettings(**settings))  # type: ignore[typeddict-item]
    except InvalidSettings as error:
        raise UsageError(f"{where}: {error}") from None
