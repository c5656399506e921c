"""
Arrays in memory pages of their own, which are returned to the system once the arrays are dropped.
"""

from __future__ import annotations

import math
import mmap
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

_LEAST = 1 << 20


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """
    Return an array of zeros, whose pages take no memory before they are written.

    Otherwise arrays that grow and are replaced would leave holes in the heap, because the C library
    keeps freed blocks of up to 32 MiB.
    """
    item = np.dtype(dtype)
    size = math.prod(shape) * item.itemsize
    if size < _LEAST or sys.platform != "linux":
        return np.zeros(shape, item)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, item).reshape(shape)
