"""Both ways to suspend: machine code, and the Python callback of other machines."""

import platform

import pytest

import arkml
from arkml.runtime import suspension

IS_X86_64 = platform.machine() in ("x86_64", "AMD64")  # others have no machine code

GUEST = """(module
  (import "ark-time-v1" "time__time_utc" (func $now (param i32)))
  (memory (export "memory") 1)
  (func (export "times") (param $count i32) (result i32)
    (loop $again
      (call $now (i32.const 0))
      (br_if $again (local.tee $count (i32.sub (local.get $count) (i32.const 1)))))
    (i64.gt_s (i64.load (i32.const 0)) (i64.const 0))))"""


@pytest.mark.parametrize("native", [True, False])
def test_a_guest_suspends_and_goes_on(native, monkeypatch):
    if not native:
        monkeypatch.setattr(suspension, "_CODE", None)
    with arkml.Host() as host:
        answer = host.load(GUEST.encode()).call("times", 100)

    assert answer == 1


def test_the_page_of_machine_code_is_not_writable():
    assert suspension.NATIVE == IS_X86_64
    assert modes_of(suspension._CODE) == ["r-xp"] * IS_X86_64


def modes_of(code):
    """Return how the page of machine code may be used; nothing where there is none."""
    if code is None:
        return []
    with open("/proc/self/maps") as maps:  # noqa: PTH123  procfs
        return [line.split()[1] for line in maps if code.address in range_of(line)]


def range_of(line):
    start, end = line.split()[0].split("-")
    return range(int(start, 16), int(end, 16))
