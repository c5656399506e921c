"""A rewritten module imports its memory, runs nothing by itself, and is otherwise the same."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wasmtime import (
    Engine,
    FuncType,
    Linker,
    Memory,
    Module,
    Store,
    Trap,
    ValType,
    wat2wasm,
)
from wasmtime import Limits as Pages
from wasmtime import MemoryType as PageType

from arkml.errors import ModuleRejected
from arkml.limits import Limits
from arkml.runtime.module.binary import HEADER, SectionId
from arkml.runtime.module.normalize import MemoryPlan, global_export, normalize
from arkml.runtime.module.parsing import parse

GUESTS = sorted((Path(__file__).parents[2] / "fixtures" / "guests").rglob("*.wasm"))


def wasm(text):
    return bytes(wat2wasm(text))


class Loaded:
    """A normalized module, instantiated as the host does it."""

    def __init__(self, data, imports=()):
        self.normalized = normalize(data, Limits())
        engine = Engine()
        self.store = Store(engine)
        self.module = Module(engine, self.normalized.wasm)
        linker = Linker(engine)
        for module, name, function_type, function in imports:
            linker.define_func(module, name, function_type, function)
        self.memory = None
        plan = self.normalized.memory
        if plan is not None:
            self.memory = Memory(self.store, PageType(Pages(plan.minimum, plan.maximum)))
            linker.define(self.store, "arkml", "memory", self.memory)
        self.instance = linker.instantiate(self.store, self.module)

    def call(self, name, *args):
        return self.instance.exports(self.store)[name](self.store, *args)

    def read(self, start, stop):
        return bytes(self.memory.read(self.store, start, stop))


def test_a_defined_memory_becomes_an_import_with_its_data():
    loaded = Loaded(
        wasm(
            """(module (memory (export "memory") 2 5) (data (i32.const 65536) "hello")
               (func (export "load") (result i32) (i32.load8_u (i32.const 65536))))"""
        )
    )

    assert loaded.normalized.memory == MemoryPlan(2, 5, ("memory",), imported=False)
    assert loaded.read(65536, 65541) == b"hello"
    assert loaded.call("load") == ord("h")


def test_the_import_asks_for_no_size_so_that_any_memory_matches():
    plan = Loaded(wasm("(module (memory 3 7))"))
    (entry,) = plan.module.imports

    assert (entry.module, entry.name) == ("arkml", "memory")
    assert (entry.type.limits.min, entry.type.limits.max) == (0, None)


def test_an_imported_memory_is_renamed_in_its_place():
    loaded = Loaded(
        wasm(
            """(module
              (import "env" "before" (func $before (result i32)))
              (import "env" "memory" (memory 1 4))
              (import "env" "after" (func $after (result i32)))
              (export "out" (memory 0))
              (func (export "both") (result i32)
                (i32.add (call $before) (i32.mul (i32.const 10) (call $after)))))"""
        ),
        imports=[
            ("env", "before", FuncType([], [ValType.i32()]), lambda: 1),
            ("env", "after", FuncType([], [ValType.i32()]), lambda: 2),
        ],
    )

    assert loaded.normalized.memory == MemoryPlan(1, 4, ("out",), imported=True)
    assert [entry.name for entry in loaded.module.imports] == ["before", "memory", "after"]
    assert loaded.call("both") == 21


@pytest.mark.parametrize(
    ("memory", "segments", "pages"),
    [
        ("0", '(data (i32.const 0) "a")', 1),
        ("0", '(data (i32.const 65535) "a")', 1),
        ("0", '(data (i32.const 65535) "ab")', 2),
        ("0 1", '(data (i32.const 65535) "ab")', 1),
        ("3", '(data (i32.const 0) "a")', 3),
        ("0", '(data (i32.const -1) "a")', 65_536),
        ("0", '(data "a")', 0),
        ("0", "", 0),
    ],
)
def test_an_imported_memory_has_room_for_the_data(memory, segments, pages):
    text = f'(module (import "env" "memory" (memory {memory})) {segments})'
    assert parse(wasm(text)).first_pages == pages
    own = f"(module (memory {memory}) {segments})"
    assert parse(wasm(own)).first_pages == int(memory.split()[0])


def test_function_imports_keep_their_indices_beside_a_defined_memory():
    calls = []
    loaded = Loaded(
        wasm(
            """(module (import "a" "f" (func $f (param i32))) (memory 1)
               (table funcref (elem $f $g))
               (func $g (param i32) (call $f (i32.add (local.get 0) (i32.const 100))))
               (func (export "both") (call $f (i32.const 1)) (call $g (i32.const 2))
                 (call_indirect (param i32) (i32.const 3) (i32.const 1))))"""
        ),
        imports=[("a", "f", FuncType([ValType.i32()], []), calls.append)],
    )
    loaded.call("both")

    assert calls == [1, 102, 103]


def test_passive_data_and_the_data_count_survive():
    loaded = Loaded(
        wasm(
            """(module (memory (export "memory") 1) (data $late "later") (data (i32.const 0) "now")
               (func (export "init")
                 (memory.init $late (i32.const 8) (i32.const 0) (i32.const 5))
                 (data.drop $late)))"""
        )
    )
    loaded.call("init")

    assert loaded.read(0, 13) == b"now" + b"\0" * 5 + b"later"
    assert parse(loaded.normalized.wasm).data_count == 2


def test_the_guest_sees_the_size_that_the_host_gave_it():
    loaded = Loaded(
        wasm(
            """(module (memory 2 3)
               (func (export "size") (result i32) (memory.size))
               (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0))))"""
        )
    )

    assert loaded.call("size") == 2
    assert loaded.call("grow", 1) == 2
    assert loaded.call("size") == 3
    assert loaded.call("grow", 1) == -1


def test_every_name_of_an_exported_memory_stays():
    loaded = Loaded(
        wasm(
            """(module (memory $m 1) (export "first" (memory $m))
               (export "heap" (memory $m)) (export "memory" (memory $m)))"""
        )
    )
    exports = loaded.instance.exports(loaded.store)

    assert loaded.normalized.memory.exports == ("first", "heap", "memory")
    assert all(isinstance(exports[name], Memory) for name in ("first", "heap", "memory"))


def test_a_start_function_runs_only_when_it_is_called():
    loaded = Loaded(
        wasm(
            """(module (memory (export "memory") 1) (global $n (mut i32) (i32.const 0))
               (func $begin (global.set $n (i32.const 7)) (i32.store8 (i32.const 0) (i32.const 9)))
               (start $begin)
               (func (export "n") (result i32) (global.get $n)))"""
        )
    )
    before = loaded.call("n")
    loaded.call("arkml:start")

    assert list(loaded.normalized.added) == ["arkml:start"]
    assert (before, loaded.call("n"), loaded.read(0, 1)) == (0, 7, b"\x09")


def test_a_start_function_may_be_an_import_of_a_module_without_exports_and_memory():
    calls = []
    loaded = Loaded(
        wasm('(module (import "a" "go" (func $go)) (start $go))'),
        imports=[("a", "go", FuncType([], []), lambda: calls.append("go"))],
    )
    before = list(calls)
    loaded.call("arkml:start")

    assert (before, calls) == ([], ["go"])
    assert loaded.normalized.memory is None


def test_a_module_without_memory_and_start_stays_as_it_is():
    data = wasm('(module (func (export "add") (param i32) (result i32) (local.get 0)))')

    normalized = normalize(data, Limits())

    assert (normalized.wasm, normalized.memory, normalized.added) == (data, None, {})


def test_an_empty_memory_section_is_no_memory():
    data = HEADER + bytes((SectionId.MEMORY, 1, 0))

    normalized = normalize(data, Limits())

    assert (normalized.wasm, normalized.memory) == (data, None)
    Module(Engine(), normalized.wasm)


def test_an_empty_memory_section_beside_an_imported_memory_is_dropped():
    memory_import = bytes((SectionId.IMPORT, 8, 1, 1)) + b"a" + b"\1b\2\0\1"

    normalized = normalize(HEADER + memory_import + bytes((SectionId.MEMORY, 1, 0)), Limits())

    assert normalized.memory == MemoryPlan(1, None, (), imported=True)
    Module(Engine(), normalized.wasm)


def test_custom_sections_keep_their_order_and_their_bytes():
    text = """(module (@custom "first" (before first) "1") (@custom "arkml.spec" "{}")
      (func $named (export "f")) (start $named) (memory 1) (@custom "last" "3"))"""
    data = wasm(text)

    normalized = normalize(data, Limits())

    assert "name" in parse(data).customs
    assert customs(normalized.wasm) == customs(data)


@pytest.mark.parametrize("second", ["{}", "{", ""])
def test_a_declaration_of_agents_comes_once(second):
    data = wasm(f'(module (@custom "arkml.spec" "{{}}") (@custom "arkml.spec" "{second}"))')

    with pytest.raises(ModuleRejected, match=r"arkml\.spec comes twice"):
        parse(data)


def customs(data):
    return [
        data[section.payload : section.end]
        for section in parse(data).sections
        if section.id is SectionId.CUSTOM
    ]


def test_the_code_section_is_copied_untouched():
    data = wasm("(module (memory 1) (func $s (drop (memory.grow (i32.const 1)))) (start $s))")

    assert code(normalize(data, Limits()).wasm) == code(data)


def code(data):
    section = parse(data).section(SectionId.CODE)
    return data[section.start : section.end]


def test_a_tag_and_a_global_between_memory_and_exports_stay_valid():
    loaded = Loaded(
        wasm(
            """(module (tag (param i32)) (memory 1) (global (export "g") i32 (i32.const 5))
               (table 1 funcref) (func $s) (start $s) (elem declare func $s))"""
        )
    )

    assert loaded.instance.exports(loaded.store)["g"].value(loaded.store) == 5


def test_a_module_that_uses_our_own_name_is_refused():
    with pytest.raises(ModuleRejected, match="arkml:start"):
        normalize(wasm('(module (func (export "arkml:start")))'), Limits())


def test_normalizing_twice_changes_nothing_more():
    once = normalize(wasm("(module (memory 1) (func $s) (start $s))"), Limits())

    with pytest.raises(ModuleRejected, match="arkml:start"):
        normalize(once.wasm, Limits())
    without_start = normalize(wasm("(module (memory 1))"), Limits()).wasm
    assert normalize(without_start, Limits()).wasm == without_start


def test_data_that_does_not_fit_fails_at_instantiation_and_not_before():
    data = wasm('(module (memory 1) (data (i32.const 65535) "ab"))')

    with pytest.raises(Trap, match="out of bounds"):
        Loaded(data)


PARTS = {
    "type": "(type (func (param i64)))",
    "import": '(import "a" "f" (func))',
    "function": '(func (export "f") (result i32) (i32.const 3))',
    "table": "(table 1 funcref)",
    "tag": "(tag)",
    "global": '(global (export "g") i32 (i32.const 4))',
    "start": "(func $s) (start $s)",
    "element": "(func $e) (elem declare func $e)",
    "data": '(data "x")',
    "active": '(data (i32.const 0) "y")',
    "custom": '(@custom "c" (before first) "z")',
    "late": '(@custom "d" (after last) "z")',
    "exported": '(export "m" (memory 0))',
}


@given(chosen=st.sets(st.sampled_from(sorted(PARTS))), imported=st.booleans())
def test_any_mixture_of_sections_stays_a_module(chosen, imported):
    memory = '(import "env" "memory" (memory 1))' if imported else "(memory 1)"
    parts = [PARTS[name] for name in PARTS if name in chosen and name != "import"]
    imports = [PARTS["import"]] if "import" in chosen else []
    data = wasm(f"(module {' '.join(imports)} {memory} {' '.join(parts)})")

    loaded = Loaded(data, [("a", "f", FuncType([], []), lambda: None)] if imports else [])

    assert ("arkml:start" in loaded.normalized.added) == ("start" in chosen)
    assert customs(loaded.normalized.wasm) == customs(data)
    if "function" in chosen:
        assert loaded.call("f") == 3


@pytest.mark.parametrize("path", GUESTS, ids=lambda path: path.stem)
def test_guests_of_every_compiler_compile_after_the_rewrite(path):
    data = path.read_bytes()
    normalized = normalize(data, Limits())
    module = Module(Engine(), normalized.wasm)
    own = [entry for entry in module.imports if entry.module == "arkml"]

    assert len(own) == (normalized.memory is not None)
    variables = {global_export(number) for number in range(len(normalized.state.kinds))}
    assert names(normalized.wasm) - set(normalized.added) - variables == names(data)
    assert code(normalized.wasm) == code(data)


def names(data):
    return {export.name for export in parse(data).exports}
