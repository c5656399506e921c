"""Jobs of rollout workers: the run to join, the module to play, and its seed."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta, field

from arkml.hive.protocol.wire import Count, WireStruct

_SEED_BITS = 62  # of an i64: the guests of a fleet take the numbers from the seed on

_Positive = Annotated[float, Meta(gt=0.0)]


class WorkerJob(WireStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The job of one rollout worker.

    Attributes:
        run_id: Id of the run to join.
        name: Name of the run.
        game: Name of the game.
        hive: Address of the hive.
        token: Token of the hive.
        module_data: Bytes of the module; without them the worker downloads it from the hive.
        module_hash: SHA-256 of the module, in hex.
        module_name: File name of the module.
        arguments: Arguments of a cmdlet, such as "train {seed}" with "{seed}" for the seed; None
            for the entry point that the exports suggest.
        worker: Number of the worker in the run, from 0.
        incarnation: Number of its predecessors, which died.
        seed: Seed of guest 0; guest k gets `seed` + k, also by the export `arkml_seed`.
        instances: Number of guests.
        fps: Frames per second. Paced frames never wait for the learner.
        minutes: Length of the job, None for no limit.
        max_episode_steps: Steps after which an episode is cut off, None for no limit.
        limits: Fields of `arkml.Limits` that differ from their defaults, such as {"rows": 1024}.
        budgets_every_call: True lets the time limit hold for all kinds of calls.
        imports: Place of the functions of the game that the guest imports, as "mygame:functions".
        wasi: True grants clocks, random numbers and a console that nobody reads through WASI.

    """

    run_id: str
    name: str
    game: str
    hive: str
    token: str | None = None
    module_data: bytes = b""
    module_hash: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    module_name: str
    arguments: str | None = None
    worker: Count
    incarnation: Count = 0
    seed: Annotated[int, Meta(ge=0, lt=1 << _SEED_BITS)]
    instances: Annotated[int, Meta(ge=1)] = 1
    fps: _Positive | None = None
    minutes: _Positive | None = None
    max_episode_steps: Annotated[int, Meta(ge=1)] | None = None
    limits: dict[str, int | float | None] = field(default_factory=dict)
    budgets_every_call: bool = False
    imports: str | None = None
    wasi: bool = False

    @property
    def label(self) -> str:
        """The name of the worker for sentences, such as log lines."""
        return f"worker {self.worker}"


def environment_seed(run_seed: int, worker: int, incarnation: int) -> int:
    """
    Return the seed of a worker's guests, reproducible and distinct for each worker.

    Args:
        run_seed: Seed of the run.
        worker: Number of the worker, from 0.
        incarnation: Number of its predecessors, which died.

    """
    sequence = np.random.SeedSequence([run_seed, worker, incarnation])
    return int(sequence.generate_state(1, np.uint64)[0]) >> (64 - _SEED_BITS)
