"""The options of one training: its goal, its pace, its hive, its directory and others."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from arkml.base.host_names import is_loopback
from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError
from arkml.hive.address import Address
from arkml.hive.notifier import NotifyOptions
from arkml.hive.protocol.result_messages import MAX_EPISODES
from arkml.hive.protocol.run_origin import RunGoal
from arkml.hive.protocol.wire import MAX_COUNT
from arkml.hive.protocol.worker_jobs import environment_seed
from arkml.limits import (
    Limits,
    Threads,
    keep_whole,
    real_number,
    require_seed,
    require_threads,
    whole_number,
)
from arkml.runs.hive_access import EMBEDDED, HiveGrant
from arkml.runs.learner_settings import LearnerSettings
from arkml.runtime.module.description import ModuleKind
from arkml.training.origin import TrainingOrigin
from arkml.training.tasks import Task
from arkml.training.tracker_clients import TrackerName, require_tracker
from arkml.workers.placement import RunnerName

DEFAULT_MINUTES = 5.0
"""Length of an applet's training without a goal."""

_LAST_PORT = 65_535

MOST_ACTORS = 10_000
"""Rollout workers of a training, each a process."""

EPISODES = 10
"""Episodes of an evaluation."""

EvaluationInterval = int | Literal["auto"] | None
"""Frames between two evaluations, "auto" for a pace by the time that they take, None for none."""


