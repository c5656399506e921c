"""Recording a guest's episodes, played by an existing policy, as demonstrations."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from arkml.base.loggers import SafeLogger
from arkml.base.output_files import path_of
from arkml.base.short_reprs import short_repr
from arkml.demonstrations.dataset import DemonstrationSet, outside, row_columns
from arkml.demonstrations.demonstration_files import require_writable, write_demonstrations
from arkml.errors import NotFound, UsageError
from arkml.guests.trace_recorder import Trace
from arkml.host import Host, NamedPolicies, Source, own_source, read_source
from arkml.limits import Limits, require_seed, require_whole
from arkml.policies.given import PolicyFunction
from arkml.policies.policy import Policy
from arkml.policies.training import Rows
from arkml.runs.episode_recorder import EpisodeRecorder, PlayedEpisodes, not_finite
from arkml.runs.evaluation_guests import PlayProgress, play_episodes
from arkml.runtime.game_functions import Imports
from arkml.runtime.wasi.linking import QUIET_GRANT
from arkml.training.evaluations import make_evaluating, policies_of_others
from arkml.training.tasks import compile_module, training_task, without_start

log = SafeLogger(__name__)

EPISODES = 100
"""Episodes of a recording for which neither episodes nor frames are given."""

FRAMES = 100_000
"""Frames after which a recording of episodes ends, even if episodes are still playing."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """
    Demonstrations that a policy has played, and the file that holds them.

    Attributes:
        path: The file.
        rows: Number of rows in the file, including rows of episodes that had not ended after the
            last frame.
        returns: float64, [episodes], of the episodes that count, in the order of their ends. Each
            agent has the same number, because simply counting the first ones to end would favor
            short episodes. May be empty.
        lengths: int64, [episodes], of the same episodes, in steps.
        frames: Number of frames that were stepped.
        seconds: Wall time of these frames.
        shortfall: A sentence about missing episodes and returns that are not finite, empty if there
            are as many as wanted and all count.

    """

    __repr__ = short_repr

    path: Path
    rows: int
    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    frames: int
    seconds: float
    shortfall: str = ""

    @property
    def mean_return(self) -> float | None:
        """Mean of the returns, None if no episode has ended."""
        return float(self.returns.mean()) if len(self.returns) else None


class RowRecorder(EpisodeRecorder):
    """
    A recorder of the rows of chosen episodes, with the actions that the guest got.

    With `keeps_late` it also keeps episodes that began too late to count (see `EpisodeRecorder`).
    """

    def __init__(self, most: int | None = None, *, keeps_late: bool = False) -> None:
        super().__init__(most=most)
        self._keeps_late = keeps_late
        self._kept: list[Rows] = []
        self._headless: set[int] = set()  # agents whose first row is not finite

    def take(self, rows: Rows) -> None:
        keep = np.array(self.follow(rows), bool)
        if rows.keep is not None:
            keep &= rows.keep
            if rows.lost is not None:
                self._headless.update(rows.agent[rows.lost & (rows.step == 0)].tolist())
        if self._headless:
            keep &= ~np.isin(rows.agent, np.array(list(self._headless), np.uint64))
        copies = (np.array(getattr(rows, name)[keep]) for name in _COLUMNS)
        agent, step, reward, state, features, action = copies
        action[~np.isfinite(action)] = 0  # as it is answered
        self._kept.append(Rows(agent, step, 0, reward, state, features, action, None))

    def cut_off(self) -> list[int]:
        late = super().cut_off()
        if late and not self._keeps_late:
            self._kept = [_without(rows, late) for rows in self._kept]
        return late

    def restart(self, wanted: int) -> None:
        super().restart(wanted)
        self._kept = []

    @property
    def rows(self) -> int:
        """Number of rows kept."""
        return sum(len(rows.agent) for rows in self._kept)

    def demonstrations(
        self, branches: tuple[int, ...], *, guest: str, sha256: str, module: str = ""
    ) -> DemonstrationSet:
        """Return the recorded rows, of which there must be some, with agents numbered from 0."""
        columns = {
            name: np.concatenate([getattr(rows, name) for rows in self._kept]) for name in _COLUMNS
        }
        _, first, places = np.unique(columns["agent"], return_index=True, return_inverse=True)
        columns["agent"] = np.argsort(np.argsort(first))[places]
        return DemonstrationSet(row_columns(**columns), branches, guest, sha256, module)


def _without(rows: Rows, agents: Sequence[int]) -> Rows:
    """Return the rows without the rows of these agents."""
    others = ~np.isin(rows.agent, np.array(agents, np.uint64))
    if others.all():
        return rows
    return rows._replace(**{name: getattr(rows, name)[others] for name in _COLUMNS})


_COLUMNS = ("agent", "step", "reward", "state", "features", "action")


def record(
    module: Source,
    policy: Source | Policy | PolicyFunction,
    path: str | os.PathLike[str],
    *,
    outputs: str | Sequence[str] = (),
    behavior: str | None = None,
    others: NamedPolicies | None = None,
    episodes: int | None = None,
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
) -> Recording:
    """
    Play episodes of a guest with a policy, and write the rows as demonstrations.

    The guest is stepped as fast as possible until `episodes` have ended or `frames` were stepped,
    whichever comes first; by default 100 episodes within 100,000 frames. Episodes are divided
    evenly among the agents, as for `evaluate`, and the file leaves out rows of all other episodes.
    With `frames` alone the file has all rows, and the last episodes are incomplete; returns are
    given for the same number of episodes of each agent.

    The file has the actions that the agents took: the policy's actions, without clipping. A learner
    clips continuous actions to [-1, 1], of which a warning tells.

    Args:
        module: The path or the bytes of a guest that starts trainings.
        policy: A path, bytes, a `Policy` or a function, as for `Host`.
        path: A file such as `walker.npz`, or NAME-v0 for the directory of a Minari dataset, which
            needs h5py.
        outputs: The names of the outputs of a policy file that hold its actions, as for `Host`.
        behavior: Name of the run whose agents the policy plays, as for `evaluate`.
        others: Policies of the agents of other runs, as for `evaluate`.
        episodes: Number of episodes.
        frames: Most frames to step.
        max_episode_steps: Steps after which an episode is cut off, as in `train`.
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
        The file, and the returns and lengths of its episodes.

    Raises:
        ModuleError: The module cannot be loaded.
        ModelRejected: The policy file is malformed or cannot act.
        UsageError: An argument has a wrong value, or the file cannot be written.
        InvalidArguments: The policy does not fit the guest.
        NotFound: The guest submitted no rows, or started no run of a name in `others`.
        PolicyFailed: The policy failed.
        GuestError: The guest failed.

    Example:
        recording = arkml.record("walker.wasm", "expert.onnx", "walker.npz", episodes=50)
        arkml.train("walker.wasm", minutes=10, demonstrations=recording.path)

    """
    if episodes is not None:
        episodes = require_whole("episodes", episodes)
    if frames is not None:
        frames = require_whole("frames", frames)
    if max_episode_steps is not None:
        max_episode_steps = require_whole("max_episode_steps", max_episode_steps)
    seed = require_seed(seed)
    if policy is None:
        raise UsageError("policy is None: give a path, bytes, a Policy or a function")
    target = path_of(path, "path")
    require_writable(target)
    is_by_frames = episodes is None and frames is not None
    if episodes is None:
        episodes = EPISODES if frames is None else frames * _ALL
    beside = policies_of_others(others, behavior)
    data, label = read_source(module)
    recorder = RowRecorder(max_episode_steps, keeps_late=is_by_frames)
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
        task = training_task(compiled, cmdlet, "recorded")
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
        gateway.episodes = recorder
        began = time.monotonic()
        played = play_episodes(
            gateway,
            runner.step,
            episodes,
            FRAMES if frames is None else frames,
            begin=lambda: runner.initialize(seed or None),
            progress=progress,
        )
        seconds = time.monotonic() - began
    if not recorder.rows:
        raise gateway.failure or NotFound(
            without_start(label, gateway.unplayed, played.frames, runner.statistics)
        )
    sha256, origin = hashlib.sha256(data).hexdigest(), own_source(module)
    rows = recorder.demonstrations(
        gateway.branches,
        guest=label,
        sha256=sha256,
        module="" if isinstance(origin, bytes) else str(Path(origin).resolve()),
    )
    write_demonstrations(target, rows)
    for doubt in outside(str(target), rows.columns.action, gateway.branches):
        log.warning("%s", doubt)
    return Recording(
        target,
        len(rows),
        np.array(played.returns, np.float64),
        np.array(played.lengths, np.int64),
        played.frames,
        seconds,
        _left_out(recorder, played) if is_by_frames else played.shortfall,
    )


_ALL = 1 << 32
"""Episodes of a frame, at most."""


def _left_out(recorder: RowRecorder, played: PlayedEpisodes) -> str:
    """Return a sentence on the episodes that do not count in a recording of frames, or none."""
    ended, counted = len(recorder.returns), len(played.returns)
    if recorder.choice.unended:
        return played.shortfall
    if counted == ended:
        return not_finite(played.returns)
    return (
        f"{counted:,} of {ended:,} episodes count, as many of each agent as ended within"
        f" {played.frames:,} frames; the file has the rows of all"
    )
