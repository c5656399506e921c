"""What the actors that are measured are made of; processes of actors import it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from arkml.async_trainer import SyncModel
from arkml.async_trainer.adaptors.guest_env import GuestsConfig
from arkml.async_trainer.core import (
    Agent,
    Env,
    Record,
    SimpleStepProcessor,
    SimpleStepProcessorConfig,
    Step,
)
from arkml.async_trainer.core.env import Flags
from arkml.batches import Floats

FEATURES = 4

# One agent that runs for ever; a frame turns a loop as often as `configure` was told.
_SPINNING_GUEST = """
(module
  (import "ark-ml-v1" "ml__start_training"
    (func $start (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "ark-ml-v1" "ml__take_future_training_handle"
    (func $take (param i64 i32) (result i32)))
  (import "ark-ml-v1" "ml__push_training_observation"
    (func $push (param i64 i64 i32 f32 i32 i32 i32 i32 f32) (result i32)))
  (import "ark-ml-v1" "ml__submit_training_observations"
    (func $submit (param i64 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "spin")
  (global $number (mut i32) (i32.const 1))
  (global $turns (mut i32) (i32.const 1))
  (global $state (mut i32) (i32.const 3))
  (func (export "arkml_seed") (param i64))
  (func (export "configure") (param i32) (result i32)
    (global.set $turns (local.get 0)) (i32.const 0))
  (func (export "ark_initialize")
    (drop (call $start (i32.const 64) (i32.const 0) (i32.const 0) (i32.const 64) (i32.const 4)
      (i32.const 64) (i32.const 4) (i32.const 4) (i32.const 1) (i32.const 0)))
    (drop (call $take (i64.load (i32.const 0)) (i32.const 8))))
  (func (export "ark_applet_update") (local $left i32)
    (local.set $left (global.get $turns))
    (loop $turn
      (global.set $number
        (i32.add (i32.mul (global.get $number) (i32.const 1664525)) (i32.const 1013904223)))
      (br_if $turn (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (drop (call $push (i64.load (i32.const 8)) (i64.const 1) (global.get $state) (f32.const 0)
      (i32.const 128) (i32.const 4) (i32.const 0) (i32.const 0) (f32.const 1)))
    (global.set $state (i32.const 0))
    (drop (call $submit (i64.load (i32.const 8)) (i32.const 256) (i32.const 1)
      (i32.const 512) (i32.const 1)))))
"""


def spinning(turns: int) -> GuestsConfig:
    """A guest whose loop turns so often in each step."""
    return GuestsConfig(_SPINNING_GUEST.encode(), {"configure": (turns,)})


class IdleEnv(Env[Floats, Floats]):
    """An environment that does nothing: its observation is always the same."""

    def __init__(self) -> None:
        self._obs = np.zeros((1, FEATURES), np.float32)
        self._reward = np.zeros(1, np.float32)
        self._no = np.zeros(1, np.int8)

    @classmethod
    def build(cls, config: Any, seed: int) -> Self:
        del config, seed
        return cls()

    def reset(self, is_done: Flags | None = None) -> Floats:
        del is_done
        return self._obs

    def reset_with_index(self, ix: int) -> Floats:
        del ix
        return self._obs

    def step(self, act: Floats) -> tuple[Step[Floats, Floats], Record]:
        return Step(act, self._obs, self._reward, self._no, self._no, None), Record()


@dataclass(frozen=True)
class IdleConfig:
    builds: ClassVar[type[IdleEnv]] = IdleEnv


class FixedAgent(Agent, SyncModel):
    """An agent that always acts alike and learns nothing."""

    def __init__(self) -> None:
        self._action = np.zeros((1, 1), np.float32)

    @classmethod
    def build(cls, config: Any) -> Self:
        del config
        return cls()

    def train(self) -> None: ...

    def eval(self) -> None: ...

    def is_train(self) -> bool:
        return True

    def sample(self, obs: Any) -> Floats:
        del obs
        return self._action

    def opt_with_record(self, buffer: Any) -> Record:
        del buffer
        return Record()

    def save_params(self, path: Path) -> list[Path]:
        del path
        return []

    def load_params(self, path: Path) -> None: ...

    def model_info(self) -> tuple[int, Any]:
        return 0, None

    def sync_model(self, model_info: Any) -> None: ...


PROCESSOR = SimpleStepProcessor, SimpleStepProcessorConfig()
