"""Marks and numbers of guests or agents: arrays, and what every step asks or makes of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

Marks = npt.NDArray[np.bool_]


def some(marks: Marks) -> bool:
    """Return whether any mark is True; for hundreds in a tenth of the time of `marks.any()`."""
    return 1 in marks.tobytes()


def every(marks: Marks) -> bool:
    """Return whether all are True; see `some`."""
    return 0 not in marks.tobytes()


def are_all(numbers: npt.NDArray[np.uint32], number: int) -> bool:
    """Return whether all numbers, uint32, [n], are `number`; see `some`."""
    return numbers.tobytes() == number.to_bytes(4, "little") * len(numbers)


def rounded_bytes(values: npt.NDArray[np.floating]) -> Bytes:
    """Return values rounded, and clipped to those from 0 to 255; NaN becomes any of them."""
    with np.errstate(invalid="ignore"):
        pixels: Bytes = np.rint(np.clip(values, 0, np.iinfo(np.uint8).max)).astype(np.uint8)
    return pixels
