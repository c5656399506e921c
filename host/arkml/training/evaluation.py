"""Evaluations: of the run that is being trained every N frames, and of any policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from arkml.errors import NotFound, UsageError
from arkml.guests.fleet import Fleet
from arkml.guests.guest import Guest, calls_of
from arkml.host import Host, Source, hives_of, loader_of, read_source
from arkml.limits import Limits
from arkml.policies.given import PolicyFunction
from arkml.policies.library import PolicyLibrary
from arkml.policies.policy import Policy
from arkml.runs.evaluation import PolicyEvaluation, RunEvaluation, play_episodes
from arkml.runs.gateway import HiveRunGateway
from arkml.runtime.compiled_module import CompiledModule
from arkml.sessions.gateway import RunGateway
from arkml.training.options import require_whole
from arkml.training.results import EvaluationResult
from arkml.training.task_runner import GuestRunner
from arkml.training.tasks import compile_module, find_task

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient

G = TypeVar("G", bound=RunGateway)

EPISODES = 10
"""Episodes of an evaluation."""

FRAMES = 5_000
"""Frames after which an evaluation ends, whether or not its episodes have."""


def evaluate(
    module: Source,
    policy: Source | Policy | PolicyFunction,
    *,
    episodes: int = EPISODES,
    frames: int = FRAMES,
    deterministic: bool = True,
    seed: int = 0,
    cmdlet: str | None = None,
    limits: Limits | None = None,
) -> EvaluationResult:
    """
    Play episodes of a guest with a policy, and return their returns and lengths.

    `module` is the path or the bytes of a guest that starts trainings, `policy` a path, bytes, a
    `Policy` or a function, as `Host` takes it: it answers in the place of the run that the guest
    starts, and there is no hive and no learner. The guest is stepped as fast as it can until
    `episodes` episodes have ended; those that end in one frame all count, so more may come back.
    After `frames` frames the episodes until then come back. `deterministic` leaves out the noise,
    `seed` seeds it. `cmdlet` are the arguments of a cmdlet that is run in the place of frames.

    Raises ModuleError, ModelRejected and UsageError before the guest runs; what the guest fails
    with; InvalidArguments if the policy does not fit it; and NotFound if it starts no training or
    no episode ends, and PolicyFailed. May be called from any thread, and from several at a time.
    """
    require_whole("episodes", episodes)
    require_whole("frames", frames)
    if policy is None:
        raise UsageError("policy is None: give a path, bytes, a Policy or a function")
    data, label = read_source(module)
    with Host(policy=policy, seed=seed, deterministic=deterministic, limits=limits) as host:
        compiled = compile_module(host, data, label)
        task = find_task(compiled, cmdlet)
        if not task.is_repeatable:
            raise UsageError(f"{label} cannot be evaluated: it is {task.title}")
        make = partial(PolicyEvaluation, spec=compiled.info.spec)
        guest, gateway = _load_evaluating(host, compiled, make)
        runner = GuestRunner(guest, task, task.budget())
        began = time.monotonic()
        runner.initialize()
        played = play_episodes(gateway, runner.step, episodes, frames)
        seconds = time.monotonic() - began
    if not played.returns:
        raise gateway.failure or NotFound(
            f"no episode of {label} ended within {played.frames:,} frames"
            if gateway.has_started
            else f"{label} started no training within {played.frames:,} frames"
        )
    return EvaluationResult(
        np.array(played.returns, np.float64),
        np.array(played.lengths, np.int64),
        played.frames,
        seconds,
    )


class PeriodicEvaluation:
    """
    Rates the newest version of a run in a guest of its own, made when it is first called.

    `subject` is the guest or the fleet that is trained. `on_returns` gets the returns of the
    episodes, `on_lost` the mean of returns that the hive did not take. `reports` are those that the
    hive has not answered yet.
    """

    def __init__(self, host: Host, subject: Guest | Fleet) -> None:
        self.reports: list[Future[bool]] = []
        self.on_returns: Callable[[Sequence[float]], None] = lambda _: None
        self.on_lost: Callable[[float], None] = lambda _: None
        self._host = host
        self._trained = subject.guests[0] if isinstance(subject, Fleet) else subject
        self._rating: tuple[Guest, RunEvaluation] | None = None

    def __call__(self) -> None:
        """Play episodes with the newest version, and report them to the hive."""
        hives = hives_of(self._host)
        if hives is None or not hives.started:
            return
        client, run = hives.started[0]
        if self._rating is None:
            self._rating = self._load()
        guest, gateway = self._rating
        played = play_episodes(gateway, guest.update, EPISODES, FRAMES)
        if not played.returns:
            return
        self.on_returns(played.returns)
        self._report(client, run.id, played.version, played.returns, played.lengths)

    def _load(self) -> tuple[Guest, RunEvaluation]:
        trained = calls_of(self._trained).services.hives
        if not isinstance(trained, HiveRunGateway):
            raise UsageError("there is nothing to evaluate: the host has no hive")
        make = partial(RunEvaluation, trained)
        guest, gateway = _load_evaluating(self._host, self._trained.module, make)
        guest.initialize()
        return guest, gateway

    def _report(
        self,
        client: HiveClient,
        run_id: str,
        version: int,
        returns: Sequence[float],
        lengths: Sequence[int],
    ) -> None:
        report = client.evaluate(run_id, version, returns, lengths)
        mean = sum(returns) / len(returns)

        def keep(done: Future[bool]) -> None:
            if done.cancelled() or done.exception() is not None:
                self.on_lost(mean)

        report.add_done_callback(keep)
        self.reports = [earlier for earlier in self.reports if not earlier.done()] + [report]


def _load_evaluating(
    host: Host, module: CompiledModule, make_gateway: Callable[[PolicyLibrary], G]
) -> tuple[Guest, G]:
    """Make a guest with a gateway of its own, and run none of its instructions yet."""
    loader = loader_of(host)
    library = loader.library()
    gateway = make_gateway(library)
    shared = loader.shared(gateway=gateway, library=library)
    return Guest(loader.load(module, f"{module.name} (evaluation)", shared)), gateway
