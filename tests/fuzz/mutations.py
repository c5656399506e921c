"""Edits of bytes that keep most of a seed as it is."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

LARGEST = 1 << 16
"""Bytes of a mutated input."""

NUMBERS = [
    b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\x80\0", b"\xff\x7f", b"\xff\xff\x03",
    b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff" * 9 + b"\1", b"\xff" * 4, b"\0" * 4,
    b"\0\0\0\x80", b"\xff\xff\xff\x7f", b"\0\0\x80\x7f", b"\0\0\xc0\x7f", b"\0" * 8, b"\xff" * 8,
]  # fmt: skip
"""Numbers at the ends of their ranges, as LEB128, integers and floats."""


class Input(bytes):
    """Bytes whose text is short, since those of a model may be megabytes."""

    __slots__ = ()

    def __repr__(self) -> str:
        digits = self[:512].hex()
        return f"{len(self)} bytes, {digits}{'…' if len(self) > 512 else ''}"


_Edit = tuple[str, int, int, bytes]
_PLACE = st.integers(0, 2**20)
_EDIT: SearchStrategy[_Edit] = st.one_of(
    st.tuples(st.just("overwrite"), _PLACE, st.just(0), st.sampled_from(NUMBERS)),
    st.tuples(st.just("overwrite"), _PLACE, st.just(0), st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("insert"), _PLACE, st.just(0), st.sampled_from(NUMBERS)),
    st.tuples(st.just("remove"), _PLACE, st.integers(1, 64), st.just(b"")),
    st.tuples(st.just("repeat"), _PLACE, st.integers(1, 64), st.just(b"")),
    st.tuples(st.just("cut"), _PLACE, st.just(0), st.just(b"")),
    st.tuples(st.just("flip"), _PLACE, st.integers(0, 7), st.just(b"")),
)


def mutated(seeds: Sequence[bytes], most_edits: int = 6) -> SearchStrategy[bytes]:
    """Return a strategy for seeds with up to `most_edits` edits; it shrinks towards none."""
    return st.builds(_apply, st.sampled_from(seeds), st.lists(_EDIT, max_size=most_edits))


def _apply(seed: bytes, edits: Sequence[_Edit]) -> bytes:
    data = bytearray(seed)
    for kind, place, size, content in edits:
        start = place % (len(data) + 1)
        part = data[start : start + size]
        match kind:
            case "overwrite":
                data[start : start + len(content)] = content
            case "insert":
                data[start:start] = content
            case "remove":
                del data[start : start + size]
            case "repeat":
                data[start:start] = part * 3
            case "cut":
                del data[start:]
            case _:
                if start < len(data):
                    data[start] ^= 1 << size
    return Input(data[:LARGEST])
