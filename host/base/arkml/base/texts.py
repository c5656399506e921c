"""Texts of users: their encoding as UTF-8, and names that are misspelled."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError


def utf8(text: str, what: str) -> bytes:
    """
    Return the UTF-8 bytes of a text; `what` names it in the message.

    Raises UsageError for half of a surrogate pair, such as U+DCFF, by which Python represents bytes
    of the command line that are not UTF-8.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what} is {cut_repr(text)}: U+{ord(text[error.start]):04X} in it is not a character,"
            " and guests take UTF-8"
        ) from None


def encodable(text: str) -> str:
    r"""
    Return a text with escapes, such as "\udcff", for halves of surrogate pairs.

    UTF-8 has none, but Python's names of files whose bytes are not UTF-8 do.
    """
    return text.encode(errors="backslashreplace").decode()


def did_you_mean(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """
    Return a question with the known name that is nearest to an unknown one, "" for none.

    `likeness` is how near it has to be at least, from 0 to 1, which is the same name.
    """
    near = get_close_matches(name, list(known), 1, likeness)
    return f"did you mean {near[0]}?" if near else ""
