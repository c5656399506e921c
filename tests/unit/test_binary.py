"""Taking a module apart, and what is refused before anything is compiled."""

import random
import time
from pathlib import Path

import pytest
from wasmtime import Engine, Module, WasmtimeError, wat2wasm

from arkml.errors import (
    FunctionTooLarge,
    MemoryLimitExceeded,
    ModuleError,
    ModuleRejected,
    ModuleTooLarge,
    TableLimitExceeded,
)
from arkml.limits import Limits
from arkml.runtime.module.binary import HEADER, ExternKind, SectionId
from arkml.runtime.module.description import describe
from arkml.runtime.module.normalize import normalize
from arkml.runtime.module.parsing import parse
from arkml.runtime.module.refusals import check
from arkml.runtime.module.wasm_reader import Reader, named, unsigned
from arkml.runtime.module.wasm_types import FunctionType, GlobalType, MemoryType, TableType

GUESTS = sorted((Path(__file__).parents[2] / "fixtures" / "guests").rglob("*.wasm"))

EVERYTHING = """
(module
  (type $pair (func (param i64 i32) (result i32)))
  (import "env" "f" (func (type $pair)))
  (import "env" "g" (global i64))
  (import "env" "t" (table 1 5 funcref))
  (tag $broken (param i32))
  (memory (export "memory") 2 9)
  (table 3 externref)
  (global (export "number") (mut i32) (i32.const -7))
  (global f32 (f32.const 1.5))
  (global funcref (ref.func $small))
  (global v128 (v128.const i64x2 1 2))
  (global i32 (i32.add (i32.const 1) (i32.const 2)))
  (func $small (export "small"))
  (func $large (result i32)
    i32.const 1 i32.const 2 i32.add i32.const 3 i32.add)
  (start $small)
  (elem (i32.const 0) func $small)
  (data (i32.const 16) "hello")
  (data "passive")
  (func (export "use") (memory.init 1 (i32.const 0) (i32.const 0) (i32.const 1)))
  (@custom "notes" "text"))
"""


def section(number: int, payload: bytes) -> bytes:
    return bytes((number,)) + unsigned(len(payload)) + payload


def module(*sections: bytes) -> bytes:
    return HEADER + b"".join(sections)


def checked(text: str, limits: Limits | None = None) -> None:
    check(parse(bytes(wat2wasm(text))), limits or Limits())


def test_every_section_is_read():
    binary = parse(bytes(wat2wasm(EVERYTHING)))

    assert [(entry.module, entry.name, str(entry.type)) for entry in binary.imports] == [
        ("env", "f", "(i64 i32) -> (i32)"),
        ("env", "g", "global i64"),
        ("env", "t", "table 1..5 funcref"),
    ]
    assert binary.memories == (MemoryType(2, 9),)
    assert binary.tables == (TableType("funcref", 1, 5), TableType("externref", 3))
    assert [variable.type for variable in binary.globals[:2]] == [
        GlobalType("i64"),
        GlobalType("i32", is_mutable=True),
    ]
    assert [variable.value for variable in binary.globals] == [None, -7, None, None, None, None]
    assert [(export.name, export.kind, export.index) for export in binary.exports] == [
        ("memory", ExternKind.MEMORY, 0),
        ("number", ExternKind.GLOBAL, 1),
        ("small", ExternKind.FUNCTION, 1),
        ("use", ExternKind.FUNCTION, 3),
    ]
    assert [str(tag) for tag in binary.tags] == ["tag (i32)"]
    assert binary.start == 1
    assert (binary.elements, binary.data_count) == (1, 2)
    assert [(part.offset, part.end - part.start) for part in binary.segments] == [
        (16, 5),
        (None, 7),
    ]
    assert "notes" in binary.customs


def test_the_largest_body_is_named_by_its_function_index():
    binary = parse(
        bytes(
            wat2wasm('(module (import "a" "b" (func)) (func) (func (drop (i32.const 1))) (func))')
        )
    )

    assert (binary.bodies.count, binary.bodies.largest, binary.bodies.largest_size) == (3, 2, 5)


def test_types_of_the_collector_are_read():
    binary = parse(
        bytes(
            wat2wasm(
                """(module
                  (rec (type $node (struct (field (mut (ref null $node))) (field i8)))
                       (type $list (array (mut (ref $node)))))
                  (type $open (sub (struct)))
                  (type $f (func (param (ref null $node) anyref) (result (ref $f))))
                  (import "a" "b" (func (type $f)))
                  (global (ref null $node) (struct.new_default $node))
                  (global (ref i31) (ref.i31 (i32.const 1)))
                  (table 1 (ref null $f) (ref.null $f)))"""
            )
        )
    )

    assert binary.types[:3] == (None, None, None)
    assert str(binary.imports[0].type) == "((ref null 0) anyref) -> ((ref 3))"
    assert str(binary.tables[0]) == "table 1.. (ref null 3)"


