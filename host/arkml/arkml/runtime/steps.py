"""
Lists of steps in a Store, by which the instances of a guest are made.

A list is written once, and executed for each guest of a module: by the native library in one call,
or by Python where there is none. Objects that steps make lie in the *room* of the guest, a block of
SLOTS slots of SLOT bytes, each for an instance or for an item of one, such as a function.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import wasmtime

from arkml.runtime import bindings, native
from arkml.runtime.bindings import Address, address_of
from arkml.runtime.native import BY_BLOCK, StepKind

ITEM, SHIM, GUEST, MEMORY, OTHER, SLOTS = range(6)
"""
Slots of a room: the item of a step and the next one, both instances, the memory, and another
instance or item.
"""
SLOT = 32
OF = 8
"""Bytes in a slot before an item, a wasmtime_extern_t; an instance is at its beginning."""


def new_room() -> array[int]:
    """
    Return a new room, the block for the objects of one guest, at an address that never changes.
    """
    return array("Q", (0,)) * (SLOTS * SLOT // 8)


_FUNCTIONS: dict[str, object] = {
    "limit": bindings.limit_store,
    "set_deadline": bindings.set_epoch_deadline,
    "call_at_deadline": bindings.call_at_deadline,
    "prepared": bindings.instantiate_prepared,
    "linked": bindings.instantiate_linked,
    "poll": bindings.poll,
    "delete_future": bindings.delete_future,
    "export_of": bindings.find_export,
    "find": bindings.find_item,
    "define": bindings.define_item,
    "set_global": bindings.set_global,
    "set_element": bindings.set_element,
    "grow": bindings.grow_memory,
}
"""The functions of wasmtime that a `native.BuildSteps` has, by field."""


class NoRoom(Exception):
    """Raised when a memory could not grow."""


class StepList:
    """
    A list of steps that make a guest. Methods add steps; the first `take` completes the list.

    The list keeps alive all objects that its steps refer to, except linkers and prepared modules,
    which the engine closes.
    """

    def __init__(self) -> None:
        self._steps: list[native.BuildStep] = []
        self._kept: list[object] = []

    def limit(self, caps: Sequence[int]) -> None:
        """Add a step that sets the limits of the Store, in the order of `bindings.limit_store`."""
        self._add(StepKind.LIMIT, numbers=caps)

    def set_deadline(self, ticks: int) -> None:
        """Add a step that lets the guest's turns end after this number of ticks."""
        self._add(StepKind.SET_DEADLINE, numbers=(ticks,))

    def end_turns(self, callback: Address, state: Address) -> None:
        """
        Add a step that sets the callback of deadlines, with `state` and the control block's offset.
        """
        self._add(StepKind.TURNS, object=callback, flags=BY_BLOCK, numbers=(state,))

    def instantiate(self, slot: int, linker: wasmtime.Linker, module: wasmtime.Module) -> None:
        """Add a step that instantiates a module with the items of a linker."""
        self._kept.append(module)
        step = self._add(StepKind.LINKED, slot=slot, object=address_of(linker.ptr()))
        step.module = address_of(module.ptr())

    def instantiate_prepared(self, slot: int, prepared: wasmtime.InstancePre) -> None:
        """Add a step that instantiates a module whose imports are resolved."""
        self._kept.append(prepared)
        self._add(StepKind.PREPARED, slot=slot, object=address_of(prepared.ptr()))

    def export(self, instance: int, name: str, slot: int = ITEM) -> None:
        """Add a step that puts an export of an instance into a slot."""
        self._add(StepKind.EXPORT, source=instance, slot=slot, name=name)

    def find(self, linker: wasmtime.Linker, module: str, name: str) -> None:
        """Add a step that looks up an item of a linker."""
        self._add(StepKind.FIND, object=address_of(linker.ptr()), space=module, name=name)

    def define(self, linker: wasmtime.Linker, module: str, name: str, slot: int = ITEM) -> None:
        """Add a step that defines the item in a slot under a name in a linker."""
        self._add(
            StepKind.DEFINE, slot=slot, object=address_of(linker.ptr()), space=module, name=name
        )

    def set_global(self, kind: str, value: int, *, by_block: bool = False) -> None:
        """
        Add a step that sets the present item, a global, to a value.

        With `by_block` the offset of the guest's control block is added to the value.
        """
        step = self._add(StepKind.SET_GLOBAL, flags=BY_BLOCK * by_block, numbers=(value,))
        step.value[0] = bindings.KINDS[kind]

    def set_element(self, table: int) -> None:
        """
        Add a step that puts the present item, a function, into element 0 of the table in a slot.
        """
        self._add(StepKind.SET_ELEMENT, slot=table).value[0] = bindings.FUNCTION_KIND

    def grow(self, memory: int, pages: int) -> None:
        """Add a step that grows the memory in a slot. Executing it raises NoRoom."""
        self._add(StepKind.GROW, slot=memory, numbers=(pages,))

    def take(self, store: Address, context: Address, control: int, room: array[int]) -> None:
        """
        Execute all steps for one guest, whose control block is at the offset `control`.

        Raises WasmtimeError, Trap, NoRoom, and KeyError for an item that does not exist.
        """
        place, _ = room.buffer_info()
        if native.LIBRARY is None:
            for step in self._list:
                _TAKE[step.kind](step, store, context, control, place)
            return
        address = ctypes.addressof(self._whole)
        if number := native.LIBRARY.take_steps(address, store, context, control, place):
            trap, error = room[:2]
            _raise(self._list[number - 1], trap, error)

    @cached_property
    def _list(self) -> Any:
        return (native.BuildStep * len(self._steps))(*self._steps)

    @cached_property
    def _whole(self) -> native.BuildSteps:
        functions = {field: address_of(function) for field, function in _FUNCTIONS.items()}
        place = ctypes.addressof(self._list)
        return native.BuildSteps(steps=place, count=len(self._steps), **functions)

    def _add(
        self,
        kind: int,
        *,
        space: str | None = None,
        name: str | None = None,
        numbers: Sequence[int] = (),
        **fields: int,
    ) -> native.BuildStep:
        step = native.BuildStep(kind=kind, **fields)
        for text, field in ((space, "space"), (name, "name")):
            if text is not None:
                data = text.encode()
                self._kept.append(data)
                setattr(step, field, address_of(ctypes.c_char_p(data)))
                setattr(step, f"{field}_size", len(data))
        step.numbers[: len(numbers)] = list(numbers)
        self._steps.append(step)
        return step


