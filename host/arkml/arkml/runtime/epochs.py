"""
The callback of epoch deadlines, which suspends a guest at the end of its turn.

wasmtime takes the callback of a deadline out of the Store while it runs, so that no setting can be
changed for a guest that is suspended there. Therefore each deadline comes twice. The first time the
guest is suspended, and when it is resumed, it is still at its deadline. This second time it gets
its next turn or, if the host has left an error in between, traps with it: only a trap has a
backtrace. The callback reads and writes two fields of the control block: DEADLINE and TURN.
"""

from __future__ import annotations

import ctypes
from ctypes import c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any

from arkml.runtime import native
from arkml.runtime.shim import control_block as at

SUSPENDED = 1
"""DEADLINE of a guest that is suspended at the end of its turn, or that was just resumed there."""

_CONTINUE, _YIELD = 0, 1  # wasmtime_update_deadline_kind_t
_TURN = at.TURN - at.DEADLINE

_word_at, _ticks_at, _kind_at = c_uint64.from_address, c_uint32.from_address, c_uint8.from_address


def _end_turn(_context: int, state: int, delta: int, kind: int) -> int:
    """Decide from Python. An exception here, even of a signal handler, is fatal."""
    word = _word_at(state)
    found, word.value = word.value, 0
    if found > SUSPENDED:
        return found
    if found:
        _word_at(delta).value, _kind_at(kind).value = _ticks_at(state + _TURN).value, _CONTINUE
    else:
        _word_at(delta).value, _kind_at(kind).value, word.value = 0, _YIELD, SUSPENDED
    return 0


_python = ctypes.CFUNCTYPE(c_size_t, *(c_void_p,) * 4)(_end_turn)

if native.LIBRARY is not None:
    native.LIBRARY.set_turn_offset(_TURN)


def callback() -> Any:
    """Return the callback of epoch deadlines as a ctypes function pointer or address."""
    return _python if native.LIBRARY is None else native.LIBRARY.end_turn
