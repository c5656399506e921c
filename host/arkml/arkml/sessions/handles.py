"""Handle tables, which alone translate a guest's handle, a number, to a host object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from arkml.errors import ArkmlError, NotFound, TooManyHandles
from arkml.sessions.revision import Revision

T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class HandleLayout:
    """The bit layout of a handle: `generation << index_bits | index + 1`."""

    index_bits: int
    generation_bits: int

    @property
    def index_mask(self) -> int:
        return (1 << self.index_bits) - 1

    @property
    def slots(self) -> int:
        """
        The number of slots: one less than the index bits could count, as handles hold `index + 1`.
        """
        return self.index_mask

    @property
    def generations(self) -> int:
        """Number of times that a slot can be used."""
        return 1 << self.generation_bits

    def index(self, handle: int) -> int:
        """Return the slot of `handle`, or -1 for zero."""
        return (handle & self.index_mask) - 1


U64_LAYOUT = HandleLayout(index_bits=32, generation_bits=32)
U32_LAYOUT = HandleLayout(index_bits=20, generation_bits=12)
"""The layout of the 32-bit handles of ml-inference-v0."""


class HandleRoom:
    """A limit on the number of live handles, common to the tables that share it."""

    __slots__ = ("limit", "live")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.live = 0


class SavedHandles(NamedTuple):
    """
    A copy of the slots of a handle table: the generation of each slot, and the free slots in order.
    """

    generations: tuple[int, ...]
    free: tuple[int, ...]

    def handle(self, index: int, layout: HandleLayout) -> int:
        """Return the handle of slot `index`."""
        return self.generations[index] << layout.index_bits | index + 1


class HandleTable(Generic[T]):
    """
    The objects of one guest by handle.

    Zero is never issued, and a dropped handle never names a later object: its slot is reused with a
    new generation, and retired once its generations are used up. `revision` changes whenever an
    object is inserted or removed. Not thread-safe: only the thread that runs the guest uses it.
    """

    __slots__ = (
        "_bits", "_error", "_free", "_generations", "_items", "_layout", "_live", "_mask", "_name",
        "_revision", "_room",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        *,
        limit: int | HandleRoom,
        layout: HandleLayout = U64_LAYOUT,
        error: type[ArkmlError] = TooManyHandles,
        revision: Revision | None = None,
    ) -> None:
        self._name = name
        self._room = HandleRoom(limit) if isinstance(limit, int) else limit
        self._error = error
        self._layout = layout
        self._mask = layout.index_mask
        self._bits = layout.index_bits
        self._items: list[T | None] = []
        self._generations: list[int] = []
        self._free: list[int] | tuple[()] = ()  # until a handle is dropped
        self._live = 0
        self._revision = Revision() if revision is None else revision

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[tuple[int, T]]:
        """Iterate over the handles and objects that are live at the start."""
        live = [
            (self._handle(index), item)
            for index, item in enumerate(self._items)
            if item is not None
        ]
        return iter(live)

    def items(self) -> list[T]:
        """Return the live objects."""
        return [item for item in self._items if item is not None]

    def upcoming(self) -> int:
        """Return the handle that the next `insert` will return, or raise its error."""
        room = self._room
        if room.live >= room.limit:
            raise self._error(f"{self._name}: {room.live} are live, the limit is {room.limit}")
        if self._free:
            return self._handle(self._free[-1])
        if len(self._items) >= self._layout.slots:
            raise self._error(f"{self._name}: all {self._layout.slots} slots have been used up")
        return len(self._items) + 1

    def insert(self, item: T) -> int:
        """Store `item` and return its handle."""
        handle = self.upcoming()
        if self._free:
            self._items[self._free.pop()] = item
        else:
            self._generations.append(0)  # first: a signal handler may raise between the two
            self._items.append(item)
        self._live += 1
        self._room.live += 1
        self._revision.number += 1
        return handle

    def get(self, handle: int, kind: type[K]) -> K:
        """Return the object of `handle`; raises NotFound, also for an object of another kind."""
        item = self._items[self._find(handle)]
        if isinstance(item, kind):
            return item
        raise NotFound(f"{handle:#x} is a {type(item).__name__}, not a {kind.__name__}")

    def remove(self, handle: int, kind: type[K]) -> K:
        """Remove `handle` and return its object; raises NotFound."""
        item = self.get(handle, kind)
        index = self._layout.index(handle)
        self._items[index] = None
        self._generations[index] += 1
        if self._generations[index] < self._layout.generations:
            if self._free:
                self._free.append(index)
            else:
                self._free = [index]
        self._live -= 1
        self._room.live -= 1
        self._revision.number += 1
        return item

    def at(self, index: int) -> T:
        """
        Return the live object in slot `index`, without checking a generation. Raises NotFound.
        """
        item = self._items[index] if 0 <= index < len(self._items) else None
        if item is None:
            raise NotFound(f"{self._name}: slot {index} is empty")
        return item

    def save(self) -> SavedHandles:
        """Return a copy of the data that determines the next handles."""
        return SavedHandles(tuple(self._generations), tuple(self._free))

    def load(self, saved: SavedHandles, items: Mapping[int, T]) -> None:
        """Replace all slots by the slots of a saved table, with these objects by slot."""
        count = len(saved.generations)
        self._generations, self._free = list(saved.generations), list(saved.free)
        self._items = [items.get(index) for index in range(count)]
        self._room.live += len(items) - self._live
        self._live = len(items)
        self._revision.number += 1

    def handle_in(self, index: int, saved: SavedHandles) -> int:
        """Return the handle of slot `index` in a saved table."""
        return saved.handle(index, self._layout)

    def index(self, handle: int) -> int:
        """Return the slot of a live handle; raises NotFound."""
        return self._find(handle)

    def _handle(self, index: int) -> int:
        return self._generations[index] << self._bits | index + 1

    def _find(self, handle: int) -> int:
        index = (handle & self._mask) - 1
        if (
            0 <= index < len(self._items)
            and self._generations[index] == handle >> self._bits
            and self._items[index] is not None
        ):
            return index
        raise NotFound(f"{self._name}: {handle:#x} is not a live handle")
