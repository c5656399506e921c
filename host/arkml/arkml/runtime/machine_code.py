"""Functions in machine code, each in a page of its own, where the system allows it."""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from ctypes import c_size_t, c_void_p


class MachineCode:
    """A page that holds one function, readable and executable but no longer writable."""

    def __init__(self, code: bytes) -> None:
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._page = mmap.mmap(-1, mmap.PAGESIZE, private, mmap.PROT_READ | mmap.PROT_WRITE)
        self._page.write(code)
        self._pin = ctypes.c_char.from_buffer(self._page)
        self.address = ctypes.addressof(self._pin)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [c_void_p, c_size_t, ctypes.c_int]
        if protect(self.address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError(ctypes.get_errno(), "the system refuses executable pages")


def machine_code(x86_64: bytes) -> MachineCode | None:
    """Return a function under the System V ABI of x86-64; None on other systems."""
    if platform.machine() not in ("x86_64", "AMD64") or sys.platform == "win32":
        return None
    try:
        return MachineCode(x86_64)
    except OSError:
        return None