def test_an_empty_module_has_nothing():
    binary = parse(HEADER)

    assert (binary.sections, binary.functions, binary.memories) == ((), (), ())
    assert binary.bodies.largest is None


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is not WebAssembly"),
        (b"\0as", "is not WebAssembly"),
        (b"\x7fELF\1\1\1\0", "is not WebAssembly: it is a program or library of Linux"),
        (b"\x89PNG\r\n\x1a\n", "is not WebAssembly: it is a PNG picture"),
        (b"version https://git-lfs.github.com/spec/v1\n", "begins with b'version https://git-lfs"),
        (b"\n (module)", "is WebAssembly text"),
        (b";; hello\n(module)", "is WebAssembly text"),
        (b"\0asm\x0d\0\1\0", "is a component"),
        (b"\0asm\2\0\0\0", "has the version"),
        (b"\0asm", "has the version"),
    ],
)
def test_what_is_no_core_module_is_named(data, sentence):
    with pytest.raises(ModuleRejected, match=sentence):
        parse(data)


FUNCTION_TYPE = section(1, b"\1\x60\0\0")
MALFORMED = {
    "a section without a size": module(b"\1"),
    "a section longer than the module": module(b"\1\x05\0"),
    "an unknown section": module(section(14, b"")),
    "two type sections": module(FUNCTION_TYPE, FUNCTION_TYPE),
    "two memory sections": module(section(5, b"\1\0\1"), section(5, b"\1\0\1")),
    "sections in the wrong order": module(section(5, b"\0"), FUNCTION_TYPE),
    "an empty memory section": module(section(5, b"")),
    "bytes after the last entry": module(section(5, b"\0\0")),
    "more entries than bytes": module(section(1, b"\xff\xff\x03\x60\0\0")),
    "more entries than allowed": module(section(3, b"\xff\xff\xff\x7f")),
    "a number of 36 bits": module(section(3, b"\xff\xff\xff\xff\x7f")),
    "a number of six bytes": module(section(3, b"\x80\x80\x80\x80\x80\0")),
    "a signed number of 33 bits": module(
        section(6, b"\1\x7f\0\x41\xff\xff\xff\xff\x3f\x0b"),
    ),
    "a name that is not UTF-8": module(section(7, b"\1\1\xff\0\0")),
    "a name longer than its section": module(section(0, b"\x09abc")),
    "an unknown type": module(section(1, b"\1\x61\0\0")),
    "an unknown value type": module(section(1, b"\1\x60\1\x50\0")),
    "an unknown heap type": module(section(1, b"\1\x60\1\x63\x40\0")),
    "an import of a missing type": module(section(2, b"\1\1a\1b\0\0")),
    "an import of an unknown kind": module(section(2, b"\1\1a\1b\x09\0")),
    "a function of a missing type": module(FUNCTION_TYPE, section(3, b"\1\1")),
    "a function without a body": module(FUNCTION_TYPE, section(3, b"\1\0")),
    "a body without a function": module(FUNCTION_TYPE, section(10, b"\1\2\0\x0b")),
    "unknown limits of a memory": module(section(5, b"\1\x10\1")),
    "a minimum above the maximum": module(section(5, b"\1\1\2\1")),
    "a memory above 4 GiB": module(section(5, b"\1\0\x81\x80\x04")),
    "a shared memory without a maximum": module(section(5, b"\1\2\1")),
    "an unknown page size": module(section(5, b"\1\x08\1\x0c")),
    "unknown limits of a table": module(section(4, b"\1\x70\x08\1")),
    "a table declared in an unknown way": module(section(4, b"\1\x40\1\x70\0\1")),
    "a global of unknown mutability": module(section(6, b"\1\x7f\2\x41\0\x0b")),
    "an unknown operator": module(section(6, b"\1\x7f\0\x20\0\x0b")),
    "an unknown operator of the collector": module(section(6, b"\1\x7f\0\xfb\x40\x0b")),
    "an expression without an end": module(section(6, b"\1\x7f\0\x41\0")),
    "a tag that is no exception": module(FUNCTION_TYPE, section(13, b"\1\1\0")),
    "an export of nothing": module(section(7, b"\1\1a\0\0")),
    "an export of an unknown kind": module(section(7, b"\1\1a\x09\0")),
    "two exports of one name": module(section(5, b"\1\0\1"), section(7, b"\2\1a\2\0\1a\2\0")),
    "a start function that is missing": module(section(8, b"\0")),
    "a start function with a parameter": module(
        section(1, b"\1\x60\1\x7f\0"),
        section(3, b"\1\0"),
        section(8, b"\0"),
        section(10, b"\1\2\0\x0b"),
    ),
    "an unknown kind of data": module(section(11, b"\1\3\0")),
    "data longer than its section": module(section(11, b"\1\1\x05a")),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_bytes_are_refused(data):
    with pytest.raises(ModuleRejected):
        parse(data)


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16384, 2**32 - 1])
def test_an_unsigned_number_comes_back(number):
    encoded = unsigned(number)

    assert Reader(encoded, 0, len(encoded), "a number").u32() == number


