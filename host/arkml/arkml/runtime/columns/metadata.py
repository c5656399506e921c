"""The log of metadata that the shim writes beside the rows of a submit, and its decoding."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from arkml.abi.catalog import APIS
from arkml.abi.layout import struct_size, unpack
from arkml.abi.schema import FixedStr, Struct
from arkml.arrays import every
from arkml.batches import NO_METADATA, Metadata, MetadataLog
from arkml.runtime.shim import control_block as at

METRICS: Mapping[int, Struct] = {
    struct_size(s): s for api in APIS for s in api.structs if s.name.startswith("Metric")
}
"""The layout of a metadata item, by its size in bytes. Its last field is its value, a float32."""

MOST_NAMES = 256
"""Names of a guest or fleet that have a number."""

_HEADER = struct.Struct("<4I")
_ZEROS = np.zeros(4_096, np.intp)  # codes of one name
_ZEROS.setflags(write=False)
_VALUE = struct.Struct("<f")
_WORD = 4  # bytes; a header, and an item of each layout, is a number of whole words
_HEADER_WORDS = at.METADATA_HEADER // _WORD
_HEADER_REST = at.METADATA_HEADER - _WORD  # bytes, behind the row

Words = npt.NDArray[np.uint32]


class SaidNames:
    """
    Numbers, from 1 on, for the metadata names of one guest or fleet.

    A log whose entries are all single items of one name, for example "success", carries the number
    of that name; its items are then read without decoding names. There are MOST_NAMES numbers at
    most.
    """

    def __init__(self) -> None:
        self._tuples: list[tuple[str, ...]] = [()]
        self._sizes: list[int] = [0]
        self._numbers: dict[tuple[str, int], int] = {}

    def of(self, log: Words) -> int:
        """
        Return the number of a log's only name (see `at.SAID`), 0 if the log has several names.
        """
        items, size = int(log[1]), int(log[2])
        width = _HEADER_WORDS + size // _WORD
        if items != 1 or len(log) % width:
            return 0
        entries = log.reshape(-1, width)
        is_alike = (entries[:, 1:-1] == entries[0, 1:-1]).all()
        if not is_alike or np.isnan(entries[:, -1].view(np.float32)).any():
            return 0
        name = _name(entries[0, _HEADER_WORDS:-1].tobytes())
        number = self._numbers.get((name, size))
        if number is None:
            if len(self._numbers) == MOST_NAMES:
                return 0
            number = self._numbers[name, size] = len(self._sizes)
            self._tuples.append((name,))
            self._sizes.append(size)
        return number

    def read(self, number: int, log: Words) -> MetadataLog:
        """Return the metadata of a log whose only name has this number, as a copy."""
        entries = log.reshape(-1, _HEADER_WORDS + self._sizes[number] // _WORD)
        return self.items(number, entries[:, 0].astype(np.intp), entries[:, -1])

    def items(self, number: int, rows: npt.NDArray[np.intp], values: Words) -> MetadataLog:
        """
        Return one item for each of `rows`, all of the name with this number.

        rows: intp, [m]. values: uint32, [m], the bits of float32 numbers, not NaN.
        """
        floats = values.view(np.float32).astype(np.float64)
        return MetadataLog(rows, self._tuples[number], _codes(len(rows)), floats)


def read_log(log: Words, counts: npt.NDArray[np.uint32]) -> MetadataLog:
    """
    Return the metadata of a submit as a copy.

    `log` is the used part of the log, uint32, [words]; `counts`, uint32, [rows], has the number of
    items of each row. If all items have the same size, they are read as arrays, not one by one.
    """
    if not len(log):
        return NO_METADATA
    width = _HEADER_WORDS + int(log[1]) * int(log[2]) // _WORD
    if len(log) % width == 0:
        entries = log.reshape(-1, width)
        found = read_entries(entries, entries[:, 0].astype(np.intp))
        if found is not None:
            return found
    found = _of_one_size(log, counts, int(log[2]))
    return MetadataLog.of(items_of(log)) if found is None else found


def read_entries(entries: Words, rows: npt.NDArray[np.intp]) -> MetadataLog | None:
    """
    Return the metadata of log entries, uint32, [n, words], as a copy; None if their headers differ.

    The entries belong to `rows`, intp, [n], an array that the result keeps. An entry is a header
    (row, number of items, bytes of an item), followed by the items. The entries were cut at the
    length of the first one; the cuts are right if all headers agree.
    """
    _, items, size, _ = entries[0, :_HEADER_WORDS].tolist()
    if items == 1:
        alike = entries[:, 1:-1].tobytes()
        first = alike[: len(alike) // len(rows)]
        if alike == first * len(rows):  # one name too, as most have
            return _of_one_name(rows, first[_HEADER_REST:], entries[:, -1])
    if not every(entries[:, 1:3] == entries[0, 1:3]):
        return None
    found = entries[:, _HEADER_WORDS:].reshape(len(entries), items, size // _WORD)
    rows = rows if items == 1 else np.repeat(rows, items)
    if items > 1 and every(found[:, :, :-1] == found[0, :, :-1]):  # names in their order, too
        codes, names = _listed(found[0, :, :-1].tobytes(), items)
        values = _values(found[:, :, -1].ravel())
        return MetadataLog(rows, names, np.broadcast_to(codes, (len(found), items)).ravel(), values)
    return _columns(rows, found.reshape(-1, size // _WORD))


def require_log(log: bytes, counts: npt.NDArray[np.uint32]) -> None:
    """
    Raise ValueError unless a shim can have written this log.

    `counts`, uint32, [rows], has the number of items of each row.
    """
    position, before, seen = 0, -1, np.zeros(len(counts), np.uint64)
    while position < len(log):
        if len(log) - position < at.METADATA_HEADER:
            raise ValueError("metadata of rows is cut off")
        row, items, size, _ = _HEADER.unpack_from(log, position)
        position += at.METADATA_HEADER + items * size
        if not before < row < len(counts) or not items or size not in METRICS:
            raise ValueError(f"{items} items of metadata of {size} bytes in row {row}")
        if position > len(log):
            raise ValueError("metadata of rows is cut off")
        seen[row], before = items, row
    if (seen != counts).any():
        raise ValueError("rows have more or fewer items of metadata than they say")


def items_of(log: Words) -> Iterator[Metadata]:
    """Yield the items of a log, uint32, [words], one after another."""
    data = log.tobytes()
    position = 0
    while position < len(data):
        row, items, size, _ = _HEADER.unpack_from(data, position)
        position += at.METADATA_HEADER
        for _ in range(items):
            value = position + size - _WORD
            yield Metadata(row, _name(data[position:value]), *_VALUE.unpack_from(data, value))
            position += size


def _of_one_size(log: Words, counts: npt.NDArray[np.uint32], size: int) -> MetadataLog | None:
    """Return the items of a log if each has `size` bytes, otherwise None."""
    width = size // _WORD
    rows = counts.nonzero()[0]
    items = counts[rows].astype(np.intp)
    ends = np.cumsum(_HEADER_WORDS + items * width)
    if not len(rows) or ends[-1] != len(log):
        return None
    starts = ends - items * width  # behind the headers
    if (log[starts - 2] != size).any():
        return None
    firsts = np.cumsum(items) - items
    places = np.repeat(starts - firsts * width, items) + np.arange(items.sum()) * width
    return _columns(np.repeat(rows, items), log[places[:, None] + np.arange(width)])


def _columns(rows: npt.NDArray[np.intp], words: Words) -> MetadataLog:
    """Return items of one layout, uint32, [m, words], by column."""
    named = words[:, :-1]
    if len(named) == 1 or (named == named[0]).all():
        return _of_one_name(rows, named[0].tobytes(), words[:, -1])
    raw = np.ascontiguousarray(named).view(np.dtype((np.void, named.shape[1] * _WORD)))[:, 0]
    distinct, places = np.unique(raw, return_inverse=True)
    codes, names = _numbered(distinct.tolist())
    return MetadataLog(rows, names, codes[places], _values(words[:, -1]))


def _numbered(named: Iterable[bytes]) -> tuple[npt.NDArray[np.intp], tuple[str, ...]]:
    """Return the code of each name in the bytes of an item, intp, [n], and the different names."""
    known: dict[str, int] = {}
    codes = [known.setdefault(_name(data), len(known)) for data in named]
    return np.array(codes, np.intp), tuple(known)


@lru_cache(maxsize=256)  # they come again with every submit
def _listed(data: bytes, items: int) -> tuple[npt.NDArray[np.intp], tuple[str, ...]]:
    """Return what `_numbered` does of the names of the items of a row, side by side."""
    size = len(data) // items
    return _numbered(data[start : start + size] for start in range(0, len(data), size))


def _of_one_name(rows: npt.NDArray[np.intp], name: bytes, values: Words) -> MetadataLog:
    """Return items that have one name, and values, uint32, [m]."""
    return MetadataLog(rows, (_name(name),), _codes(len(rows)), _values(values))


def _codes(count: int) -> npt.NDArray[np.intp]:
    """Return the codes of items of one name: zeros, [count]."""
    return _ZEROS[:count] if count <= len(_ZEROS) else np.zeros(count, np.intp)


def _values(words: Words) -> npt.NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # a guest may push any NaN
        return words.view(np.float32).astype(np.float64)


@lru_cache(maxsize=4_096)  # names come again with every submit
def _name(data: bytes) -> str:
    """Return the name of an item from its bytes before the value."""
    layout = METRICS[len(data) + _WORD]
    name = unpack(layout, data + bytes(_WORD))["name"]
    if isinstance(layout.fields[0].type, FixedStr):
        return str(name)
    return bytes(name).partition(b"\0")[0].decode("utf-8", "replace")
