"""The progress and the results of trainings and evaluations, with their curves as arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from arkml.base.short_reprs import short_repr
from arkml.errors import ArkmlError
from arkml.guests.counts import Statistics
from arkml.hive.protocol.page_messages import NoticeKind
from arkml.hive.protocol.result_messages import EvaluationReport

TrainingEnd = Literal["frames", "minutes", "return", "finished", "stopped", "interrupted", "failed"]
"""
Reason for the end of a training.

A goal was reached ("frames", "minutes", "return"), the guest ran to its end ("finished"),
`progress` returned False ("stopped"), Ctrl-C came ("interrupted"), or an error ("failed").
"""

PolicyKind = Literal["best", "now", "latest", "held"]
"""
Origin of a policy.

The version with the highest mean return ("best"), the learner's weights at the end ("now"), the
last published version ("latest"), or the version that the guest acted with last, if the hive did
not answer ("held").
"""

RatedBy = Literal["evaluation", "training"]
"""Episodes that the best policy is rated by: those of its evaluation, or of the training."""

Series = Sequence[tuple[int, float]]

TRAINING_RETURN, EVALUATION_RETURN = "rollout/ep_rew_mean", "eval/mean_reward"
"""Metrics of a run: mean returns of training episodes and of evaluations."""

TRAINING_EPISODES = "time/episodes"
"""Metric of a run: the number of training episodes that have ended."""

LEARNER_ENDS = "hive/learner_ends"
"""Metric of a run: the number of its learners that ended and were replaced."""

ROLLOUT_ROWS = "replay/rollout_rows"
"""Metric of a run that learns by PPO: the rows of a rollout, which follow its agents."""

ROWS_READ, UPDATES_DUE = "time/total_timesteps", "hive/updates_due"
"""Metrics of a run: the rows that its learner has read, the updates that they allow."""

EQUAL_REWARDS, CONSTANT_FEATURES = "rollout/equal_rewards", "features/constant"
"""Metrics of a run: 1 if all rewards were equal, and the features that had one value only."""

OUTSIDE = "features/outside"
"""Metric of a run: values of images, and of sampled categories and counts, beyond their bounds."""

NON_FINITE = "features/non_finite"
"""Metric of a run: rows that were not taken because of numbers that are not finite."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """
    Episodes that a policy version played without noise while the training continued.

    Attributes:
        version: The version of the policy.
        rows: Number of rows of the run when the version was chosen, None if the hive did not say.
        returns: The undiscounted sum of rewards of each episode.
        lengths: Steps of each episode.
        successes: True or False for each episode. None if the guest pushes no metadata "success"
            and the training has no `until_return`.
        best_return: Mean return of the best version so far in episodes among the same agents of
            other behaviors, which learn, too. None for a guest of one behavior, whose earlier
            evaluations are compared, and for the first evaluation.

    """

    __repr__ = short_repr

    version: int
    rows: int | None
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[bool, ...] | None
    best_return: float | None = None

    @property
    def mean_return(self) -> float:
        """Mean of the returns."""
        return float(np.mean(self.returns))

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean return, None for one episode."""
        return standard_error(self.returns)

    @property
    def success_rate(self) -> float | None:
        """Fraction of the episodes that were successes, None if success is unknown."""
        return None if self.successes is None else float(np.mean(self.successes))

    def report(self) -> EvaluationReport:
        """Return the evaluation in the form that a hive takes."""
        successes = None if self.successes is None else list(self.successes)
        return EvaluationReport(
            self.version,
            list(self.returns),
            list(self.lengths),
            successes,
            self.rows,
            self.best_return,
        )


