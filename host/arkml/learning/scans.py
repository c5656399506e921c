"""Sums along chains, for all chains at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


def linear_recurrence(values: Doubles, factors: Doubles) -> Doubles:
    """
    x[i] = values[i] + factors[i] * x[i - 1], where a factor of 0 begins a new chain.

    All: float64, [n]. Each pass joins every partial sum with the one as far before it as it is
    long (Hillis and Steele), so that n rows take log2 of the longest chain passes.
    """
    sums = values.copy()
    reach = factors.copy()
    reach[:1] = 0.0
    distance = 1
    while distance < len(sums) and reach[distance:].any():
        sums[distance:] += reach[distance:] * sums[:-distance]
        reach[distance:] = reach[distance:] * reach[:-distance]
        reach[:distance] = 0.0
        distance *= 2
    return sums
