"""Which instructions change a table: one module for each."""

import pytest
import wasmtime

from arkml.runtime.module.parsing import parse
from arkml.runtime.module.table_changes import _body_keeps, keeps_tables

V = "(v128.const i64x2 -1 -1)"
CHANGING = [
    "(table.set $t (i32.const 0) (ref.null func))",
    "(drop (table.grow $t (ref.null func) (i32.const 1)))",
    "(table.fill $t (i32.const 0) (ref.null func) (i32.const 1))",
    "(table.copy $t $u (i32.const 0) (i32.const 0) (i32.const 1))",
    "(table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1))",
]
KEEPING = [
    "(drop (table.get $t (i32.const 0)))",
    "(drop (table.size $t))",
    "(elem.drop $e)",
    "(memory.init $d (i32.const 0) (i32.const 0) (i32.const 0))",
    "(data.drop $d)",
    "(memory.copy (i32.const 0) (i32.const 0) (i32.const 0))",
    "(memory.fill (i32.const 0) (i32.const 0) (i32.const 0))",
    "(drop (memory.grow (i32.const 0)))",
    "(call_indirect $t (type $v) (i32.const 0))",
    "(return_call $f)",
    "(return_call_indirect $t (type $v) (i32.const 0))",
    "(drop (ref.is_null (ref.func $f)))",
    "(drop (select (result i32) (i32.const 1) (i32.const 2) (i32.const 3)))",
    "(block (br_table 0 0 0 (i32.const 1)))",
    "(if (i32.const 1) (then nop) (else return)) (loop (br_if 0 (i32.const 0)))",
    "(drop (f32.const 1.5))",
    "(drop (f64.const 38))",
    "(drop (i64.const 0x2626262626262626))",  # 26 is the code of table.set
    "(drop (i32.trunc_sat_f64_u (f64.const 1)))",
    "(drop (i32.extend8_s (i32.const 1)))",
    "(i32.store offset=0x26262626 (i32.const 0) (i32.const 38))",
    "(local.set $l (i32.const 9)) (drop (local.tee $l (global.get $g)))",
    "(global.set $g (local.get $l))",
    "(drop (v128.const i32x4 0x26262626 2 3 4))",
    f"(drop (i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 {V} {V}))",
    f"(v128.store8_lane offset=300 3 (i32.const 0) {V})",
    "(drop (v128.load32_zero (i32.const 0)))",
    f"(drop (i32x4.extract_lane 2 {V}))",
    f"(drop (i32x4.dot_i16x8_s {V} {V}))",
    f"(drop (f64x2.convert_low_i32x4_u {V}))",
    f"(drop (i32x4.relaxed_trunc_f32x4_s {V}))",
]
AROUND = [
    "{}",
    "(block {})",
    f"(i64.store offset=99 (i32.const 1) (i64.const -1)) {{}} (drop {V})",
]


def with_body(body):
    return parse(
        wasmtime.wat2wasm(
            f"""(module (memory 1) (data $d "x") (elem $e func $f) (type $v (func))
            (table $t 4 funcref) (table $u 4 funcref) (global $g (mut i32) (i32.const 0))
            (func $f) (func (export "x") (local $l i32) {body}))"""
        )
    )


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("body", CHANGING)
def test_an_instruction_that_changes_a_table_is_found(body, around):
    assert not keeps_tables(with_body(around.format(body)))


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("body", KEEPING)
def test_an_instruction_that_changes_none_is_passed_over(body, around):
    assert keeps_tables(with_body(around.format(body)))


@pytest.mark.parametrize(
    "unit",
    [b"\x80", b"\xff", b"\x41\x80", b"\x28\x80\x80", b"\x44", b"\xfd\x80", b"\x28\xc0\x80"],
    ids=bytes.hex,
)
def test_a_body_of_a_million_bytes_is_read_once(unit):
    body = unit * (1_000_000 // len(unit))

    assert isinstance(_body_keeps(body, 0, len(body)), bool)  # a search back would take hours
