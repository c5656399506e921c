"""Texts for guests, which are UTF-8."""

from __future__ import annotations

from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError


def utf8(text: str, what: str) -> bytes:
    """
    Return the bytes of a text; `what` names it in the message.

    Raises UsageError for half of a surrogate pair, such as U+DCFF, which Python makes of a byte of
    the command line that is not UTF-8.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what} is {cut_repr(text)}: U+{ord(text[error.start]):04X} in it is not a character,"
            " and guests take UTF-8"
        ) from None
