"""The evaluation of any policy in a guest, without a hive."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import numpy as np

from arkml.errors import NotFound, UsageError
from arkml.guests.trace_recorder import Trace
from arkml.host import Host, NamedPolicies, Source, read_source
from arkml.limits import Limits, require_seed, require_whole
from arkml.policies.given import PolicyFunction
from arkml.policies.policy import Policy
from arkml.runs.evaluation_guests import PlayProgress, play_episodes
from arkml.runtime.game_functions import Imports
from arkml.runtime.wasi.linking import QUIET_GRANT
from arkml.training.evaluations import make_evaluating, policies_of_others
from arkml.training.periodic_evaluation import frames_of
from arkml.training.results import EvaluationResult
from arkml.training.tasks import compile_module, training_task, without_start
from arkml.training.training_options import EPISODES


def evaluate(
    module: Source,
    policy: Source | Policy | PolicyFunction,
    *,
    outputs: str | Sequence[str] = (),
    behavior: str | None = None,
    others: NamedPolicies | None = None,
    episodes: int = EPISODES,
    frames: int | None = None,
    max_episode_steps: int | None = None,
    deterministic: bool = True,
    seed: int = 0,
    cmdlet: str | None = None,
    limits: Limits | None = None,
    imports: Imports | None = None,
    wasi: bool = False,
    trace: Trace | str | os.PathLike[str] | None = None,
    progress: PlayProgress | None = None,
) -> EvaluationResult:
    """
    Play episodes of a guest with a policy, and return their returns and lengths.

    The policy answers in place of the run that the guest starts: there is no hive and no learner,
    and agents take its actions as they are, without clipping. The episodes are shared out evenly
    among the agents before they begin, for example 25 to each of 4 agents, and the guest is stepped
    as fast as possible until all of them have ended: counting simply the first ones to end would
    favor short episodes. May be called from any thread, and from several at a time.

    Args:
        module: The path or the bytes of a guest that starts trainings.
        policy: A path, bytes, a `Policy` or a function, as for `Host`.
        outputs: The names of the outputs of a policy file that hold its actions, as for `Host`.
        behavior: Name of the run whose agents the policy plays, such as "predator", for a guest
            that starts several. None takes the first run without a policy in `others`, if the
            policy does not fit further ones.
        others: Policies of the agents of other runs, by the names of these, such as
            `{"prey": "prey.onnx"}`. Agents without one get zeros.
        episodes: Number of episodes.
        frames: Most frames to step, by default 500 for each episode and at least 20,000. At the
            limit, the same number of episodes counts for each agent, as many as every agent has
            completed, and `shortfall` says so.
        max_episode_steps: Steps after which an episode is cut off, as in `train`. Other episodes of
            a guest that is cut off do not count if they began later, since only short ones among
            them would have ended.
        deterministic: True leaves out the noise of the policy.
        seed: Seed of the noise, any whole number. Unless it is 0, the guest begins from it, too, by
            its export `arkml_seed`.
        cmdlet: Arguments of a cmdlet, which is run instead of frames.
        limits: Limits of the guest; None takes the defaults of `Limits`.
        imports: Functions of the game that the guest imports, as in `Host`.
        wasi: True grants the guest clocks and random numbers through WASI, and no files; its output
            is dropped.
        trace: Records the inputs of the guest, as in `Host`.
        progress: Function that is called after each frame with the number of frames and the number
            of episodes that have ended.

    Returns:
        The returns, lengths and successes of the episodes, in the order in which they ended.

    Raises:
        ModuleError: The module cannot be loaded.
        ModelRejected: The policy file is malformed or cannot act.
        UsageError: An argument has a wrong value, or the policy fits several runs of the guest and
            `behavior` names none.
        InvalidArguments: The policy does not fit the guest.
        NotFound: The guest starts no training, none of a name in `others`, or an agent ends no
            episode.
        PolicyFailed: The policy failed.
        GuestError: The guest failed.

    Example:
        rated = arkml.evaluate("walker.wasm", "training/walker/walker.onnx", episodes=20)
        print(f"{rated.mean_return:.1f} +- {rated.standard_deviation:.1f}")
        hunted = arkml.evaluate("hunt.wasm", "hunter.onnx", others={"prey": "prey.onnx"})

    """
    episodes = require_whole("episodes", episodes)
    frames = require_whole("frames", frames_of(episodes) if frames is None else frames)
    if max_episode_steps is not None:
        max_episode_steps = require_whole("max_episode_steps", max_episode_steps)
    seed = require_seed(seed)
    if policy is None:
        raise UsageError("policy is None: give a path, bytes, a Policy or a function")
    beside = policies_of_others(others, behavior)
    data, label = read_source(module)
    with Host(
        policy=policy,
        policies=beside or None,
        outputs=outputs,
        seed=seed,
        deterministic=deterministic,
        limits=limits,
        imports=imports,
        wasi=QUIET_GRANT if wasi else None,
        trace=trace,
    ) as host:
        compiled = compile_module(host, data, label)
        task = training_task(compiled, cmdlet, "evaluated")
        runner, gateway = make_evaluating(
            host,
            compiled,
            task,
            task.budget(),
            behavior=behavior,
            others=beside,
            max_episode_steps=max_episode_steps,
            seed=seed,
            episodes=episodes,
        )
        began = time.monotonic()
        played = play_episodes(
            gateway,
            runner.step,
            episodes,
            frames,
            begin=lambda: runner.initialize(seed or None),
            progress=progress,
        )
        seconds = time.monotonic() - began
    if not played.returns:
        raise gateway.failure or NotFound(
            f"{label}: {played.shortfall}; give more `frames` (--frames)"
            if gateway.has_started
            else without_start(label, gateway.unplayed, played.frames, runner.statistics)
        )
    return EvaluationResult(
        np.array(played.returns, np.float64),
        np.array(played.lengths, np.int64),
        None if played.successes is None else np.array(played.successes, np.bool_),
        played.frames,
        seconds,
        played.shortfall,
    )
