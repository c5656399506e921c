"""Guests that play episodes to evaluate a policy, without a learner."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

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
from arkml.hive.protocol.settings import Settings
from arkml.policies.idle import Zeros
from arkml.policies.library import PolicyLibrary
from arkml.policies.ports import Parts
from arkml.policies.step_limit import StepLimit
from arkml.policies.training import IrregularRows, PolicyVersion, TrainingPolicy
from arkml.policies.workspace import PolicyWorkspace
from arkml.runs.episode_recorder import EpisodeRecorder, PlayedEpisodes, vanishing
from arkml.runs.hive_gateway import settings_of
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.guest_run import ExperimentInfo, GuestRun, Pending, settled
from arkml.sessions.run_request import HiveAddress, TrainingRequest
from arkml.sessions.session import Origin, Ready
from arkml.sessions.session_table import TrainingStart

log = SafeLogger(__name__)

SUCCESS = "success"
"""Metadata with which a guest marks an episode as a success: any value other than 0."""

_NAME = "evaluation"  # in the log

PlayProgress: TypeAlias = Callable[[int, int], object]
"""Gets the frames and the ended episodes so far, after each frame."""

Show: TypeAlias = Callable[[Batch], object]
"""Gets a batch whose actions are there; its views live until it returns."""


class SuccessSink:
    """Passes the metadata SUCCESS of an evaluated guest to the recorder of its episodes."""

    def __init__(self, policy: TrainingPolicy, episodes: EpisodeRecorder) -> None:
        self._policy = policy
        self._episodes = episodes

    def accept(self, batch: Batch, metadata: MetadataLog, origin: Origin) -> None:
        """Ignore rows with actions that the guest itself chose."""

    def note(self, batch: Batch, metadata: MetadataLog) -> None:
        marks = [(item.row, item.value) for item in metadata if item.name == SUCCESS]
        if marks:
            agents = self._policy.names(batch.keys, batch.rows["id"]).tolist()
            values = [value for _, value in marks]
            self._episodes.mark([agents[row] for row, _ in marks], values)

    def held(self) -> Ready | None:
        return None

    def leave(self, *, stop: bool) -> None:
        """Do nothing, since there is no run."""


class _ShownPolicy(TrainingPolicy):
    """A policy whose batches are shown once they are answered."""

    show: Show

    def act(self, batch: Batch) -> None:
        """Fill the batch, and show it."""
        super().act(batch)
        self.show(batch)


class PolicyEvaluation:
    """
    The gateway of a guest in an evaluation: it answers like a hive, with the policy to evaluate.

    The policy is the library's override, whose actions are taken as they are, or the version of a
    run that was offered last, whose continuous actions are clipped as in its run. It plays the
    agents of `behavior`, the name of a run that the guest starts, such as "walker"; by default it
    plays the agents of the first run that is not of the `others`. These are the names of runs whose
    agents act by the policies that the library has for them, as an embedder chose them. Agents of
    further runs act by what was offered for them (`offer_other`), or get zeros. Only rows of the
    rated agents count.

    `obstacle` is an error that makes an evaluation senseless: no run was named and the policy fits
    several, or the policy of another run does not fit it. `version` is the number of the version
    that acts, `failure` the error of the last refused start, or None. `spec` is the declaration of
    agents in the guest's module. `limit` cuts episodes off, or None. `show` gets each batch, of all
    agents that act by a policy, once it is answered.
    """

    def __init__(
        self,
        library: PolicyLibrary,
        *,
        behavior: str | None = None,
        others: Collection[str] = (),
        spec: bytes | None = None,
        limit: StepLimit | None = None,
        show: Show | None = None,
    ) -> None:
        self.behavior = behavior
        self.obstacle: ArkmlError | None = None
        self.idle: list[str] = []
        """Names of the runs that the guest has started for agents that get zeros."""
        self.unseeded = ""
        """A sentence about guests that take no seed and repeat each other's episodes."""
        self.episodes = EpisodeRecorder(most=None if limit is None else limit.most)
        self.version = 0
        self.failure: ArkmlError | None = None
        self.has_started = False
        self.branches: tuple[int, ...] = ()
        """The number of choices of each of the last actions, which are discrete."""
        self._library = library
        self._chosen = frozenset(others)
        self._limit = limit
        self._show = show
        self._offered: tuple[int, bytes] | None = None
        self._policy: TrainingPolicy | None = None
        self._offered_others: dict[str, bytes] = {}
        self._others: dict[str, TrainingPolicy] = {}
        self._first: str | None = None  # run whose agents the policy plays
        self._declared = DeclaredBranches(spec)

    @property
    def unplayed(self) -> str:
        """Words for a message on a behavior that did not start, such as " of 'a', but of b, c,"."""
        named = "" if self.behavior is None else f" of {self.behavior!r}"
        return f"{named}, but of {', '.join(self._others)}," if self._others else ""

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
        Start a run for the guest, in which the policy acts, or that of other agents.

        Raises InvalidArguments if the policy does not fit the run, and Unavailable if it fits
        several behaviors and none was named.
        """
        name = request.experiment
        played = self.behavior or self._first
        is_rated = name not in self._chosen and played in (None, name)
        try:
            settings = settings_of(request, self._declared, {})
            shape = settings.features, settings.actions
            parts = self._declared.parts_of(*shape)
            if not is_rated:
                return settled(self._start_other(name, settings, parts))
            clips = self._offered is not None
            policy = _policy(
                *shape, settings.branches, parts, self.episodes, self._limit, clips=clips,
                show=self._show,
            )  # fmt: skip
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
        """
        Start a run whose agents are not rated.

        Raises Unavailable if they have no policy, the rated one fits them and no behavior was
        named, and as `load_override` if their policy does not fit.
        """
        shape = settings.features, settings.actions
        unrated, offered = EpisodeRecorder(), self._offered_others.get(name)
        acts = name in self._chosen or offered is not None
        policy = _policy(
            *shape, settings.branches, parts, unrated, None, clips=offered is not None,
            show=self._show if acts else None,
        )  # fmt: skip
        if name in self._chosen:
            try:
                library = self._library.of_session([name], *shape)
                policy.offer(PolicyVersion(0, library.load_override(policy)))
            except ArkmlError as error:
                self.obstacle = UsageError(f"the policy of {name!r} in `others`: {error}")
                raise
        elif offered is not None:
            policy.offer(PolicyVersion(0, self._library.load_version(offered, policy)))
        else:
            self._idle(name, policy)
        self._others[name] = policy
        return TrainingStart(policy, *shape, SuccessSink(policy, unrated))

    def _idle(self, name: str, policy: TrainingPolicy) -> None:
        """Act with zeros. Raises Unavailable if the rated policy fits, and nothing was named."""
        if self.behavior is None and self._fits(policy):
            self.obstacle = UsageError(
                f"the guest plays {self._first} and {name}, and the policy fits both: name the one"
                " that it plays, by `behavior` (--behavior), or the policy of the other one, by"
                " `others` (--other)"
            )
            raise Unavailable(str(self.obstacle))
        policy.offer(PolicyVersion(0, Zeros(policy.num_features, policy.num_actions)))
        if name not in self.idle:
            self.idle.append(name)
            log.warning(
                "%s: agents of %s get zeros, and their episodes do not count: `others` (--other)"
                " gives them a policy", _NAME, name,
            )  # fmt: skip

    def _with_way_out(self, error: ArkmlError) -> ArkmlError:
        """Return the reason of a refused start, with the behaviors that may be named instead."""
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

    def offer_other(self, name: str, data: bytes) -> None:
        """
        Let agents of another run act by a version of its policy, an ONNX file, from now on.

        Raises ModelRejected, SnapshotTooLarge or InvalidArguments.
        """
        self._offered_others[name] = data
        if name in self._others:
            policy = self._others[name]
            policy.offer(PolicyVersion(0, self._library.load_version(data, policy)))
            self.idle = [one for one in self.idle if one != name]

    def restart(self, wanted: int) -> None:
        """Forget all episodes and counts of refused rows, and choose `wanted` new episodes."""
        self.episodes.restart(wanted)
        if self._policy is not None:
            self._policy.irregular = IrregularRows(_NAME, is_brief=True)

    def require_others(self) -> None:
        """Raise NotFound if the guest has started no run for one of the chosen policies."""
        unused = sorted(self._chosen & set(self._library.idle_choices))
        if unused:
            raise NotFound(
                f"`others` (--other) has a policy of {', '.join(map(repr, unused))}, and the guest"
                f" started runs of {', '.join(map(repr, [str(self._first), *self._others]))} only"
            )

    def tell(self, played: PlayedEpisodes) -> None:
        """Log the numbers of refused rows and vanished agents, and warn of repeated episodes."""
        if self._policy is not None:
            self._policy.irregular.tell()
        if played.vanished:
            log.warning("%s: %s", _NAME, vanishing(played.vanished))
        if self.unseeded and self.episodes.repeats:
            log.warning("%s: %s", _NAME, self.unseeded)
            self.unseeded = ""

    def _use(self, policy: TrainingPolicy, version: int, data: bytes) -> None:
        policy.offer(PolicyVersion(version, self._library.load_version(data, policy)))
        self.version = version


def play_episodes(
    gateway: PolicyEvaluation,
    step: Callable[[], None],
    episodes: int,
    frames: int,
    *,
    begin: Callable[[], None] | None = None,
    progress: PlayProgress | None = None,
) -> PlayedEpisodes:
    """
    Step a guest until the chosen episodes have ended, or for a number of steps.

    If the steps are used up first, the same number of episodes counts for each agent: the number of
    the agent that has completed the fewest.

    Args:
        gateway: The gateway of the guest.
        step: Does one step of the guest.
        episodes: Number of episodes.
        frames: Most steps.
        begin: Initializes the guest first.
        progress: Is called after each step.

    Raises:
        GuestError: The guest failed.
        ArkmlError: The guest trapped after its start was refused: the reason of that.
        UsageError: The policy fits several behaviors, and none was named, or another one does not
            fit its agents.
        NotFound: The guest started no run for a policy of the library.

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
            if progress is not None:
                progress(stepped, len(recorded.returns))
            if gateway.obstacle is not None:
                raise gateway.obstacle
    except GuestError as error:
        if gateway.obstacle is not None:
            raise gateway.obstacle from error
        if gateway.failure is not None and not gateway.has_started:
            raise gateway.failure from error
        raise
    played = recorded.played(gateway.version, stepped)
    if gateway.has_started:
        gateway.require_others()
    gateway.tell(played)
    return played


def _policy(
    features: int,
    actions: int,
    branches: Sequence[int],
    parts: Parts,
    episodes: EpisodeRecorder,
    limit: StepLimit | None,
    *,
    clips: bool,
    show: Show | None = None,
) -> TrainingPolicy:
    kind = TrainingPolicy if show is None else _ShownPolicy
    policy = kind(
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
        clips=clips,
    )
    policy.irregular = IrregularRows(_NAME, is_brief=True)
    if isinstance(policy, _ShownPolicy) and show is not None:
        policy.show = show
    return policy
