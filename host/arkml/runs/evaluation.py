"""Episodes played to rate a policy: no noise, and no rows for the learner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arkml.abi.codes import EpisodeState
from arkml.errors import Unavailable
from arkml.guests.guest import Guest
from arkml.policies.library import PolicyLibrary
from arkml.policies.training import PolicyVersion, Rows, TrainingPolicy
from arkml.runs.gateway import HiveRunGateway
from arkml.sessions.run import ExperimentInfo, Pending, Run, settled
from arkml.sessions.run_request import HiveAddress, Launch
from arkml.sessions.session_table import TrainingStart

_ENDED = (EpisodeState.TERMINAL, EpisodeState.INTERRUPTED)


class Episodes:
    """
    Adds up the rewards of agents until their episodes end.

    `returns` and `lengths`, in steps, are of the episodes that have ended. Rows that do not count
    are left out of both.
    """

    def __init__(self) -> None:
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self._open: dict[int, tuple[float, int]] = {}

    def take(self, rows: Rows) -> None:
        """Count one submit."""
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
        """Forget everything, open episodes too."""
        self.returns, self.lengths, self._open = [], [], {}


class EvaluationGateway:
    """
    What an evaluating guest gets for the hives of its host: the run that `trained` takes part in.

    `refresh` lets it act with the newest version.
    """

    def __init__(self, trained: HiveRunGateway, library: PolicyLibrary) -> None:
        self.episodes = Episodes()
        self.version = 0
        self._trained = trained
        self._library = library
        self._policy: TrainingPolicy | None = None

    def answers(self, address: HiveAddress) -> Pending[bool]:
        return self._trained.answers(address)

    def experiments(self, address: HiveAddress) -> Pending[Sequence[ExperimentInfo]]:
        return self._trained.experiments(address)

    def find(self, address: HiveAddress, run_id: str) -> Run:
        return self._trained.find(address, run_id)

    def start(self, launch: Launch) -> Pending[TrainingStart]:
        """Act for the run that is being trained. Raises Unavailable before there is one."""
        part = self._trained.first
        if part is None:
            raise Unavailable(f"{launch.experiment!r} is not being trained yet")
        shape = part.shape
        if self._policy is None:
            self._policy = TrainingPolicy(
                "evaluation", *shape, sink=self.episodes, seed=0,
                workspace=self._library.workspace, deterministic=True,
            )  # fmt: skip
            self.refresh()
        return settled(TrainingStart(self._policy, *shape))

    def connect(self, address: HiveAddress, run_id: str) -> Pending[TrainingStart]:
        raise Unavailable(f"an evaluation takes no part in {run_id!r} on {address}")

    def refresh(self) -> None:
        """Act with the newest version from now on, and forget the episodes of older ones."""
        part, policy = self._trained.first, self._policy
        if part is None or policy is None or part.latest is None:
            return
        self.version, data = part.latest
        policy.offer(PolicyVersion(self.version, self._library.load_version(data, policy)))
        self.episodes.clear()


class Evaluator:
    """A guest that plays what another one trains."""

    def __init__(self, guest: Guest, rated: EvaluationGateway) -> None:
        self.guest = guest
        self._rated = rated

    def play(self, episodes: int, frames: int) -> tuple[int, list[float], list[int]]:
        """
        Play frames of an applet with the newest version until so many episodes have ended.

        Returns the version, and the return and the length of each episode: fewer, or none, after
        `frames` frames. Raises what the guest fails with.
        """
        rated = self._rated
        rated.refresh()
        for _ in range(frames):
            self.guest.update()
            if len(rated.episodes.returns) >= episodes:
                break
        return rated.version, rated.episodes.returns, rated.episodes.lengths
