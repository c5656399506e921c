"""Actions as numbers, whatever they came as."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats

_NUMBERS = "biuf"  # kinds of dtypes: numpy also makes floats of dates, None and complex numbers


def floats_of(values: npt.ArrayLike) -> Floats:
    """
    Values as float32, of their own shape; what is too large is infinite.

    Raises TypeError or ValueError for what is no numbers, or no array.
    """
    found = np.asarray(values)
    if found.dtype.kind not in _NUMBERS:
        raise TypeError(f"{found.dtype} is no dtype of real numbers")
    if found.dtype == np.float32:  # as they mostly come: the rest takes as long as a small step
        return found
    with np.errstate(over="ignore"):
        return found.astype(np.float32, copy=False)
