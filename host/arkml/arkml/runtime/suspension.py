"""
The callback of the one async import, which suspends the guest.

wasmtime calls it on the guest's fiber, with the address of {strlen, answer word} as argument 0.
It copies these two words to the continuation, which wasmtime then polls to resume the guest.
Python on a fiber is slow (0.8 µs of a suspension's 1.2), touches some 4 KiB of stack for each
guest, and an exception in it, even of a signal handler, aborts the process. Therefore the native
library has the callback; where there is none, Python does the copying.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_size_t, c_uint64, c_void_p
from typing import Any

from arkml.errors import UsageError
from arkml.runtime import native

_UNFIT = (3, 14, 0)
"""A Python that takes the stack of a guest for an overflow, and ends the process (gh-139653)."""

_Callback = ctypes.CFUNCTYPE(
    None, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p
)
_copy = ctypes.PYFUNCTYPE(None, c_void_p, c_void_p, c_size_t)(("memmove", ctypes.CDLL(None)))
_word_at = c_uint64.from_address


def _suspend(
    _env: int,
    _caller: int,
    arguments: int,
    _count: int,
    _results: int,
    _result_count: int,
    _trap: int,
    continuation: int,
) -> None:
    """Suspend the guest from Python. An exception here, even of a signal handler, is fatal."""
    _copy(continuation, _word_at(arguments + 8).value, 16)


_python = _Callback(_suspend)


def callback() -> Any:
    """
    Return the callback of the suspending import as a ctypes function pointer or address.

    Raises:
        UsageError: This Python cannot be the callback, and there is no native library.

    """
    if native.LIBRARY is not None:
        return native.LIBRARY.suspend
    if sys.version_info[:3] == _UNFIT:
        raise UsageError(
            "Python 3.14.0 cannot run guests without the native library, and would end the process"
            f" ({native.MISSING}): take Python 3.14.1 or later, or install arkml with the library"
        )
    return _python