@pytest.mark.parametrize(
    ("encoded", "number"),
    [(b"\0", 0), (b"\x7f", -1), (b"\x40", -64), (b"\x80\x7f", -128), (b"\xff\0", 127)],
)
def test_a_signed_number_keeps_its_sign(encoded, number):
    assert Reader(encoded, 0, len(encoded), "a number").s32() == number
    assert Reader(encoded, 0, len(encoded), "a number").s64() == number


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("(module (memory 1 2 shared))", "shared memory"),
        ('(module (import "a" "m" (memory 1 2 shared)))', "shared memory"),
        ("(module (memory i64 1))", "64-bit memory"),
        ('(module (import "a" "m" (memory i64 1)))', "64-bit memory"),
        ("(module (memory 1) (memory 1))", "2 memories"),
        ('(module (import "a" "m" (memory 1)) (memory 1))', "2 memories"),
        ("(module (memory 1 (pagesize 1)))", "pages of 1 bytes"),
    ],
)
def test_memories_that_this_host_does_not_run_are_refused(text, sentence):
    with pytest.raises(ModuleRejected, match=sentence):
        checked(text)


def test_a_shared_memory_with_a_maximum_is_refused_by_its_bytes():
    data = module(section(5, b"\1\3\1\2"))

    with pytest.raises(ModuleRejected, match="shared memory"):
        normalize(data, Limits())


def test_a_module_that_is_too_large_is_refused_unread():
    with pytest.raises(ModuleTooLarge, match=r"9 bytes, more than the 8 allowed"):
        normalize(b"not wasm!", Limits(module_bytes=8))


def test_a_function_that_is_too_large_is_named_with_its_size():
    text = '(module (import "a" "b" (func)) (func) (func (drop (i32.const 1))))'

    checked(text, Limits(function_bytes=5))
    with pytest.raises(FunctionTooLarge, match=r"function 2 has 5 bytes, more than the 4 allowed"):
        checked(text, Limits(function_bytes=4))


def test_a_memory_above_the_limit_is_refused():
    limits = Limits(memory_bytes=3 << 16)

    checked("(module (memory 3 100))", limits)
    with pytest.raises(MemoryLimitExceeded, match="262,144 bytes"):
        checked("(module (memory 4))", limits)
    with pytest.raises(MemoryLimitExceeded, match="262,144 bytes"):
        checked('(module (import "a" "m" (memory 4)))', limits)


def test_tables_above_the_limits_are_refused():
    limits = Limits(tables=2, table_elements=10)

    checked("(module (table 5 funcref) (table 5 funcref))", limits)
    with pytest.raises(TableLimitExceeded, match="3 tables"):
        checked("(module (table 0 funcref) (table 0 funcref) (table 0 funcref))", limits)
    with pytest.raises(TableLimitExceeded, match="11 table elements"):
        checked('(module (import "a" "t" (table 6 funcref)) (table 5 funcref))', limits)


def mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(changed))
        match chance.randrange(4):
            case 0:
                changed[place] = chance.randrange(256)
            case 1:
                changed[place : place + chance.randint(1, 8)] = b""
            case 2:
                changed[place:place] = chance.randbytes(chance.randint(1, 8))
            case _:
                changed[place] ^= 1 << chance.randrange(8)
        if len(changed) < len(HEADER) + 1:
            break
    return bytes(changed)


