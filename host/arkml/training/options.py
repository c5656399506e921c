"""The options of one training: its goal, its pace, its hive and its directory."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from arkml.errors import UsageError
from arkml.hive.protocol.runs import ORIGIN_FILE
from arkml.limits import Limits
from arkml.runs.access import EMBEDDED, HiveGrant
from arkml.runs.settings import LearnerSettings
from arkml.runtime.module.description import ModuleKind
from arkml.training.tasks import Task

DEFAULT_MINUTES = 5.0
"""Length of an applet's training without a goal."""


_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:@[0-9]{1,12})?")
"""Text that names a run of a hive, or its checkpoint; the path of a file has a dot or a slash."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The end of a training: after some frames, minutes, or at a mean return; None for never."""

    frames: int | None = None
    minutes: float | None = None
    mean_return: float | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for a goal that cannot be reached."""
        if self.frames is not None:
            require_whole("frames", self.frames)
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise UsageError(f"minutes is {self.minutes!r}: it takes a number above 0")
        if self.mean_return is not None and math.isnan(self.mean_return):
            raise UsageError("until_return is nan: it takes a number")

    @property
    def is_open(self) -> bool:
        """True if no end is given."""
        return self.frames is None and self.minutes is None and self.mean_return is None

    def of(self, task: Task) -> Goal | None:
        """Return the goal of a task, with the default for applets; None to run the task once."""
        if not task.is_repeatable:
            return None
        if not self.is_open:
            return self
        return Goal(minutes=DEFAULT_MINUTES) if task.kind is ModuleKind.APPLET else None


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """
    The options of one training.

    `name` is the file name of the module; its stem names the files of the training. `arguments`
    are those of a cmdlet or a WASI command, None for the entry point that the exports suggest.
    `checkpoint` is "RUN" or "RUN@UPDATES" of the hive, or the path of a file, to start from.
    `fps` paces the frames, None steps them as fast as the learner's pace admits. `eval_every` is
    the number of frames between two evaluations. With `budgets_every_call` the time limit holds
    for cmdlets and functions too, and not for the frames of an applet only. `hive`, `token`,
    `allowed_hives`, `settings` and `resume` are as for `arkml.train`; the `token` is not shown.
    """

    name: str
    directory: Path
    hive: str = EMBEDDED
    token: str | None = field(default=None, repr=False)
    allowed_hives: tuple[str, ...] = ()
    settings: LearnerSettings = field(default_factory=LearnerSettings)
    resume: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    goal: Goal = field(default_factory=Goal)
    arguments: str | None = None
    fps: float | None = None
    instances: int = 1
    eval_every: int | None = None
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    budgets_every_call: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError for a value that makes no sense, or text that is not an address."""
        if self.fps is not None and not 0 < self.fps < math.inf:
            raise UsageError(f"fps is {self.fps!r}: it takes a number above 0")
        require_whole("instances", self.instances)
        if self.eval_every is not None:
            require_whole("eval_every", self.eval_every)
        if self.checkpoint is not None:
            self._check_origin()
        self.grant()

    def grant(self) -> HiveGrant:
        """
        Return the grant of the training: all its guests share one run, kept in `directory`.

        A `seed` other than 0 is the learner's too. Submits wait for the learner unless frames are
        paced, and always with the setting `sync`.
        """
        settings: LearnerSettings = {**self.settings}
        if self.seed:
            settings["seed"] = self.seed
        return HiveGrant(
            hive=self.hive,
            token=self.token,
            allowed=self.allowed_hives,
            data=self.directory / "hive",
            settings=settings,
            block=self.fps is None or settings.get("sync", False),
            shared=True,
            resume=self.resume,
            checkpoint="" if self.checkpoint is None else self._origin(),
        )

    @property
    def origin_file(self) -> Path | None:
        """The file of `checkpoint`, None if it names a run or is None."""
        origin = self.checkpoint
        if origin is None or (isinstance(origin, str) and _RUN.fullmatch(origin)):
            return None
        return Path(origin)

    def _origin(self) -> str:
        return str(self.checkpoint) if self.origin_file is None else ORIGIN_FILE

    def _check_origin(self) -> None:
        """Raise UsageError for a checkpoint that this training cannot start from."""
        if self.resume:
            raise UsageError(
                f"checkpoint is {self.checkpoint} and resume is set: a training either starts from"
                " a checkpoint or continues the one in its directory"
            )
        file, is_embedded = self.origin_file, self.hive == EMBEDDED
        if file is not None and not is_embedded:
            raise UsageError(
                f"checkpoint is the file {file}, and the hive is {self.hive}: a training on a hive"
                " of its own starts from a file, here name a run of the hive, RUN or RUN@UPDATES"
            )
        if file is None and is_embedded:
            raise UsageError(
                f"checkpoint is the run {self.checkpoint}: the hive of a new training has no runs,"
                " name a file, or a hive (--hive HOST:PORT, hive=)"
            )

    @property
    def stem(self) -> str:
        """The module's file name without its suffix."""
        return Path(self.name).stem


def require_whole(name: str, value: int) -> None:
    """Raise UsageError for a value that is not a whole number from 1."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not (is_number and value >= 1):
        raise UsageError(f"{name} is {value!r}: it takes a whole number from 1")
