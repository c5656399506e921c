"""Guests that play episodes to rate a policy: without noise, and without rows for a learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from arkml.abi.codes import EpisodeState
from arkml.base.loggers import SafeLogger
from arkml.batches import Batch, MetadataLog
from arkml.errors import (
    ArkmlError,
    GuestError,
    InvalidArguments,
    NotFound,
    Unavailable,
    UsageError,
)
from arkml.hive.protocol.episode_choice import ChosenEnd, EpisodeChoice
from arkml.hive.protocol.settings import Settings
from arkml.policies.idle import Zeros
from arkml.policies.library import PolicyLibrary
from arkml.policies.ports import Parts
from arkml.policies.step_limit import StepLimit
from arkml.policies.training import IrregularRows, PolicyVersion, Rows, TrainingPolicy
from arkml.policies.workspace import PolicyWorkspace
from arkml.runs.gateway import settings_of
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.run import ExperimentInfo, GuestRun, Pending, settled
from arkml.sessions.run_request import HiveAddress, TrainingRequest
from arkml.sessions.session import Origin, Ready
from arkml.sessions.session_table import TrainingStart

log = SafeLogger(__name__)

SUCCESS = "success"
"""Metadata by which a guest says that an episode was a success: any value other than 0."""

_NAME = "evaluation"  # in the log
_ENDED = (EpisodeState.TERMINAL, EpisodeState.INTERRUPTED)


class _Ended(NamedTuple):
    """The end of a chosen episode, and the agent that played it."""

    agent: int
    end: ChosenEnd


class EpisodeRecorder:
    """
    A row sink that adds up the rewards of chosen episodes, those of an EpisodeChoice.

    `returns`, `lengths`, in steps, and `successes` are those of the chosen episodes that have
    ended, in that order. Rows that do not count are left out of the first two. An episode is a
    success if the guest has pushed the metadata SUCCESS with a value other than 0 in it;
    `knows_success` says that it has pushed that metadata at all.

    Under a limit of `most` steps the agents of a guest are cut off together. Of the episodes that
    began after the one which reached the limit only the short ones had time to end, so none of them
    counts, whether it has ended or not.
    """

    def __init__(self, wanted: int = 0, most: int | None = None) -> None:
        self.most = most
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.successes: list[bool] = []
        self.knows_success = False
        self.choice = EpisodeChoice(wanted)
        self._ends: list[_Ended] = []
        self._open: dict[int, tuple[float, int]] = {}
        self._round = 0  # submits of the agent that has had the most
        self._present: set[int] = set()  # the agents of that round
        self._begun: dict[int, int] = {}  # rounds in which the episodes of the guest began
        self._full: int | None = None  # the first of those that have reached the limit
        self._succeeded: set[int] = set()
        self._ended: dict[int, int] = {}  # places in the lists, of agents of the last rows

    def take(self, rows: Rows) -> None:
        """Add the rows of one submit."""
        self.follow(rows)

    def follow(self, rows: Rows) -> list[bool]:
        """Add the rows of one submit, and return which of them are of chosen episodes."""
        self._ended.clear()
        self._pass_round(rows.agent.tolist())
        keep = np.ones(len(rows.agent), bool) if rows.keep is None else rows.keep
        columns = (rows.agent, rows.reward, rows.state, rows.step, keep)
        chosen, begun = [False] * len(rows.agent), {}
        for row, (agent, reward, state, step, counts) in enumerate(
            zip(*(c.tolist() for c in columns), strict=True)
        ):
            if not step:
                if agent in self._open:
                    self._leave(agent)
                if counts:
                    begun[agent] = row
            elif agent in self._open:
                chosen[row] = self.choice.is_chosen(agent)
                total, length = self._open[agent]
                if counts:
                    total, length = total + reward, length + 1
                self._open[agent] = total, length
                if state in _ENDED:
                    self._note_full(agent, state, step)
                    self._end(agent, total, length)
        self.choice.begin(list(begun))
        for agent, row in begun.items():
            self._open[agent] = 0.0, 0
            self._begun[agent] = self._round
            chosen[row] = self.choice.is_chosen(agent)
        for agent in self.choice.pass_submit(rows.agent.tolist()):
            self._open.pop(agent, None)
            self._succeeded.discard(agent)
        return chosen

    def mark(self, agents: Sequence[int], values: Sequence[float]) -> None:
        """Take the values of SUCCESS that came with rows of the last submit, by agent."""
        self.knows_success = True
        for agent, value in zip(agents, values, strict=True):
            if not value:
                continue
            if agent in self._ended:
                self.successes[self._ended[agent]] = True
            else:
                self._succeeded.add(agent)

    def cut_off(self) -> list[int]:
        """
        End the episodes in progress: their guest was cut off.

        Returns the agents whose episodes do not count, because they began too late.
        """
        late = [] if self._full is None else [a for a, at in self._begun.items() if at > self._full]
        for agent, (total, length) in list(self._open.items()):
            self._end(agent, total, length)
        self._take_back(set(late))
        self._begun, self._full = {}, None
        return late

    @property
    def is_done(self) -> bool:
        """True if all episodes that were wanted have ended, and none of them can be too late."""
        if not self.choice.is_done or self.most is None or not self._open:
            return self.choice.is_done
        oldest = min(self._begun.get(agent, -1) for agent in self._open)
        return all(self._begun.get(one.agent, -1) <= oldest for one in self._ends)

    def restart(self, wanted: int) -> None:
        """Forget all episodes, and choose `wanted` of those that begin from now on."""
        self.returns, self.lengths, self.successes, self._ends = [], [], [], []
        self.choice = EpisodeChoice(wanted, self.choice.playing)
        self._succeeded.clear()
        self._ended.clear()
        self._begun = {agent: at for agent, at in self._begun.items() if agent in self._open}

    def played(self, version: int, frames: int) -> PlayedEpisodes:
        """Return the chosen episodes: all of them, or as many of each agent if some are missing."""
        choice = self.choice
        rounds = choice.wanted if choice.is_done else choice.rounds
        kept = [place for place, one in enumerate(self._ends) if one.end.ordinal < rounds]
        successes = [self.successes[place] for place in kept] if self.knows_success else None
        return PlayedEpisodes(
            version,
            [self.returns[place] for place in kept],
            [self.lengths[place] for place in kept],
            successes,
            frames,
            "" if choice.is_done else _shortfall(choice, len(kept), frames),
            choice.vanished,
        )

    def _end(self, agent: int, total: float, length: int) -> None:
        del self._open[agent]
        if not length:
            self.choice.leave(agent)
        elif (end := self.choice.end(agent)) is not None:
            self._ended[agent] = len(self.returns)
            self._ends.append(_Ended(agent, end))
            self.returns.append(total)
            self.lengths.append(length)
            self.successes.append(agent in self._succeeded)
        self._succeeded.discard(agent)

    def _pass_round(self, agents: Sequence[int]) -> None:
        """Count the rounds: agents may have a submit each."""
        if not self._present.isdisjoint(agents):
            self._round += 1
            self._present.clear()
        self._present.update(agents)

    def _note_full(self, agent: int, state: int, step: int) -> None:
        """Note when an episode began that the limit has ended; `step` rows came before."""
        if self.most is None or state != EpisodeState.INTERRUPTED or step < self.most:
            return
        began = self._begun.get(agent, -1)
        self._full = began if self._full is None else min(began, self._full)

    def _take_back(self, agents: set[int]) -> None:
        """Forget the episodes of these agents, which have ended."""
        kept = [place for place, one in enumerate(self._ends) if one.agent not in agents]
        for one in reversed(self._ends):
            if one.agent in agents:
                self.choice.take_back(one.end)
        self._ends = [self._ends[place] for place in kept]
        self.returns = [self.returns[place] for place in kept]
        self.lengths = [self.lengths[place] for place in kept]
        self.successes = [self.successes[place] for place in kept]
        self._ended.clear()

    def _leave(self, agent: int) -> None:
        """Forget an episode that was left without an end."""
        del self._open[agent]
        self.choice.leave(agent)
        self._succeeded.discard(agent)


def _shortfall(choice: EpisodeChoice, counted: int, frames: int) -> str:
    """Return why an evaluation counts fewer episodes than it was to play."""
    within = f"within {frames:,} frames"
    if not choice.ended:
        return f"no episode ended {within}"
    if choice.unended:
        return (
            f"{choice.unended:,} agents ended no episode {within}, and the mean of the others is"
            " that of short episodes"
        )
    return (
        f"{counted:,} of {choice.wanted:,} episodes count, as many of each agent as ended {within}"
    )


class SuccessSink:
    """Passes the metadata SUCCESS of a guest that is evaluated on to the recorder of its run."""

    def __init__(self, policy: TrainingPolicy, episodes: EpisodeRecorder) -> None:
        self._policy = policy
        self._episodes = episodes

    def accept(self, batch: Batch, metadata: MetadataLog, origin: Origin) -> None:
        """Ignore rows whose actions the guest pushed."""

    def note(self, batch: Batch, metadata: MetadataLog) -> None:
        marks = [(item.row, item.value) for item in metadata if item.name == SUCCESS]
        if marks:
            agents = self._policy.names(batch.keys, batch.rows["id"]).tolist()
            values = [value for _, value in marks]
            self._episodes.mark([agents[row] for row, _ in marks], values)

    def held(self) -> Ready | None:
        return None

    def leave(self, *, stop: bool) -> None:
        """Do nothing: there is no run."""


class PolicyEvaluation:
    """
    The gateway of a guest that evaluates policies, with no hive behind it.

    The policy is the one that its library gives for every snapshot, or the version that was offered
    last. It plays the agents of `behavior`, the run that the guest starts by that name, or by
    default of the first run; agents of others get zeros, and no row of theirs counts. `ambiguity`
    is an error if none was named and the policy fits the agents of several. `version` is the number
    of the one that acts, `failure` the error with which a start was refused last, or None. `spec`
    is the declaration of agents in the guest's module. `limit` cuts episodes off, or None.
    """

    def __init__(
        self,
        library: PolicyLibrary,
        *,
        behavior: str | None = None,
        spec: bytes | None = None,
        limit: StepLimit | None = None,
    ) -> None:
        self.behavior = behavior
        self.ambiguity: UsageError | None = None
        self.others: list[str] = []
        """Names of the runs that the guest has started for other agents."""
        self.episodes = EpisodeRecorder(most=None if limit is None else limit.most)
        self.version = 0
        self.failure: ArkmlError | None = None
        self.has_started = False
        self.branches: tuple[int, ...] = ()
        """The number of choices of each of the last actions, which are discrete."""
        self._library = library
        self._limit = limit
        self._offered: tuple[int, bytes] | None = None
        self._policy: TrainingPolicy | None = None
        self._first: str | None = None  # run whose agents the policy plays
        self._declared = DeclaredBranches(spec)

    @property
    def unplayed(self) -> str:
        """The words about a behavior that the guest has not started, where others were."""
        return f" of {self.behavior!r}, but of {', '.join(self.others)}," if self.others else ""

    def answers(self, address: HiveAddress) -> Pending[bool]:
        del address
        return settled(value=True)

    def experiments(self, address: HiveAddress) -> Pending[Sequence[ExperimentInfo]]:
        del address
        return settled([])

    def find(self, address: HiveAddress, run_id: str) -> GuestRun:
        raise NotFound(f"an evaluation has no run {run_id!r} on {address}")

    def start(self, request: TrainingRequest) -> Pending[TrainingStart]:
        """
        Act with the policy, or with zeros for agents that it is not to play.

        Raises InvalidArguments if it does not fit what is asked for, and Unavailable where it is
        not said which agents it is to play.
        """
        name = request.experiment
        played = self.behavior or self._first
        try:
            settings = settings_of(request, self._declared, {})
            shape = settings.features, settings.actions
            parts = self._declared.parts_of(*shape)
            if played is not None and name != played:
                return settled(self._start_other(name, settings, parts))
            policy = _policy(*shape, settings.branches, parts, self.episodes, self._limit)
            if self._offered is None:
                policy.offer(PolicyVersion(self.version, self._library.load_override(policy)))
            else:
                self._use(policy, *self._offered)
            self.branches = settings.branches
        except ArkmlError as error:
            self.failure = self._with_way_out(error)
            raise
        self._policy, self._first = policy, name
        self.has_started = True
        return settled(TrainingStart(policy, *shape, SuccessSink(policy, self.episodes)))

    def _start_other(self, name: str, settings: Settings, parts: Parts) -> TrainingStart:
        """Act with zeros. Raises Unavailable if the policy fits, and no behavior was named."""
        shape = settings.features, settings.actions
        unrated = EpisodeRecorder()
        policy = _policy(*shape, settings.branches, parts, unrated, None)
        if self.behavior is None and self._fits(policy):
            self.ambiguity = UsageError(
                f"the guest plays {self._first} and {name}, and the policy fits both: name the one"
                " that it plays, by `behavior` (--behavior)"
            )
            raise Unavailable(str(self.ambiguity))
        policy.offer(PolicyVersion(0, Zeros(*shape)))
        if name not in self.others:
            self.others.append(name)
            log.warning("%s: agents of %s get zeros, and their episodes do not count", _NAME, name)
        return TrainingStart(policy, *shape, SuccessSink(policy, unrated))

    def _with_way_out(self, error: ArkmlError) -> ArkmlError:
        """Return why a start is refused, with what to name where it may have been another one."""
        declared = list(self._declared.behaviors)
        if not isinstance(error, InvalidArguments) or self.behavior or len(declared) < 2:
            return error
        return InvalidArguments(
            f"{error}; the module declares {', '.join(declared)}: name the one that the policy"
            " plays, by `behavior` (--behavior)"
        )

    def _fits(self, policy: TrainingPolicy) -> bool:
        try:
            self._library.load_override(policy)
        except ArkmlError:
            return False
        return True

    def linked_module(self, link: str) -> str:
        raise Unavailable(f"an evaluation has no remote workers that could run {link[:80]!r}")

    def connect(self, address: HiveAddress, run_id: str) -> Pending[TrainingStart]:
        raise Unavailable(f"an evaluation cannot join run {run_id!r} on {address}")

    def offer(self, version: int, data: bytes) -> None:
        """
        Act with a version of a run's policy, an ONNX file, from now on.

        Raises ModelRejected, SnapshotTooLarge or InvalidArguments.
        """
        self._offered = version, data
        if self._policy is not None:
            self._use(self._policy, version, data)

    def restart(self, wanted: int) -> None:
        """Forget all episodes and irregular rows, and choose `wanted` episodes from now on."""
        self.episodes.restart(wanted)
        if self._policy is not None:
            self._policy.irregular = IrregularRows(_NAME, is_brief=True)

    def tell(self, played: PlayedEpisodes) -> None:
        """Log how many rows were irregular, and how many agents vanished."""
        if self._policy is not None:
            self._policy.irregular.tell()
        if played.vanished:
            log.warning("%s: %s", _NAME, vanishing(played.vanished))

    def _use(self, policy: TrainingPolicy, version: int, data: bytes) -> None:
        policy.offer(PolicyVersion(version, self._library.load_version(data, policy)))
        self.version = version


class PlayedEpisodes(NamedTuple):
    """
    Episodes that were chosen before they were played, and have ended.

    `version` of the policy played them in `frames`. returns, lengths and successes: one value an
    episode; successes is None if the guest has never defined success. `shortfall` is a sentence
    about why there are fewer than were wanted, or none; empty if there are as many. `vanished` is
    the number of episodes that others were played for, because their agents vanished in them.
    """

    version: int
    returns: list[float]
    lengths: list[int]
    successes: list[bool] | None
    frames: int
    shortfall: str = ""
    vanished: int = 0


def vanishing(count: int) -> str:
    """Return a sentence about episodes whose agents vanished in them."""
    return (
        f"agents that vanished without an end: {count:,}; their episodes do not count, and others"
        " are chosen for them"
    )


def play_episodes(
    gateway: PolicyEvaluation,
    step: Callable[[], None],
    episodes: int,
    frames: int,
    *,
    begin: Callable[[], None] | None = None,
) -> PlayedEpisodes:
    """
    Step a guest of `gateway` until `episodes` that were chosen have ended, or for `frames` steps.

    If the steps were used up before, as many episodes of each agent come back as all of them have
    ended, or none. `begin` initializes the guest before. Raises what the guest fails with; if its
    start was refused, which it may answer by a trap, why that was; UsageError if it is not said
    which agents are to be played.
    """
    recorded = gateway.episodes
    stepped = 0
    try:
        if begin is not None:
            begin()
        gateway.restart(episodes)
        while stepped < frames and not recorded.is_done:
            step()
            stepped += 1
            if gateway.ambiguity is not None:
                raise gateway.ambiguity
    except GuestError as error:
        if gateway.ambiguity is not None:
            raise gateway.ambiguity from error
        if gateway.failure is not None and not gateway.has_started:
            raise gateway.failure from error
        raise
    played = recorded.played(gateway.version, stepped)
    gateway.tell(played)
    return played


def _policy(
    features: int,
    actions: int,
    branches: Sequence[int],
    parts: Parts,
    episodes: EpisodeRecorder,
    limit: StepLimit | None,
) -> TrainingPolicy:
    policy = TrainingPolicy(
        _NAME,
        features,
        actions,
        sink=episodes,
        seed=0,
        workspace=PolicyWorkspace(),
        branches=branches,
        parts=parts,
        deterministic=True,
        limit=limit,
    )
    policy.irregular = IrregularRows(_NAME, is_brief=True)
    return policy
