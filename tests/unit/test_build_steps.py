"""Lists of steps by which the instances of a guest are made, in both ways of taking them."""

import ctypes

import pytest
import wasmtime

from arkml.runtime import bindings, native
from arkml.runtime.steps import (
    GUEST,
    ITEM,
    MEMORY,
    OF,
    OTHER,
    SHIM,
    SLOT,
    NoRoom,
    StepList,
    new_room,
)

BOTH = pytest.mark.parametrize("library", [native.LIBRARY, None], ids=["native", "python"])
CONTROL = 0x1_0000
PROVIDER = """(module
  (memory (export "memory") 0)
  (global (export "small") (mut i32) (i32.const 0))
  (global (export "large") (mut i64) (i64.const 0))
  (table (export "table") 1 funcref)
  (func (export "read") (result i64)
    (i64.add (global.get 1) (i64.extend_i32_u (global.get 0))))
  (func (export "call") (result i64) (call_indirect (result i64) (i32.const 0))))"""
USER = """(module
  (import "host" "read" (func $read (result i64)))
  (import "host" "memory" (memory 0))
  (func (export "doubled") (result i64) (i64.mul (i64.const 2) (call $read))))"""


class World:
    """A Store with a linker, and the room of a guest."""

    def __init__(self):
        self.engine = wasmtime.Engine()
        self.linker = wasmtime.Linker(self.engine)
        self.store = bindings.new_store(bindings.address_of(self.engine.ptr()), None, None)
        self.context = bindings.store_context(self.store)
        self.room = new_room()

    def module(self, text):
        return wasmtime.Module(self.engine, text)

    def take(self, steps):
        steps.take(self.store, self.context, CONTROL, self.room)

    def place(self, slot):
        return self.room.buffer_info()[0] + slot * SLOT + OF

    def call(self, slot):
        value, trap = (ctypes.c_uint64 * 2)(), ctypes.c_uint64()
        error = bindings.call(
            self.context, self.place(slot), ctypes.addressof(value), 1, ctypes.addressof(trap)
        )
        bindings.check(error)
        assert trap.value == 0
        return value[0]


@pytest.fixture
def world(library, monkeypatch):
    monkeypatch.setattr(native, "LIBRARY", library)
    made = World()
    yield made
    bindings.delete_store(made.store)


def provided(world):
    steps = StepList()
    steps.limit((3 << 16, 10, 4, 4, 4))
    steps.instantiate(SHIM, world.linker, world.module(PROVIDER))
    return steps


@BOTH
def test_steps_make_instances_that_use_each_other(world):
    steps = provided(world)
    steps.export(SHIM, "small")
    steps.set_global("i32", 7, by_block=True)
    steps.export(SHIM, "large")
    steps.set_global("i64", 1 << 40)
    steps.export(SHIM, "memory", MEMORY)
    steps.grow(MEMORY, 2)
    steps.define(world.linker, "host", "memory", MEMORY)
    steps.export(SHIM, "read")
    steps.define(world.linker, "host", "read")
    steps.find(world.linker, "host", "read")
    steps.define(world.linker, "host", "same")
    steps.instantiate_prepared(OTHER, bindings.prepare(world.linker, world.module("(module)")))
    steps.instantiate(GUEST, world.linker, world.module(USER))
    steps.export(GUEST, "doubled")
    steps.export(SHIM, "table", OTHER)
    steps.set_element(OTHER)
    steps.export(SHIM, "call", OTHER)

    world.take(steps)

    expected = 2 * ((1 << 40) + 7 + CONTROL)
    assert (world.call(ITEM), world.call(OTHER)) == (expected, expected)
    assert bindings.memory_size(world.context, world.place(MEMORY)) == 2


@BOTH
def test_a_memory_that_may_not_grow_so_far_has_no_room(world):
    steps = provided(world)
    steps.export(SHIM, "memory", MEMORY)
    steps.grow(MEMORY, 4)

    with pytest.raises(NoRoom, match="grow"):
        world.take(steps)
    assert bindings.memory_size(world.context, world.place(MEMORY)) == 0


@BOTH
def test_an_item_that_there_is_not_is_named(world):
    of_instance, of_linker = provided(world), StepList()
    of_instance.export(SHIM, "nothing")
    of_linker.find(world.linker, "host", "nobody")

    with pytest.raises(KeyError, match="nothing"):
        world.take(of_instance)
    with pytest.raises(KeyError, match="nobody"):
        world.take(of_linker)


@BOTH
def test_errors_and_traps_of_instances_are_raised_and_end_the_list(world):
    unlinked, trapping = StepList(), StepList()
    unlinked.instantiate(GUEST, world.linker, world.module(USER))
    unlinked.export(SHIM, "never", ITEM)
    segment = '(module (memory 0) (data (i32.const 9) "x"))'
    trapping.instantiate(GUEST, world.linker, world.module(segment))

    with pytest.raises(wasmtime.WasmtimeError, match="unknown import"):
        world.take(unlinked)
    with pytest.raises(wasmtime.Trap, match="out of bounds"):
        world.take(trapping)


@BOTH
def test_a_store_has_the_limits_of_its_steps(world):
    steps = StepList()
    steps.limit((1 << 16, 10, 4, 4, 0))
    steps.instantiate(SHIM, world.linker, world.module(PROVIDER))

    with pytest.raises(wasmtime.WasmtimeError, match="memory count"):
        world.take(steps)
