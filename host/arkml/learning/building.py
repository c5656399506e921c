"""Makes a learner for the run in a directory."""

from __future__ import annotations

from pathlib import Path

from arkml.learning.experience import Experience
from arkml.learning.learner import Learner
from arkml.learning.log import Log
from arkml.learning.run import Run
from arkml.learning.sac import Sac


def build(directory: Path) -> Learner:
    """
    A learner where the run's newest checkpoint left it, or at the beginning.

    Raises ProtocolError or InvalidSettings for a run that makes no sense, NoCheckpoint or
    CheckpointDamaged if it cannot start from what it is to start from, and MemoryError.
    """
    run = Run.open(directory)
    settings = run.request.settings
    beginning = run.beginning()
    experience = Experience(settings, Log(directory / "rows"))
    algorithm = Sac(settings, experience.memory, experience.normalizer)
    learner = Learner(run, experience, algorithm)
    if beginning is not None:
        learner.restore(beginning)
    return learner
