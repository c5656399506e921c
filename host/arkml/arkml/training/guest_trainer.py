"""One training, from the module to the files of its result."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from arkml.base.closing import Closing
from arkml.base.output_files import make_directory, path_of
from arkml.base.short_reprs import cut_repr
from arkml.demonstrations.demonstration_files import read_demonstrations
from arkml.errors import (
    AbiError,
    GuestError,
    HiveError,
    HiveUnreachable,
    NotFound,
    NothingLearned,
    Unavailable,
    UsageError,
)
from arkml.guests.guest import SEED_EXPORT
from arkml.guests.reloading import Reloaded
from arkml.hive.address import Address
from arkml.hive.notifier import Notifier, NotifyOptions, notice_of
from arkml.hive.protocol.learners import require_installed
from arkml.hive.protocol.page_messages import (
    MAX_REASON,
    GoalReached,
    HistoryEntry,
    ModuleReport,
    ModuleState,
)
from arkml.host import Host, Source, hives_of, read_source
from arkml.limits import Limits, Threads
from arkml.policies.step_limit import StepLimit
from arkml.runs.demonstrations import DemonstrationFeed
from arkml.runs.hive_access import EMBEDDED
from arkml.runtime.wasi.linking import QUIET_GRANT
from arkml.training.actors import RolloutWorkers, placement_of
from arkml.training.loop import TrainingLoop
from arkml.training.module_reloader import ModuleChange
from arkml.training.module_watch import ModuleWatch
from arkml.training.monitor import RunMonitor
from arkml.training.outcome import (
    OtherPolicy,
    RunOutcome,
    gather,
    gather_others,
    membership_of,
)
from arkml.training.results import (
    Evaluation,
    ProgressFunction,
    RunNotice,
    TrainedPolicy,
    TrainingEnd,
    TrainingFailed,
    TrainingResult,
    curve_of,
    metrics_of,
)
from arkml.training.task_runner import Renewal, make_runner
from arkml.training.tasks import (
    SEED,
    compile_module,
    find_task,
    period_doubt,
    refused_start,
    require_learner,
    require_training,
)
from arkml.training.tracker_clients import TrackerName
from arkml.training.tracking import Tracking
from arkml.training.training_evaluations import TrainingEvaluations
from arkml.training.training_files import write_files
from arkml.training.training_options import EPISODES, Goal, PageOption, TrainingOptions, page_port
from arkml.training.training_record import TrainingRecord
from arkml.workers.placement import RunnerName

if TYPE_CHECKING:
    from arkml.hive.protocol.runs import RunInfo
    from arkml.runs.learner_settings import LearnerSettings
    from arkml.runtime.compiled_module import CompiledModule

_RETURNS = 100
"""Returns of evaluation episodes in a result."""

_REJOINS = 10.0
"""Seconds that a rebuilt guest gets to join its run, which may pause once the one before leaves."""

_NOTED: dict[Reloaded, ModuleState] = {
    Reloaded.HANDED_OVER: "handed over",
    Reloaded.KEPT: "kept",
    Reloaded.ANEW: "anew",
}

_NOTED_WITHIN = 3.0
"""Seconds that a hive has to note that the goal was reached."""

_NOTIFIED_WITHIN = 10.0
"""Seconds at the end of a training that notices have to be sent."""

_BY_WISH = ("stopped", "interrupted")
"""Ends that the user has asked for, even if nothing was learned."""


def train(
    module: Source,
    *,
    minutes: float | None = None,
    frames: int | None = None,
    until_return: float | None = None,
    progress: ProgressFunction | None = None,
    directory: str | os.PathLike[str] | None = None,
    resume: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    demonstrations: str | os.PathLike[str] | None = None,
    settings: LearnerSettings | None = None,
    fps: float | None = None,
    instances: int = 1,
    eval_every: int | Literal["auto"] | None = "auto",
    evaluate_episodes: int = EPISODES,
    max_episode_steps: int | None = None,
    cmdlet: str | None = None,
    hive: Literal["embedded"] | str = EMBEDDED,  # noqa: PYI051  the one word that is no address
    join: str = "",
    token: str | None = None,
    allowed_hives: Sequence[str] = (),
    seed: int = 0,
    limits: Limits | None = None,
    threads: Threads = "auto",
    actors: int | None = None,
    runner: RunnerName = "processes",
    ray_address: str | None = None,
    track: TrackerName | None = None,
    page: PageOption = None,
    imports: str | None = None,
    wasi: bool = False,
    trace_every: int | None = None,
    keep_module: bool | None = None,
    notify: str | Sequence[str] | None = None,
    notify_command: str | None = None,
) -> TrainingResult:
    """
    Train a guest until a goal is reached, and keep the policy.

    The call blocks and prints nothing. It may be made from any thread, also from one with a running
    event loop, and by several threads at a time if each has a directory of its own. The training
    follows the first run that the guest starts.

    The training ends at the first of its goals: `minutes`, `frames` or `until_return`. Without a
    goal an applet trains for five minutes, and any other guest runs once. KeyboardInterrupt in the
    calling thread ends the training, and the result is returned with `end_reason` "interrupted"; a
    second one ends the wait for the hive. Without a policy yet, KeyboardInterrupt is raised.

    The keywords below come in groups: the goals, the files, the learner, the episodes and frames,
    the hive, the rollout workers, and the displays.

    Args:
        module: The path or the bytes of a guest that starts a training.
        minutes: Length of the training, counted from its first policy, or from its start while
            there is no policy.
        frames: Number of frames, counted from the first policy.
        until_return: Mean return that ends the training: the mean of 100 evaluation episodes of one
            version of the policy, which plays all of them if its first `evaluate_episodes` reach
            that mean. Without evaluations, the mean of the last 100 training episodes counts, or of
            at least 20.
        directory: Directory of policies, curve, rows and checkpoints; by default `training/NAME`,
            where NAME is the file name of the module without its suffix.
        resume: True continues the training in `directory`, with its own settings and limit of
            steps: other values of `settings`, `seed` and `max_episode_steps` are refused.
        checkpoint: A checkpoint to start from: the path of a file `N.safetensors` in the directory
            of another training, or "RUN" or "RUN@UPDATES" of the same `hive`.
        demonstrations: A file written by `record`. The run gets its rows before play begins, but
            not again when it is resumed.
        settings: Settings of the learner, such as `{"gamma": 0.995}`, which override the guest's.
        seed: Seed of the policy's noise and, unless it is 0, of the learner.
        fps: Frames per second. Paced frames never wait for the learner. None steps as fast as the
            learner's pace admits.
        instances: Number of guests; more than one are stepped as a fleet.
        eval_every: Evaluations play in a process of their own, and choose the best policy. "auto"
            rates the newest version again and again, with pauses so that this takes a fifth of a
            processor, or half of one with `until_return`; without that the first begins after five
            seconds of learning. It evaluates the frames of applets, where the guest starts one run
            and `sync` is not set, and the training continues without evaluations if they fail. A
            number, such as 3,000, evaluates after each such number of frames: if an evaluation is
            still playing when the next is due, the newest version waits for it. With None, and
            wherever there are no evaluations, the best policy is chosen by training episodes.
        evaluate_episodes: Episodes of each evaluation, played without noise; twice as many for a
            version that seems to be the best. An episode is a success by the metadata "success" of
            the guest or, without it, by a return of at least `until_return`.
        max_episode_steps: Steps after which an episode is cut off, in training and in evaluations:
            the agents of its guest are truncated, not terminated, and a new guest with another seed
            replaces it. None sets no limit.
        cmdlet: Arguments of a cmdlet, which is run instead of frames.
        limits: Limits of each guest; None takes the defaults of `Limits`.
        hive: "embedded" for a hive that ends with the training, or the address of another hive,
            such as "localhost:12356" or a URL.
        join: The id or the name of a run of the `hive` to join, instead of starting the guest's
            first run. The joined run keeps its settings: other settings are refused, and so is a
            guest whose rows have another shape.
        token: The token of the hive at that address.
        allowed_hives: Addresses of further hives that guests may name.
        threads: The most threads that run the fleet of this process, 1 to 256, or "auto" for the
            processors that it may use; other rollout workers have one each.
        actors: Number of rollout workers: hosts with `instances` guests each that take part in the
            run, the first of them in this process. Only the first counts `frames` and `eval_every`;
            the others step at `fps`, or as fast as the learner's pace admits, until the training
            ends. A worker that dies is reported in the warnings and replaced.
        runner: Where the other workers run: "processes" of this machine, or "ray" for a Ray
            cluster, from which `hive` must be reachable.
        ray_address: Address of the Ray cluster; None takes one of this machine.
        progress: Function that is called with a `TrainingProgress` about once a second, and at once
            after each evaluation, on a thread of the training. Returning False ends the training,
            and an exception fails it.
        track: "wandb" or "mlflow", which need the extra of that name. The tracker gets curves,
            settings and policies, and keeps them in `directory` if it has no server. Failures of a
            tracker are reported in the warnings.
        page: Shows the training of an embedded hive in a browser: a port, True for any free port,
            or a function that is called with the link. The link is good for one login, opens the
            run of the training as soon as it exists, and is also in `TrainingProgress.page`.
        imports: The name of the functions of the game that the guest imports, such as
            "mygame:functions", for this process, for evaluations and for other workers.
        wasi: True grants the guest clocks and random numbers through WASI, and no files; its output
            is dropped.
        trace_every: Records one in this number of evaluations for `replay`, in the folder `traces`
            of the directory. Files are named by the version of the policy and the mean return.
            Beyond 20 files or 64 MiB the oldest are deleted, except the best, the worst and the
            latest. 1 records all evaluations, None none. With `max_episode_steps` a file has only
            the play of the first guest of its evaluation.
        keep_module: True lets the hive keep a copy of the module with the run, so that people who
            look at its page can watch its policies play. None does so with an embedded hive only.
        notify: One or more URLs that get each notice about the run as JSON, by POST: that the run
            diverges, has collapsed, is stuck or too slow, that its learner was restarted, or that
            its goal was reached.
        notify_command: Command line of a program that gets each notice on its standard input.

    Returns:
        The policies, curves, counts and warnings of the training.

    Raises:
        UsageError: An argument has a wrong type or value.
        ModuleError: The module cannot be loaded.
        NotTrainable: The hive cannot train the guest.
        HiveError: The checkpoint cannot be read, or the hive failed before there was a policy.
        Unavailable: The hive was not available before there was a policy.
        NotFound: The guest cannot start a training, or there is no policy to keep.
        GuestError: The guest failed before there was a policy.
        TrainingFailed: The training failed after it had a policy; the error has the result.

    Example:
        result = arkml.train(
            "walker.wasm",
            minutes=10,
            settings={"gamma": 0.995},
            progress=lambda state: print(state.frames, state.mean_return),
        )
        print(result.end_reason, result.mean_return, result.best.path)

    """
    data, name = read_source(module)
    target = (
        Path("training", Path(name).stem) if directory is None else path_of(directory, "directory")
    )
    known = Limits() if limits is None else limits
    options = TrainingOptions(
        name=name,
        folder=Path(module).parent if isinstance(module, str | os.PathLike) else None,
        directory=target,
        hive=hive,
        join=join,
        token=token,
        allowed_hives=tuple(allowed_hives),
        settings=settings or {},
        resume=resume,
        checkpoint=checkpoint,
        demonstrations=demonstrations,
        goal=Goal(frames, minutes, until_return),
        arguments=cmdlet,
        fps=fps,
        instances=instances,
        eval_every=eval_every,
        evaluate_episodes=evaluate_episodes,
        max_episode_steps=max_episode_steps,
        seed=seed,
        limits=known,
        budgets_every_call=known.run_seconds != Limits().run_seconds,
        threads=threads,
        actors=actors,
        runner=runner,
        ray_address=ray_address,
        track=track,
        page=page_port(page),
        imports=imports,
        wasi=wasi,
        trace_every=trace_every,
        keep_module=keep_module,
        notify=NotifyOptions(_several(notify), notify_command or ""),
    )
    return _train(data, options, progress, page if callable(page) else None)


def _several(notify: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the URLs of an argument. Raises UsageError for other types."""
    urls = (notify,) if isinstance(notify, str) else notify or ()
    if not isinstance(urls, Sequence) or not all(isinstance(url, str) for url in urls):
        raise UsageError(f"notify is {cut_repr(notify)}: it takes a URL, or a list of them")
    return tuple(urls)


