"""
Running the calls of many guests, one after another.

From Python a poll costs 0.2 µs beside the guest's own work, a quarter of a short frame. Therefore a
loop in machine code makes the polls of a fleet, if this module has one for the processor.
"""

from __future__ import annotations

import ctypes
from array import array
from ctypes import c_size_t, c_void_p

import numpy as np
import numpy.typing as npt

from arkml.runtime import bindings
from arkml.runtime.interrupts import GUARD
from arkml.runtime.machine_code import machine_code

_AT_ONCE = 32  # guests, after which SIGINT is looked at: each may run for a turn

# run(poll, futures, ended, count) under the System V ABI
_X86_64 = bytes.fromhex(
    "f30f1efa"  # endbr64
    "53"  # push rbx
    "55"  # push rbp
    "4154"  # push r12
    "4155"  # push r13
    "4156"  # push r14          the stack is aligned for calls
    "4889fb"  # mov rbx, rdi       poll
    "4889f5"  # mov rbp, rsi       the next future
    "4989d4"  # mov r12, rdx       where its result goes
    "4989cd"  # mov r13, rcx       futures that are left
    "eb14"  # jmp to the test
    "488b7d00"  # mov rdi, [rbp]
    "ffd3"  # call rbx
    "41880424"  # mov [r12], al
    "4883c508"  # add rbp, 8
    "49ffc4"  # inc r12
    "49ffcd"  # dec r13
    "4d85ed"  # test r13, r13
    "75e7"  # jnz to the mov of rdi
    "415e"  # pop r14
    "415d"  # pop r13
    "415c"  # pop r12
    "5d"  # pop rbp
    "5b"  # pop rbx
    "c3"  # ret
)
_poll = bindings.poll
_POLL = bindings.address_of(_poll)
_CODE = machine_code(_X86_64)
_run = (
    None
    if _CODE is None
    else ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t)(_CODE.address)
)


def poll_all(addresses: array[int]) -> npt.NDArray[np.bool_]:
    """
    Run each of the futures, u64, until it ends or suspends; return which have ended, bool, [n].

    Raises KeyboardInterrupt after SIGINT. All have to be dropped in that case: some have not run.
    """
    source, count = addresses.buffer_info()
    ended = array("B", bytes(count))
    into, _ = ended.buffer_info()
    for start in range(0, count, _AT_ONCE):
        if GUARD.is_requested():
            GUARD.requested = False
            raise KeyboardInterrupt
        if _run is None:
            turn = slice(start, start + _AT_ONCE)
            ended[turn] = array("B", [_poll(future) for future in addresses[turn]])
        else:
            _run(_POLL, source + 8 * start, into + start, min(_AT_ONCE, count - start))
    return np.frombuffer(ended, bool)
