"""An assembler of WebAssembly modules in the binary format, instruction by instruction."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

I32, I64, F32, V128 = 0x7F, 0x7E, 0x7D, 0x7B
"""Types of values, by their bytes."""

PAGE = 1 << 16
"""Bytes of a page of memory."""

_PLAIN = {
    "i32.add": 0x6A, "i32.sub": 0x6B, "i32.mul": 0x6C, "i32.shl": 0x74, "i32.lt_s": 0x48,
    "i32.ge_s": 0x4E, "i32.lt_u": 0x49,
    "i64.add": 0x7C, "i64.mul": 0x7E, "i64.xor": 0x85, "i64.shr_u": 0x88, "i64.extend_i32_u": 0xAD,
    "i32.wrap_i64": 0xA7,
    "f32.gt": 0x5E, "f32.ge": 0x60, "f32.lt": 0x5D, "f32.le": 0x5F, "f32.add": 0x92,
    "f32.mul": 0x94, "f32.max": 0x97, "f32.min": 0x96, "f32.convert_i32_u": 0xB3,
    "select": 0x1B,
}  # fmt: skip

_VECTOR = {
    "i32x4.splat": 17, "f32x4.splat": 19, "v128.not": 77, "v128.and": 78, "v128.andnot": 79,
    "v128.or": 80, "v128.xor": 81, "v128.bitselect": 82,
    "i32x4.eq": 55, "i32x4.ne": 56, "i32x4.lt_s": 57, "i32x4.gt_s": 59,
    "i32x4.le_s": 61, "i32x4.ge_s": 63,
    "f32x4.eq": 65, "f32x4.ne": 66, "f32x4.lt": 67, "f32x4.gt": 68, "f32x4.le": 69, "f32x4.ge": 70,
    "f64x2.demote_zero": 94, "f64x2.promote_low": 95,
    "f32x4.ceil": 103, "f32x4.floor": 104, "f32x4.nearest": 106, "f64x2.nearest": 148,
    "i32x4.shl": 171, "i32x4.shr_s": 172, "i32x4.shr_u": 173, "i32x4.add": 174, "i32x4.sub": 177,
    "i32x4.mul": 181, "i32x4.min_s": 182, "i32x4.max_s": 184,
    "f32x4.abs": 224, "f32x4.neg": 225, "f32x4.sqrt": 227, "f32x4.add": 228, "f32x4.sub": 229,
    "f32x4.mul": 230, "f32x4.div": 231, "f32x4.min": 232, "f32x4.max": 233,
    "f64x2.sub": 241, "f64x2.mul": 242,
    "i32x4.trunc_sat_f32x4_s": 248, "f32x4.convert_i32x4_s": 250,
    "i32x4.trunc_sat_f64x2_s_zero": 252,
}  # fmt: skip

_MEMORY = {
    "i32.load": bytes([0x28]), "f32.load": bytes([0x2A]), "i32.store": bytes([0x36]),
    "f32.store": bytes([0x38]), "v128.load": bytes([0xFD, 0]),
    "v128.load32_splat": bytes([0xFD, 9]), "v128.store": bytes([0xFD, 11]),
}  # fmt: skip

_LANES = {"v128.store32_lane": 90, "v128.store64_lane": 91}


def unsigned(value: int) -> bytes:
    """Return a number from 0 in the encoding unsigned LEB128."""
    out = bytearray()
    while True:
        byte, value = value & 0x7F, value >> 7
        if not value:
            out.append(byte)
            return bytes(out)
        out.append(byte | 0x80)


def _signed(value: int) -> bytes:
    out = bytearray()
    while True:
        byte, value = value & 0x7F, value >> 7
        if (value == 0 and not byte & 0x40) or (value == -1 and byte & 0x40):
            out.append(byte)
            return bytes(out)
        out.append(byte | 0x80)


def _counted(items: Sequence[bytes]) -> bytes:
    return unsigned(len(items)) + b"".join(items)


def _sized(content: bytes) -> bytes:
    return unsigned(len(content)) + content


class FunctionCode:
    """A function under construction: its instructions, and its locals by number."""

    def __init__(self, params: Sequence[int] = (), results: Sequence[int] = ()) -> None:
        self.params = tuple(params)
        self.results = tuple(results)
        self._locals: list[int] = []
        self._free: dict[int, list[int]] = {}
        self._code = bytearray()

    def local(self, kind: int) -> int:
        """Return an unused local of a type; its content is undefined."""
        if free := self._free.get(kind):
            return free.pop()
        self._locals.append(kind)
        return len(self.params) + len(self._locals) - 1

    def release(self, *numbers: int) -> None:
        """Give back locals, for later code to use."""
        for number in numbers:
            kind = self._locals[number - len(self.params)]
            self._free.setdefault(kind, []).append(number)

    def op(self, *names: str) -> None:
        """Add instructions without immediates."""
        for name in names:
            if name in _PLAIN:
                self._code.append(_PLAIN[name])
            else:
                self._code += b"\xfd" + unsigned(_VECTOR[name])

    def get(self, *numbers: int) -> None:
        """Push locals."""
        for number in numbers:
            self._code += b"\x20" + unsigned(number)

    def set(self, number: int) -> None:
        """Pop a local."""
        self._code += b"\x21" + unsigned(number)

    def tee(self, number: int) -> None:
        """Store the top of the stack in a local."""
        self._code += b"\x22" + unsigned(number)

    def call(self, index: int) -> None:
        """Call a function by its index."""
        self._code += b"\x10" + unsigned(index)

    def i32(self, value: int) -> None:
        """Push an integer."""
        self._code += b"\x41" + _signed(value)

    def i64(self, value: int) -> None:
        """Push the bits of an integer of 64 bits, unsigned."""
        self._code += b"\x42" + _signed(value - (1 << 64) if value >> 63 else value)

    def f32(self, value: float) -> None:
        """Push a float32."""
        self._code += b"\x43" + struct.pack("<f", value)

    def floats(self, value: float) -> None:
        """Push four equal float32."""
        self._code += b"\xfd\x0c" + 4 * struct.pack("<f", value)

    def doubles(self, value: float) -> None:
        """Push two equal float64."""
        self._code += b"\xfd\x0c" + 2 * struct.pack("<d", value)

    def integers(self, value: int) -> None:
        """Push four equal integers of 32 bits, whose bits are those of `value`."""
        self._code += b"\xfd\x0c" + 4 * struct.pack("<I", value & 0xFFFF_FFFF)

    def memory(self, name: str, offset: int = 0) -> None:
        """Add a load or a store at the address on the stack plus an offset."""
        self._code += _MEMORY[name] + b"\x00" + unsigned(offset)

    def store_lane(self, name: str, offset: int, lane: int) -> None:
        """Add a store of one lane of a vector, counted in lanes of the stored width."""
        self._code += b"\xfd" + unsigned(_LANES[name]) + b"\x00" + unsigned(offset)
        self._code.append(lane)

    def lane(self, number: int) -> None:
        """Replace a vector of four float32 by one of them."""
        self._code += b"\xfd\x1f" + bytes([number])

    def shuffle(self, lanes: Sequence[int]) -> None:
        """
        Replace two vectors by lanes of 32 bits, 0 to 3 of the first, and 4 to 7 of the second.
        """
        self._code += b"\xfd\x0d" + bytes(4 * lane + byte for lane in lanes for byte in range(4))

    @contextmanager
    def loop(self, turns: int, *steps: tuple[int, int]) -> Iterator[None]:
        """
        Repeat the code added in a `with` block, `turns` times, at least once.

        steps: locals of type i32, each with a number that is added to it after each turn.
        """
        counter = self.local(I32)
        self.i32(turns)
        self.set(counter)
        if turns > 1:
            self._code += b"\x03\x40"
        yield
        for local, step in steps:
            self.get(local)
            self.i32(step)
            self.op("i32.add")
            self.set(local)
        if turns > 1:
            self.get(counter)
            self.i32(1)
            self.op("i32.sub")
            self.tee(counter)
            self._code += b"\x0d\x00\x0b"
        self.release(counter)

    @contextmanager
    def branch(self) -> Iterator[None]:
        """
        Run the code added in a `with` block only if the i32 on the stack is not 0; see `otherwise`.
        """
        self._code += b"\x04\x40"
        yield
        self._code.append(0x0B)

    def otherwise(self) -> None:
        """Begin the code of a `branch` that runs if the i32 was 0."""
        self._code.append(0x05)

    @property
    def size(self) -> int:
        """Bytes of the instructions added so far."""
        return len(self._code)

    def body(self) -> bytes:
        """Return the function as an entry of the code section."""
        groups: list[tuple[int, int]] = []
        for kind in self._locals:
            if groups and groups[-1][1] == kind:
                groups[-1] = groups[-1][0] + 1, kind
            else:
                groups.append((1, kind))
        declared = _counted([unsigned(count) + bytes([kind]) for count, kind in groups])
        return _sized(declared + bytes(self._code) + b"\x0b")


class Module:
    """
    A module under construction, without imports, with one memory of a fixed size.

    Functions have indices in the order in which they are added.
    """

    def __init__(self) -> None:
        self._functions: list[FunctionCode] = []
        self._exports: list[tuple[str, int]] = []
        self._data: list[tuple[int, bytes]] = []

    def add(self, function: FunctionCode, export: str = "") -> int:
        """Add a function, and export it if it has a name. Returns its index."""
        index = len(self._functions)
        self._functions.append(function)
        if export:
            self._exports.append((export, index))
        return index

    def data(self, offset: int, content: bytes) -> None:
        """Initialize the memory with these bytes at an offset."""
        self._data.append((offset, content))

    def binary(self, size: int, section: str, content: bytes) -> bytes:
        """Return the module with a memory of `size` bytes, and a custom section with `content`."""
        types = list(dict.fromkeys((f.params, f.results) for f in self._functions))
        pages = unsigned(max(1, -(-size // PAGE)))
        exports = [_sized(b"memory") + b"\x02\x00"]
        exports += [_sized(name.encode()) + b"\x00" + unsigned(i) for name, i in self._exports]
        sections = [
            (1, _counted([b"\x60" + _counted([bytes([p]) for p in params])
                          + _counted([bytes([r]) for r in results]) for params, results in types])),
            (3, _counted([unsigned(types.index((f.params, f.results))) for f in self._functions])),
            (5, b"\x01\x01" + pages + pages),
            (7, _counted(exports)),
            (10, _counted([f.body() for f in self._functions])),
            (11, _counted([b"\x00\x41" + _signed(offset) + b"\x0b" + _sized(content)
                           for offset, content in self._data])),
            (0, _sized(section.encode()) + content),
        ]  # fmt: skip
        return b"\0asm\1\0\0\0" + b"".join(
            bytes([number]) + _sized(content) for number, content in sections
        )
