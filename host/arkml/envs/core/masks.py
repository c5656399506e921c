"""The choices that agents cannot take now, which their guest says as metadata of their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from arkml.batches import MASK, Metadata
from arkml.envs.core.decisions import Marks

Said = Sequence[Metadata]


def parted(said: Said) -> tuple[list[Metadata], list[Metadata]]:
    """Return the items that are masks, and the other ones."""
    masks = [item for item in said if item.name.startswith(MASK)]
    return masks, [item for item in said if not item.name.startswith(MASK)]


def masked(masks: Said, places: npt.NDArray[np.intp], branches: Sequence[int]) -> tuple[Marks, ...]:
    """
    Return which choices are masked: for each branch bool, [n, choices].

    places: the rows of the submit, [n]. A mask is called mask/BRANCH/CHOICE, and holds unless its
    value is 0; one of a choice that does not exist masks nothing.
    """
    if not branches:
        return ()
    found = tuple(np.zeros((len(places), choices), bool) for choices in branches)
    if not masks:
        return found
    rows = {place: row for row, place in enumerate(places.tolist())}
    for item in masks:
        branch, _, choice = item.name[len(MASK) :].partition("/")
        row = rows.get(item.row)
        if row is None or not (branch.isdecimal() and choice.isdecimal()):
            continue
        if int(branch) < len(branches) and int(choice) < branches[int(branch)]:
            found[int(branch)][row, int(choice)] = item.value != 0
    return found
