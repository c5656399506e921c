"""Elementwise operations, on four elements at a time, as wasm instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from arkml.policies.kernel.assembler import V128, FunctionCode

Write: TypeAlias = Callable[[FunctionCode], None]
"""Adds what replaces the sources on the stack, in their order, by the result."""


def _plain(*names: str) -> Write:
    return lambda f: f.op(*names)


def _with_number(number: float, *names: str) -> Write:
    def write(f: FunctionCode) -> None:
        f.floats(number)
        f.op(*names)

    return write


def _square(f: FunctionCode) -> None:
    x = f.local(V128)
    f.tee(x)
    f.get(x)
    f.op("f32x4.mul")
    f.release(x)


def _cube(f: FunctionCode) -> None:
    x = f.local(V128)
    f.tee(x)
    f.get(x)
    f.op("f32x4.mul")
    f.get(x)
    f.op("f32x4.mul")
    f.release(x)


def _reciprocal(f: FunctionCode) -> None:
    x = f.local(V128)
    f.set(x)
    f.floats(1.0)
    f.get(x)
    f.op("f32x4.div")
    f.release(x)


def _sign(f: FunctionCode) -> None:
    x = f.local(V128)
    f.set(x)
    f.floats(1.0)
    f.get(x)
    f.floats(0.0)
    f.op("f32x4.gt", "v128.and")
    f.floats(-1.0)
    f.get(x)
    f.floats(0.0)
    f.op("f32x4.lt", "v128.and", "v128.or")
    f.release(x)


def _where(f: FunctionCode) -> None:
    mask, yes, no = f.local(V128), f.local(V128), f.local(V128)
    f.set(no)
    f.set(yes)
    f.set(mask)
    f.get(yes, no, mask)
    f.op("v128.bitselect")
    f.release(mask, yes, no)


def _settled(f: FunctionCode) -> None:
    """Give NaN one form, because machines differ in its bits."""
    x = f.local(V128)
    f.tee(x)
    f.floats(float("nan"))
    f.get(x, x)
    f.op("f32x4.eq", "v128.bitselect")
    f.release(x)


def _masked(bits: int) -> Write:
    def write(f: FunctionCode) -> None:
        f.integers(bits)
        f.op("v128.and")

    return write


def _whole_is_true(f: FunctionCode) -> None:
    f.integers(0)
    f.op("i32x4.ne")


_ONE = 0x3F80_0000

OPERATIONS: Mapping[str, Write] = {
    **{name: _plain(f"f32x4.{name}") for name in (
        "add", "sub", "mul", "div", "min", "max", "abs", "neg", "sqrt", "ceil", "floor", "nearest",
        "eq", "gt", "ge", "lt", "le",
    )},
    **{f"whole {name}": _plain(f"i32x4.{code}") for name, code in (
        ("eq", "eq"), ("gt", "gt_s"), ("ge", "ge_s"), ("lt", "lt_s"), ("le", "le_s"),
    )},
    **{name: _plain(f"v128.{name}") for name in ("and", "or", "xor", "not")},
    "relu": _with_number(0.0, "f32x4.max"),
    "square": _square,
    "cube": _cube,
    "reciprocal": _reciprocal,
    "sign": _sign,
    "where": _where,
    "settled": _settled,
    "float of bool": _masked(_ONE),
    "whole of bool": _masked(1),
    "float of whole": _plain("f32x4.convert_i32x4_s"),
    "bool of float": _with_number(0.0, "f32x4.ne"),
    "bool of whole": _whole_is_true,
}  # fmt: skip
"""The operations of `graph.Pointwise` by name, but for those that are functions."""
