"""A guest that learns on an embedded hive."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from tests.benchmarks.companion import ROOT
from tests.benchmarks.games import Game, Numbers
from tests.benchmarks.learner_runs import Act, Journal

from arkml import HiveGrant, Host

GUESTS = Path(ROOT, "fixtures", "guests")
TRAINING = 1  # what the guest's `mode` says


def learn(game: Game, seed: int, agents: int, rows_per_update: int) -> Journal:
    """Play until the learner has had its steps."""
    settings = {
        **game.settings,
        "seed": seed,
        "rows_per_update": rows_per_update,
        "max_updates_per_row": 1 / rows_per_update,
    }
    with Host(hive=HiveGrant(settings=settings, block=True)) as host:
        guest = host.load(GUESTS / game.guest)
        guest.call("configure", agents, seed)
        while guest.call("mode") != TRAINING:
            guest.update()
            time.sleep(0.001)
        journal = Journal(time.perf_counter())
        hives: Any = guest.services.hives
        steps = frames = 0
        while steps < game.steps:
            guest.update()
            frames += 1
            steps = agents * frames - guest.call("episodes")
            if journal.is_due(steps):
                journal.note(steps, partial(_loaded, hives.first.latest[1]))
    return journal


def _loaded(model: bytes) -> Act:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])

    def act(features: Numbers) -> Numbers:
        quiet = np.zeros((len(features), 1), np.float32)
        actions: Callable[..., Any] = session.run
        found: Numbers = actions(["actions"], _fed(session, features, quiet))[0][:, 0]
        return found

    return act


def _fed(session: ort.InferenceSession, features: Numbers, quiet: Numbers) -> dict[str, Numbers]:
    return {
        item.name: quiet if item.name == "epsilon" else features for item in session.get_inputs()
    }
