"""The proxy guest: a module that exports every import, for tests that call them through wasm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from arkml.abi import wat
from arkml.abi.catalog import APIS
from arkml.abi.codes import ErrorCode
from arkml.abi.schema import Api
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError
from arkml.limits import require_whole, whole_number

PAGE = 1 << 16
UNTOUCHED = b"?"
_ALIGNMENT = 8
_MOST_PAGES = 65_536


def proxy_text(apis: Sequence[Api] = APIS, *, pages: int = 1) -> str:
    """
    Return the proxy guest as wasm text: it exports each function of `apis` as `MODULE.SYMBOL`.

    The guest has a memory of `pages` pages that may grow, exported as `memory`. Raises UsageError
    unless `pages` is a whole number from 1 to 65,536.
    """
    return wat.proxy(apis, pages=_pages(pages))


def _pages(pages: int) -> int:
    return require_whole("pages", pages, _MOST_PAGES)


class Callee(Protocol):
    """A guest, or a `ThreadedGuest`."""

    def call(self, function: str, *arguments: float) -> Any: ...
    def read_memory(self, pointer: int, size: int) -> bytes: ...
    def write_memory(self, pointer: int, data: bytes) -> None: ...


class Proxy(Sealed):
    """
    Calls the imports of a host, as a guest would, through the proxy guest.

    Memory is filled with `?`, so that a test sees which bytes were not written. `put` and `room`
    return a new address each time.

    Args:
        guest: A guest made of `proxy_text`.
        pages: Pages of the guest's memory, as given to `proxy_text`.

    Raises:
        UsageError: `pages` is not a whole number from 1 to 65,536.
        InvalidArguments: The memory has fewer pages.

    Example:
        with host.load(proxy_text().encode()) as guest:
            proxy = Proxy(guest)
            code = proxy.code("ark-ml-v1", "ml__drop_future", 1)

    """

    def __init__(self, guest: Callee, *, pages: int = 1) -> None:
        self.guest = guest
        self._end = _pages(pages) * PAGE
        self._next = _ALIGNMENT  # zero would look like a null pointer
        guest.write_memory(0, UNTOUCHED * self._end)

    def call(self, module: str, symbol: str, *arguments: float) -> Any:
        """
        Call an import with wasm numbers, as in `call("ark-ml-v1", "ml__drop_future", handle)`.
        """
        return self.guest.call(f"{module}.{symbol}", *arguments)

    def code(self, module: str, symbol: str, *arguments: float) -> ErrorCode:
        """Call an import that returns an error code."""
        return ErrorCode(self.call(module, symbol, *arguments))

    def room(self, size: int) -> int:
        """
        Return the address of `size` bytes of memory that were never handed out.

        Raises UsageError unless `size` is a whole number from 0, and if too few bytes are left.
        """
        number = whole_number(size)
        if number is None or number < 0:
            raise UsageError(f"room for {cut_repr(size)} bytes: it takes a whole number from 0")
        pointer = self._next
        end = pointer + -(-max(number, 1) // _ALIGNMENT) * _ALIGNMENT
        if end > self._end:
            raise UsageError(
                f"no room for {cut_repr(number)} bytes: {self._end - pointer} of the proxy's left;"
                " give it more pages"
            )
        self._next = end
        return pointer

    def put(self, data: bytes) -> int:
        """Write `data` to memory and return its address."""
        pointer = self.room(len(data))
        self.guest.write_memory(pointer, data)
        return pointer

    def text(self, text: str) -> tuple[int, int]:
        """
        Write `text` to memory and return its address and length, in the form that imports take.
        """
        data = text.encode()
        return self.put(data), len(data)

    def read(self, pointer: int, size: int) -> bytes:
        """Return the bytes at an address."""
        return self.guest.read_memory(pointer, size)

    def is_untouched(self, pointer: int, size: int) -> bool:
        """Return whether none of the bytes has been written."""
        data = self.read(pointer, size)
        return data == UNTOUCHED * len(data)
