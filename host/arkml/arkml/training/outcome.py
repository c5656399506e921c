"""The outcome of a run, fetched from the hive or, if the hive is gone, taken from this host."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from arkml.base.loggers import SafeLogger
from arkml.base.terminal import harmless
from arkml.errors import HiveError, HiveRefused, HiveUnreachable, NotFound
from arkml.hive.protocol.runs import OVER, Status
from arkml.training.monitor import RunMonitor
from arkml.training.results import (
    EVALUATION_RETURN,
    LEARNER_ENDS,
    ROLLOUT_ROWS,
    ROWS_READ,
    TRAINING_RETURN,
    UPDATES_DUE,
    PolicyKind,
    RatedBy,
    Series,
    rated_by,
)

if TYPE_CHECKING:
    from arkml.guests.fleet import Fleet
    from arkml.guests.guest import Guest
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.result_messages import SnapshotKind
    from arkml.hive.protocol.runs import Best, RunInfo
    from arkml.hive.protocol.settings import Settings
    from arkml.runs.hive_gateway import HiveRunGateway
    from arkml.runs.membership import RunMembership

log = SafeLogger(__name__)

T = TypeVar("T")

_PATIENCE = 30.0  # seconds for all answers of a hive together
_PATIENCE_GONE = 3.0  # of one that was gone just now
_PATIENCE_UPDATE = 120.0  # of a first update, which is compiled before
_TOLD_AFTER = 2.0  # of it, after which people are told of the wait
_PATIENCE_ROWS = 5.0  # of rows that are on their way
_PATIENCE_REPORT = 3.0  # of the metrics of the last ones
_SLICE = 0.1
_POLL = 0.01
_LONGER = "train for longer"
_ABSENT = (404, 503)  # there is no such policy yet; there is no learner


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """
    The policies, the curves and the state of a run at its end.

    `best` and `last` are ONNX files, `kind` and `last_kind` their origins, such as "best" or
    "held". `score` is the mean return by which the best policy was chosen, or None, `rated_by` the
    kind of episodes that it is a mean of, and `version` that of the policy. `missing` says why the
    hive did not provide everything, empty if it did. `unlearned` says why the learner has made no
    update in this training, empty if it has or if the hive did not say. `learner_ends` is the
    number of learners that ended and were replaced, `learner_end` the reason of the last end.
    """

    kind: PolicyKind
    best: bytes
    last_kind: PolicyKind
    last: bytes
    training: Series
    evaluations: Series
    metrics: dict[str, float]
    info: RunInfo
    missing: str = ""
    unlearned: str = ""
    learner_ends: int = 0
    learner_end: str = ""
    score: float | None = None
    rated_by: RatedBy | None = None
    version: int | None = None


class OtherPolicy(NamedTuple):
    """
    The policy of a run beside the trained one.

    Its origin, such as "best", its ONNX file, and its numbers of features and actions.
    """

    kind: PolicyKind
    onnx: bytes
    shape: tuple[int, int]


class PatientClient:
    """
    Waits for answers of a hive, with one time limit for all of them together.

    `is_hurried` is called ten times a second; the wait ends once it returns True.
    """

    def __init__(
        self,
        client: HiveClient,
        is_hurried: Callable[[], bool] = lambda: False,
        seconds: float = _PATIENCE,
    ) -> None:
        self._seconds = _PATIENCE_GONE if client.is_gone else seconds
        self._until = time.monotonic() + self._seconds
        self._is_hurried = is_hurried

    @property
    def is_over(self) -> bool:
        """True once the time limit has passed, or `is_hurried` has ended the wait."""
        return self._is_hurried() or time.monotonic() >= self._until

    def until(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Wait until `is_done` returns true, for at most `seconds` of the time limit."""
        until = min(self._until, time.monotonic() + seconds)
        while not (is_done() or self._is_hurried() or time.monotonic() >= until):
            time.sleep(_POLL)

    def settle(self, future: Future[Any]) -> None:
        """Wait for a future's result or error. Raises HiveUnreachable if none comes in time."""
        while not future.done():
            if self._is_hurried():
                raise HiveUnreachable("the hive was not waited for")
            left = self._until - time.monotonic()
            if left <= 0:
                raise HiveUnreachable(f"the hive did not answer within {self._seconds:g} s")
            try:
                future.exception(min(left, _SLICE))
            except (TimeoutError, CancelledError):
                continue

    def wait(self, future: Future[T]) -> T:
        """Wait for a future, and return its result. Raises HiveError."""
        self.settle(future)
        try:
            return future.result()
        except CancelledError:
            raise HiveUnreachable("the client of the hive is closed") from None


