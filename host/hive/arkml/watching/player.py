"""Playing one policy version in a guest, for people who watch, or to record one episode."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic

from arkml.base.terminal import harmless
from arkml.batches import Batch
from arkml.errors import Frame, GuestError, LinkError, NotFound, UsageError
from arkml.hive.protocol.replay_messages import ReplayReport
from arkml.hive.protocol.watch_messages import (
    FRAME_RATE,
    PlayerJob,
    WatchEnd,
    WatchHead,
    WatchLineKind,
)
from arkml.hive.protocol.wire import Nothing, WireStruct
from arkml.host import Host
from arkml.limits import Limits
from arkml.replays.shown_rows import MOST_ROWS
from arkml.runs.evaluation_guests import PolicyEvaluation
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.module.description import ModuleKind
from arkml.runtime.wasi.linking import QUIET_GRANT
from arkml.training.evaluations import EpisodePlayer, EvaluationTask, make_evaluating
from arkml.training.periodic_evaluation import frames_of
from arkml.training.tasks import compile_module, find_task
from arkml.training.worker_module import limited_compilation
from arkml.watching.frames import WatchedFrames
from arkml.watching.pace import WatchPace

_BEAT_EVERY = 1.0  # seconds
_STARTS_WITHIN = 600  # frames
_STARTS_AGAIN_WITHIN = 60  # frames of a guest whose start was refused
_MOST_CALLS, _MOST_TEXT = 16, 500
_MOST_IMPORTS = 3  # that a sentence names
_PER_FRAME = (ModuleKind.APPLET, ModuleKind.PLAIN)

Say = Callable[[WatchLineKind, WireStruct], int]
"""Writes a line, and returns the number of its bytes."""


class WatchedGuest:
    """
    A guest that plays endlessly with one policy version, in the way of an evaluation of its run.
    """

    def __init__(
        self,
        job: PlayerJob,
        module: bytes,
        policy: bytes,
        others: Mapping[str, bytes],
        say: Say,
    ) -> None:
        self._job, self._say = job, say
        self._module, self._policy, self._others = module, policy, others
        self._frames: WatchedFrames
        self._pace: WatchPace
        self._is_per_frame = True
        self._number = 0
        self._told = -1  # the number of behaviors in the last head; -1 before the first frame
        self._said_at = monotonic()

    def play(self) -> None:
        """Play until the process ends. Raises ArkmlError."""
        job = self._job
        guest = job.guest
        with Host(limits=Limits(), wasi=QUIET_GRANT, seed=job.seed, threads=1) as host:
            compiled = _compiled(host, self._module, guest.name)
            task = find_task(compiled, guest.arguments)
            if not task.is_repeatable:
                raise UsageError(f"{guest.name} cannot be watched: it is {task.title}")
            self._frames = WatchedFrames(compiled.info.spec)
            self._is_per_frame = task.kind in _PER_FRAME
            self._pace = WatchPace(FRAME_RATE)  # what came before is no frame's
            runner, gateway = make_evaluating(
                host, compiled, task, task.budget(),
                behavior=guest.behavior, max_episode_steps=guest.max_episode_steps, seed=job.seed,
                episodes=MOST_ROWS, show=self._see,
            )  # fmt: skip
            gateway.offer(job.version, self._policy)
            for name, data in self._others.items():
                gateway.offer_other(name, data)
            try:
                runner.initialize(job.seed or None)
                while True:
                    runner.step()
                    if self._is_per_frame:
                        self._end_frame()
                    self._require_start(gateway)
            except GuestError as error:
                raise (gateway.failure or error) if not gateway.has_started else error from error

    def _see(self, batch: Batch) -> None:
        self._frames.add(batch)
        if not self._is_per_frame:  # one call plays many decisions: each is a frame
            self._end_frame()

    def _end_frame(self) -> None:
        """Show the frame, and wait for the next one."""
        self._number += 1
        frames = self._frames
        is_shown = frames.has_rows and self._pace.shows
        frame = frames.take(self._number, is_shown=is_shown)
        if frame is not None:
            if len(frames.behaviors) != self._told:
                self._told = len(frames.behaviors)
                self._say("head", self._head())
            self._pace.note(self._say("frame", frame))
            self._said_at = monotonic()
        elif monotonic() - self._said_at >= _BEAT_EVERY:
            self._said_at = monotonic()
            self._say("beat", Nothing())
        self._pace.wait(is_seen=self._told >= 0)  # what comes before the first is over soon

    def _head(self) -> WatchHead:
        job, frames = self._job, self._frames
        said = [
            f"agents of {name} act by version {one.version} of their run"
            for name, one in job.others.items()
        ]
        notes = [_cut(note) for note in (*said, *frames.notes)]
        return WatchHead(job.guest.name, job.version, job.seed, FRAME_RATE, frames.behaviors, notes)

    def _require_start(self, gateway: PolicyEvaluation) -> None:
        """Raise the reason if the guest does not start its run, or NotFound without one."""
        within = _STARTS_WITHIN if gateway.failure is None else _STARTS_AGAIN_WITHIN
        if gateway.has_started or self._number < within:
            return
        raise gateway.failure or NotFound(
            f"{self._job.guest.name} started no training{gateway.unplayed} within"
            f" {_STARTS_WITHIN} frames"
        )


def record(
    job: PlayerJob, module: bytes, policy: bytes, others: Mapping[str, bytes]
) -> ReplayReport:
    """
    Play one episode, as an evaluation of the run does, and return its replay.

    Args:
        job: The job.
        module: Bytes of the guest's module.
        policy: Bytes of the policy's ONNX file.
        others: Bytes of those of other agents, by the names of their runs.

    Raises:
        ArkmlError: The guest or a policy failed, or no episode has ended.

    """
    guest = job.guest
    task = EvaluationTask(
        name=guest.name, arguments=guest.arguments, limits=Limits(), budgets_every_call=False,
        episodes=1, frames=frames_of(1), max_episode_steps=guest.max_episode_steps, is_traced=True,
    )  # fmt: skip
    with (
        Host(limits=Limits(), wasi=QUIET_GRANT, threads=1) as host,
        tempfile.TemporaryDirectory() as folder,
    ):
        _compiled(host, module, guest.name)  # within limits; the player finds it compiled
        player = EpisodePlayer(host, task, module)
        trace = str(Path(folder) / "episode.trace")
        played = player.play(guest.behavior, job.version, 1, policy, trace, others)
        if "replay" not in played:
            raise UsageError(f"there is no replay of the episode: {played['unshown']}")
        if not played["returns"]:
            raise NotFound(played["shortfall"])
        return ReplayReport(job.version, played["returns"][0], played["replay"])


def ending_of(error: Exception) -> WatchEnd:
    """Return the message on an error that ended playing, with the code locations of a trap."""
    frames: Sequence[Frame] = getattr(error, "frames", ())
    calls = [
        _cut(f"{one.function} ({one.module}{_place(one.offset)})") for one in frames[:_MOST_CALLS]
    ]
    text = str(error).partition("\n")[0] or type(error).__name__
    if isinstance(error, MemoryError):
        text = "it takes more memory than a player may have"
    return WatchEnd(_cut(text), calls)


def _compiled(host: Host, module: bytes, name: str) -> CompiledModule:
    """Compile a module within limits. Raises LinkError, which names imports, and ArkmlError."""
    try:
        with limited_compilation():
            return compile_module(host, module, name)
    except LinkError as error:
        wanted = [line.split()[0] for line in str(error).splitlines()[1:] if "  wants " in line]
        if not wanted:
            raise
        more = len(wanted) - _MOST_IMPORTS
        named = ", ".join(wanted[:_MOST_IMPORTS]) + (f" and {more} more" if more > 0 else "")
        raise LinkError(
            f"{name} imports {named}: a hive has no functions of a game, so it cannot play this"
            " guest; a training records episodes where they are (arkml train --trace-every)"
        ) from None


def _place(offset: int | None) -> str:
    return "" if offset is None else f" at {offset:04x}"


def _cut(text: str) -> str:
    return harmless(text[:_MOST_TEXT])
