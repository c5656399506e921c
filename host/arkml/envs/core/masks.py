"""Masks of choices that agents cannot take, which guests submit as metadata of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from arkml.batches import MASK, Metadata, MetadataLog
from arkml.envs.core.decisions import Marks


def split_masks(metadata: MetadataLog) -> tuple[list[Metadata], list[Metadata]]:
    """Return the items that are masks, and the other ones."""
    masks = [item for item in metadata if item.name.startswith(MASK)]
    return masks, [item for item in metadata if not item.name.startswith(MASK)]


def choice_masks(
    masks: MetadataLog, places: npt.NDArray[np.intp], branches: Sequence[int]
) -> tuple[Marks, ...]:
    """
    Return the choices that agents cannot take: for each branch bool, [n, choices].

    places: intp, [n], the rows of the submit. A mask is named mask/BRANCH/CHOICE and holds unless
    its value is 0; a mask of a choice that does not exist is ignored.
    """
    if not branches:
        return ()
    marks = tuple(np.zeros((len(places), choices), bool) for choices in branches)
    if not masks:
        return marks
    rows = {place: row for row, place in enumerate(places.tolist())}
    for item in masks:
        branch, _, choice = item.name[len(MASK) :].partition("/")
        row = rows.get(item.row)
        if row is None or not (branch.isdecimal() and choice.isdecimal()):
            continue
        if int(branch) < len(branches) and int(choice) < branches[int(branch)]:
            marks[int(branch)][row, int(choice)] = item.value != 0
    return marks