def metrics_of(evaluation: Evaluation) -> dict[str, float]:
    """Return an evaluation as metrics of a hive, by their TensorBoard names."""
    values = {
        EVALUATION_RETURN: evaluation.mean_return,
        "eval/std_reward": evaluation.standard_deviation,
        "eval/mean_ep_length": float(np.mean(evaluation.lengths)),
    }
    rate = evaluation.success_rate
    return values if rate is None else values | {"eval/success_rate": rate}


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """
    The state of one rollout worker of a training; worker 0 is the host of the training itself.

    Attributes:
        worker: Number of the worker.
        incarnation: Number of the worker's predecessors that died.
        is_alive: True while the worker runs.
        frames: Frames that the worker and its predecessors have stepped.
        rows: Rows of the worker and its predecessors that the hive has acknowledged.
        rows_per_second: The latest rate of rows; in a result, the mean over the training.
        version: The newest version of the policy that the worker has.

    """

    worker: int
    incarnation: int
    is_alive: bool
    frames: int
    rows: int
    rows_per_second: float
    version: int


@dataclass(frozen=True, slots=True)
class RunNotice:
    """
    A notice of the hive about the run of a training.

    Attributes:
        kind: Kind of the notice, such as "diverging".
        text: One sentence for people.
        at: Time of the notice by the hive's clock, in nanoseconds since the Unix epoch.

    """

    kind: NoticeKind
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """
    The state of a training that is in progress.

    Attributes:
        run_id: Id of the run, None until the guest has started one.
        frames: Frames since the run started.
        seconds: Seconds since the training started.
        rows: Rows that the learner has learned from.
        updates: Gradient steps of the learner.
        versions: Versions of the policy that the learner has published.
        mean_return: Mean of the last 100 training episodes, None before the first.
        evaluation_return: Mean of the last evaluation, None before the first.
        metrics: The newest values by their TensorBoard names, such as "rollout/ep_rew_mean".
        evaluations: Evaluations since the previous call, the oldest first.
        warnings: Sentences for people since the previous call, for example about a learner that
            died.
        workers: The rollout workers, empty without `actors`.
        page: Link to the page of the training, empty without one.
        notices: Notices of the hive since the previous call, whose sentences are also `warnings`.

    """

    __repr__ = short_repr

    run_id: str | None
    frames: int
    seconds: float
    rows: int
    updates: int
    versions: int
    mean_return: float | None
    evaluation_return: float | None
    metrics: Mapping[str, float]
    evaluations: tuple[Evaluation, ...]
    warnings: tuple[str, ...]
    workers: tuple[WorkerProgress, ...] = ()
    page: str = ""
    notices: tuple[RunNotice, ...] = ()


ProgressFunction = Callable[[TrainingProgress], object]
"""
Function that is called about once a second on a thread of the training.

It is also called at once after an evaluation. Returning False ends the training.
"""


@dataclass(frozen=True, slots=True)
class TrainedPolicy:
    """
    A policy as an ONNX file.

    Attributes:
        kind: Origin of the policy.
        onnx: Bytes of the file.
        path: Path of the file, None if it could not be written.
        score: Mean return by which the best policy was chosen: of its evaluation or, before the
            first evaluation, of training episodes. None for other policies, and if the hive did not
            report it.
        rated_by: "evaluation" or "training", the kind of episodes of that mean. None where `score`
            is None.
        confirmed: A hundred episodes that the policy played after it had been chosen by an
            evaluation. `score` is the highest of many means, and so above what the policy reaches
            elsewhere; the mean of these is not. None for other policies, and if they would have
            taken more than ten seconds, or a tenth of the training.
        shape: Numbers of features and actions of the rows that it answers, None if not known.

    """

    __repr__ = short_repr

    kind: PolicyKind
    onnx: bytes = field(repr=False)
    path: Path | None
    score: float | None = None
    rated_by: RatedBy | None = None
    confirmed: Evaluation | None = None
    shape: tuple[int, int] | None = None


def rated_by(source: str) -> RatedBy | None:
    """
    Return the kind of episodes that a hive names for its best policy, None if it is unknown here.
    """
    return next((one for one in get_args(RatedBy) if one == source), None)