def gather(
    client: HiveClient,
    run: RunInfo,
    subject: Guest | Fleet,
    monitor: RunMonitor,
    reports: Sequence[Future[Any]] = (),
    is_hurried: Callable[[], bool] = lambda: False,
    *,
    wants_update: bool = False,
    prefers_last: bool = False,
) -> RunOutcome:
    """
    Gather the outcome of a run, after the `reports` of evaluations have arrived.

    With `wants_update` the call waits for the first update of a learner that has enough rows. With
    `prefers_last` the last policy is the best unless another was evaluated, as where others learn.
    `subject` is the guest or the fleet that took part in the run. Raises NotFound if there is no
    policy yet, neither at the hive nor at this host.
    """
    first: _FirstUpdate | None = None
    told: RunInfo | None = None
    best_of: Best | None = None
    if wants_update:
        first, told = _wait_for_update(client, run, subject, is_hurried)
    answers = PatientClient(client, is_hurried)
    curves: dict[str, Series] = {n: sorted(c.items()) for n, c in monitor.curves.items()}
    metrics, info, missing = monitor.metrics, monitor.info or run, ""
    held = held_policy(subject)
    kind: PolicyKind
    try:
        for report in reports:
            answers.settle(report)  # one that failed does not concern the policies
        kinds: Sequence[SnapshotKind] = ("best", "now", "latest")
        if prefers_last:
            known = answers.wait(client.details(run.id)).best
            if known is None or rated_by(known.by) != "evaluation":
                kinds = ("now", "latest", "best")
        kind, best = fetch(client, run.id, kinds, answers.wait)
    except (HiveError, NotFound) as error:
        if held is None:
            if isinstance(error, NotFound):
                why = _why_no_policy(told or info, monitor)
                raise NotFound(f"run {run.name!r} has no policy yet: {why}") from error
            raise NotFound(f"run {run.name!r} has no policy that is known: {error}") from error
        kind, (version, best) = "held", held
        missing = f"{error}; the policy is version {version}, which was at hand"
    last_kind, last = kind, best
    try:
        if kind == "best":
            last_kind, last = fetch(client, run.id, ("now", "latest"), answers.wait)
    except (HiveError, NotFound) as error:
        if held is not None:
            last_kind, (_, last) = "held", held
        missing = f"{error}; the last policy is the {last_kind} one"
    membership = membership_of(subject)
    if membership is not None:  # the hive's counts should have the last rows
        answers.until(membership.deliver, _PATIENCE_ROWS)
    try:
        _wait_for_report(client, run, answers)
        for name in curves:
            points = answers.wait(client.series(run.id, name))
            newest = {point.step: point.value for point in points}  # updates without new rows
            curves[name] = sorted(newest.items())
        metrics = {name: value for name, value, _ in answers.wait(client.metrics(run.id))}
        info = told = answers.wait(client.run(run.id))
        if kind == "best":
            best_of = answers.wait(client.details(run.id)).best
    except HiveError as error:
        missing = missing or f"{error}; the curve may lack its end"
    unlearned, end = "", _end(info, monitor)
    if wants_update and told is not None and max(told.n_opts, monitor.updates) <= run.n_opts:
        rejection = "" if membership is None else membership.rejection
        advice = _lack(subject, membership, told.rows - run.rows) or _over(told) or _LONGER
        unlearned = _unlearned(run, told, first, rejection, advice, end)
    training, evaluations = curves[TRAINING_RETURN], curves[EVALUATION_RETURN]
    return RunOutcome(
        kind, best, last_kind, last, training, evaluations, metrics, info, missing, unlearned,
        learner_ends=_deaths(run, info), learner_end=end,
        score=None if best_of is None else best_of.score,
        rated_by=None if best_of is None else rated_by(best_of.by),
        version=None if best_of is None else best_of.version,
    )  # fmt: skip


