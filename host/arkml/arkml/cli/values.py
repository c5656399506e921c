"""Conversion of option texts to values: limits with sizes, directories, numbers."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from arkml.base.texts import did_you_mean
from arkml.cli.units import counted
from arkml.errors import UsageError
from arkml.limits import GIB, KIB, MIB, MOST_THREADS, TIMES, Limits, require_threads

if TYPE_CHECKING:
    from arkml.runtime.wasi.linking import Directory

LAST_PORT = 0xFFFF

_SHAPE = re.compile(r"(\d{1,9}),(\d{1,9})")  # of a session: its features and actions

_UNITS = {"b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_LETTERS = {"k": KIB, "m": MIB, "g": GIB}
_SECONDS = {"ms": 1e-3, "s": 1.0}


def read_limits(settings: Sequence[str], option: str = "--limit") -> Limits:
    """
    Return the default limits with `NAME=VALUE` settings.

    Raises UsageError, which names `option`.
    """
    known = [field.name for field in fields(Limits)]
    changed: dict[str, int | float | None] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UsageError(f"{option} {setting}: it takes NAME=VALUE, as in memory_bytes=64MiB")
        if name not in known:
            raise UsageError(_unknown_limit(name, known))
        changed[name] = _seconds(name, value) if name in TIMES else read_count(name, value)
    return replace(Limits(), **changed)  # type: ignore[arg-type]


def _unknown_limit(name: str, known: Sequence[str]) -> str:
    close = did_you_mean(name, known)
    hint = f"{close} There are" if close else "there are"
    listed = textwrap.fill(", ".join(known), 78, initial_indent="  ", subsequent_indent="  ")
    return f"there is no limit {name!r}: {hint}\n{listed}"


def whole_number(
    option: str, least: int | None = None, most: int | None = None
) -> Callable[[object], int]:
    """Return a parser for an option with a whole number; the parser raises UsageError."""

    def read(text: object) -> int:
        try:
            number = int(str(text))
        except ValueError:
            number = None
        is_under = least is not None and number is not None and number < least
        is_over = most is not None and number is not None and number > most
        if number is None or is_under or is_over:
            bound = "" if least is None else f" from {least}"
            bound += "" if most is None else f" to {most}"
            raise UsageError(f"{option} {text}: it takes a whole number{bound}")
        return number

    return read


def rate(option: str, least: float, most: float = math.inf) -> Callable[[object], float]:
    """Return a parser for an option with a number from `least` to `most`; it raises UsageError."""
    span = f"{least:g}" if most == math.inf else f"{least:g} to {most:g}"

    def read(text: object) -> float:
        try:
            number = float(str(text))
        except ValueError:
            number = math.nan
        if not least <= number <= most or number == math.inf:
            raise UsageError(f"{option} {text}: it takes a number from {span}")
        return number

    return read


def thread_count(text: object) -> str:
    """Check the value of --threads, and return it as text. Raises UsageError."""
    try:
        return str(require_threads("auto" if text == "auto" else int(str(text))))
    except (UsageError, ValueError):
        raise UsageError(
            f"--threads {text}: it takes 'auto' or a number from 1 to {MOST_THREADS}"
        ) from None


def evaluation_interval(text: object) -> str:
    """Check a text: a number of frames from 1, "auto" or "never". Raises UsageError."""
    if text in ("auto", "never"):
        return str(text)
    try:
        return str(whole_number("--eval-every", 1)(text))
    except UsageError as error:
        raise UsageError(f"{error}, auto or never") from None


def one_of(option: str, words: Sequence[str]) -> Callable[[object], str]:
    """Return a parser for an option that takes one of these words; the parser raises UsageError."""

    def read(text: object) -> str:
        if text not in words:
            raise UsageError(f"{option} {text}: it takes {' or '.join(words)}")
        return str(text)

    return read


def read_directory(text: str) -> Directory:
    """Convert `HOST[:GUEST][:ro]`, such as `./data:/data:ro`, to a Directory. Raises UsageError."""
    from arkml.runtime.wasi.linking import Directory

    parts = text.split(":")
    writable = not (len(parts) > 1 and parts[-1] == "ro")
    if not writable:
        parts.pop()
    if len(parts) > 2 or not all(parts):
        raise UsageError(f"--dir {text}: it takes HOST[:GUEST][:ro], as in ./data:/data:ro")
    if not Path(parts[0]).is_dir():
        raise UsageError(f"--dir {text}: {parts[0]} is not a directory")
    return Directory(parts[0], parts[-1], writable=writable)


def read_configuration(text: str | None, numbers: str | None) -> str | list[int | str] | None:
    """
    Return a guest's configuration: `text`, or a list of the `numbers`, such as `3,-1,{seed}`.

    Raises UsageError, also if both are given.
    """
    if numbers is None:
        return text
    if text is not None:
        raise UsageError("--configure and --configure-numbers do not go together")
    values: list[int | str] = []
    for word in map(str.strip, numbers.split(",")):
        try:
            values.append(word if word == "{seed}" else int(word))
        except ValueError:
            raise UsageError(
                f"--configure-numbers {numbers}: it takes whole numbers and {{seed}}, with commas"
            ) from None
    return values


def read_numbers(texts: Sequence[str], types: Sequence[str], where: str) -> tuple[int | float, ...]:
    """Convert texts to one number for each of the wasm `types`. Raises UsageError."""
    if len(texts) != len(types):
        count = counted(len(types), "number")
        wanted = f"{count} ({' '.join(types)})" if types else "no numbers"
        raise UsageError(f"{where} takes {wanted}, {len(texts)} given")
    return tuple(_number(text, kind, where) for text, kind in zip(texts, types, strict=True))


def _number(text: str, kind: str, where: str) -> int | float:
    try:
        if kind in ("i32", "i64"):
            return int(text, 0)
        if kind in ("f32", "f64"):
            return float(text)
    except ValueError:
        raise UsageError(f"{where}: {text!r} is not an {kind}") from None
    raise UsageError(f"{where} takes a {kind}, which cannot be given as text")


def _seconds(name: str, text: str) -> float | None:
    """Read seconds, as `0.5`, `2s` or `500ms`; None for `none`."""
    text = text.strip().lower()
    if text in ("none", "off"):
        return None
    unit = next((unit for unit in _SECONDS if text.endswith(unit)), "")
    try:
        seconds = float(text.removesuffix(unit)) * _SECONDS.get(unit, 1.0)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"{name}={text}: it takes a time above zero, as 0.5, 500ms or none")
    return seconds


def read_count(name: str, text: str) -> int:
    """
    Convert a text to a whole number: `4096`, `4_096`, `64MiB`, `64M` or `1gb`. Raises UsageError.
    """
    digits = text.strip().replace("_", "").replace(",", "").lower()
    number = digits.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = digits.removeprefix(number).strip()
    factor = {"": 1, **_LETTERS, **_UNITS}.get(unit)
    try:
        count = float(number) * factor if factor else math.nan
    except ValueError:
        count = math.nan
    if not (0 < count < math.inf and count == int(count)):
        raise UsageError(f"{name}={text}: it takes a whole number above zero, as 4096 or 64MiB")
    return int(count)


def read_policies(texts: Sequence[str]) -> dict[str | tuple[int, int] | None, Path]:
    """
    Return the files of `--policy [NAME=]FILE`, by the keys of `Host(policies=...)`.

    The key of a file without a name is None. A name or a path may have a `=`: the name ends at the
    first one that a file follows. Raises UsageError.
    """
    found: dict[str | tuple[int, int] | None, Path] = {}
    for text in texts:
        name, path = _name_and_file("--policy", text)
        shape = None if name is None else _SHAPE.fullmatch(name)
        key = name if shape is None else (int(shape[1]), int(shape[2]))
        if key in found:
            whose = "all sessions" if name is None else repr(name)
            raise UsageError(
                f"--policy has {found[key]} and {path} for {whose}: give one of them another name,"
                " as goblin=goblin.onnx"
            )
        found[key] = path
    return found


def read_others(texts: Sequence[str]) -> dict[str, Path]:
    """Return the files of `--other NAME=FILE` by their names. Raises UsageError."""
    found: dict[str, Path] = {}
    for text in texts:
        name, path = _name_and_file("--other", text)
        if name is None:
            raise UsageError(f"--other {text}: it takes NAME=FILE, as goblin=goblin.onnx")
        if name in found:
            raise UsageError(f"--other has {found[name]} and {path} for {name!r}: keep one of them")
        if not path.is_file():
            raise UsageError(f"--other {text}: there is no file {path}")
        found[name] = path
    return found


def _name_and_file(option: str, text: str) -> tuple[str | None, Path]:
    """Return the parts of `[NAME=]FILE`, by the first file that there is. Raises UsageError."""
    parts = text.split("=")
    if len(parts) == 1 or Path(text).is_file():
        return None, Path(text)
    ways = [("=".join(parts[:at]), "=".join(parts[at:])) for at in range(1, len(parts))]
    there = [way for way in ways if Path(way[1]).is_file()]
    name, file = (there or ways)[0]
    if not name or not file:
        raise UsageError(f"{option} {text}: it takes FILE, or NAME=FILE")
    return name, Path(file)


def check_words(words: Sequence[str], options: Sequence[str]) -> None:
    """Raise UsageError for a word that looks like an unknown option: `-` and no number."""
    for word in words:
        if word.startswith("-") and not _is_number(word):
            close = did_you_mean(word.partition("=")[0], options)
            hint = f": {close}" if close else ""
            raise UsageError(f"there is no option {word}{hint}")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return word.lower().startswith("-0x")
    return True