@dataclass(frozen=True, slots=True, eq=False)
class LearningCurve:
    """
    Mean returns as a function of the number of rows learned from.

    Attributes:
        rows: int64, [points], increasing.
        mean_returns: float64, [points].

    """

    __repr__ = short_repr

    rows: npt.NDArray[np.int64]
    mean_returns: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def last(self) -> float | None:
        """The last mean return, None for an empty curve."""
        return float(self.mean_returns[-1]) if len(self) else None

    def pairs(self) -> list[tuple[int, float]]:
        """Return the points of the curve as pairs (rows, mean return)."""
        return list(zip(self.rows.tolist(), self.mean_returns.tolist(), strict=True))


def curve_of(series: Series) -> LearningCurve:
    """Return the curve with these points, pairs (rows, mean return)."""
    return LearningCurve(
        np.array([rows for rows, _ in series], np.int64),
        np.array([value for _, value in series], np.float64),
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TrainingResult:
    """
    The result of a training: policies, curves, counts and messages.

    `best` and `last` are policies as ONNX files, of the same version if no version was rated.
    `training_curve` has means of the last 100 training episodes, `evaluation_curve` means of
    evaluations without noise, empty if there were none. `evaluation_returns`, float64, [episodes],
    are the returns of the last evaluation episodes, at most 100; `evaluations` has all evaluations
    of this training, except one that was still playing at its end. `frames` were stepped in
    `seconds`, of which `late_frames` came too late for `fps` (None without `fps`). The learner
    learned from `rows` in `updates` gradient steps and published `versions`. `metrics` are the last
    values by their TensorBoard names, such as "eval/mean_reward" of the last evaluation. `files`
    are the paths in `directory` by "onnx", "crvo", "last" and "curve", by "run " with its name for
    each of the `other_policies`, and of the folder of "traces"; a file that could not be written is
    missing. `warnings` are sentences for people, and `errors` are exceptions, the gravest first;
    both are usually empty. `workers` are the rollout workers, empty without `actors`. `statistics`
    are the counts of the guests of this host; its `refusals` has refused pushes, submits and other
    calls with invalid arguments. `learner_ends` is the number of learners that ended by themselves
    and were replaced; `learner_end` is the reason of the last end. `notices` are the hive's notices
    about the run: about trouble, whose sentences are also in `warnings`, and about a goal that was
    reached. `earlier_evaluation` is of a training that was resumed: the evaluation by which the
    policy was chosen before that is still the best, else None. `other_policies` are those of runs
    that the guest started after the trained one, by the names of these runs: a guest may train
    several behaviors.
    """

    __repr__ = short_repr

    run_id: str
    run_name: str
    directory: Path
    end_reason: TrainingEnd
    best: TrainedPolicy
    last: TrainedPolicy
    training_curve: LearningCurve
    evaluation_curve: LearningCurve
    evaluation_returns: npt.NDArray[np.float64]
    evaluations: tuple[Evaluation, ...]
    frames: int
    seconds: float
    late_frames: int | None
    rows: int
    updates: int
    versions: int
    metrics: Mapping[str, float]
    files: Mapping[str, Path]
    warnings: tuple[str, ...] = ()
    errors: tuple[Exception, ...] = ()
    workers: tuple[WorkerProgress, ...] = ()
    statistics: Statistics = field(default_factory=Statistics)
    learner_ends: int = 0
    learner_end: str = ""
    notices: tuple[RunNotice, ...] = ()
    earlier_evaluation: Evaluation | None = None
    other_policies: Mapping[str, TrainedPolicy] = field(default_factory=dict)

    @property
    def health(self) -> tuple[str, ...]:
        """Sentences about problems of the rows and the learner, such as equal rewards."""
        found = []
        if self.learner_ends:
            times = "once" if self.learner_ends == 1 else f"{self.learner_ends:,} times"
            reason = f", at last with: {self.learner_end}" if self.learner_end else ""
            found.append(f"the learner ended {times}, and another one took its place{reason}")
        if lack := self._lack_of_episodes():
            found.append(lack)
        if self.metrics.get(EQUAL_REWARDS):
            found.append("all rewards were equal: only the length of episodes tells good from bad")
        if count := round(self.metrics.get(CONSTANT_FEATURES, 0.0)):
            had = "1 feature" if count == 1 else f"{count:,} features"
            found.append(f"{had} had one value only, which tells a policy nothing")
        if count := round(self.metrics.get(NON_FINITE, 0.0)):
            rows = "1 row was" if count == 1 else f"{count:,} rows were"
            found.append(f"{rows} not learned from: numbers in them were not finite")
        if count := round(self.metrics.get(OUTSIDE, 0.0)):
            found.append(
                f"{count:,} values of images, or of the categories and numbers of entities that"
                " were sampled, were outside of their bounds, and were clipped"
            )
        return tuple(found)

    def _lack_of_episodes(self) -> str:
        """Return a sentence about missing episodes of the training, empty if there is enough."""
        is_rated = self.best.kind == "best"
        if len(self.training_curve) or (is_rated and not len(self.evaluation_curve)):
            return ""
        ended = self.metrics.get(TRAINING_EPISODES)
        unrated = "" if is_rated else ": there is no return to rate a policy by"
        if ended == 0:
            return f"no episode of the training ended{unrated}"
        if is_rated:
            return ""
        if ended is None:
            return f"no episode of the training was reported{unrated}"
        return f"the episodes that began first have not ended, and only later ones have{unrated}"

    @property
    def best_evaluation(self) -> Evaluation | None:
        """
        The evaluation by which the best policy was chosen, None if it is not known.

        It is one of `evaluations`, or `earlier_evaluation`.
        """
        score = self.best.score
        if score is None or self.best.rated_by != "evaluation":
            return None
        # The hive has added up the returns itself.
        found = (one for one in self.evaluations if math.isclose(one.mean_return, score))
        return next(found, self.earlier_evaluation)

    @property
    def learning_curve(self) -> LearningCurve:
        """The curve of evaluations, or of training episodes if there was no evaluation."""
        return self.evaluation_curve if len(self.evaluation_curve) else self.training_curve

    @property
    def mean_return(self) -> float | None:
        """The last point of the learning curve, None before the first episode has ended."""
        return self.learning_curve.last


class TrainingFailed(ArkmlError):
    """
    Raised when a training failed after its run had a policy.

    `result` has the policies and counts up to the failure, and its files are written. The cause
    (`__cause__`) is the first of `result.errors`.
    """

    def __init__(self, message: str, result: TrainingResult) -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationResult:
    """
    Episodes that a policy played, in the order in which they ended.

    Attributes:
        returns: float64, [episodes], undiscounted sums of rewards.
        lengths: int64, [episodes], in steps.
        successes: bool, [episodes], or None if the guest pushes no metadata "success".
        frames: Number of frames that were stepped.
        seconds: Wall time of these frames.
        shortfall: A sentence about missing episodes and returns that are not finite, empty if there
            are as many as wanted and all are finite.

    """

    __repr__ = short_repr

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    successes: npt.NDArray[np.bool_] | None
    frames: int
    seconds: float
    shortfall: str = ""

    @property
    def mean_return(self) -> float:
        """Mean of the returns."""
        with np.errstate(invalid="ignore"):  # that of both infinities is NaN
            return float(self.returns.mean())

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the returns."""
        with np.errstate(invalid="ignore"):
            return float(self.returns.std())

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean return, None for one episode."""
        return standard_error(self.returns)

    @property
    def success_rate(self) -> float | None:
        """Fraction of the episodes that were successes, None if success is unknown."""
        return None if self.successes is None else float(self.successes.mean())


def standard_error(returns: npt.ArrayLike) -> float | None:
    """Return the standard error of the mean of returns, [n]; None for one."""
    values = np.asarray(returns, np.float64)
    with np.errstate(invalid="ignore"):
        return None if len(values) == 1 else float(values.std(ddof=1)) / len(values) ** 0.5
