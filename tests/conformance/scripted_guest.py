"""A guest that runs a script of import calls from its memory, thousands in one call."""

import struct
from dataclasses import dataclass

from arkml.abi.catalog import APIS
from arkml.abi.layout import results, slots
from arkml.abi.wat import import_

SLOTS = 16
STEP = struct.Struct(f"<II{SLOTS}Q")
PAGE = 65_536
INPUT = 0x8000
"""Address at which `ark_alloc` puts the input of a call."""
SIZE, ROOM = 0x40, 0x4000
"""Addresses of the sizes of vectors, and of vectors and other results."""
MODEL = 0x200
"""Address of models and other input of calls."""

_ROWS = [(api, function) for api in APIS for function in api.functions]
_NAMES = {f"{api.module}.{api.symbol(f)}": (index, f) for index, (api, f) in enumerate(_ROWS)}
_KINDS = {name: [slot.wasm for slot in slots(f)] for name, (_, f) in _NAMES.items()}
_INDICES = {name: index for name, (index, _) in _NAMES.items()}
_OWN = {
    "memory.grow": ("i32", "(memory.grow {0})"),
    "memory.fill": ("i32 i32 i32", "(memory.fill {0} {1} {2}) (i32.const 0)"),
    "spin": ("", "(loop $on (br $on)) (i32.const 0)"),
    "trap": ("", "unreachable"),
}
for _index, (_name, (_kinds, _)) in enumerate(_OWN.items(), len(_ROWS)):
    _KINDS[_name] = _kinds.split()
    _INDICES[_name] = _index


@dataclass(frozen=True, slots=True)
class Cell:
    """An argument that lies in guest memory as eight bytes when its call is made."""

    address: int


def step(name, *arguments):
    """One import call, or one of `memory.grow`, `memory.fill`, `spin` and `trap`, as bytes."""
    kinds = _KINDS[name]
    assert len(arguments) == len(kinds), f"{name} takes {kinds}"
    indirect = 0
    words = [0] * SLOTS
    for place, (kind, argument) in enumerate(zip(kinds, arguments, strict=True)):
        if isinstance(argument, Cell):
            indirect |= 1 << place
            words[place] = argument.address
        elif kind == "f32":
            words[place] = bits(argument)
        else:
            words[place] = argument & 0xFFFF_FFFF_FFFF_FFFF
    return STEP.pack(_INDICES[name], indirect, *words)


def bits(number):
    """The bits of an f32; numbers that are bits already stay."""
    if isinstance(number, int):
        return number & 0xFFFF_FFFF
    return struct.unpack("<I", struct.pack("<f", number))[0]


def module(pages=4):
    """
    Render the guest, whose memory has `pages` pages that may grow.

    `run(script, count, codes)` makes `count` calls and stores an i32 for each. `entry(ptr, len)`
    does the same with the three numbers at address 0; its input lies at INPUT.
    """
    lines = ["(module", *(f"  {import_(api, function)}" for api, function in _ROWS)]
    lines.append(f'  (memory (export "memory") {pages})')
    names = " ".join(f"$step{index}" for index in range(len(_INDICES)))
    lines += ["  (type $step (func (param i32) (result i32)))", f"  (table funcref (elem {names}))"]
    lines.append(_WORD)
    lines += [_forward(index, *row) for index, row in enumerate(_ROWS)]
    for index, (kinds, body) in enumerate(_OWN.values(), len(_ROWS)):
        arguments = [_argument(place, kind) for place, kind in enumerate(kinds.split())]
        lines.append(_function(index, body.format(*arguments)))
    return "\n".join([*lines, _RUN, ")"]).encode()


def _forward(index, api, function):
    arguments = (_argument(place, slot.wasm) for place, slot in enumerate(slots(function)))
    call = f"(call ${api.module}.{api.symbol(function)} {' '.join(arguments)})"
    return _function(index, call if results(function) else f"{call} (i32.const 0)")


def _function(index, body):
    return f"  (func $step{index} (param $at i32) (result i32) {body})"


def _argument(place, kind):
    word = f"(call $word (local.get $at) (i32.const {place}))"
    match kind:
        case "i64":
            return word
        case "i32":
            return f"(i32.wrap_i64 {word})"
        case "f32":
            return f"(f32.reinterpret_i32 (i32.wrap_i64 {word}))"
        case _:
            raise ValueError(f"no import takes a {kind}")


