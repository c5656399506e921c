"""Guests that try to hold memory of a host through the environment that steps them."""

import numpy as np
from tests.integration.guest_text import function, i32, module

from arkml.abi.codes import EpisodeState
from arkml.envs.core.guest_env import GuestEnv
from arkml.errors import GuestError

PAGE = 65_536
LONG = 600_000  # bytes of a configuration
FEATURES, CONFIGURATION, METADATA, OUT = 131_072, 262_144, 1 << 20, 3 << 19  # addresses
REFUSED, RUN = 16, 24  # addresses of a code, and of the handle of the experiment that is stepped
RUNNING, INITIAL = int(EpisodeState.RUNNING), int(EpisodeState.INITIAL)
NAMES = 256  # of metrics in a submit
WIDTH = 250  # features

_START, _TAKE, _PUSH, _SAY, _GIVE, _SUBMIT, _STOP = (
    f"ark-ml-v{version}.ml__{name}"
    for version, name in (
        (2, "start_training"),
        (1, "take_future_training_handle"),
        (1, "push_training_observation"),
        (1, "push_training_observation_with_metadata"),
        (1, "submit_training_demonstration_observations"),
        (1, "submit_training_observations"),
        (1, "stop_training"),
    )
)
_OTHER = "(i64.load (i32.const 32))"  # the handle of another experiment

_PARTS = (
    '(data (i32.const 64) "script") (data (i32.const 80) "experiment 0000")',
    "(global $next (mut i64) (i64.const 0))",
    # Starts an experiment, whose name has 15 bytes, and stores its handle.
    f"""(func $start (param $name i32) (param $size i32) (param $features i32) (param $at i32)
      (result i32) (local $code i32)
      (local.set $code (call ${_START} {i32(64)} {i32(0)} {i32(0)} {i32(64)} {i32(6)}
        (local.get $name) {i32(15)} (local.get $features) {i32(1)} {i32(0)}
        {i32(CONFIGURATION)} (local.get $size) {i32(8)}))
      (if (result i32) (local.get $code) (then (local.get $code))
        (else (call ${_TAKE} (i64.load {i32(8)}) (local.get $at)))))""",
    # Gives the other experiment a name that none had before.
    f"""(func $rename (local $i i32)
      (loop $next
        (i32.store8 (i32.add {i32(91)} (local.get $i)) (i32.add {i32(97)} (i32.wrap_i64 (i64.and
          (i64.shr_u (global.get $next) (i64.extend_i32_u (i32.shl (local.get $i) {i32(2)})))
          (i64.const 15)))))
        (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) {i32(1)})) {i32(4)})))
      (global.set $next (i64.add (global.get $next) (i64.const 1))))""",
    # Pushes rows of agents that none had before, or of demonstrations.
    f"""(func $rows (param $count i32) (param $features i32) (param $actions i32)
      (loop $next
        (drop (call ${_PUSH} (i64.load {i32(RUN)}) (global.get $next) {i32(RUNNING)} (f32.const 0)
          {i32(FEATURES)} (local.get $features) {i32(FEATURES)} (local.get $actions)
          (f32.const 1)))
        (global.set $next (i64.add (global.get $next) (i64.const 1)))
        (br_if $next (local.tee $count (i32.sub (local.get $count) {i32(1)})))))""",
    # Writes names that none had before.
    f"""(func $names (local $i i32) (local $at i32)
      (loop $next
        (local.set $at (i32.add {i32(METADATA)} (i32.shl (local.get $i) {i32(5)})))
        (i32.store (local.get $at) {i32(0x61616161)})
        (i32.store16 offset=4 (local.get $at) {i32(0x6161)})
        (i32.store8 offset=6 (local.get $at) (i32.add {i32(97)} (i32.and (local.get $i) {i32(15)})))
        (i32.store8 offset=7 (local.get $at)
          (i32.add {i32(97)} (i32.shr_u (local.get $i) {i32(4)})))
        (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) {i32(1)})) {i32(NAMES)}))))""",
)