@dataclass(frozen=True, slots=True)
class Goal:
    """When a training ends: after frames, after minutes or at a mean return; None sets no end."""

    frames: int | None = None
    minutes: float | None = None
    mean_return: float | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for a goal that cannot be reached."""
        if self.frames is not None:
            keep_whole(self, "frames")
        if self.minutes is not None:
            _require_above_zero("minutes", self.minutes)
        if self.mean_return is not None and real_number(self.mean_return) is None:
            raise UsageError(f"until_return is {cut_repr(self.mean_return)}: it takes a number")

    @property
    def is_open(self) -> bool:
        """True if no end is set."""
        return self.frames is None and self.minutes is None and self.mean_return is None

    def told(self) -> RunGoal | None:
        """Return the goal in the form that a hive takes, None for a goal without an end."""
        if self.is_open:
            return None
        mean = self.mean_return
        return RunGoal(
            seconds=min(60.0 * float(self.minutes or 0.0), float(MAX_COUNT)),
            frames=min(self.frames or 0, MAX_COUNT),
            mean_return=float(mean) if mean is not None and math.isfinite(mean) else None,
        )

    def of(self, task: Task) -> Goal:
        """
        Return this goal or, if it has no end, the default for a task: five minutes for an applet.

        Other tasks run once.
        """
        if self.is_open and task.kind is ModuleKind.APPLET and task.is_repeatable:
            return Goal(minutes=DEFAULT_MINUTES)
        return self


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """
    The options of one training.

    `hive`, `token`, `allowed_hives`, `settings` and `resume` are as for `arkml.train`; the `repr`
    leaves out the `token`.

    Attributes:
        name: File name of the module, such as "walker.wasm"; its stem names the training's files.
        directory: Directory of the training.
        folder: Folder of the module's file, None if it is not known.
        join: Id or name of the run at the hive to join, empty to start a new one.
        checkpoint: "RUN" or "RUN@UPDATES" of the hive, or the path of a file, to start from.
        demonstrations: Path of a file of rows that the run gets before play begins.
        goal: The end of the training.
        arguments: Arguments of a cmdlet or a WASI command, None for the entry point that the
            exports suggest.
        fps: Frames per second, None for as fast as the learner's pace admits.
        instances: Number of guests.
        eval_every: Frames between two evaluations, "auto" or None.
        evaluate_episodes: Episodes of each evaluation.
        max_episode_steps: Steps after which episodes are cut off, in training and in evaluations.
        seed: Seed of the policy's noise and, unless it is 0, of the learner.
        limits: Limits of each guest.
        budgets_every_call: True lets the time limit hold for cmdlets and functions as well as for
            the frames of an applet.
        threads: The most threads that run the fleet of this process, as in `Host`.
        actors: Number of rollout workers; the first one is this host.
        runner: Where the other workers run: "processes" or "ray".
        ray_address: Address of the Ray cluster; None takes one of this machine.
        track: Name of the tracker that gets the curves.
        imports: Name of the functions of the game that the guest imports, such as
            "mygame:functions".
        wasi: True grants the guest WASI without files.
        page: Port of the page of an embedded hive, 0 for any free port, None for no page.
        watch: File of the module, which is reloaded whenever it has changed, or None.
        keep_module: True lets the hive keep a copy of the module, so that people who look at the
            run can watch its policies play; None does so with an embedded hive only.
        notify: Receivers of the notices about the run.
        trace_every: One in this number of evaluations is recorded in a trace; None records none.

    """

    name: str
    directory: Path
    hive: str = EMBEDDED
    token: str | None = field(default=None, repr=False)
    allowed_hives: tuple[str, ...] = ()
    settings: LearnerSettings = field(default_factory=LearnerSettings)
    resume: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    demonstrations: str | os.PathLike[str] | None = None
    goal: Goal = field(default_factory=Goal)
    arguments: str | None = None
    fps: float | None = None
    instances: int = 1
    eval_every: EvaluationInterval = "auto"
    evaluate_episodes: int = EPISODES
    max_episode_steps: int | None = None
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    budgets_every_call: bool = False
    threads: Threads = "auto"
    actors: int | None = None
    runner: RunnerName = "processes"
    ray_address: str | None = None
    track: TrackerName | None = None
    imports: str | None = None
    wasi: bool = False
    page: int | None = None
    watch: Path | None = None
    trace_every: int | None = None
    keep_module: bool | None = None
    notify: NotifyOptions = field(default_factory=NotifyOptions)
    folder: Path | None = None
    join: str = ""

    def __post_init__(self) -> None:
        """Raise UsageError for an invalid value, such as an `fps` of 0, or an invalid address."""
        if self.fps is not None:
            _require_above_zero("fps", self.fps)
        if not isinstance(self.settings, Mapping):
            raise UsageError(f"settings is {cut_repr(self.settings)}: it takes a dict")
        object.__setattr__(self, "seed", require_seed(self.seed))
        require_threads(self.threads)
        keep_whole(self, "instances")
        object.__setattr__(self, "eval_every", _interval(self.eval_every))
        keep_whole(self, "evaluate_episodes", MAX_EPISODES)
        if self.max_episode_steps is not None:
            keep_whole(self, "max_episode_steps")
        if self.trace_every is not None:
            keep_whole(self, "trace_every")
            if self.eval_every is None:
                raise UsageError(
                    f"trace_every is {self.trace_every}, and there are no evaluations to record:"
                    " set eval_every (--eval-every), or leave trace_every away"
                )
        if not isinstance(self.imports, str | None):
            raise UsageError(
                f"imports is {cut_repr(self.imports)}: evaluations and workers of a training play"
                " in processes of their own, which import the functions by a name, such as"
                ' "mygame:functions"'
            )
        if self.track is not None:
            require_tracker(self.track)
        grant = self.grant()
        self._check_page(is_embedded=grant.is_embedded)
        self._check_join(is_embedded=grant.is_embedded)
        self._check_actors(is_embedded=grant.is_embedded)
        if self.origin is not None:
            self.origin.check(hive=self.hive, is_embedded=grant.is_embedded, resume=self.resume)

    def grant(self) -> HiveGrant:
        """
        Return the permission to train: all guests share one run, kept in `directory`.

        A `seed` other than 0 is also the learner's. Submits wait for the learner unless frames are
        paced; with the setting `sync` they always wait.
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
            wait_for_learner=self.fps is None or settings.get("sync", False),
            shared=True,
            resume=self.resume,
            checkpoint="" if self.origin is None else self.origin.name,
            page=self.page,
            keep_module=self.keep_module,
        )

    @property
    def environment_seed(self) -> int | None:
        """The seed of the guests of this host, which is worker 0; None if they need no seed."""
        if self.actors is None and self.max_episode_steps is None:
            return None
        return environment_seed(self.seed or self.settings.get("seed", 0), 0, 0)

    def _check_page(self, *, is_embedded: bool) -> None:
        """Raise UsageError for an invalid port, or for a page of a hive that is not embedded."""
        if self.page is None:
            return
        port = whole_number(self.page)
        if port is None or not 0 <= port <= _LAST_PORT:
            raise UsageError(
                f"page is {cut_repr(self.page)}: it takes a port, or True or 0 for any that is free"
            )
        object.__setattr__(self, "page", port)
        if not is_embedded:
            raise UsageError(
                f"page is for an embedded hive: the page of {self.hive} is at"
                f" {Address.parse(self.hive).url}/"
            )

    def _check_join(self, *, is_embedded: bool) -> None:
        """Raise UsageError for a run that cannot be joined, whatever the hive has."""
        if not isinstance(self.join, str):
            raise UsageError(f"join is {cut_repr(self.join)}: it takes the id or name of a run")
        if not self.join:
            return
        if is_embedded:
            raise UsageError(
                f"join is {cut_repr(self.join)}: a run is joined on the hive of others (--hive"
                " HOST:PORT, hive=), not on an embedded one"
            )
        if self.resume or self.checkpoint is not None:
            other = "resume" if self.resume else "checkpoint"
            raise UsageError(
                f"join is {cut_repr(self.join)}, and {other} is given: a joined run goes on from"
                " where it is"
            )

    def _check_actors(self, *, is_embedded: bool) -> None:
        """Raise UsageError for impossible rollout workers, such as several with `sync`."""
        if self.runner not in get_args(RunnerName):
            raise UsageError(f"runner is {cut_repr(self.runner)}: it takes processes or ray")
        if self.ray_address is not None and self.runner != "ray":
            raise UsageError(
                f"ray_address is {cut_repr(self.ray_address)} and runner is {self.runner}: a Ray"
                " cluster is for the runner ray"
            )
        if self.actors is None:
            if self.runner != "processes":
                raise UsageError(f"runner is {self.runner}: it places actors, which are not given")
            return
        keep_whole(self, "actors", MOST_ACTORS)
        if self.settings.get("sync", False):
            raise UsageError(
                f"actors is {self.actors} and sync is set: in lockstep a learner has one host"
            )
        if is_embedded and self.ray_address is not None and not _is_loopback(self.ray_address):
            raise UsageError(
                f"ray_address is {self.ray_address}, whose nodes cannot reach an embedded hive:"
                " name one that they can (--hive HOST:PORT, hive=)"
            )

    @property
    def origin(self) -> TrainingOrigin | None:
        """The checkpoint to start from, None to begin anew."""
        return None if self.checkpoint is None else TrainingOrigin(self.checkpoint)

    @property
    def stem(self) -> str:
        """The module's file name without its suffix."""
        return Path(self.name).stem


