"""The guests that the tests write for themselves, as wasm text."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import prefork
from tools.houses import PYTHONPATH

ROOT = Path(__file__).parents[2]
GUESTS = ROOT / "fixtures" / "guests"
POINTMASS = (GUESTS / "policies" / "pointmass.onnx").read_bytes()
"""Two features to one action: `-position - 1.5 velocity`."""
NNEF = (ROOT / "fixtures" / "policies" / "cervo" / "plain.nnef.crvo").read_bytes()

_IMPORT = re.compile(r'^\s*\(import "([^"]+)" "([^"]+)"')
_IMPORTS = {
    f"{found[1]}.{found[2]}": line
    for line in (ROOT / "guest_abi/wat/ark_imports.wat").read_text().splitlines()
    if (found := _IMPORT.match(line))
}


def module(*parts, uses=(), imports=(), memory='(memory (export "memory") 1)'):
    """
    A module of these parts.

    `uses` names functions of the ABI, which keep their names; `imports` are other imports.
    """
    lines = [*(_IMPORTS[name].strip() for name in uses), *imports]
    return "\n".join(["(module", *lines, memory, *parts, ")"]).encode()


def data(offset, content):
    """A data segment."""
    escaped = "\\" + content.hex("\\") if content else ""
    return f'(data (i32.const {offset}) "{escaped}")'


def function(name, body, params="", result=""):
    """An exported function."""
    returns = f"(result {result})" if result else ""
    return f'(func ${name} (export "{name}") {params} {returns} {body})'


def logging_of(text, at=900, level=2):
    """The data and the body of a function that logs `text`; `uses` must have LOG."""
    content = text.encode()
    call = f"(drop (call $ark-core-v3.core__log {i32(level)} {i32(at)} {i32(len(content))}))"
    return data(at, content), call


def i32(value):
    return f"(i32.const {value})"


def wasi(name, params):
    """The import of a WASI function, which is called `$NAME`."""
    return (
        f'(import "wasi_snapshot_preview1" "{name}"'
        f" (func ${name} (param {params}) (result i32)))".replace(" (param )", "")
    )


LOG = "ark-core-v3.core__log"
RETURN = "ark-core-v0.core__return_slice"
INPUT = "ark-core-v0.core__get_input_slice"
PANIC = "ark-core-v2.core__register_panic"
START = "ark-ml-v1.ml__start_inference"
PUSH = "ark-ml-v1.ml__push_inference_observation"
SUBMIT = "ark-ml-v1.ml__submit_inference_observations"
STOP = "ark-ml-v1.ml__stop_inference"
CONNECT = "ark-ml-v1.ml__can_connect_to_hive"
POLL_BOOL = "ark-ml-v1.ml__poll_future_bool"
TAKE_BOOL = "ark-ml-v1.ml__take_future_bool"
DROP = "ark-ml-v1.ml__drop_future"

TRAIN = "ark-ml-v1.ml__start_training"
TAKE_TRAINING = "ark-ml-v1.ml__take_future_training_handle"
PUSH_TRAINING = "ark-ml-v1.ml__push_training_observation"
SUBMIT_TRAINING = "ark-ml-v1.ml__submit_training_observations"

ALLOCATOR = """
(global $top (mut i32) (i32.const 32768))
(func (export "ark_alloc") (param $size i32) (param $align i32) (result i32)
  (if (i32.eqz (local.get $size)) (then unreachable))
  (global.set $top (i32.add (global.get $top) (local.get $size)))
  (i32.sub (global.get $top) (local.get $size)))
(func (export "ark_free") (param $ptr i32) (param $size i32) (param $align i32)
  (if (i32.eqz (local.get $size)) (then unreachable))
  (if (i32.eq (i32.add (local.get $ptr) (local.get $size)) (global.get $top))
    (then (global.set $top (local.get $ptr)))))
