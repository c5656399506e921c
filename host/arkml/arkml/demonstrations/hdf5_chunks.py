"""
A check of compressed chunks in HDF5 files, which HDF5 itself would decompress without a limit.
"""

from __future__ import annotations

import zlib
from math import prod
from typing import Any, Final

from arkml.errors import UsageError

_SHUFFLE, _GZIP, _LZF, _FLETCHER32 = 2, 1, 32000, 3
_ORDER: Final = (_SHUFFLE, _GZIP, _LZF, _FLETCHER32)
_RATIOS: Final = {_GZIP: 1032, _LZF: 88}
"""Bytes that the formats unpack from a byte, at most."""

_SMALL = 64 << 20  # bytes that a chunk may take, whatever its array has
_PART = 1 << 20
_OVERHEAD = 1024


def check_chunks(title: str, array: Any, most: int) -> None:
    """
    Check that the chunks of an h5py dataset decompress to no more bytes than they declare.

    Args:
        title: Name of the array, for messages.
        array: The dataset, of numbers.
        most: The most bytes of the array, and of one of its chunks.

    Raises:
        UsageError: The array is too large, or has filters other than shuffle, gzip or lzf, and
            fletcher32, in this order.
        ValueError: A chunk is damaged; h5py may raise other exceptions.

    """
    if array.chunks is None:
        return
    chunk = prod(array.chunks) * array.dtype.itemsize
    held = array.size * array.dtype.itemsize
    if chunk > max(held, _SMALL) or chunk + held > most:
        raise UsageError(f"{title} has chunks of {chunk:,} bytes: write it with smaller chunks")
    filters = _filters(title, array)
    packing = next((code for code in filters if code in _RATIOS), None)
    if packing is None:
        return
    large: list[Any] = []
    array.id.chunk_iter(
        lambda stored: large.append(stored) if stored.size * _RATIOS[packing] > _SMALL else None
    )
    for stored in large:
        if stored.size > chunk + chunk // 8 + _OVERHEAD:  # no format adds as many
            text = f"has {stored.size:,} bytes in a chunk of {chunk:,}"
            raise UsageError(f"{title} {text}: it is damaged, or a bomb")
        if packing == _GZIP:
            _check_gzip(title, array, stored.chunk_offset, filters.index(packing), chunk)
        elif stored.size * _RATIOS[packing] > most:
            raise UsageError(f"{title} has chunks of {chunk:,} bytes: write it with smaller chunks")


def _filters(title: str, array: Any) -> list[int]:
    """Return the filters of an array, in their order. Raises UsageError for unknown ones."""
    pipeline = array.id.get_create_plist()
    filters = [pipeline.get_filter(index)[0] for index in range(pipeline.get_nfilters())]
    if filters != [code for code in _ORDER if code in filters] or {_GZIP, _LZF} <= set(filters):
        raise UsageError(f"{title} has the filters {filters}: it takes gzip or lzf")
    return filters


def _check_gzip(title: str, array: Any, at: tuple[int, ...], index: int, chunk: int) -> None:
    """Check the chunk at an offset. `index` is the place of gzip among the filters."""
    left_out, data = array.id.read_direct_chunk(at)
    if left_out >> index & 1:
        return
    unpacker, unpacked = zlib.decompressobj(), 0
    try:
        while part := unpacker.decompress(data, _PART):
            data = unpacker.unconsumed_tail
            unpacked += len(part)
            if unpacked > chunk:
                raise UsageError(f"{title} has a chunk that unpacks to more than {chunk:,} bytes")
    except zlib.error as error:
        raise ValueError(f"{title} has a damaged chunk: {error}") from error
