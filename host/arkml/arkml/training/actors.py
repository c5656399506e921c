"""The rollout workers of a training: how they are started, watched and replaced."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from arkml.base.closing import Closing
from arkml.base.terminal import harmless
from arkml.errors import HiveUnreachable, Unavailable
from arkml.guests.reloading import Reloaded
from arkml.hive.protocol.worker_jobs import WorkerJob, environment_seed
from arkml.limits import Limits
from arkml.training.delivered_rows import DeliveredRows
from arkml.training.module_reloader import STATES
from arkml.training.results import WorkerProgress
from arkml.training.worker_reloads import MODULE_EVENT, ReloadAnswer, module_message
from arkml.workers.deaths import Deaths
from arkml.workers.local import LocalPlacement
from arkml.workers.placement_choice import make_placement
from arkml.workers.program import REFUSED

if TYPE_CHECKING:
    from arkml.guests.fleet import Fleet
    from arkml.guests.guest import Guest
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.runs import RunInfo
    from arkml.training.training_options import TrainingOptions
    from arkml.workers.placement import Placement, Worker

_PROGRAM = "arkml.training.rollout_worker"
_INTERVAL = 0.1
_ENDING = 5.0  # seconds for workers to deliver their last rows


@dataclass(slots=True)
class _Post:
    """The place of one worker in a training, and the worker that fills it now."""

    number: int
    incarnation: int = 0
    worker: Worker | None = None
    due: float = 0.0  # of the next start, while there is no worker
    is_closed: bool = False  # true if there will be no worker any more
    earlier_rows: int = 0  # of the workers before
    earlier_frames: int = 0
    latest: Mapping[str, Any] = field(default_factory=dict)
    answers: list[ReloadAnswer] = field(default_factory=list)  # that are not heard yet
    deaths: Deaths = field(default_factory=Deaths)

    def take_events(self) -> None:
        """Keep the newest progress of the worker, and its answers about modules."""
        assert self.worker is not None
        for event in self.worker.events():
            if event.get("event") == "progress":
                self.latest = event
            elif event.get("event") == MODULE_EVENT:
                self.answers.append(ReloadAnswer.of(event))

    def progress(self) -> WorkerProgress:
        """Return the state of the worker, with the counts of its predecessors."""
        latest, is_alive = self.latest, self.worker is not None and self.worker.is_alive
        return WorkerProgress(
            worker=self.number,
            incarnation=self.incarnation,
            is_alive=is_alive,
            frames=self.earlier_frames + int(latest.get("frames", 0)),
            rows=self.earlier_rows + int(latest.get("rows", 0)),
            rows_per_second=float(latest.get("rows_per_second", 0.0)) if is_alive else 0.0,
            version=int(latest.get("version", 0)),
        )

    def send(self, module: bytes) -> None:
        """Send a rebuilt module to the worker."""
        assert self.worker is not None
        self.worker.send(module_message(module))

    def vacate(self, now: float) -> float:
        """Make room for the next worker after a death; return the seconds until its start."""
        progress = self.progress()
        self.earlier_rows, self.earlier_frames = progress.rows, progress.frames
        self.latest, self.worker = {}, None
        self.incarnation += 1
        wait = self.deaths.note(now)
        self.due = now + wait
        return wait


@dataclass(slots=True)
class _Sent:
    """A rebuilt module that was sent to workers, until all have answered or one has refused it."""

    digest: str
    waiting: set[int]
    taken: dict[int, Reloaded] = field(default_factory=dict)

    def take(self, number: int, answer: ReloadAnswer) -> None:
        """Take the answer of a worker that has reloaded the module."""
        self.waiting.discard(number)
        if answer.way is not None:
            self.taken[number] = answer.way

    def outcome(self) -> str:
        """Return a sentence on the workers that go on with the module, empty without any."""
        *others, last = map(str, sorted(self.taken)) if self.taken else ("",)
        if not last:
            return ""
        who = f"workers {', '.join(others)} and {last}" if others else f"worker {last}"
        ways = set(self.taken.values())
        state = STATES[ways.pop() if len(ways) == 1 else Reloaded.ANEW]
        return f"{who} reloaded {self.digest[:12]}, too: the state {state}"


class RolloutWorkers(Closing):
    """
    The rollout workers of a training; worker 0 is the host of the training itself.

    `subject` is the guest or the fleet of that host. The other workers are started by `begin`, once
    there is a run, and are watched by a thread of this object. A worker that dies, for example
    killed by the system, is reported to `warn` and replaced; a worker that refuses its job is only
    reported. `close` ends all workers, and closes the `placement`.

    A rebuilt module is sent to all workers, and the outcome is logged once all have answered. If a
    worker refuses it, `take_refusal` returns the reason, and the caller must send the previous
    module.
    """

    def __init__(
        self,
        data: bytes,
        options: TrainingOptions,
        placement: Placement,
        subject: Guest | Fleet,
        warn: Callable[[str], object],
    ) -> None:
        """Prepare the workers of a training with the module `data`; none is started yet."""
        assert options.actors is not None
        self._own = DeliveredRows(subject)
        self._data = data
        self._hash = hashlib.sha256(data).hexdigest()
        self._options = options
        self._placement = placement
        self._warn = warn
        self._posts = [_Post(number) for number in range(1, options.actors)]
        self._sent: _Sent | None = None
        self._refusal = ""
        self._is_ending = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, client: HiveClient, run: RunInfo) -> None:
        """Start the workers of a run, unless they are being ended already."""
        with self._lock:
            if self._is_ending.is_set() or self._thread is not None:
                return
            self._thread = threading.Thread(
                target=self._watch, args=(client, run), name="arkml-actors", daemon=True
            )
            self._thread.start()

    def use_module(self, module: bytes, *, is_told: bool = True) -> None:
        """
        Let all workers, and their replacements, continue with another module between two frames.
        """
        digest = hashlib.sha256(module).hexdigest()
        with self._lock:
            if digest == self._hash:
                return
            self._data, self._hash, self._refusal = module, digest, ""
            posts = [post for post in self._posts if post.worker is not None]
            self._sent = _Sent(digest, {post.number for post in posts}) if is_told else None
            for post in posts:
                post.send(module)

    def take_refusal(self) -> str:
        """Return once why a worker refused the module that was sent last; else ""."""
        with self._lock:
            refusal, self._refusal = self._refusal, ""
        return refusal

    def progress(self, frames: int) -> tuple[WorkerProgress, ...]:
        """Return the states of the workers by number; `frames` is the frame count of worker 0."""
        own = self._own
        own.update()
        first = WorkerProgress(0, 0, True, frames, own.rows, own.rows_per_second, own.version)
        with self._lock:
            return first, *(post.progress() for post in self._posts)

    def result(self, frames: int, seconds: float) -> tuple[WorkerProgress, ...]:
        """
        Return the states of the workers after a training of `seconds`, with mean rates of rows.
        """
        return tuple(
            replace(one, rows_per_second=one.rows / max(seconds, 1e-3))
            for one in self.progress(frames)
        )

    def stop(self) -> None:
        """Ask all workers to deliver their rows and to end, without waiting for it."""
        self._is_ending.set()
        with self._lock:
            for post in self._posts:
                if post.worker is not None:
                    post.worker.stop(_ENDING)

    def wait(self, is_hurried: Callable[[], bool]) -> None:
        """Wait until all workers have ended after `stop`; kill them once `is_hurried` is true."""
        if self._thread is not None:
            self._thread.join()
        while any(post.worker is not None and post.worker.is_alive for post in self._posts):
            if is_hurried():
                for post in self._posts:
                    if post.worker is not None:
                        post.worker.kill()
            time.sleep(_INTERVAL)
        for post in self._posts:
            if post.worker is not None:
                post.take_events()

    def close(self) -> None:
        """End all workers, by force after some seconds. Safe to call twice."""
        self.stop()
        self._placement.close(_ENDING)
        if self._thread is not None:
            self._thread.join()

    def _watch(self, client: HiveClient, run: RunInfo) -> None:
        while not self._is_ending.wait(_INTERVAL):
            for post in self._posts:
                if post.worker is not None:
                    with self._lock:
                        self._look_after(post, post.worker)
                elif time.monotonic() >= post.due and not self._is_ending.is_set():
                    self._start(post, client, run)

    def _look_after(self, post: _Post, worker: Worker) -> None:
        """Read the events of a worker, and replace it if it has died."""
        is_alive = worker.is_alive
        post.take_events()
        self._hear(post, is_alive=is_alive)
        if is_alive or post.is_closed or self._is_ending.is_set():
            return
        if worker.status in (0, REFUSED):
            post.is_closed = True
            if worker.status == REFUSED:
                self._warn(f"worker {post.number} cannot take part: {worker.reason}")
            return
        self._replace(post, f"worker {post.number} died: {worker.reason}")

    def _hear(self, post: _Post, *, is_alive: bool) -> None:
        """Take the answers of a worker about the module sent last, and tell the outcome."""
        answers, post.answers = post.answers, []
        if (sent := self._sent) is None:
            return
        for answer in answers:
            if answer.digest != sent.digest:
                continue
            if answer.refusal:
                self._sent, self._refusal = None, f"worker {post.number}: {answer.refusal}"
                return
            sent.take(post.number, answer)
        if not is_alive:  # the one that replaces it begins with the module
            sent.waiting.discard(post.number)
        if not sent.waiting:
            self._sent = None
            if outcome := sent.outcome():
                self._warn(harmless(f"{self._options.name}: {outcome}"))

    def _start(self, post: _Post, client: HiveClient, run: RunInfo) -> None:
        """Start the next worker of a place. Takes seconds if the hive has to restart."""
        try:
            job = self._job(post, client, run)
            worker = self._placement.start(_PROGRAM, job.as_json(), job.label)
        except (HiveUnreachable, Unavailable) as error:
            if not self._is_ending.is_set():
                self._replace(post, f"worker {post.number} does not start: {error}")
            return
        with self._lock:
            post.worker = worker
            if job.module_hash != self._hash:  # it was rebuilt meanwhile
                post.send(self._data)
            if self._is_ending.is_set():
                worker.stop(_ENDING)

    def _replace(self, post: _Post, what: str) -> None:
        wait = post.vacate(time.monotonic())
        when = f"another one starts in {wait:.0f} s" if wait > 0 else "another one takes its place"
        self._warn(f"{what}; {when}")

    def _job(self, post: _Post, client: HiveClient, run: RunInfo) -> WorkerJob:
        """Return the job of the next worker of a place. Raises HiveUnreachable."""
        options = self._options
        address = client.locate()
        with self._lock:
            module, digest = self._data, self._hash
        return WorkerJob(
            run_id=run.id,
            name=run.name,
            game=run.game,
            hive=str(address),
            token=address.token,
            module_data=module,
            module_hash=digest,
            module_name=options.name,
            arguments=options.arguments,
            worker=post.number,
            incarnation=post.incarnation,
            seed=environment_seed(run.seed, post.number, post.incarnation),
            instances=options.instances,
            fps=options.fps,
            max_episode_steps=options.max_episode_steps,
            limits=changed_limits(options.limits),
            budgets_every_call=options.budgets_every_call,
            imports=options.imports,
            wasi=options.wasi,
        )


def placement_of(options: TrainingOptions) -> Placement:
    """Return where the workers other than the first run. Raises Unavailable and UsageError."""
    others = (options.actors or 1) - 1
    if not others:
        return LocalPlacement()
    return make_placement(options.runner, options.ray_address, cpus=others)


def changed_limits(limits: Limits) -> dict[str, Any]:
    """Return the limits that differ from their defaults, such as {"rows": 1024}."""
    usual = asdict(Limits())
    return {name: value for name, value in asdict(limits).items() if value != usual[name]}