def guest(each, features=WIDTH):
    """A guest that does something in each frame until it is refused, and then plays one agent."""
    begin = f"(drop (call $start {i32(80)} {i32(0)} {i32(features)} {i32(RUN)})) (call $rename)"
    frame = f"""(if (i32.eqz (i32.load {i32(REFUSED)})) (then (i32.store {i32(REFUSED)} {each})))
      (drop (call ${_PUSH} (i64.load {i32(RUN)}) (i64.const -1) {i32(RUNNING)} (f32.const 0)
        {i32(FEATURES)} {i32(features)} {i32(0)} {i32(0)} (f32.const 1)))
      (drop (call ${_SUBMIT} (i64.load {i32(RUN)}) {i32(OUT)} {i32(1)} {i32(OUT)} {i32(1)}))"""
    return module(
        *_PARTS,
        function("ark_initialize", begin),
        function("ark_applet_update", frame),
        uses=(_START, _TAKE, _PUSH, _SAY, _GIVE, _SUBMIT, _STOP),
        memory='(memory (export "memory") 30)',
    )


GIVES = guest(f"""(block (result i32)
  (call $rows {i32(1_000)} {i32(WIDTH)} {i32(1)}) (call ${_GIVE} (i64.load {i32(RUN)})))""")
"""Submits a thousand demonstrations in each frame."""

LEAVES_AGENTS = guest(f"""(block (result i32)
  (call $rows {i32(2_000)} {i32(WIDTH)} {i32(0)})
  (call ${_SUBMIT} (i64.load {i32(RUN)}) {i32(OUT)} {i32(2_000)} {i32(OUT)} {i32(2_000)}))""")
"""Submits two thousand agents in each frame, which have no row in others."""

STARTS = guest(f"""(block (result i32)
  (memory.fill {i32(CONFIGURATION)} {i32(32)} {i32(LONG)})
  (i32.store8 {i32(CONFIGURATION)} {i32(ord("1"))})
  (call $rename) (call $start {i32(80)} {i32(LONG)} {i32(1)} {i32(32)}))""")
"""Starts an experiment with a long configuration in each frame."""

STARTS_AND_STOPS = guest(f"""(block (result i32)
  (memory.fill {i32(CONFIGURATION)} {i32(32)} {i32(LONG)})
  (i32.store8 {i32(CONFIGURATION)} {i32(ord("1"))})
  (drop (call $start {i32(80)} {i32(LONG)} {i32(1)} {i32(32)}))
  (call ${_STOP} {_OTHER}))""")
"""Starts an experiment with a long configuration in each frame, and stops it."""

SAYS = guest(f"""(block $done (result i32)
  (call $names) (call $rename)
  (i32.store {i32(REFUSED)} (call $start {i32(80)} {i32(0)} {i32(1)} {i32(32)}))
  (if (i32.load {i32(REFUSED)}) (then (br $done (i32.load {i32(REFUSED)}))))
  (drop (call ${_SAY} {_OTHER} (i64.const 1) {i32(INITIAL)} (f32.const 0) {i32(FEATURES)} {i32(1)}
    {i32(FEATURES)} {i32(1)} {i32(METADATA)} {i32(NAMES)}))
  (drop (call ${_GIVE} {_OTHER}))
  (call ${_STOP} {_OTHER}))""")
"""Starts an experiment with as many metrics as it may have in each frame, and stops it."""


class Played:
    """A guest in an environment that was stepped until it was refused."""

    def __init__(self, host, text, most=2_000):
        self.env = GuestEnv(text, host=host)
        step = self.env.reset()
        for _ in range(most):
            if step.has_ended or any(self.env.guest.read_memory(REFUSED, 4)):
                break
            step = self.env.step(np.zeros((len(self.env.decision.acting_agents), 1)))
        self.error: GuestError | None = step.error

    @property
    def account(self):
        return self.env.guest.account