"""
"""An allocator that traps when it is asked for nothing."""

HANDLE, FUTURE, OUT, FEATURES, MODEL = 8, 16, 24, 64, 1024
ACTIONS, VALUES = 0x10000, 0x18000
POSITION, VELOCITY = 0.5, -0.25
ACTION = -POSITION - 1.5 * VELOCITY
"""What the policy answers to the features that every row of ACTOR has."""

_RUNNING_TEXT, _SAY_RUNNING = logging_of("running", at=512)


def opening(name, offset, size, handle):
    """A function that opens a session of the model of `size` bytes, with its handle at `handle`."""
    call = f"(call ${START} {i32(2)} {i32(1)} {i32(offset)} {i32(size)} {i32(0)} {i32(handle)})"
    return function(name, call, result="i32")


def asking(pointer, size, then="", hive=b"localhost"):
    """
    An applet that asks a hive for the training of a run, and does `then` in each frame of it.

    The name of the run has `size` bytes at `pointer`; at byte 80 are "ball" and two bytes that are
    not UTF-8. The handle of the session is at HANDLE.
    """
    name = f"{i32(pointer)} {i32(size)}"
    return module(
        data(64, hive),
        data(80, b"ball\xff\xfe"),
        function(
            "ark_initialize",
            f"(drop (call ${TRAIN} {i32(64)} {i32(len(hive))} {i32(12356)} {i32(80)} {i32(4)}"
            f" {name} {i32(2)} {i32(1)} {i32(OUT)}))",
        ),
        function(
            "ark_applet_update",
            f"(if (i64.eqz (i64.load {i32(HANDLE)})) (then (br_if 1 (call ${TAKE_TRAINING}"
            f" (i64.load {i32(OUT)}) {i32(HANDLE)})))) {then}",
        ),
        uses=(TRAIN, TAKE_TRAINING, PUSH_TRAINING, SUBMIT_TRAINING),
    )


ACTOR = module(
    data(MODEL, POINTMASS),
    f'(data (i32.const {FEATURES}) "\\00\\00\\00\\3f\\00\\00\\80\\be")',
    _RUNNING_TEXT,
    data(640, b"localhost"),
    opening("open", MODEL, len(POINTMASS), HANDLE),
    function("close", f"(call ${STOP} (i64.load {i32(HANDLE)}))", result="i32"),
    function(
        "push",
        f"(call ${PUSH} (i64.load {i32(HANDLE)}) (local.get $id) {i32(0)} (f32.const 0.5)"
        f" {i32(FEATURES)} {i32(2)} (f32.const 0.1))",
        params="(param $id i64)",
        result="i32",
    ),
    function(
        "push_many",
        """(local $code i32)
        (block $done (loop $next
          (br_if $done (i32.eqz (local.get $n)))
          (local.set $n (i32.sub (local.get $n) (i32.const 1)))
          (local.set $code
            (i32.or (local.get $code) (call $push (i64.extend_i32_u (local.get $n)))))
          (br $next)))
        (local.get $code)""",
        params="(param $n i32)",
        result="i32",
    ),
    function(
        "submit",
        f"(call ${SUBMIT} (i64.load {i32(HANDLE)}) {i32(ACTIONS)} (local.get $n)"
        f" {i32(VALUES)} (local.get $n))",
        params="(param $n i32)",
        result="i32",
    ),
    function(
        "step",
        "(i32.or (call $push_many (local.get $n)) (call $submit (local.get $n)))",
        params="(param $n i32)",
        result="i32",
    ),
    function(
        "action",
        f"(f32.load (i32.add {i32(ACTIONS)} (i32.shl (local.get $row) {i32(2)})))",
        params="(param $row i32)",
        result="f32",
    ),
    function("announce", _SAY_RUNNING),
    function(
        "burn",
        """(loop $more (local.set $turns (i32.sub (local.get $turns) (i32.const 1)))
          (br_if $more (i32.ne (local.get $turns) (i32.const 0))))""",
        params="(param $turns i32)",
    ),
    function("spin", "(call $announce) (loop $more (br $more))"),
    function(
        "push_for_ever",  # a submit with the wrong lengths empties the queue and suspends nobody
        """(call $announce)
        (loop $more (drop (call $push_many (i32.const 1000))) (drop (call $submit (i32.const 0)))
          (br $more))""",
    ),
    function(
        "submit_for_ever",
        "(call $announce) (loop $more (drop (call $step (i32.const 4))) (br $more))",
    ),
    function("open_and_push_for_ever", "(drop (call $open)) (call $push_for_ever)"),
    function("open_and_submit_for_ever", "(drop (call $open)) (call $submit_for_ever)"),
    function(
        "burn_and_submit",
        """(loop $more (call $burn (local.get $turns)) (drop (call $step (i32.const 1)))
          (local.set $times (i32.sub (local.get $times) (i32.const 1)))
          (br_if $more (local.get $times)))""",
        params="(param $turns i32) (param $times i32)",
    ),
    function(
        "connect",
        f"(call ${CONNECT} {i32(640)} {i32(9)} {i32(12356)} {i32(FUTURE)})",
        result="i32",
    ),
    function(
        "poll",
        f"(call ${POLL_BOOL} (local.get $future) {i32(OUT)})",
        params="(param $future i64)",
        result="i32",
    ),
    function(
        "poll_until_ready",
        f"""(local $polls i32) (i32.store8 {i32(OUT)} {i32(0)}) (call $announce)
        (loop $more
          (local.set $polls (i32.add (local.get $polls) (i32.const 1)))
          (if (call $poll (local.get $future)) (then unreachable))
          (br_if $more (i32.eqz (i32.load8_u {i32(OUT)}))))
        (local.get $polls)""",
        params="(param $future i64)",
        result="i32",
    ),
    function("boom", "unreachable"),
    function(
        "push_then_boom",
        "(drop (call $push_many (i32.const 3))) unreachable",
    ),
    function("recurse", "(call $recurse)"),
    function("pages", "(memory.size)", result="i32"),
    function("grow", "(memory.grow (local.get $n))", params="(param $n i32)", result="i32"),
    function("answer", i32(42), result="i32"),
    uses=(LOG, START, PUSH, SUBMIT, STOP, CONNECT, POLL_BOOL, DROP),
    memory='(memory (export "memory") 4)',
)
"""A guest that does what it is told: one session, whose every row has the same features."""

SLEEPER = module(
    _RUNNING_TEXT,
    function(
        "sleep",
        f"""(memory.fill (i32.const 0) (i32.const 0) (i32.const 48))
        (i32.store (i32.const 16) (i32.const 1))
        (i64.store (i32.const 24) (local.get $nanoseconds))
        {_SAY_RUNNING}
        (call $poll_oneoff (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))""",
        params="(param $nanoseconds i64)",
        result="i32",
    ),
    function("sleep_long", "(drop (call $sleep (i64.const 3600000000000)))"),
    uses=(LOG,),
    imports=(wasi("poll_oneoff", "i32 i32 i32 i32"),),
)
"""A guest that sleeps through WASI."""

_ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join((PYTHONPATH, str(ROOT)))}

WITH_NNEF = module(
    data(MODEL, NNEF),
    function(
        "open",
        f"(call ${START} {i32(8)} {i32(3)} {i32(MODEL)} {i32(len(NNEF))} {i32(2)} {i32(HANDLE)})",
        result="i32",
    ),
    function(
        "frame",
        f"""(local $id i32)
        (loop $next
          (drop (call ${PUSH} (i64.load {i32(HANDLE)}) (i64.extend_i32_u (local.get $id)) {i32(0)}
            (f32.const 0) {i32(FEATURES)} {i32(8)} (f32.const 0)))
          (local.set $id (i32.add (local.get $id) (i32.const 1)))
          (br_if $next (i32.lt_u (local.get $id) (local.get $n))))
        (call ${SUBMIT} (i64.load {i32(HANDLE)}) {i32(1 << 16)}
          (i32.mul (local.get $n) (i32.const 3)) {i32(1 << 17)} (local.get $n))""",
        params="(param $n i32)",
        result="i32",
    ),
    uses=(START, PUSH, SUBMIT),
    memory='(memory (export "memory") 3)',
)
"""Its model is of NNEF: eight features to three actions, all zeros in `frame`."""


def python(script, *arguments, **options):
    """Run `script` in a process that finds the package and this module."""
    return prefork.run("-c", script, *arguments, env=_ENVIRONMENT, **options)


def spawn(*arguments, **options):
    """Start `python ARGUMENTS`, with pipes for its output."""
    return prefork.start(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_ENVIRONMENT,
        **options,
    )
