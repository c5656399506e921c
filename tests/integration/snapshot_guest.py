"""A guest whose whole state a test can change and see: sessions, rows, globals, memory."""

from tests.integration.guest_text import (
    CONNECT,
    DROP,
    PUSH,
    START,
    STOP,
    SUBMIT,
    data,
    function,
    i32,
    module,
)
from tests.unit.policy_models import adding, linear, noisy

MODELS = {"linear": linear([[2.0]]), "adding": adding(1), "noisy": noisy(1), "wide": adding(2)}
"""The models of the guest, in the order of their numbers: one feature each, two of the last."""

_STARTS, _at = {}, 0x1000
for _name, _model in MODELS.items():
    _STARTS[_name] = _at
    _at += (len(_model) + 7) & ~7
assert _at < 0x8000

HANDLES, FUTURE, FEATURES, SPEND, ACTIONS, VALUES = 0x100, 0x80, 0x90, 640, 0x10000, 0x18000


def _open(number, name):
    width = 2 if name == "wide" else 1
    return f"""(if (i32.eq (local.get $model) {i32(number)}) (then (return
        (call ${START} {i32(width)} {i32(width)} {i32(_STARTS[name])} {i32(len(MODELS[name]))}
          {i32(0)} (call $place (local.get $slot))))))"""


_HANDLE = "(i64.load (call $place (local.get $slot)))"

MANY_SESSIONS = module(
    *(data(_STARTS[name], model) for name, model in MODELS.items()),
    data(SPEND, b"localhost"),
    """
    (global $count (mut i32) (i32.const 0))
    (global $long (mut i64) (i64.const 1))
    (global $real (mut f32) (f32.const 0.5))
    (global $double (mut f64) (f64.const 0.5))
    (global $vector (mut v128) (v128.const i32x4 1 2 3 4))
    (func $place (param $slot i32) (result i32)
      (i32.add (i32.const 0x100) (i32.shl (local.get $slot) (i32.const 3))))""",
    function(
        "open",
        "".join(_open(number, name) for number, name in enumerate(MODELS)) + i32(-1),
        params="(param $slot i32) (param $model i32)",
        result="i32",
    ),
    function("close", f"(call ${STOP} {_HANDLE})", params="(param $slot i32)", result="i32"),
    function("handle", _HANDLE, params="(param $slot i32)", result="i64"),
    function(
        "push",
        f"""(f32.store {i32(FEATURES)} (local.get $x))
        (f32.store {i32(FEATURES + 4)} (local.get $x))
        (call ${PUSH} {_HANDLE} (local.get $id) {i32(0)} (f32.const 0.5)
          {i32(FEATURES)} (local.get $width) (f32.const 0.1))""",
        params="(param $slot i32) (param $id i64) (param $x f32) (param $width i32)",
        result="i32",
    ),
    function(
        "submit",
        f"""(call ${SUBMIT} {_HANDLE} {i32(ACTIONS)}
          (i32.mul (local.get $n) (local.get $width)) {i32(VALUES)} (local.get $n))""",
        params="(param $slot i32) (param $n i32) (param $width i32)",
        result="i32",
    ),
    function(
        "action",
        f"(f32.load (i32.add {i32(ACTIONS)} (i32.shl (local.get $row) {i32(2)})))",
        params="(param $row i32)",
        result="f32",
    ),
    function(  # a handle that is of no session, and is dropped again
        "use_up_a_handle",
        f"""(drop (call ${CONNECT} {i32(SPEND)} {i32(9)} {i32(12356)} {i32(FUTURE)}))
        (call ${DROP} (i64.load {i32(FUTURE)}))""",
        result="i32",
    ),
    function("connect", f"(call ${CONNECT} {i32(SPEND)} {i32(9)} {i32(12356)} {i32(FUTURE)})",
             result="i32"),
    function("drop_future", f"(call ${DROP} (i64.load {i32(FUTURE)}))", result="i32"),
    function(
        "turn",
        """(global.set $count (i32.add (global.get $count) (i32.const 1)))
        (global.set $long (i64.mul (global.get $long) (i64.const 6364136223846793005)))
        (global.set $real (f32.sqrt (global.get $real)))
        (global.set $double (f64.sqrt (global.get $double)))
        (global.set $vector (i32x4.add (global.get $vector) (i32x4.splat (global.get $count))))
        (i32.store (i32.const 0x8000) (global.get $count))
        (global.get $count)""",
        result="i32",
    ),
    function(
        "globals",
        """(global.get $count) (global.get $long) (global.get $real) (global.get $double)
        (i64x2.extract_lane 0 (global.get $vector)) (i64x2.extract_lane 1 (global.get $vector))""",
        result="i32 i64 f32 f64 i64 i64",
    ),
    function("pages", "(memory.size)", result="i32"),
    function("grow", "(memory.grow (local.get $n))", params="(param $n i32)", result="i32"),
    function("boom", "unreachable"),
    uses=(START, PUSH, SUBMIT, STOP, CONNECT, DROP),
    memory='(memory (export "memory") 2 40)',
)  # fmt: skip
"""Sessions in 16 slots of its own; each function does one thing, and returns what it was told."""


def width_of(name):
    """The number of features and actions of a model."""
    return 2 if name == "wide" else 1


def memory_of(guest):
    """The whole memory of a guest."""
    from arkml.guests.guest import calls_of

    with calls_of(guest).instance.memory() as memory:
        return memory.read(0, memory.pages << 16)
