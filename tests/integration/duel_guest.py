"""A guest that trains two behaviors of one agent each, in episodes of its own."""

import json

from tests.integration.guest_text import (
    PUSH,
    PUSH_TRAINING,
    START,
    SUBMIT,
    SUBMIT_TRAINING,
    TAKE_TRAINING,
    TRAIN,
    data,
    function,
    i32,
    module,
)

STEPS = 16
"""Steps of an episode."""

_STEP, _EPISODE, _FUTURES, _HANDLES, _FEATURES, _ACTION = 0, 8, 16, 32, 64, 128
_FRAME = 4
_PLACES = {"localhost": 256, "game": 272}
_NAMES = (280, 344)


def duel(first, second, *, late=0, slots=1, rivals=False):
    """
    Return a module with behaviors of these names: 2 and 3 features, 1 action, declared.

    Where nothing is trained it opens inference sessions. With `late` the second begins after so
    many frames of the first, which does not wait for it. `slots` are those of both. With `rivals`
    the reward of each is its own action less that of the other, instead of a half.
    """
    names = (first, second)
    behaviors = {
        name: {
            "observations": [{"shape": [features]}],
            "actions": {"continuous": 1},
            "slots": slots,
        }
        for features, name in enumerate(names, 2)
    }
    spec = json.dumps({"behaviors": behaviors}).replace('"', '\\"')
    if late:
        ready, second_turn = _taken(0), _late(second, late, rivals)
        begin = _started(0, first)
    else:
        ready, second_turn = _taken(0) + _taken(1), _acted(1, rivals)
        begin = _started(0, first) + _started(1, second)
    return module(
        f'(@custom "arkml.spec" "{spec}")',
        "(global $infers (mut i32) (i32.const 0))",
        *(data(at, text.encode()) for text, at in _PLACES.items()),
        *(data(at, text.encode()) for text, at in zip(names, _NAMES, strict=True)),
        data(_FEATURES, bytes.fromhex("0000003f000080be0000803f")),
        function("ark_initialize", begin),
        function(
            "ark_applet_update",
            f"""(local $step i32) (local $state i32)
            (block $wait
              (if (i32.eqz (global.get $infers)) (then {ready}))
              (local.set $step (i32.load {i32(_STEP)}))
              (if (i32.eqz (local.get $step)) (then (local.set $state (i32.const 3))
                (i64.store {i32(_EPISODE)} (i64.add (i64.load {i32(_EPISODE)}) (i64.const 1)))))
              (if (i32.eq (local.get $step) {i32(STEPS)}) (then (local.set $state (i32.const 2))))
              {_acted(0, rivals)} {second_turn}
              (i32.store {i32(_STEP)} (i32.rem_u (i32.add (local.get $step) {i32(1)})
                {i32(STEPS + 1)})))""",
        ),
        uses=(TRAIN, TAKE_TRAINING, PUSH_TRAINING, SUBMIT_TRAINING, START, PUSH, SUBMIT),
    )


def _started(number, name):
    """Start a training or, where there is none, an inference session."""
    texts = " ".join(
        f"{i32(at)} {i32(len(text.encode()))}"
        for at, text in ((_PLACES["game"], "game"), (_NAMES[number], name))
    )
    host = f"{i32(_PLACES['localhost'])} {i32(9)} {i32(12356)}"
    return f"""(if (call ${TRAIN} {host} {texts} {i32(2 + number)} {i32(1)}
        {i32(_FUTURES + 8 * number)})
      (then (global.set $infers (i32.const 1))
        (drop (call ${START} {i32(2 + number)} {i32(1)} {i32(0)} {i32(0)} {i32(0)}
          {i32(_HANDLES + 8 * number)}))))"""


def _take(number):
    handle = i32(_HANDLES + 8 * number)
    return f"(call ${TAKE_TRAINING} (i64.load {i32(_FUTURES + 8 * number)}) {handle})"


def _taken(number):
    handle = i32(_HANDLES + 8 * number)
    return f"(if (i64.eqz (i64.load {handle})) (then (br_if $wait {_take(number)})))"


def _acted(number, rivals):
    own, other = _ACTION + 16 * number, _ACTION + 16 * (1 - number)
    reward = "(f32.const 0.5)"
    if rivals:
        reward = f"(f32.sub (f32.load {i32(own + 12)}) (f32.load {i32(other + 12)}))"
    handle = f"(i64.load {i32(_HANDLES + 8 * number)})"
    row = f"{i32(_FEATURES)} {i32(2 + number)}"
    submitted = f"{handle} {i32(own)} {i32(1)} {i32(own + 8)} {i32(1)}"
    episode = f"(i64.load {i32(_EPISODE)}) (local.get $state) {reward}"
    kept = f"(f32.store {i32(own + 12)} (f32.load {i32(own)}))"  # a row that ended is answered zero
    return f"""(if (global.get $infers)
      (then (drop (call ${PUSH} {handle} {episode} {row} (f32.const 1)))
        (drop (call ${SUBMIT} {submitted})))
      (else (drop (call ${PUSH_TRAINING} {handle} {episode} {row} {i32(0)} {i32(0)} (f32.const 1)))
        (drop (call ${SUBMIT_TRAINING} {submitted}))))
      (if (i32.ne (local.get $state) {i32(2)}) (then {kept}))"""


def _late(name, frames, rivals):
    future, handle = (f"(i64.load {i32(at + 8)})" for at in (_FUTURES, _HANDLES))
    return f"""(i32.store {i32(_FRAME)} (i32.add (i32.load {i32(_FRAME)}) {i32(1)}))
      (if (i32.eq (i32.load {i32(_FRAME)}) {i32(frames)}) (then {_started(1, name)}))
      (if (i64.ne {future} (i64.const 0)) (then
        (if (i64.eqz {handle}) (then (drop {_take(1)})))))
      (if (i64.ne {handle} (i64.const 0)) (then {_acted(1, rivals)}))"""