class GuestTrainer(Closing):
    """
    One training: a host, its guest or fleet, and the run that the guest starts.

    `play` trains, `finish` gathers the results and writes the files, and `close` frees the host. No
    instruction of the guest runs before `play`.

    Attributes:
        error: The error that ended the training too early, or None.
        page: The link to the page, good for one login; empty without a page.

    """

    def __init__(
        self, data: bytes, options: TrainingOptions, progress: ProgressFunction | None = None
    ) -> None:
        """
        Compile the module in `data`, and make the guest and the directory.

        Raises UsageError, ModuleError, InvalidSettings, NotTrainable and CheckpointDamaged.
        """
        if progress is not None and not callable(progress):
            raise UsageError(f"progress is {cut_repr(progress)}: it takes a function")
        if options.grant().is_embedded:  # in its own process, where the same packages are installed
            require_installed(options.settings.get("algorithm", "auto"))
        self.error: Exception | None = None
        self._record = TrainingRecord(data, options)
        self.options = options = self._record.options
        self._tracking = Tracking(
            options, self._warn, self._record.tracked(options.track), self._keep_tracked
        )
        self._progress = self._tracking.observing(progress)
        self._notifier = Notifier(options.notify, self._warn)
        self._monitor: RunMonitor | None = None
        self._loop: TrainingLoop | None = None
        self._end_reason: TrainingEnd | None = None
        self._rejoins_until = 0.0
        self._settled: CompiledModule | None = None
        self._actors: RolloutWorkers | None = None
        with ExitStack() as stack:
            self._host = stack.enter_context(
                Host(
                    seed=options.seed,
                    limits=options.limits,
                    hive=self._record.grant,
                    threads=options.threads,
                    imports=options.imports,
                    wasi=QUIET_GRANT if options.wasi else None,
                )
            )
            hives = hives_of(self._host)
            assert hives is not None
            self._hives = hives
            self.module = compile_module(self._host, data, options.name)
            require_training(self.module)
            require_learner(self.module, options.settings)
            self._require_recordable(self.module)
            task = find_task(self.module, options.arguments, options.environment_seed)
            renewal = None
            if options.max_episode_steps is not None:
                hives.limit = StepLimit(options.max_episode_steps)
                renewal = Renewal(hives.limit, options.environment_seed or 0)
            self._runner = make_runner(
                self._host,
                self.module,
                task,
                instances=options.instances,
                budget=task.budget(is_set=options.budgets_every_call),
                renewal=renewal,
            )
            self._goal, self._is_repeatable = options.goal.of(task), task.is_repeatable
            hives.folder, hives.goal = options.folder, self._goal.told()
            hives.join = options.join
            self._task = task
            self._require_watchable()
            self._evaluations = TrainingEvaluations(
                data, options, task, hives, lambda: self._runner.subject
            )
            if options.demonstrations is not None:
                hives.feed = DemonstrationFeed(
                    read_demonstrations(path_of(options.demonstrations, "demonstrations"))
                )
            if options.actors is not None:
                placement, subject = placement_of(options), self._runner.subject
                self._actors = RolloutWorkers(data, options, placement, subject, self._warn)
                stack.enter_context(self._actors)
            if options.origin is not None:
                options.origin.place(options.directory / "hive")
            make_directory("directory", options.directory)
            self._record.clear()
            self.page = (
                "" if options.page is None else hives.open_page(self._record.known_run or "first")
            )
            stack.pop_all()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the training so far, as sentences for people."""
        return () if self._monitor is None else tuple(self._monitor.warnings)

    @property
    def has_policy(self) -> bool:
        """True once there is a policy of the run, which `finish` keeps."""
        return bool(self._hives.started) and self._hives.is_training

    def play(self) -> None:
        """
        Train until the goal is reached or the training fails with `error`.

        Raises KeyboardInterrupt, after which `finish` still keeps the results.
        """
        runner = self._runner
        self._monitor = monitor = RunMonitor(self._hives, self._note_run, self._progress)
        if self._actors is not None:
            monitor.workers = self._actors.progress
        self._hives.warn = self._warn
        self._warn_unseedable()
        if self._record.doubt:
            self._warn(self._record.doubt)
        if doubt := period_doubt(self.module):
            self._warn(doubt)
        monitor.on_notice = self._notify
        monitor.is_own_end = self._is_own_end
        monitor.session_failure = self._session_failure
        monitor.is_refused = self._is_refused
        self._loop = loop = TrainingLoop(
            self._goal,
            self.options.fps,
            monitor,
            is_once=not self._is_repeatable,
            cancel=runner.cancel,
        )
        if self._hives.feed is not None:
            self._hives.feed.report(monitor.warnings.append)
        evaluations = self._evaluations
        evaluations.begin(monitor, loop.is_due)
        self._end_reason = "interrupted"
        try:
            self._require_known_hive()
            begin = partial(runner.initialize, self.options.environment_seed)
            with self._watched() as step:
                loop.run(begin, step, evaluations)
            self._stop_actors()
            if loop.ended != "stopped":
                evaluations.finish(loop.seconds, rates_last=loop.ended != "return")
            self._end_reason = loop.ended or "failed"
            if loop.ended == "return":
                self._report_goal(monitor)
        except Exception as error:  # noqa: BLE001  what was learned is kept, whatever it is
            self.error, self._end_reason = monitor.cause_of(error), "failed"
        finally:
            self._stop_actors()
            evaluations.close()  # one that still plays would be in a part of the result only
            monitor.close()

    def finish(self, is_hurried: Callable[[], bool] = lambda: False) -> TrainingResult:
        """
        Gather the results and write the files; may be called again after an interrupt.

        `is_hurried` is called ten times a second while waiting for a hive; the wait ends once it is
        True. Raises `error`, or NotFound, if there is no policy to keep.
        """
        monitor, hives = self._monitor, self._hives
        assert monitor is not None
        self._stop_actors()  # if an interrupt has kept `play` from it
        if self._actors is not None:
            self._actors.wait(is_hurried)
        monitor.close()
        if not hives.started:
            raise self.error or NotFound(self._no_run())
        if self.error is not None and not hives.is_training:
            raise self.error  # what a run has that was joined is the work of others
        client, run = hives.started[0]
        subject, reports = self._runner.subject, list(self._evaluations.reports)
        try:
            wants_update = self.error is None and self._end_reason not in _BY_WISH
            outcome = gather(
                client, run, subject, monitor, reports, is_hurried, wants_update=wants_update,
                prefers_last=len(hives.started) > 1,
            )  # fmt: skip
        except NotFound as none:
            if self.error is None and self._end_reason == "interrupted":
                raise NotFound(f"nothing was learned: interrupted, and {none}") from none
            raise self.error or none from none
        others, missing = gather_others(hives.started[1:], is_hurried)
        for sentence in missing:
            self._warn(sentence)
        files, unwritten = write_files(self.options, outcome, self._record.stem, others)
        self._tracking.finish(outcome.metrics, outcome.info.rows, files)
        self._notifier.close(_NOTIFIED_WITHIN)  # what did not arrive is one of the warnings
        if (membership := membership_of(self._runner.subject)) and membership.vanished:
            self._warn(membership.vanished)
        errors: list[Exception] = [self.error] if self.error else []
        errors += [HiveUnreachable(outcome.missing)] if outcome.missing else []
        if outcome.unlearned:
            errors.append(NothingLearned(outcome.unlearned))
        result = self._result(outcome, others, files, (*errors, *unwritten))
        if result.best.score is None:
            return result
        try:
            self._record.keep_best(result.best_evaluation, result.best.confirmed)
        except UsageError as error:
            return replace(result, errors=(*result.errors, error))
        return result

    def close(self) -> None:
        """End the run's monitor and free the host. Safe to call twice."""
        with ExitStack() as stack:
            stack.callback(self._host.close)
            stack.callback(self._evaluations.close)
            stack.callback(self._tracking.close)
            stack.callback(self._notifier.close, _NOTIFIED_WITHIN)
            if self._actors is not None:
                stack.callback(self._actors.close)
            if self._monitor is not None:
                self._monitor.close()

    def _require_known_hive(self) -> None:
        """Raise Unavailable if a hive is absent that has the run which is to go on."""
        options = self.options
        goes_on = options.resume or options.join
        if not goes_on or options.allowed_hives or options.grant().is_embedded:
            return  # a new run waits for a hive that starts meanwhile
        try:
            self._hives.client().health().result()
        except HiveUnreachable as error:
            raise Unavailable(str(error)) from error

    def _require_recordable(self, module: CompiledModule) -> None:
        """Raise UsageError for a module whose evaluations cannot be recorded, if they are to be."""
        every, name = self.options.trace_every, self.options.name
        if every is not None and (obstacle := module.state.obstacle):
            raise UsageError(
                f"trace_every is {every}, and {name} cannot be recorded from an evaluation on:"
                f" {obstacle}; leave trace_every away"
            )

    def _require_watchable(self) -> None:
        """Raise UsageError for a training in which a rebuilt module cannot take over."""
        if self.options.watch is None:
            return
        if not self._is_repeatable or self._goal.is_open:
            raise UsageError(f"--watch does not go with {self._task.title}: it runs once")

    @contextmanager
    def _watched(self) -> Iterator[Callable[[], None]]:
        """Yield the step of the runner, with the module reloaded before it where that is asked."""
        runner, path = self._runner, self.options.watch
        if path is None:
            yield runner.step
            return
        watch = ModuleWatch(
            path,
            self._host,
            runner,
            self._warn,
            vet=self._vet_rebuilt,
            taken=self._take_rebuilt,
            settled=self._settle_rebuilt,
        )
        hives, actors = self._hives, self._actors

        def step() -> None:
            try:
                watch.step()
            except GuestError:
                if not hives.misfit:  # which may be why the guest has trapped
                    raise
            if misfit := hives.take_misfit():
                watch.go_back(
                    f"{misfit}; a training of the rebuilt module is another one (--out DIR)"
                )
            if actors is not None:
                self._pass_on()
                if refusal := actors.take_refusal():
                    watch.go_back(refusal)

        try:
            yield step
        finally:
            watch.close()

    def _vet_rebuilt(self, module: CompiledModule) -> None:
        """Refuse a rebuilt module that cannot take part. Raises NotTrainable and UsageError."""
        self._hives.takes_no_more = True
        require_learner(module, self.options.settings)
        self._require_recordable(module)
        find_task(module, self.options.arguments, self.options.environment_seed)

    def _take_rebuilt(self, change: ModuleChange) -> None:
        """Evaluate, and record, the module that is trained from now on."""
        self.module, self._settled = change.after, None
        if change.reason and self._actors is not None:
            self._actors.use_module(change.after.binary, is_told=False)
        self._rejoins_until = time.monotonic() + _REJOINS
        self._report(change)
        self._evaluations.use_module(self.module.binary)
        try:
            self._record.note_module(self.module.digest)
        except UsageError as error:  # of a disk, say: the training goes on
            self._warn(str(error))

    def _report(self, change: ModuleChange) -> None:
        """Have the hive note, as an event of the run, that its guest has another module."""
        if not self._hives.started:
            return
        client, run = self._hives.started[0]
        report = ModuleReport(
            change.before.digest,
            change.after.digest,
            None if change.reason or change.way is None else _NOTED[change.way],
            change.reason[:MAX_REASON],
        )

        def tell(noted: Future[HistoryEntry]) -> None:
            if not noted.cancelled() and (error := noted.exception()) is not None:
                self._warn(f"the events of the run lack a change of its module: {error}")

        client.note_module(run.id, report).add_done_callback(tell)

    def _settle_rebuilt(self, module: CompiledModule) -> None:
        """Note that a module has lived through its first frames here."""
        self._settled = module

    def _pass_on(self) -> None:
        """Send the other workers a module that has settled here, and takes part in the run."""
        module, monitor = self._settled, self._monitor
        if module is None or self._actors is None or monitor is None or not monitor.has_session():
            return
        self._settled = None
        self._actors.use_module(module.binary)

    def _note_run(self, run: RunInfo) -> None:
        """Start the other workers of a run, and record the run. Raises UsageError."""
        if self._actors is not None:
            self._actors.begin(self._hives.started[0][0], run)
        self._tracking.begin(self._hives.started[0][0], run)
        self._record.write(run)

    def _report_goal(self, monitor: RunMonitor) -> None:
        """Have the hive note that the goal was reached, and take its notice."""
        wanted, last = self._goal.mean_return, monitor.evaluations[-1:]
        reached, episodes = monitor.mean_return, min(_RETURNS, monitor.episodes)
        if self._evaluations.decides and last:
            reached, episodes = last[0].mean_return, len(last[0].returns)
        assert wanted is not None
        assert reached is not None  # or it would go on
        client, run = self._hives.started[0]
        with suppress(HiveError, TimeoutError, CancelledError):  # its end says so, too
            report = GoalReached(wanted, reached, episodes)
            client.note_goal(run.id, report).result(_NOTED_WITHIN)
            monitor.hear()

    def _notify(self, notice: RunNotice) -> None:
        """Send a notice of the hive to the receivers of notices."""
        run = self._hives.started[0][1]
        page, hive = self._hives.page.partition("#")[0], self.options.hive
        if not self.options.grant().is_embedded:
            page = Address.parse(hive).url
        named = run.id, run.name, run.game
        self._notifier.tell(notice_of(named, notice.kind, notice.text, notice.at, page))

    def _stop_actors(self) -> None:
        """Let the other workers deliver their last rows and end. Does not wait for them."""
        if self._actors is not None:
            self._actors.stop()

    def _keep_tracked(self, run: str) -> None:
        assert self.options.track is not None
        self._record.keep_tracked(self.options.track, run)

    def _warn(self, warning: str) -> None:
        if self._monitor is not None:
            self._monitor.warnings.append(warning)

    def _warn_unseedable(self) -> None:
        """Warn about a guest that takes no seed if several instances would begin alike."""
        options, begun = self.options, []
        if options.actors is not None and options.actors > 1:
            begun.append("the guests of all workers")
        if options.max_episode_steps is not None:
            begun.append("the guests after each episode that is cut off")
        if (
            begun
            and SEED_EXPORT not in self.module.functions
            and SEED not in (options.arguments or "")
        ):
            self._warn(
                f"{options.name} takes no seed: it exports no {SEED_EXPORT}, and {SEED} is not"
                f" among its arguments; {' and '.join(begun)} may begin alike"
            )

    def _has_stopped(self) -> bool:
        """Return whether the guest itself has stopped its run, or left it."""
        membership = membership_of(self._runner.subject)
        return membership is not None and (membership.has_stopped or membership.is_left)

    def _is_own_end(self) -> bool:
        """Return whether the end of the run is the guest's doing, and no reason to give it up."""
        return self._has_stopped() or time.monotonic() < self._rejoins_until

    def _no_run(self) -> str:
        """Return a sentence on why there is no run, such as "npc.wasm started no training"."""
        name, loop, hives = self.options.name, self._loop, self._hives
        reason = str(
            hives.failure
            or refused_start(self._runner.statistics)
            or hives.silence
            or "; ".join(self.module.info.misfits)
        )
        if self._end_reason == "interrupted":
            note = reason and f" ({reason})"
            return f"nothing was learned: interrupted before {name} had a run{note}"
        if not reason and hives.is_asked and loop is not None:
            minutes = self._goal.minutes if self._end_reason == "minutes" else None
            within = f"{loop.seconds:.3g} s" if minutes is None else f"{minutes:g} minutes"
            return f"the run that {name} asked for was not there within {within}"
        return f"{name} started no training" + (reason and f": {reason}")

    def _is_refused(self) -> bool:
        """Return whether the guest was refused its runs before a hive was asked for one."""
        hives = self._hives
        if hives.is_asked:
            return isinstance(hives.failure, AbiError) and not hives.names
        return bool(refused_start(self._runner.statistics))

    def _session_failure(self) -> str:
        """Return why the run takes no more rows of the guest, empty if it does."""
        membership = membership_of(self._runner.subject)
        return "" if membership is None or self._has_stopped() else membership.failure

    def _confirmed(self, version: int | None) -> Evaluation | None:
        """Return the episodes that the version which the hive chose has played since, if any."""
        confirmed = self._evaluations.confirmed
        return confirmed if confirmed is not None and confirmed.version == version else None

    def _result(
        self,
        outcome: RunOutcome,
        others: Mapping[str, OtherPolicy],
        files: dict[str, Path],
        errors: tuple[Exception, ...],
    ) -> TrainingResult:
        loop, monitor = self._loop, self._monitor
        assert loop is not None
        assert monitor is not None
        assert self._end_reason is not None
        # The hive's values may lack the last evaluation, or have an earlier one for the same rows.
        newest = metrics_of(monitor.evaluations[-1]) if monitor.evaluations else {}
        returns = [value for one in monitor.evaluations for value in one.returns]
        earlier, confirmed = self._record.best(outcome.version)
        shape = outcome.info.features, outcome.info.actions
        return TrainingResult(
            run_id=outcome.info.id,
            run_name=outcome.info.name,
            directory=self.options.directory,
            end_reason=self._end_reason,
            best=TrainedPolicy(
                outcome.kind,
                outcome.best,
                files.get("onnx"),
                outcome.score,
                outcome.rated_by,
                self._confirmed(outcome.version) or confirmed,
                shape,
            ),
            last=TrainedPolicy(outcome.last_kind, outcome.last, files.get("last"), shape=shape),
            training_curve=curve_of(outcome.training),
            evaluation_curve=curve_of(outcome.evaluations),
            evaluation_returns=np.array(returns[-_RETURNS:], np.float64),
            evaluations=tuple(monitor.evaluations),
            frames=loop.frames,
            seconds=loop.seconds,
            late_frames=None if loop.pacer is None else loop.pacer.late,
            rows=outcome.info.rows,
            updates=outcome.info.n_opts,
            versions=outcome.info.policy_version,
            metrics={**outcome.metrics, **newest},
            files=files,
            warnings=self.warnings,
            errors=errors,
            workers=() if self._actors is None else self._actors.result(loop.frames, loop.seconds),
            statistics=self._runner.statistics,
            learner_ends=outcome.learner_ends,
            learner_end=outcome.learner_end,
            notices=tuple(monitor.notices),
            earlier_evaluation=earlier,
            other_policies={
                name: TrainedPolicy(
                    other.kind, other.onnx, files.get(f"run {name}"), shape=other.shape
                )
                for name, other in others.items()
            },
        )


def _train(
    data: bytes,
    options: TrainingOptions,
    progress: ProgressFunction | None,
    show_page: Callable[[str], object] | None,
) -> TrainingResult:
    with GuestTrainer(data, options, progress) as trainer:
        if show_page is not None:
            show_page(trainer.page)
        interrupt: KeyboardInterrupt | None = None
        try:
            trainer.play()
        except KeyboardInterrupt as error:
            interrupt = error
        try:
            result = trainer.finish()
        except KeyboardInterrupt:
            result = trainer.finish(lambda: True)
        except NotFound:
            if interrupt is not None:
                raise interrupt from None
            raise
    if result.errors and interrupt is None:
        raise TrainingFailed(str(result.errors[0]), result) from result.errors[0]
    return result
