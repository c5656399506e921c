"""The evaluation of any policy in a guest, without a hive."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from arkml.base.loggers import SafeLogger
from arkml.errors import NotFound, UsageError
from arkml.host import Host, Source, read_source
from arkml.limits import Limits, require_seed, require_whole
from arkml.policies.given import PolicyFunction
from arkml.policies.policy import Policy
from arkml.runs.evaluation import play_episodes
from arkml.training.evaluator import make_evaluating
from arkml.training.options import EPISODES
from arkml.training.periodic_evaluation import frames_of
from arkml.training.results import EvaluationResult
from arkml.training.tasks import compile_module, find_task, period_doubt

log = SafeLogger(__name__)


def evaluate(
    module: Source,
    policy: Source | Policy | PolicyFunction,
    *,
    outputs: str | Sequence[str] = (),
    behavior: str | None = None,
    episodes: int = EPISODES,
    frames: int | None = None,
    max_episode_steps: int | None = None,
    deterministic: bool = True,
    seed: int = 0,
    cmdlet: str | None = None,
    limits: Limits | None = None,
) -> EvaluationResult:
    """
    Play episodes of a guest with a policy, and return their returns and lengths.

    `module` is the path or the bytes of a guest that starts trainings, `policy` a path, bytes, a
    `Policy` or a function, and `outputs` those of a file that act, as `Host` takes them: it answers
    in the place of the run that the guest starts, and there is no hive and no learner. Of a guest
    that starts several runs it plays the agents of `behavior`, the name of one, by default of the
    first, if it does not fit those of others; these get zeros. `episodes` are shared out evenly
    among the agents before they begin, and the guest is stepped as fast as it can until all of them
    have ended: the first that end would be the short ones. After `frames` frames, by default 500
    for each episode and at least 5,000, as many episodes of each agent come back as all of them
    have ended, and `shortfall` says so. After `max_episode_steps` an episode is cut off, as in
    `train`, and those that began later in its guest do not count, since only the short ones of them
    would end. `deterministic` leaves out the noise, `seed` seeds it. `cmdlet` are the arguments of
    a cmdlet that is run in the place of frames.

    Raises ModuleError, ModelRejected and UsageError before the guest runs, UsageError where no
    behavior is named and the policy fits several; what the guest fails with; InvalidArguments if
    the policy does not fit it; and NotFound if it starts no training or an agent ends no episode,
    and PolicyFailed. May be called from any thread, and from several at a time.
    """
    episodes = require_whole("episodes", episodes)
    frames = require_whole("frames", frames_of(episodes) if frames is None else frames)
    if max_episode_steps is not None:
        max_episode_steps = require_whole("max_episode_steps", max_episode_steps)
    seed = require_seed(seed)
    if policy is None:
        raise UsageError("policy is None: give a path, bytes, a Policy or a function")
    data, label = read_source(module)
    with Host(
        policy=policy, outputs=outputs, seed=seed, deterministic=deterministic, limits=limits
    ) as host:
        compiled = compile_module(host, data, label)
        if doubt := period_doubt(compiled):
            log.warning("%s", doubt)
        task = find_task(compiled, cmdlet)
        if not task.is_repeatable:
            raise UsageError(f"{label} cannot be evaluated: it is {task.title}")
        runner, gateway = make_evaluating(
            host,
            compiled,
            task,
            task.budget(),
            behavior=behavior,
            max_episode_steps=max_episode_steps,
            seed=seed,
        )
        began = time.monotonic()
        played = play_episodes(gateway, runner.step, episodes, frames, begin=runner.initialize)
        seconds = time.monotonic() - began
    if not played.returns:
        raise gateway.failure or NotFound(
            f"{label}: {played.shortfall}; give more frames"
            if gateway.has_started
            else f"{label} started no training{gateway.unplayed} within {played.frames:,} frames"
        )
    return EvaluationResult(
        np.array(played.returns, np.float64),
        np.array(played.lengths, np.int64),
        None if played.successes is None else np.array(played.successes, np.bool_),
        played.frames,
        seconds,
        played.shortfall,
    )