def _raise(step: native.BuildStep, trap: Address, error: Address) -> None:
    """Raise the error that a step left."""
    if trap:
        raise bindings.trap_at(trap)
    if not error:
        raise KeyError(ctypes.string_at(step.name, step.name_size))
    found = bindings.error_at(error)
    raise NoRoom(str(found)) if step.kind == StepKind.GROW else found


def _item(place: Address, slot: int) -> Address:
    """Return the address of an item in a slot."""
    return place + SLOT * slot + OF


def _limit(step: Any, store: Address, *_: int) -> None:
    bindings.limit_store(store, *step.numbers)


def _set_deadline(step: Any, _store: Address, context: Address, *_: int) -> None:
    bindings.set_epoch_deadline(context, step.numbers[0])


def _end_turns(step: Any, store: Address, _context: Address, control: int, _: Address) -> None:
    bindings.call_at_deadline(store, step.object, step.numbers[0] + control, 0)


def _prepared(step: Any, _store: Address, context: Address, _: int, place: Address) -> None:
    into = place + SLOT * step.slot
    bindings.instantiate(bindings.instantiate_prepared, step.object, context, into)


def _linked(step: Any, _store: Address, context: Address, _: int, place: Address) -> None:
    into = place + SLOT * step.slot
    bindings.instantiate(bindings.instantiate_linked, step.object, context, step.module, into)


def _export(step: Any, _store: Address, context: Address, _: int, place: Address) -> None:
    instance, into = place + SLOT * step.source, place + SLOT * step.slot
    if not bindings.find_export(context, instance, step.name, step.name_size, into):
        _raise(step, 0, 0)


def _find(step: Any, _store: Address, context: Address, _: int, place: Address) -> None:
    texts = step.space, step.space_size, step.name, step.name_size
    if not bindings.find_item(step.object, context, *texts, place + SLOT * step.slot):
        _raise(step, 0, 0)


def _define(step: Any, _store: Address, context: Address, _: int, place: Address) -> None:
    texts = step.space, step.space_size, step.name, step.name_size
    from_ = place + SLOT * step.slot
    bindings.check(bindings.define_item(step.object, context, *texts, from_))


def _set_global(step: Any, _store: Address, context: Address, control: int, place: Address) -> None:
    value = bytearray(step.value)
    number = step.numbers[0] + (control if step.flags & BY_BLOCK else 0)
    size = 4 if value[0] == bindings.KINDS["i32"] else 8
    value[OF : OF + size] = number.to_bytes(size, sys.byteorder)
    item = (ctypes.c_uint8 * len(value)).from_buffer(value)
    bindings.check(bindings.set_global(context, _item(place, ITEM), ctypes.addressof(item)))


def _set_element(step: Any, _store: Address, context: Address, _: int, place: Address) -> None:
    value = bytearray(step.value)
    value[OF:] = ctypes.string_at(_item(place, ITEM), len(value) - OF)
    item = (ctypes.c_uint8 * len(value)).from_buffer(value)
    table = _item(place, step.slot)
    bindings.check(bindings.set_element(context, table, 0, ctypes.addressof(item)))


def _grow(step: Any, _store: Address, context: Address, _: int, place: Address) -> None:
    before = ctypes.c_uint64()
    memory = _item(place, step.slot)
    error = bindings.grow_memory(context, memory, step.numbers[0], ctypes.addressof(before))
    if error:
        _raise(step, 0, error)


_TAKE: dict[int, Callable[..., None]] = {
    StepKind.LIMIT: _limit,
    StepKind.SET_DEADLINE: _set_deadline,
    StepKind.TURNS: _end_turns,
    StepKind.PREPARED: _prepared,
    StepKind.LINKED: _linked,
    StepKind.EXPORT: _export,
    StepKind.FIND: _find,
    StepKind.DEFINE: _define,
    StepKind.SET_GLOBAL: _set_global,
    StepKind.SET_ELEMENT: _set_element,
    StepKind.GROW: _grow,
}
