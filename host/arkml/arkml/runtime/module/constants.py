"""Constant expressions, which a module evaluates when it is instantiated."""

from __future__ import annotations

from arkml.runtime.module.wasm_reader import Reader
from arkml.runtime.module.wasm_types import heap_type

_END, _REF_FUNC = 0x0B, 0xD2
_ARITHMETIC = frozenset((0x6A, 0x6B, 0x6C, 0x7C, 0x7D, 0x7E))  # add, sub, mul of i32 and i64
_IMMEDIATES = {0: 1, 1: 1, 6: 1, 7: 1, 8: 2, 26: 0, 27: 0, 28: 0}
"""Number of immediates of each constant operator of the garbage collection prefix, 0xfb."""


_MAX_OPERATORS = 100_000


def constant(reader: Reader, most: int = _MAX_OPERATORS) -> int | None:
    """
    Read one expression of at most `most` operators.

    Returns its value if it is a single i32.const or i64.const, else None. Raises ModuleRejected.
    """
    value: int | None = None
    operators = 0
    while (operator := reader.byte()) != _END:
        operators += 1
        if operators > most:
            raise reader.rejected(f"a constant expression of more than {most:,} operators")
        match operator:
            case 0x41:  # i32.const
                value = reader.s32()
            case 0x42:  # i64.const
                value = reader.s64()
            case _:
                value = None
                _skip_immediates(reader, operator)
    return value if operators == 1 else None


def reference(reader: Reader) -> int | None:
    """Read one constant expression; return the index of the function it refers to, or None."""
    start = reader.position
    index = reader.u32() if reader.byte() == _REF_FUNC else None
    if index is not None and reader.byte() == _END:
        return index
    reader.position = start
    constant(reader)
    return None


def _skip_immediates(reader: Reader, operator: int) -> None:
    if operator in _ARITHMETIC:
        return
    match operator:
        case 0x43:  # f32.const
            reader.skip(4)
        case 0x44:  # f64.const
            reader.skip(8)
        case 0x23 | 0xD2:  # global.get, ref.func
            reader.u32()
        case 0xD0:  # ref.null
            heap_type(reader)
        case 0xFD if reader.u32() == 12:  # v128.const
            reader.skip(16)
        case 0xFB:
            _skip_collected(reader)
        case _:
            raise reader.rejected(f"operator {operator:#x} in a constant expression")


def _skip_collected(reader: Reader) -> None:
    operator = reader.u32()
    if operator not in _IMMEDIATES:
        raise reader.rejected(f"operator 0xfb {operator} in a constant expression")
    for _ in range(_IMMEDIATES[operator]):
        reader.u32()
