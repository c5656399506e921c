"""Guests that play episodes to rate a policy: without noise, and without rows for a learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from arkml.abi.codes import EpisodeState
from arkml.errors import ArkmlError, NotFound, Unavailable
from arkml.policies.library import PolicyLibrary
from arkml.policies.training import PolicyVersion, Rows, TrainingPolicy
from arkml.policies.workspace import PolicyWorkspace
from arkml.runs.gateway import HiveRunGateway, settings_of
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.run import ExperimentInfo, GuestRun, Pending, settled
from arkml.sessions.run_request import HiveAddress, TrainingRequest
from arkml.sessions.session_table import TrainingStart

_ENDED = (EpisodeState.TERMINAL, EpisodeState.INTERRUPTED)


class EpisodeRecorder:
    """
    A row sink that adds up the rewards of agents until their episodes end.

    `returns` and `lengths`, in steps, are those of the episodes that have ended. Rows that do not
    count are left out of both.
    """

    def __init__(self) -> None:
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self._open: dict[int, tuple[float, int]] = {}

    def take(self, rows: Rows) -> None:
        """Add the rows of one submit."""
        keep = np.ones(len(rows.agent), bool) if rows.keep is None else rows.keep
        columns = (rows.agent, rows.reward, rows.state, rows.step, keep)
        for agent, reward, state, step, counts in zip(*(c.tolist() for c in columns), strict=True):
            if not step:
                self._open.pop(agent, None)
                if counts:
                    self._open[agent] = 0.0, 0
            elif agent in self._open:
                total, length = self._open[agent]
                if counts:
                    total, length = total + reward, length + 1
                self._open[agent] = total, length
                if state in _ENDED:
                    del self._open[agent]
                    if length:
                        self.returns.append(total)
                        self.lengths.append(length)

    def clear(self) -> None:
        """Forget all episodes, those in progress too."""
        self.returns, self.lengths, self._open = [], [], {}


class RunEvaluation:
    """
    The gateway of a guest that evaluates the run in which the guests of `trained` take part.

    `refresh` lets it act with the newest version. `version` is the one that acts, 0 before that.
    """

    def __init__(self, trained: HiveRunGateway, library: PolicyLibrary) -> None:
        self.episodes = EpisodeRecorder()
        self.version = 0
        self._trained = trained
        self._library = library
        self._policy: TrainingPolicy | None = None

    def answers(self, address: HiveAddress) -> Pending[bool]:
        return self._trained.answers(address)

    def experiments(self, address: HiveAddress) -> Pending[Sequence[ExperimentInfo]]:
        return self._trained.experiments(address)

    def find(self, address: HiveAddress, run_id: str) -> GuestRun:
        return self._trained.find(address, run_id)

    def start(self, request: TrainingRequest) -> Pending[TrainingStart]:
        """Act for the run that is being trained. Raises Unavailable before there is one."""
        membership = self._trained.first
        if membership is None:
            raise Unavailable(f"{request.experiment!r} is not being trained yet")
        shape = membership.shape
        if self._policy is None:
            workspace, branches = self._library.workspace, membership.branches
            self._policy = _policy(*shape, branches, self.episodes, workspace)
            self.refresh()
        return settled(TrainingStart(self._policy, *shape))

    def connect(self, address: HiveAddress, run_id: str) -> Pending[TrainingStart]:
        raise Unavailable(f"an evaluation cannot join run {run_id!r} on {address}")

    def refresh(self) -> None:
        """Act with the newest version from now on, and forget the episodes of older ones."""
        membership, policy = self._trained.first, self._policy
        if membership is None or policy is None or membership.latest is None:
            return
        self.version, data = membership.latest
        policy.offer(PolicyVersion(self.version, self._library.load_version(data, policy)))
        self.episodes.clear()


class PolicyEvaluation:
    """
    The gateway of a guest that evaluates the policy which its library gives for every snapshot.

    There is no hive behind it. `failure` is the error with which a start was refused last, or None.
    `spec` is the declaration of agents in the guest's module.
    """

    def __init__(self, library: PolicyLibrary, *, spec: bytes | None = None) -> None:
        self.episodes = EpisodeRecorder()
        self.version = 0
        self.failure: ArkmlError | None = None
        self.has_started = False
        self._library = library
        self._branches = DeclaredBranches(spec)

    def answers(self, address: HiveAddress) -> Pending[bool]:
        del address
        return settled(value=True)

    def experiments(self, address: HiveAddress) -> Pending[Sequence[ExperimentInfo]]:
        del address
        return settled([])

    def find(self, address: HiveAddress, run_id: str) -> GuestRun:
        raise NotFound(f"an evaluation has no run {run_id!r} on {address}")

    def start(self, request: TrainingRequest) -> Pending[TrainingStart]:
        """Act with the policy. Raises InvalidArguments if it does not fit what is asked for."""
        try:
            settings = settings_of(request, self._branches, {})
            shape = settings.features, settings.actions
            policy = _policy(*shape, settings.branches, self.episodes, PolicyWorkspace())
            rated = self._library.load_override(policy)
            policy.offer(PolicyVersion(self.version, rated))
        except ArkmlError as error:
            self.failure = error
            raise
        self.has_started = True
        return settled(TrainingStart(policy, *shape))

    def connect(self, address: HiveAddress, run_id: str) -> Pending[TrainingStart]:
        raise Unavailable(f"an evaluation cannot join run {run_id!r} on {address}")

    def refresh(self) -> None:
        """Forget the episodes so far."""
        self.episodes.clear()


class PlayedEpisodes(NamedTuple):
    """
    Episodes that have ended.

    `version` of the policy played them in `frames`. returns and lengths: one number an episode.
    """

    version: int
    returns: list[float]
    lengths: list[int]
    frames: int


def play_episodes(
    gateway: RunEvaluation | PolicyEvaluation, step: Callable[[], None], episodes: int, frames: int
) -> PlayedEpisodes:
    """
    Step a guest of `gateway` until `episodes` have ended, or for `frames` steps.

    More episodes come back if several ended in the last step, and fewer, or none, if the steps were
    used up. Raises what the guest fails with.
    """
    gateway.refresh()
    stepped = 0
    while stepped < frames and len(gateway.episodes.returns) < episodes:
        step()
        stepped += 1
    recorded = gateway.episodes
    return PlayedEpisodes(gateway.version, recorded.returns, recorded.lengths, stepped)


def _policy(
    features: int,
    actions: int,
    branches: Sequence[int],
    episodes: EpisodeRecorder,
    workspace: PolicyWorkspace,
) -> TrainingPolicy:
    return TrainingPolicy(
        "evaluation",
        features,
        actions,
        sink=episodes,
        seed=0,
        workspace=workspace,
        branches=branches,
        deterministic=True,
    )