def gather_others(
    runs: Sequence[tuple[HiveClient, RunInfo]], is_hurried: Callable[[], bool] = lambda: False
) -> tuple[dict[str, OtherPolicy], list[str]]:
    """
    Gather the policies of runs that a guest started beside the trained one, by their names.

    They are the last ones: agents of one run learn against those of the others, so that the version
    with the highest mean return in training is often an early one, which had weak opponents. Of
    runs with the same name the first one counts. Returns sentences about those without a policy,
    too.
    """
    found: dict[str, OtherPolicy] = {}
    missing = []
    for client, run in runs:
        if run.name in found:
            continue
        answers = PatientClient(client, is_hurried)
        try:
            kind, onnx = fetch(client, run.id, ("now", "latest", "best"), answers.wait)
            found[run.name] = OtherPolicy(kind, onnx, (run.features, run.actions))
        except (HiveError, NotFound) as error:
            missing.append(f"there is no file of run {run.name!r}: {error}")
    return found, missing


def _wait_for_update(
    client: HiveClient, run: RunInfo, subject: Guest | Fleet, is_hurried: Callable[[], bool]
) -> tuple[_FirstUpdate | None, RunInfo | None]:
    """
    Wait for the first update of a training if it is due, unless a learner has died.

    Returns the needs of the update and the last state of the run, None for each that the hive did
    not send.
    """
    answers = PatientClient(client, is_hurried, _PATIENCE_UPDATE)
    began, is_told = time.monotonic(), False
    membership = membership_of(subject)
    if membership is not None:
        answers.until(membership.deliver, _PATIENCE_ROWS)
    first: _FirstUpdate | None = None
    info: RunInfo | None = None
    with suppress(HiveError):  # the time is over, or the hive is gone: it is asked once more
        settings = answers.wait(client.details(run.id)).settings
        metrics = {name: value for name, value, _ in answers.wait(client.metrics(run.id))}
        first = _FirstUpdate.of(settings, metrics)
        while not answers.is_over:
            info = answers.wait(client.run(run.id))
            is_due = info.rows >= first.rows and info.status not in OVER
            is_settled = info.n_opts > run.n_opts or not is_due or first.is_unreachable(info)
            if is_settled or _deaths(run, info):
                break
            if not is_told and time.monotonic() - began >= _TOLD_AFTER:
                is_told = True
                wait = "run %s: waiting for the first update of %s, %g s at most"
                log.info(wait, run.name, first.learner, _PATIENCE_UPDATE)
            answers.until(lambda: False, _SLICE)
    return first, info


def _wait_for_report(client: HiveClient, run: RunInfo, answers: PatientClient) -> None:
    """
    Wait a moment for the metrics of the last rows, which a learner reports once a second.

    Raises HiveError.
    """
    until = time.monotonic() + _PATIENCE_REPORT
    while not answers.is_over and time.monotonic() < until:
        info = answers.wait(client.run(run.id))
        if info.status is not Status.RUNNING or info.latest.get(ROWS_READ, -1.0) >= info.rows:
            return
        answers.until(lambda: False, _SLICE)


def _unlearned(
    run: RunInfo, info: RunInfo, first: _FirstUpdate | None, rejection: str, advice: str, end: str
) -> str:
    """
    Return a sentence on why a learner has made no update between the states `run` and `info`.

    `rejection` is why the newest policy is not used, `advice` why rows lack or what to do about it,
    `end` why a learner has ended.
    """
    reason = f" (it ended: {end})" if end else ""
    if first is not None and info.rows < first.rows:
        if rejection:
            return f"nothing was learned: {rejection}{reason}"
        begins = f"{first.learner} begins with {first.rows:,} rows ({first.setting}), and "
        there = f"{begins}there are {info.rows:,}" if first.setting else "there are no rows"
        return f"nothing was learned: {there}: {advice}{reason}"
    if first is not None and first.is_unreachable(info):
        wants = f"{first.learner} wants more rows than the {info.rows:,} that there are"
        return f"nothing was learned: {wants}: {advice}{reason}"
    new = info.rows - run.rows
    return f"nothing was learned: the learner has made no update of {new:,} rows{reason}"


def _lack(subject: Guest | Fleet, membership: RunMembership | None, rows: int) -> str:
    """
    Return why rows of a guest lack, if a longer training would lack them too; else "".

    `rows` is the number of rows that the hive has got.
    """
    counted = subject.statistics
    pushes, submits = (
        {f": {text}": n for text, n in counted.refusals.items() if part in text.split(" ")[0]}
        for part in ("push_training", "submit_training")
    )
    irregular = {} if membership is None else membership.irregular
    of_agents = {f", each because of its agent: {why}": n for why, n in irregular.items()}
    for what, reasons in (("rows", pushes | of_agents), ("submits", submits)):
        if (lost := sum(reasons.values())) > rows:
            all_of = "" if rows else "all "
            return f"{all_of}{lost:,} {what} were refused{max(reasons, key=reasons.__getitem__)}"
    return "" if counted.rows or rows else "the guest pushed none"


