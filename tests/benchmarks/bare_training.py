"""A run's algorithm on a run's rows and nothing around it; run as a module."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from tests.benchmarks.companion import serve

from arkml.hive.protocol.segments import Place
from arkml.learning.learner import Learner

UPDATES = 10  # by each call


def main(directory: Path, place: Place, seconds: float) -> None:
    torch.set_num_threads(1)
    learner = Learner.open(directory)
    learner.commit(place)
    while learner.ingest():
        pass
    learner.experience.normalizer.adopt()
    learner.algorithm.train(UPDATES)
    serve(lambda: rate(learner, seconds))


def rate(learner: Learner, seconds: float) -> float:
    """Updates a second."""
    made, start = 0, time.perf_counter()
    while (now := time.perf_counter()) < start + seconds:
        learner.algorithm.train(UPDATES)
        made += UPDATES
    return made / (now - start)


if __name__ == "__main__":
    directory, segment, offset, seconds = sys.argv[1:]
    main(Path(directory), Place(int(segment), int(offset)), float(seconds))
