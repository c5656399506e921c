"""
The callback of the one async import, which suspends the guest.

wasmtime calls it on the guest's fiber, with the address of {strlen, answer word} as argument 0.
It copies these two words to the continuation, which wasmtime then polls to resume the guest.
Python on a fiber is slow (0.8 µs of a suspension's 1.2), touches some 4 KiB of stack for each
guest, and an exception in it, even of a signal handler, aborts the process. Therefore no Python
runs there on processors for which this module has machine code; on others a Python callback does
the copying.
"""

from __future__ import annotations

import ctypes
from ctypes import c_size_t, c_uint64, c_void_p
from typing import Any

from arkml.runtime.machine_code import machine_code

# cb(env, caller, args, nargs, results, nresults, trap, continuation) under the System V ABI:
# args is in rdx, continuation at [rsp + 16].
_X86_64 = bytes.fromhex(
    "f30f1efa"  # endbr64
    "488b442410"  # mov rax, [rsp + 16]
    "488b4a08"  # mov rcx, [rdx + 8]   the i64 of args[0]
    "4c8b01"  # mov r8, [rcx]
    "4c8900"  # mov [rax], r8
    "4c8b4108"  # mov r8, [rcx + 8]
    "4c894008"  # mov [rax + 8], r8
    "c3"  # ret
)

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


_CODE = machine_code(_X86_64)  # a suspension takes a third of its time in Python (decision 2)

NATIVE = _CODE is not None
"""True if guests suspend without running Python on their fibers."""


def callback(*, native: bool = NATIVE) -> Any:
    """Return the callback in a form that ctypes casts; `native=False` is the Python one."""
    return _CODE.address if native and _CODE is not None else _python
