"""Names of people, sent as the metadata `user-id` when they take over actors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, unquote

from arkml.trials.core.error import TrialError

USER_ID: Final = "user-id"
"""Name of the metadata key."""

MOST_CHARACTERS: Final = 64

_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "%,") + " "


def encoded_user_id(user_id: str) -> str:
    """
    Encode the name of a person as gRPC metadata.

    Metadata are printable ASCII; other characters, "%" and "," are percent-encoded as UTF-8.
    """
    return quote(user_id, safe=_PLAIN, errors="replace")


def user_id_in(values: Sequence[str]) -> str:
    """
    Return the name of a person from the values of the metadata `user-id`.

    Raises TrialError unless there is exactly one value with a valid name.
    """
    if len(values) != 1:
        raise TrialError(f"a call has one {USER_ID}, the name of a person, not {len(values)}")
    try:
        user_id = unquote(values[0], errors="strict")
    except UnicodeDecodeError:
        raise TrialError(f"{USER_ID} {values[0][:MOST_CHARACTERS]!r} is not UTF-8") from None
    return checked_user_id(user_id)


def checked_user_id(user_id: str) -> str:
    """
    Return a name that is safe to show to others.

    Raises TrialError unless it has 1 to 64 printable characters. Marks that change the direction of
    text do not count as printable.
    """
    is_shown = user_id.isprintable() and user_id == user_id.strip()
    if not (is_shown and 0 < len(user_id) <= MOST_CHARACTERS):
        raise TrialError(
            f"{user_id[:MOST_CHARACTERS]!r} is not the name of a person ({USER_ID}): it takes 1 to"
            f" {MOST_CHARACTERS} printable characters without spaces around them"
        )
    return user_id