PageOption = bool | int | Callable[[str], object] | None
"""A port, True for any port, a function that gets the link of a page at any port, or no page."""


def page_port(page: PageOption) -> int | None:
    """Return the port of a page, 0 for any free port, None for no page."""
    if isinstance(page, bool | np.bool_):
        return 0 if page else None
    return 0 if callable(page) else page


def _require_above_zero(name: str, value: float) -> None:
    """Raise UsageError for a value that is not a finite number above 0."""
    number = real_number(value)
    if number is None or not 0 < number < math.inf:
        raise UsageError(f"{name} is {cut_repr(value)}: it takes a number above 0")


def _interval(value: object) -> EvaluationInterval:
    """Return the frames between two evaluations. Raises UsageError for a wrong value."""
    if value is None:
        return None
    if isinstance(value, str) and value == "auto":
        return "auto"
    number = whole_number(value)
    if number is None or number < 1:
        raise UsageError(
            f"eval_every is {cut_repr(value)}: it takes a whole number from 1, 'auto' or None"
        )
    return number


def _is_loopback(address: str) -> bool:
    """Return whether the address of a Ray cluster is loopback, such as "127.0.0.1:6379"."""
    host = address.removeprefix("ray://").rpartition(":")[0] or address
    return is_loopback(host.removeprefix("[").removesuffix("]").lower())
