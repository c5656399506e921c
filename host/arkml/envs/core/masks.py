"""Masks of choices that agents cannot take, which guests submit as metadata of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from arkml.batches import Metadata, MetadataLog
from arkml.envs.core.decisions import Marks
from arkml.hive.protocol.masks import PREFIX, masked_choice


def split_masks(metadata: MetadataLog) -> tuple[list[Metadata], list[Metadata]]:
    """Return the items that are masks, and the other ones."""
    masks = [item for item in metadata if item.name.startswith(PREFIX)]
    return masks, [item for item in metadata if not item.name.startswith(PREFIX)]


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
        row, place = rows.get(item.row), masked_choice(item.name, branches)
        if row is not None and place is not None:
            branch, choice = place
            marks[branch][row, choice] = item.value != 0
    return marks
