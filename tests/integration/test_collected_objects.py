"""Structs, arrays and exceptions of guests, on the heap that wasmtime collects."""

from __future__ import annotations

import pytest

from arkml import Host, Limits
from arkml.errors import GuestTrap, InstanceLimitExceeded, MemoryLimitExceeded

MIB = 1 << 20
TYPES = """
  (type $array (array (mut i8)))
  (type $node (struct (field (ref null $array)) (field (ref null 1))))
  (tag $tag (param i32))
  (global $kept (mut (ref null $node)) (ref.null $node))
  (func (export "grow") (param i32) (result i32)
    {grow})
  (func (export "caught") (result i32)
    (block $handler (result i32)
      (try_table (catch $tag $handler) (throw $tag (i32.const 7)))
      (i32.const 0)))
  (func (export "hold") (param i32) (local i32)
    (loop $next
      (global.set $kept
        (struct.new $node
          (array.new $array (i32.const 7) (i32.const 1048576)) (global.get $kept)))
      (br_if $next
        (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (local.get 0)))))
"""


def module(memory):
    grow = "(memory.grow (local.get 0))" if memory else "(i32.const -1)"
    return f"(module {memory} {TYPES.format(grow=grow)})".encode()


MEMORIES = ["", "(memory 0)", "(memory 0 0)", "(memory 1 1)", '(memory (export "memory") 1)']


def held(guest, most):
    """Return the number of arrays of 1 MiB that a guest could keep."""
    for number in range(most):
        try:
            guest.call("hold", 1)
        except GuestTrap:
            return number
    return most


@pytest.mark.parametrize("memory", MEMORIES)
def test_exceptions_are_thrown_and_caught_whatever_memory_a_module_has(memory):
    with Host() as host, host.load(module(memory)) as guest:
        assert guest.call("caught") == 7
        assert guest.account.object_bytes > 0


def test_objects_and_memory_together_stay_within_the_bytes_of_a_guest():
    limits = Limits(memory_bytes=256 * MIB, guest_bytes=60 * MIB)
    with Host(limits=limits) as host, host.load(module(MEMORIES[-1])) as guest:
        charged = guest.account.object_bytes
        pages = next(pages for pages in range(2048, 0, -16) if guest.call("grow", pages) != -1)
        objects = held(guest, 256)

        assert charged == 20 * MIB
        assert 15 * MIB < pages << 16 <= 20 * MIB
        assert 8 <= objects <= 20
        assert "no room is left for its structs, arrays" in str(guest.failure)
        assert guest.account.total_bytes <= limits.guest_bytes


def test_a_module_without_a_memory_has_a_bounded_heap():
    with Host(limits=Limits(guest_bytes=30 * MIB)) as host, host.load(module("")) as guest:
        assert 4 <= held(guest, 256) <= 10


@pytest.mark.parametrize("count", [0x400_0000, 0x7FFF_FFFF])
@pytest.mark.parametrize(
    "item",
    [
        "(global (ref $array) {array})",
        "(table 10 (ref $array) {array})",
        "(table 1 (ref null $array)) (elem (i32.const 0) (ref $array) (item {array}))",
    ],
)
def test_objects_that_do_not_fit_at_the_start_are_over_the_limit_of_memory(item, count):
    array = f"(array.new_default $array (i32.const {count}))"
    text = f"(module {MEMORIES[-1]} (type $array (array i64)) {item.format(array=array)})"
    with Host() as host, pytest.raises(MemoryLimitExceeded, match=r"Limits\.memory_bytes"):
        host.load(text.encode(), name="large")


def test_the_heap_of_objects_counts_towards_the_bytes_of_a_host():
    limits = Limits(memory_bytes=64 * MIB, host_bytes=130 * MIB)
    with (
        Host(limits=limits) as host,
        host.load(module(MEMORIES[-1])),  # a guest that nobody holds may be collected before
        pytest.raises(InstanceLimitExceeded, match="host_bytes"),
    ):
        host.load(module(MEMORIES[-1]))


def test_a_module_without_objects_is_charged_for_none():
    with Host() as host, host.load(b'(module (memory 1) (func (export "f")))') as guest:
        assert guest.account.object_bytes == 0
