"""Random modules whose sections are well-formed, or nearly so."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.fuzz.mutations import Input

from arkml.runtime.module.binary import HEADER, ORDER, SectionId
from arkml.runtime.module.wasm_reader import named, unsigned

_EXPRESSIONS = {
    b"\x7f": b"\x41\x80\x80\x04\x0b",
    b"\x7e": b"\x42\x7f\x0b",
    b"\x7d": b"\x43\0\0\x80\x3f\x0b",
    b"\x7c": b"\x44" + bytes(8) + b"\x0b",
    b"\x7b": b"\xfd\x0c" + bytes(16) + b"\x0b",
    b"\x70": b"\xd0\x70\x0b",
    b"\x6f": b"\xd0\x6f\x0b",
    b"\x63\x70": b"\xd0\x70\x0b",
    b"\x6e": b"\xd0\x71\x0b",
    b"\x64\x6c": b"\x41\0\xfb\x1c\x0b",
    b"\x63\0": b"\xd0\0\x0b",
    b"\x64\0": b"\xd2\0\x0b",
}
"""A constant for each value type. Type 0 and function 0 are those of a function."""

_ODD_EXPRESSIONS = [
    b"\x41\1\x41\2\x6a\x0b", b"\x23\0\x0b", b"\xd2\0\x0b", b"\x0b", b"\x41\1", b"\x41\1\x41\2\x0b",
    b"\x42\1\x42\2\x7e\x0b", b"\x41\xff\xff\xff\xff\x0f\x0b", b"\x20\0\x0b", b"\xfb\0\0\x0b",
    b"\x41\0\xfb\x06\0\x0b", b"\xfd\x0d" + bytes(16) + b"\x0b", b"\xd0\x7f\x0b", b"\x10\0\x0b",
]  # fmt: skip
_NAMES = ["", "a", "b", "env", "f", "é", "x" * 200, "ARK_API_X", "ark_alloc", "_start"]
_ODD_NAMES = ["memory", "arkml", "arkml:start", "a"]
_INDICES = [0, 0, 0, 0, 1]
_ODD_INDICES = [1, 2, 3, 127, 128, 2**32 - 1]
_BODIES = [b"\3\0\0\x0b"]  # unreachable is of every type
_ODD_BODIES = [b"\2\0\x0b", b"\4\1\1\x7f\x0b", b"\6\1\1\x7f\x41\0\x0b", b"\3\0\x01\x0b"]
_TYPES = [
    b"\x5f\0", b"\x5f\1\x7f\1", b"\x5f\2\x78\0\x77\1", b"\x5e\x7f\0", b"\x50\0\x5f\0",
    b"\x4f\0\x60\0\0", b"\x4e\2\x5f\1\x63\0\1\x60\0\0", b"\x4e\0",
]  # fmt: skip
_ODD_TYPES = [b"\x50\1\0\x60\0\0", b"\x61\0\0", b"\x60\1\x40\0", b"\x4e\7"]
_ELEMENTS = [b"\1\0\0", b"\1\0\1\0", b"\3\0\1\0", b"\5\x70\1\xd0\x70\x0b"]
_ODD_ELEMENTS = [b"\0\x41\0\x0b\0", b"\0\x41\0\x0b\1\0", b"\x08", b"\2\0\x41\0\x0b\0\0"]
_DATA = [b"\1\3abc", b"\1\0"]
_ACTIVE_DATA = [b"\0\x41\0\x0b\5hello", b"\2\0\x41\0\x0b\0", b"\0\x41\1\x41\2\x6a\x0b\1a"]
_ODD_DATA = [b"\0\x23\0\x0b\1a", b"\2\1\x41\0\x0b\0", b"\0\x41\0\x0b\x7f", b"\3\0"]


def leb(number: int, padding: int) -> bytes:
    """Return an unsigned number with up to `padding` bytes more than it needs."""
    encoded = bytearray(unsigned(number))
    for _ in range(min(padding, 5 - len(encoded))):
        encoded[-1] |= 0x80
        encoded.append(0)
    return bytes(encoded)


class _Parts:
    """Strategies for the entries of sections; with `odd` some of the choices are not valid."""

    def __init__(self, *, odd: bool) -> None:
        def choice(good: list[bytes], bad: list[bytes]) -> SearchStrategy[bytes]:
            return st.sampled_from(good * 4 + bad if odd else good)

        self.name = st.sampled_from(_NAMES + _ODD_NAMES * odd).map(named)
        self.index = st.sampled_from(_INDICES * 2 + _ODD_INDICES if odd else _INDICES)
        self.padding = st.sampled_from([0, 0, 0, 1, 4])
        self.value = choice(list(_EXPRESSIONS), [b"\x69", b"\x40"])
        self.simple = st.sampled_from(list(_EXPRESSIONS)[:5])
        reference = choice([b"\x70", b"\x6f", b"\x63\x70", b"\x6e"], [b"\x64\x70", b"\x63\0"])
        self.memory = self._limits([0, 0, 1], [2, 3, 4, 5, 8, 9] * odd, [0, 1, 2, 16_384, 65_536])
        self.table = st.builds(
            bytes.__add__, reference, self._limits([0, 1], [2, 4, 5] * odd, [0, 1, 5, 999_999])
        )
        self.body = choice(_BODIES, _ODD_BODIES)
        self.element = choice(_ELEMENTS, _ODD_ELEMENTS)
        self.data = choice(_DATA, _ODD_DATA)
        signature = st.lists(self.value if odd else self.simple, max_size=2)
        function = st.builds(lambda takes, gives: b"\x60" + takes + gives,
                             *(signature.map(_vector) for _ in range(2)))  # fmt: skip
        self.type = st.one_of(function, choice(_TYPES, _ODD_TYPES))
        self.odd = odd

    def _limits(self, flags: list[int], odd: list[int], sizes: list[int]) -> SearchStrategy[bytes]:
        pair = st.lists(st.sampled_from(sizes), min_size=2, max_size=2)
        pair = pair if odd else pair.map(sorted)
        return st.builds(_limits, st.sampled_from(flags * 3 + odd), pair, self.padding)

    def variable(self, kind: bytes) -> SearchStrategy[bytes]:
        """Return a strategy for the rest of a global of one type."""
        value = _EXPRESSIONS.get(kind, b"\x41\0\x0b")
        choices = [value] * 4 + _ODD_EXPRESSIONS if self.odd else [value]
        return st.builds(
            lambda mutable, expression: kind + bytes((mutable,)) + expression,
            st.sampled_from([0, 1, 0, 1, 2] if self.odd else [0, 1]), st.sampled_from(choices),
        )  # fmt: skip


def _limits(flags: int, sizes: list[int], padding: int) -> bytes:
    data = bytes((flags,)) + leb(sizes[0], padding)
    data += unsigned(sizes[1]) if flags & 1 else b""
    return data + (b"\x10" if flags & 8 else b"")


def _vector(items: list[bytes]) -> bytes:
    return unsigned(len(items)) + b"".join(items)


_GOOD, _ODD = _Parts(odd=False), _Parts(odd=True)


@st.composite
def _import(draw: st.DrawFn, parts: _Parts) -> bytes:
    kind = draw(st.sampled_from([0, 0, 1, 3, 3, 4] + [2, 5] * parts.odd))
    names = draw(parts.name) + draw(parts.name) + bytes((kind,))
    match kind:
        case 0:
            return names + unsigned(0 if not parts.odd else draw(parts.index))
        case 1:
            return names + draw(parts.table)
        case 2:
            return names + draw(parts.memory)
        case 3:
            return names + draw(parts.simple) + bytes((draw(st.sampled_from([0, 1])),))
        case _:
            return names + b"\0" + unsigned(0 if not parts.odd else draw(parts.index))


def _exports(draw: st.DrawFn, parts: _Parts, sizes: dict[int, int]) -> list[bytes]:
    kinds = [kind for kind, size in sizes.items() if size] + [0, 3, 5] * parts.odd
    exports = []
    for name in draw(st.lists(parts.name, max_size=3, unique=not parts.odd)) if kinds else ():
        kind = draw(st.sampled_from(kinds))
        index = draw(parts.index) if parts.odd else draw(st.integers(0, sizes[kind] - 1))
        exports.append(name + bytes((kind,)) + unsigned(index))
    return exports


def _entries(draw: st.DrawFn, parts: _Parts) -> dict[SectionId, list[bytes]]:
    """Return the entries of each section. Type 0 is that of a function without arguments."""
    functions = [b"\0"] + [b"\0"] * draw(st.integers(0, 2))
    memories = [
        draw(parts.memory) for _ in range(draw(st.sampled_from([0, 1, 1] + [2] * parts.odd)))
    ]
    imports = [draw(_import(parts)) for _ in range(draw(st.integers(0, 3)))]
    kinds = draw(st.lists(parts.value, max_size=2))
    data = draw(st.lists(parts.data, max_size=2))
    if memories:
        data += draw(st.lists(st.sampled_from(_ACTIVE_DATA), max_size=1))
    tables = draw(st.lists(parts.table, max_size=2))
    sizes = {0: len(functions), 1: len(tables), 2: len(memories), 3: len(kinds)}
    return {
        SectionId.TYPE: [b"\x60\0\0", *draw(st.lists(parts.type, max_size=3))],
        SectionId.IMPORT: imports,
        SectionId.FUNCTION: functions,
        SectionId.TABLE: tables,
        SectionId.MEMORY: memories,
        SectionId.TAG: draw(st.lists(st.just(b"\0\0"), max_size=1)),
        SectionId.GLOBAL: [draw(parts.variable(kind)) for kind in kinds],
        SectionId.EXPORT: _exports(draw, parts, sizes),
        SectionId.ELEMENT: draw(st.lists(parts.element, max_size=2)),
        SectionId.CODE: [draw(parts.body) for _ in functions],
        SectionId.DATA: data,
    }


@st.composite
def modules(draw: st.DrawFn) -> bytes:
    """Draw a module. Most are valid; in one of three any part may be wrong."""
    parts = draw(st.sampled_from([_GOOD, _GOOD, _ODD]))
    entries = _entries(draw, parts)
    optional = {SectionId.START: draw(parts.index) if parts.odd else 0,
                SectionId.DATA_COUNT: len(entries[SectionId.DATA])}  # fmt: skip
    sections: list[bytes] = []
    for section_id in ORDER:
        if section_id in optional:
            payload = unsigned(optional[section_id]) if draw(st.booleans()) else b""
        else:
            items = entries[section_id]
            payload = leb(len(items), draw(parts.padding)) + b"".join(items) if items else b""
        if payload or (parts.odd and draw(st.integers(0, 31)) == 0):
            sections.append(bytes((section_id,)) + leb(len(payload), draw(parts.padding)) + payload)
    if draw(st.booleans()):
        custom = draw(parts.name) + b"text"
        place = draw(st.integers(0, len(sections)))
        sections.insert(place, b"\0" + unsigned(len(custom)) + custom)
    if parts.odd and draw(st.integers(0, 15)) == 0:
        sections.append(draw(st.sampled_from(sections)))
    return Input(HEADER + b"".join(sections))
