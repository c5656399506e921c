"""Jobs of rollout workers: the run that one joins, the module that it plays, and its seed."""

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

    It joins the run `run_id`, of this `name` and `game`, on the hive at the address `hive`. The
    bytes of the module, `module_data`, have the SHA-256 `module_hash`, in hex; without them the
    worker downloads the module from the hive. `arguments` are those of a cmdlet, None for the entry
    point that the exports suggest; "{seed}" in them stands for the `seed`, which the export
    `arkml_seed` gets too: guest k of the `instances` gets `seed` + k. `worker` is its number in the
    run, from 0 on, `incarnation` the number of its predecessors that died. With `fps` frames are
    paced and never wait for the learner. The worker ends after `minutes`. Episodes are cut off
    after `max_episode_steps`. `limits` are those fields
    of `arkml.Limits` that differ from their defaults; with `budgets_every_call` the time limit
    holds for all kinds of calls.
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

    @property
    def label(self) -> str:
        """The name of the worker in a sentence."""
        return f"worker {self.worker}"


def environment_seed(run_seed: int, worker: int, incarnation: int) -> int:
    """Return the seed of the guests of a worker: distinct, and every time the one it was before."""
    sequence = np.random.SeedSequence([run_seed, worker, incarnation])
    return int(sequence.generate_state(1, np.uint64)[0]) >> (64 - _SEED_BITS)
