"""Names of the metrics by which rows mask choices, and their numbers in a run."""

from __future__ import annotations

from collections.abc import Sequence

PREFIX = "mask/"
"""Prefix of metadata that masks a choice, `mask/BRANCH/CHOICE`; it is not a metric."""

_MOST_DIGITS = 9


def mask_names(branches: Sequence[int]) -> list[str]:
    """
    Return the names of the masks of all choices, such as mask/1/2 for choice 2 of branch 1.

    Branches of 2 and 3 choices have the masks mask/0/0 to mask/1/2. These are the first names of a
    run, so that the index of a choice among all choices is the number of its mask.
    """
    return [
        f"{PREFIX}{branch}/{choice}"
        for branch, choices in enumerate(branches)
        for choice in range(choices)
    ]


def masked_choice(name: str, branches: Sequence[int]) -> tuple[int, int] | None:
    """
    Return the branch and the choice of a mask's name, such as (1, 2) for mask/1/2.

    Returns None for other names.
    """
    branch, _, choice = name.removeprefix(PREFIX).partition("/")
    if not name.startswith(PREFIX) or max(len(branch), len(choice)) > _MOST_DIGITS:
        return None
    if not (branch.isdecimal() and choice.isdecimal()):
        return None
    if int(branch) < len(branches) and int(choice) < branches[int(branch)]:
        return int(branch), int(choice)
    return None
