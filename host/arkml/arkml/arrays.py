"""
Arrays with a mark or a number for each guest or agent, and tests that every step makes of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

Marks = npt.NDArray[np.bool_]

_MASKED = np.ma.MaskedArray

_FILL = "an array with a mask is no array of numbers: fill it first (.filled)"

_REAL = "biuf"
"""Kinds of dtypes with real numbers: numpy also makes floats of texts, dates and complex ones."""


def real(value: Any) -> float:
    """
    Return a Python or numpy number as a float; an array with no axes counts as a number.

    Raises TypeError for anything else, such as a text, a masked value or a complex number.
    """
    if type(value) is float:  # the usual case, in each call of a guest
        return value
    if isinstance(value, np.generic | np.ndarray):
        _require_real(value)
    return math.ldexp(value, 0)  # float would read texts, too


def real_array(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """
    Return values as an array of real numbers; an array of real numbers is returned unchanged.

    Raises TypeError or ValueError for anything else, such as texts, dates, objects, records,
    complex numbers, or an array with a mask, which would be dropped.
    """
    if type(values) is np.ndarray and values.dtype.kind in _REAL:  # the usual case, in each step
        return values
    array = np.asarray(values)
    _require_real(array)
    if has_mask(values, array.ndim):
        raise TypeError(_FILL)
    return array


def has_mask(values: object, depth: int) -> bool:
    """Return whether values nested to `depth` axes are a masked array or contain one."""
    if isinstance(values, list | tuple):
        return depth > 1 and any(has_mask(each, depth - 1) for each in values)
    return isinstance(values, _MASKED)


def _require_real(values: np.generic | npt.NDArray[Any]) -> None:
    if values.dtype.kind not in _REAL:
        raise TypeError(f"{values.dtype} is not a dtype of real numbers")
    if isinstance(values, _MASKED):
        raise TypeError(_FILL)


def some(marks: Marks) -> bool:
    """
    Return whether any mark is True.

    For hundreds of marks this takes a tenth of the time of `marks.any()`.
    """
    return 1 in marks.tobytes()


def every(marks: Marks) -> bool:
    """Return whether all marks are True, faster than `marks.all()`."""
    return 0 not in marks.tobytes()


def are_all(numbers: npt.NDArray[np.uint32], number: int) -> bool:
    """
    Return whether all of `numbers`, uint32, [n], equal `number`, faster than numpy's comparison.
    """
    return numbers.tobytes() == number.to_bytes(4, "little") * len(numbers)


def rounded_bytes(values: npt.NDArray[np.floating]) -> Bytes:
    """Return values rounded and clipped to the range 0 to 255, as uint8; NaN becomes any byte."""
    with np.errstate(invalid="ignore"):
        pixels: Bytes = np.rint(np.clip(values, 0, np.iinfo(np.uint8).max)).astype(np.uint8)
    return pixels
