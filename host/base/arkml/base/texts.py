"""Encoding of texts for guests as UTF-8."""

from __future__ import annotations

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