_WORD = """
  (func $word (param $at i32) (param $place i32) (result i64) (local $word i64)
    (local.set $word (i64.load offset=8
      (i32.add (local.get $at) (i32.shl (local.get $place) (i32.const 3)))))
    (if (i32.and (i32.shr_u (i32.load offset=4 (local.get $at)) (local.get $place)) (i32.const 1))
      (then (local.set $word (i64.load (i32.wrap_i64 (local.get $word))))))
    (local.get $word))"""

_RUN = f"""
  (func $run (export "run") (param $at i32) (param $count i32) (param $codes i32)
    (block $done (loop $next (br_if $done (i32.eqz (local.get $count)))
      (i32.store (local.get $codes) (call_indirect (type $step) (local.get $at)
        (i32.load (local.get $at))))
      (local.set $at (i32.add (local.get $at) (i32.const {STEP.size})))
      (local.set $codes (i32.add (local.get $codes) (i32.const 4)))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $next))))
  (func (export "entry") (param i32 i32) (result i32)
    (call $run (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.load (i32.const 8)))
    (i32.const 0))
  (func (export "ark_alloc") (param i32 i32) (result i32) (i32.const {INPUT}))
  (func (export "ark_free") (param i32 i32 i32))"""


class ScriptedGuest:
    """A guest whose script lies at `script`, behind the memory that the calls read and write."""

    def __init__(self, guest, *, script=PAGE):
        self.guest = guest
        self.script = script

    def __call__(self, *steps, **options):
        """Make the calls in one call of the guest; returns what each answered."""
        codes = self.place(steps)
        self.guest.call("run", self.script, len(steps), codes, **options)
        return self.answers(len(steps))

    def entry(self, *steps, data):
        """The same in an entry point that is given `data`."""
        self.guest.write_memory(0, struct.pack("<III", self.script, len(steps), self.place(steps)))
        reply = self.guest.invoke("entry", data)
        return self.answers(len(steps)), reply

    def place(self, steps):
        """Write the script; returns where its codes go."""
        script = b"".join(steps)
        self.guest.write_memory(self.script, script + b"\xee" * (4 * len(steps)))
        return self.script + len(script)

    def answers(self, count):
        """The codes of the last script of `count` calls."""
        data = self.guest.read_memory(self.script + count * STEP.size, 4 * count)
        return list(struct.unpack(f"<{count}I", data))

    def put(self, address, data):
        self.guest.write_memory(address, data)
        return address

    def u32(self, address):
        return int.from_bytes(self.guest.read_memory(address, 4), "little")

    def u64(self, address):
        return int.from_bytes(self.guest.read_memory(address, 8), "little")

    def floats(self, address, count):
        return list(struct.unpack(f"<{count}f", self.guest.read_memory(address, 4 * count)))

    def vector(self, name, *arguments):
        """Call an import whose result is a vector and fetch it: the code, and the bytes or None."""
        self.put(SIZE, b"\xee" * 8)
        codes = self(
            step(name, *arguments, SIZE),
            step("ark-core-v4.core__take_host_return_vec", ROOM, Cell(SIZE)),
        )
        if codes[0]:
            assert self.u32(SIZE) == 0xEEEE_EEEE, "a refused call wrote a size"
            return codes[0], None
        assert codes[1] == 0
        return 0, self.guest.read_memory(ROOM, self.u32(SIZE))

    def value(self, size, name, *arguments):
        """Call an import that has a result of `size` bytes: the code, and the bytes or None."""
        self.put(ROOM, b"\xee" * (size + 8))
        (code,) = self(step(name, *arguments, ROOM))
        data = self.guest.read_memory(ROOM, size + 8)
        assert data[size:] == b"\xee" * 8, f"{name} wrote more than {size} bytes"
        if code:
            assert data[:size] == b"\xee" * size, f"{name} was refused and wrote"
        return code, None if code else data[:size]

    def handle(self, size, name, *arguments):
        code, data = self.value(size, name, *arguments)
        assert code == 0, f"{name} answered {code}"
        return int.from_bytes(data, "little")