def test_mutated_modules_raise_module_errors_and_nothing_else():
    chance = random.Random(3)
    corpus = [bytes(wat2wasm(EVERYTHING)), *(path.read_bytes() for path in GUESTS)]
    outcomes = {"read": 0, "refused": 0}
    usual = longest = 0.0
    for turn in range(-len(corpus), 2000):
        data = corpus[turn % len(corpus)]
        data = data if turn < 0 else mutated(data, chance)
        started = time.process_time()
        try:
            describe(normalize(data, Limits()).binary)
            outcomes["read"] += 1
        except (ModuleError, MemoryLimitExceeded, TableLimitExceeded):
            outcomes["refused"] += 1
        longest = max(longest, time.process_time() - started)
        usual = longest if turn < 0 else usual

    assert outcomes["read"] > 20
    assert outcomes["refused"] > 20
    assert longest < 100 * usual


def test_a_mutated_module_is_valid_after_the_rewrite_exactly_if_it_was_before():
    chance = random.Random(4)
    engine = Engine()
    original = bytes(wat2wasm(EVERYTHING))
    valid = 0
    for _ in range(3000):
        data = mutated(original, chance)
        before = is_valid(engine, data)
        try:
            after = is_valid(engine, normalize(data, Limits()).wasm)
        except (ModuleError, MemoryLimitExceeded, TableLimitExceeded):
            after = False
        valid += before

        assert before == after, data.hex()
    assert valid > 20


def is_valid(engine, data):
    try:
        Module.validate(engine, data)
    except WasmtimeError:
        return False
    return True


WASTEFUL = {
    "one huge expression": section(6, b"\1\x7f\0" + b"\x6a" * 200_000 + b"\x0b"),
    "one long offset": section(11, b"\1\0" + b"\x6a" * 17 + b"\x0b\0"),
    "megabytes of types": section(1, unsigned(900_000) + b"\x4e\0" * 2_500_000),
    "thousands of custom sections": section(0, b"\0") * 1_001,
    "too many globals": section(6, unsigned(20_001) + b"\x7f\0\x41\0\x0b" * 20_001),
    "too many types": section(1, unsigned(20_001) + b"\x60\0\0" * 20_001),
    "too many segments": section(11, unsigned(100_001) + b"\1\0" * 100_001),
}


@pytest.mark.parametrize("sections", WASTEFUL.values(), ids=WASTEFUL.keys())
def test_a_module_that_wastes_the_time_of_its_reader_is_refused(sections):
    with pytest.raises(ModuleRejected):
        parse(module(sections))


def names(*parts: bytes) -> bytes:
    """A section of names, of parts with a kind and a size."""
    return section(0, named("name") + b"".join(parts))


def part(kind: int, payload: bytes) -> bytes:
    return bytes((kind,)) + unsigned(len(payload)) + payload


LONG = named("n" * 70_000)


@pytest.mark.parametrize(
    "parts",
    [
        [part(0, LONG)],
        [part(1, b"\2\0" + named("short") + b"\1" + LONG)],
        [part(1, b"\2\0\xff\xff"), part(9, b"unknown"), part(1, b"\1\0" + LONG)],
    ],
)
def test_a_name_that_every_frame_of_a_trap_would_repeat_is_refused(parts):
    with pytest.raises(ModuleRejected, match=r"a name of 70,000 bytes, the limit is 65,536"):
        parse(module(names(*parts)))


def test_names_that_are_malformed_are_no_reason_to_refuse_a_module():
    damaged = [part(1, b"\2\0\xff\xff"), b"\1\xff", part(0, named("x" * 60_000))]

    assert parse(module(names(*damaged))).customs.keys() == {"name"}


ENTRIES = {
    "tag": (SectionId.TAG, b"\0\0"),
    "table": (SectionId.TABLE, b"\x70\0\0"),
    "memory": (SectionId.MEMORY, b"\0\0"),
    "global": (SectionId.GLOBAL, b"\x7f\0\x41\0\x0b"),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_declarations_that_each_instance_has_room_for_are_few(name):
    number, entry = ENTRIES[name]
    types = section(SectionId.TYPE, b"\1\x60\0\0")
    many = section(number, unsigned(20_001) + 20_001 * entry)

    with pytest.raises(ModuleRejected, match=r"20,001 entries, the limit is 20,000"):
        parse(module(types, many))


@pytest.mark.parametrize("path", GUESTS, ids=lambda path: path.stem)
def test_guests_of_every_compiler_are_read(path):
    binary = parse(path.read_bytes())

    assert binary.section(SectionId.CODE) is not None
    assert all(isinstance(function, FunctionType) for function in binary.functions)
