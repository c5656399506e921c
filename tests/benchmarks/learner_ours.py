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
from tests.benchmarks.configurations import Configuration
from tests.benchmarks.games import Game, Numbers
from tests.benchmarks.learner_runs import Act, Journal

from arkml import HiveGrant, Host
from arkml.guests.guest import calls_of

GUESTS = Path(ROOT, "fixtures", "guests")
TRAINING = 1  # what the guest's `mode` says


def learn(configuration: Configuration, game: Game, seed: int, seconds: float) -> Journal:
    """Play until the learner has had its steps, or its time."""
    settings = {**configuration.settings(game), "seed": seed}
    with Host(seed=seed, hive=HiveGrant(settings=settings, block=True)) as host:
        guest = host.load(GUESTS / game.guest)
        if configuration.agents is not None:
            guest.call("configure", configuration.agents, seed)
        while guest.call("mode") != TRAINING:
            guest.update()
            time.sleep(0.001)
        journal = Journal(game.steps, seconds)
        hives: Any = calls_of(guest).services.hives
        while not journal.is_full:
            guest.update()
            steps = guest.statistics.rows - guest.call("episodes")  # last rows are no steps
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
