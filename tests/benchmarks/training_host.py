"""A host with a guest that trains, and acts with a snapshot of the same policy."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.subjects import ACTIONS, check

from arkml import HiveGrant, Host
from arkml.base.closing import Closing
from arkml.guests.guest import calls_of
from arkml.hive.client import HiveClient
from arkml.hive.run_session import RunSession
from arkml.host import hives_of
from arkml.runs.hive_access import HiveAccess

_MODEL = 65_536
PATIENCE = 60.0
_LOOK = 0.005

TRAINING_GUEST = """
(module
  (import "ark-ml-v1" "ml__start_training"
    (func $start (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "ark-ml-v1" "ml__poll_future_training_handle"
    (func $poll (param i64 i32) (result i32)))
  (import "ark-ml-v1" "ml__take_future_training_handle"
    (func $take (param i64 i32) (result i32)))
  (import "ark-ml-v1" "ml__push_training_observation"
    (func $teach (param i64 i64 i32 f32 i32 i32 i32 i32 f32) (result i32)))
  (import "ark-ml-v1" "ml__submit_training_observations"
    (func $submit_training (param i64 i32 i32 i32 i32) (result i32)))
  (import "ark-ml-v1" "ml__start_inference"
    (func $start_inference (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "ark-ml-v1" "ml__push_inference_observation"
    (func $show (param i64 i64 i32 f32 i32 i32 f32) (result i32)))
  (import "ark-ml-v1" "ml__submit_inference_observations"
    (func $submit_inference (param i64 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 192)
  (data (i32.const 64) "bench")
  (global $agents (mut i32) (i32.const 0))
  (global $features (mut i32) (i32.const 0))
  (global $actions (mut i32) (i32.const 0))
  (global $seen i32 (i32.const 4194304))
  (global $answers i32 (i32.const 8388608))
  (global $values i32 (i32.const 10485760))
  (func (export "setup") (param $agents i32) (param $features i32) (param $actions i32)
    (local $at i32) (local $number i32)
    (global.set $agents (local.get $agents))
    (global.set $features (local.get $features))
    (global.set $actions (local.get $actions))
    (local.set $number (i32.const 12345))
    (loop $fill
      (local.set $number
        (i32.add (i32.mul (local.get $number) (i32.const 1664525)) (i32.const 1013904223)))
      (f32.store (i32.add (global.get $seen) (i32.shl (local.get $at) (i32.const 2)))
        (f32.mul (f32.convert_i32_s (local.get $number)) (f32.const 4.656612e-10)))
      (br_if $fill
        (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 1)))
          (i32.mul (local.get $agents) (local.get $features))))))
  (func (export "start") (result i32)
    (call $start (i32.const 64) (i32.const 0) (i32.const 0) (i32.const 64) (i32.const 5)
      (i32.const 64) (i32.const 5) (global.get $features) (global.get $actions) (i32.const 0)))
  (func (export "poll") (result i32)
    (if (call $poll (i64.load (i32.const 0)) (i32.const 32)) (then (return (i32.const -1))))
    (i32.load8_u (i32.const 32)))
  (func (export "take") (result i32) (call $take (i64.load (i32.const 0)) (i32.const 8)))
  (func (export "load") (param $size i32) (result i32)
    (call $start_inference (global.get $features) (global.get $actions)
      (i32.const 65536) (local.get $size) (i32.const 0) (i32.const 16)))
  (func $move
    (local $at i32) (local $end i32) (local $width i32)
    (local.set $at (global.get $seen))
    (local.set $width (i32.shl (global.get $features) (i32.const 2)))
    (local.set $end
      (i32.add (local.get $at) (i32.mul (global.get $agents) (local.get $width))))
    (loop $next
      (f32.store (local.get $at) (f32.neg (f32.load (local.get $at))))
      (br_if $next
        (i32.lt_u (local.tee $at (i32.add (local.get $at) (local.get $width)))
          (local.get $end)))))
  (func (export "train") (param $state i32) (result i32)
    (local $agent i32) (local $codes i32)
    (call $move)
    (loop $next
      (local.set $codes
        (i32.or (local.get $codes)
          (call $teach (i64.load (i32.const 8)) (i64.extend_i32_u (local.get $agent))
            (local.get $state) (f32.const 0.5)
            (i32.add (global.get $seen)
              (i32.shl (i32.mul (local.get $agent) (global.get $features)) (i32.const 2)))
            (global.get $features) (i32.const 0) (i32.const 0) (f32.const 1))))
      (br_if $next
        (i32.lt_u (local.tee $agent (i32.add (local.get $agent) (i32.const 1)))
          (global.get $agents))))
    (i32.or (local.get $codes)
      (call $submit_training (i64.load (i32.const 8)) (global.get $answers)
        (i32.mul (global.get $agents) (global.get $actions))
        (global.get $values) (global.get $agents))))
  (func (export "infer") (param $state i32) (result i32)
    (local $agent i32) (local $codes i32)
    (call $move)
    (loop $next
      (local.set $codes
        (i32.or (local.get $codes)
          (call $show (i64.load (i32.const 16)) (i64.extend_i32_u (local.get $agent))
            (local.get $state) (f32.const 0.5)
            (i32.add (global.get $seen)
              (i32.shl (i32.mul (local.get $agent) (global.get $features)) (i32.const 2)))
            (global.get $features) (f32.const 1))))
      (br_if $next
        (i32.lt_u (local.tee $agent (i32.add (local.get $agent) (i32.const 1)))
          (global.get $agents))))
    (i32.or (local.get $codes)
      (call $submit_inference (i64.load (i32.const 16)) (global.get $answers)
        (i32.mul (global.get $agents) (global.get $actions))
        (global.get $values) (global.get $agents))))
)
"""
RUNNING, INITIAL = 0, 3


class TrainingHost(Closing):
    """
    `agents` with `features` each and three actions, in a run of an embedded hive.

    `settings` are those of the run. No submit waits for the learner, unless `block`. Without
    `learns` there is neither a run nor a hive, and `load` has to come first.
    """

    def __init__(
        self,
        agents: int,
        features: int,
        *,
        learns: bool = True,
        block: bool = False,
        **settings: Any,
    ) -> None:
        grant = HiveGrant(settings=settings, wait_for_learner=block) if learns else None  # type: ignore[arg-type]
        self._host = Host(hive=grant)
        self.guest = self._host.load(TRAINING_GUEST.encode(), name="training")
        self.guest.call("setup", agents, features, ACTIONS)
        if learns:
            check(self.guest.call("start"))
            until(lambda: self.guest.call("poll") != 0)
            check(self.guest.call("take"), self.guest.call("train", INITIAL))

    @property
    def hives(self) -> HiveAccess:
        hives = hives_of(self._host)
        assert hives is not None
        return hives

    @property
    def client(self) -> HiveClient:
        return self.hives.client()

    @property
    def session(self) -> RunSession:
        hives: Any = calls_of(self.guest).services.hives
        session: RunSession = hives.first._session
        return session

    @property
    def waiting(self) -> int:
        """Rows that the hive does not have yet."""
        session = self.session
        return session.outbox.appended - session.settled

    @property
    def server(self) -> int:
        """The process of the hive."""
        hive = self.hives._embedded
        assert hive is not None
        assert hive.pid is not None
        return hive.pid

    @property
    def directory(self) -> Path:
        """That of the run."""
        hive = self.hives._embedded
        assert hive is not None
        assert hive.data is not None
        return next(hive.data.rglob(f"{self.session.run_id}/run.json")).parent

    @property
    def n_opts(self) -> int:
        """Updates of the run, as far as the learner has reported them."""
        return self.client.run(self.session.run_id).result().n_opts

    def train(self) -> None:
        """A frame that teaches."""
        check(self.guest.call("train", RUNNING))

    def infer(self) -> None:
        """A frame that does not."""
        check(self.guest.call("infer", RUNNING))

    def snapshot(self) -> bytes:
        return self.client.snapshot(self.session.run_id, "latest").result()

    def load(self, snapshot: bytes) -> None:
        """Have `infer` act with a snapshot."""
        self.guest.write_memory(_MODEL, snapshot)
        check(self.guest.call("load", len(snapshot)), self.guest.call("infer", INITIAL))

    def drain(self) -> None:
        """Wait until the hive has every row."""
        until(lambda: self.waiting == 0)

    def close(self) -> None:
        self._host.close()


def until(is_done: Callable[[], bool]) -> None:
    """Wait for something that comes within a minute."""
    end = time.monotonic() + PATIENCE
    while not is_done():
        if time.monotonic() > end:
            raise TimeoutError("the hive that is measured does not get on")
        time.sleep(_LOOK)