def _end(info: RunInfo, monitor: RunMonitor) -> str:
    """Return the reason of the last end of a learner, empty if none has ended."""
    own = "" if info.status in OVER else info.reason  # that of a run which is over is of its end
    return harmless(own or monitor.learner_end or info.reason)


def _why_no_policy(info: RunInfo, monitor: RunMonitor) -> str:
    """Return a sentence on why a run has no policy yet, with what to do about it."""
    if info.place:
        return (
            f"it waits for a learner as number {info.place} of the runs that wait: train for"
            " longer, or stop another run of its hive (--max-learners says how many learn at once)"
        )
    end = _end(info, monitor)
    if end:
        return f"its learner ended: {end}"
    return _over(info) or f"its learner had not begun, {_LONGER}"


def _over(info: RunInfo) -> str:
    """Return words on a run that is over, which a longer training would not change; else ""."""
    return f"the run is {info.status}" if info.status in OVER else ""


class _FirstUpdate(NamedTuple):
    """The rows before the first update of a learner, and the setting that determines them."""

    learner: str
    rows: int
    setting: str

    @classmethod
    def of(cls, settings: Settings, metrics: Mapping[str, float]) -> _FirstUpdate:
        """Return the needs of a run with these metrics: a rollout of PPO depends on its agents."""
        first = math.ceil(1 / settings.updates_per_row)
        rollout = int(metrics.get(ROLLOUT_ROWS, settings.rollout_rows))
        rows, setting = {
            "sac": (settings.memory_min_size + first, "memory_min_size"),
            "ppo": (rollout, "rollout_rows"),
        }.get(settings.learner, (1, ""))
        return cls(settings.learner, rows, setting)

    def is_unreachable(self, info: RunInfo) -> bool:
        """
        Return whether a learner of another package waits for more rows than a run has.

        How many it begins with is known to it alone, which says when it has read all of them and
        no update is due. The others have the rows that they begin with, and may be compiling.
        """
        has_read = info.latest.get(ROWS_READ, -1.0) >= info.rows
        return not self.setting and has_read and info.latest.get(UPDATES_DUE) == 0


def _deaths(run: RunInfo, info: RunInfo) -> int:
    """Return the number of learners that have died between the states `run` and `info`."""
    return round(info.latest.get(LEARNER_ENDS, 0.0) - run.latest.get(LEARNER_ENDS, 0.0))


def fetch(
    client: HiveClient,
    run_id: str,
    kinds: Sequence[SnapshotKind],
    wait: Callable[[Future[bytes]], bytes] = Future.result,
) -> tuple[SnapshotKind, bytes]:
    """
    Return the first of `kinds` of policies that a run has, and the ONNX file of that policy.

    Kinds are "now", "best" and "latest". `wait` waits for an answer of the hive. Raises HiveError,
    and NotFound if the run has no policy yet.
    """
    for kind in kinds:
        try:
            return kind, wait(client.snapshot(run_id, kind))
        except HiveRefused as error:
            if error.status not in _ABSENT:
                raise
    raise NotFound(f"run {run_id} has no policy yet")


def held_policy(subject: Guest | Fleet) -> tuple[int, bytes] | None:
    """
    Return the newest policy version of its first run that a host has loaded, and its ONNX file.
    """
    membership = membership_of(subject)
    return None if membership is None else membership.latest


def held_others(subject: Guest | Fleet) -> dict[str, bytes]:
    """Return the newest policies of the runs after the first that a host has loaded, by name."""
    gateway = _gateway_of(subject)
    every = {} if gateway is None else gateway.others
    return {name: one.latest[1] for name, one in every.items() if one is not None and one.latest}


def membership_of(subject: Guest | Fleet) -> RunMembership | None:
    """Return the membership in the run that a guest, or a fleet, started first."""
    gateway = _gateway_of(subject)
    return None if gateway is None else gateway.first


def _gateway_of(subject: Guest | Fleet) -> HiveRunGateway | None:
    from arkml.guests.fleet import Fleet
    from arkml.guests.guest import calls_of
    from arkml.runs.hive_gateway import HiveRunGateway

    guest = subject.guests[0] if isinstance(subject, Fleet) else subject
    gateway = calls_of(guest).services.hives
    return gateway if isinstance(gateway, HiveRunGateway) else None
