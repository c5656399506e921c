"""The algorithm of a run on the rows of the run, with nothing around it; run as a module."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from tests.benchmarks.companion import serve
from tests.benchmarks.turns import rate, warm_up

from arkml.hive.protocol.rows import Place
from arkml.learning.jax_engine import limit_threads
from arkml.learning.learner import Learner


def main(directory: Path, place: Place, seconds: float) -> None:
    limit_threads(1)
    learner = Learner.open(directory)
    learner.commit(place)
    while learner.ingest():
        pass
    learner.experience.normalizer.adopt()
    warm_up(learner.algorithm)
    serve(partial(rate, learner.algorithm, seconds))


if __name__ == "__main__":
    directory, segment, offset, seconds = sys.argv[1:]
    main(Path(directory), Place(int(segment), int(offset)), float(seconds))
