"""Guests as environments of the trainer: many guests in lockstep, or all agents of one guest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.async_trainer.core.env import Env, Flags, Step
from arkml.async_trainer.core.record import Record
from arkml.base.files import read_file
from arkml.base.loggers import SafeLogger
from arkml.batches import Floats
from arkml.envs import step_infos
from arkml.envs.core import decisions
from arkml.envs.core.coercion import floats_of, seed_of
from arkml.envs.core.decisions import Behavior, Decision, Ids
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.core.fleet_step import FleetStep
from arkml.envs.core.guest_env import IDLE_CALLS, GuestEnv, core_of
from arkml.errors import GuestStalled, InvalidActions, UsageError
from arkml.host import Source, own_source
from arkml.limits import keep_whole

GuestStep = Step[Floats, Floats]

log = SafeLogger(__name__)

_WHO = "an environment of the trainer"


class GuestsAsEnv(Env[Floats, Floats]):
    """
    Steps n guests of one module, each with one agent, in lockstep.

    Observations are float32, [n, num_features]. Actions are float32, [n, num_actions], within [-1,
    1] unless the module declares other bounds. After an episode a guest continues until its next
    one begins; a guest that has finished is replaced by a new instance. A guest that fails raises
    its GuestError from `step` or `reset`.
    """

    @classmethod
    def build(cls, config: GuestsConfig, seed: int) -> Self:
        """
        Build the environment; the guests' seeds derive from `seed`.

        Raises ModuleError and UsageError, for example if the module is not the configured one.
        """
        return cls(FleetEnv(config.module, config.count, **config.checked()), config.spread(seed))

    def __init__(self, fleet: FleetEnv, seed: int) -> None:
        self._fleet = fleet
        try:
            # Start the first instances now: the shapes of their rows are needed.
            self._fresh: FleetStep | None = fleet.reset(seed)
        except BaseException:
            fleet.close()
            raise
        self._last: FleetStep = self._fresh
        self._seen: Floats = self._fresh.observations
        self._no = np.zeros(fleet.num_guests, np.int8)
        self._has_told = False

    @property
    def behavior(self) -> Behavior:
        """Behavior of every agent."""
        return self._fleet.behavior

    def reset(self, is_done: Flags | None = None) -> Floats:
        """
        Begin new episodes where `is_done` (int8, [n]) is 1.

        Without `is_done`, begin everywhere, in new instances.
        """
        if is_done is not None:
            self._begin(is_done != 0)
            return self._seen
        self._last, self._fresh = self._fresh or self._fleet.reset(), None
        self._seen = self._last.observations
        return self._seen

    def reset_with_index(self, ix: int) -> Floats:
        """Begin episode `ix` in new instances: guest k gets the seed `ix` * n + k."""
        self._fresh = None
        self._last = self._fleet.reset(ix * self._fleet.num_guests)
        self._seen = self._last.observations
        return self._seen

    def step(self, act: Floats) -> tuple[GuestStep, Record]:
        """Act in every guest. Raises InvalidActions and GuestError."""
        behavior, before = self.behavior, self._seen
        actions = _checked(act, len(before), behavior)
        self._fresh = None
        step = self._last = self._fleet.step(actions, before)
        self._seen = step.observations
        if not step.steps and step.events is None:  # all agents keep running
            no = self._no
            return Step(actions, self._seen, step.rewards, no, no, None), Record()
        _require_sound(step)
        if not self._has_told:
            alone = [rows for one in step.steps.values() for rows in one.decisions]
            self._has_told = _tell_of_masks([*alone, *filter(None, [step.events])])
        if not step.present.all():
            guest = int(np.flatnonzero(~step.present)[0])
            raise UsageError(
                f"guest {guest} submitted no row of its agent in the middle of an episode:"
                f" {_WHO} needs one from each agent until it ends"
            )
        terminated, truncated = step.terminated.astype(np.int8), step.truncated.astype(np.int8)
        return Step(actions, self._seen, step.rewards, terminated, truncated, None), Record()

    def close(self) -> None:
        """Free the guests."""
        self._fleet.close()

    def _begin(self, waiting: Marks) -> None:
        """Run the marked guests (bool, [n]) until their next episodes begin."""
        last, seen = self._last, self._seen.copy()
        begun = waiting & last.replaced
        seen[begun] = last.next_observations[begun]
        waiting = waiting & ~begun
        for _ in range(IDLE_CALLS):
            if not waiting.any():
                self._seen = seen
                return
            over = waiting & ~self._fleet.alive
            if over.any():
                step = self._fleet.renew(np.flatnonzero(over).tolist())
                going = over
            else:
                idle = np.zeros((len(seen), self.behavior.num_actions), np.float32)
                step = self._fleet.step(idle, seen, waiting)
                going = waiting
            _require_sound(step)
            begun = going & step.present & step.started & ~step.ended
            seen[begun] = step.observations[begun]
            waiting = waiting & ~begun
        raise GuestStalled(
            f"guest {int(np.flatnonzero(waiting)[0])} began no episode in {IDLE_CALLS:,} submits"
        )


class AgentsAsEnv(Env[Floats, Floats]):
    """
    Steps the agents of one guest, which may come and go.

    Rows are agents that act, in the order of the guest: observations are float32, [n,
    num_features], actions float32, [n, num_actions]. The agents share a world, so no agent can wait
    for another. When agents end or begin, `step_with_reset` returns the rows of the next acting
    agents in `init_obs`, and which agents they are in `continues`. A living agent that is missing
    from a submit is an error.
    """

    @classmethod
    def build(cls, config: AgentsConfig, seed: int) -> Self:
        """
        Build the environment of one guest; its seeds derive from `seed`.

        Raises ModuleError and UsageError, for example if the module is not the configured one.
        """
        return cls(GuestEnv(config.module, **config.checked()), config.spread(seed))

    def __init__(self, env: GuestEnv, seed: int) -> None:
        self._env = env
        try:
            self._fresh: decisions.Step | None = env.reset(seed)
            self._now: Decision = _only(self._fresh)
        except BaseException:
            env.close()
            raise
        self._behavior = self._now.behavior
        self._acted: Ids = self._now.agents  # in the latest step
        self._has_told = False

    @property
    def behavior(self) -> Behavior:
        """Behavior of the agents."""
        return self._behavior

    def reset(self, is_done: Flags | None = None) -> Floats:
        """Return the rows after agents ended (`is_done`), or the first rows of a new guest."""
        if is_done is None:
            step, self._fresh = self._fresh, None
            self._now = _only(step if step is not None else self._env.reset(), self._behavior)
        return self._following()

    def reset_with_index(self, ix: int) -> Floats:
        """Return the first rows of a new guest with the seed `ix`."""
        self._fresh = None
        self._now = _only(self._env.reset(ix), self._behavior)
        return self._following()

    def step(self, act: Floats) -> tuple[GuestStep, Record]:
        """Act with all agents. Raises InvalidActions, GuestError and UsageError."""
        before = self._now
        agents = self._acted = before.agents if self._is_steady else before.acting_agents
        actions = _checked(act, len(agents), self._behavior)
        self._fresh = None
        running = core_of(self._env).running_agents
        now = self._now = _only(self._env.step(actions), self._behavior)
        self._has_told = self._has_told or _tell_of_masks([now])
        if running is not None and now.agents is running:
            no = np.zeros(len(actions), np.int8)
            return Step(actions, now.observations, now.rewards, no, no, None), Record()
        rows = _rows_of(agents, now.agents)
        if (rows < 0).any():
            raise UsageError(
                f"{self._behavior.name}: agent {agents[rows < 0][0]} lives and is not in this"
                f" submit: {_WHO} needs a row of each agent until it ends"
            )
        terminated = now.terminated[rows].astype(np.int8)
        truncated = now.truncated[rows].astype(np.int8)
        observations, rewards = now.observations[rows], now.rewards[rows]
        return Step(actions, observations, rewards, terminated, truncated, None), Record()

    def begin_next(self, step: GuestStep) -> None:
        """Fill `init_obs` and `continues` with the next rows if agents ended or began."""
        agents = self._acted
        if self._is_steady and np.array_equal(agents, self._now.agents):
            return
        step.init_obs = self._following()
        step.continues = _rows_of(self._now.acting_agents, agents)

    def close(self) -> None:
        """Free the guest."""
        self._env.close()

    @property
    def _is_steady(self) -> bool:
        """True if every row of the latest submit belongs to an agent that acts."""
        return core_of(self._env).running_agents is self._now.agents

    def _following(self) -> Floats:
        """Return the rows of the next acting agents, running the guest until there are any."""
        for _ in range(IDLE_CALLS):
            if self._env.decision is None:  # the guest has finished
                step = self._env.reset()
            elif not len(self._now.acting_agents):
                step = self._env.step(np.zeros((0, self._behavior.num_actions), np.float32))
            else:
                return self._now.observations[~self._now.ended]
            if step.error is not None:
                raise step.error
            if step.decisions:
                self._now = _only(step, self._behavior)
        raise GuestStalled(f"no agent of the guest decided in {IDLE_CALLS:,} submits")


def _tell_of_masks(decisions: Sequence[Decision]) -> bool:
    """Return whether a choice is masked, and say then that agents are not told so."""
    for one in decisions:
        if any(masked.any() for masked in one.masks):
            log.warning(
                "%s masks choices, of which observations of the trainer say nothing: agents that"
                " are to know have them among the features", one.behavior.name,
            )  # fmt: skip
            return True
    return False


def _rows_of(agents: Ids, among: Ids) -> npt.NDArray[np.intp]:
    """Return the index of each agent in `among`, intp, [n]; -1 for a missing one."""
    rows = {agent: row for row, agent in enumerate(among.tolist())}
    return np.array([rows.get(agent, -1) for agent in agents.tolist()], np.intp)


@dataclass(frozen=True)
class _GuestConfig:
    """
    Configuration of guests: their module and the options of `GuestEnv`.

    Args:
        module: Path or bytes of the module. Pickle takes the absolute path, so use bytes for
            machines without the file.
        options: Keyword arguments of `GuestEnv`, such as `args`, `configure` and `limits`, but not
            `host` and `digest`.
        seed: Seed of the guests, combined with the actor's seed, which is a small number.

    Attributes:
        module_hash: SHA-256 of the module, which each environment compares.

    Raises:
        UsageError: A value is invalid, or the file cannot be read.

    """

    module: Source
    options: GuestEnvOptions = field(default_factory=lambda: GuestEnvOptions())
    seed: int = 0
    module_hash: str = field(default="", init=False)

    def __post_init__(self) -> None:
        if unfit := {"host", "digest"} & set(self.options):
            raise UsageError(
                f"options has {min(unfit)!r}: leave it out, since each environment of an actor has"
                " its own host, and compares the hash of the module itself"
            )
        object.__setattr__(self, "seed", seed_of(self.seed))
        module = own_source(self.module)
        if not isinstance(module, bytes):
            module = str(Path(module).resolve())
        object.__setattr__(self, "module", module)
        object.__setattr__(self, "module_hash", self._hash())

    def spread(self, seed: int) -> int:
        """Return the seed of an actor's first guest, far from other actors' seeds."""
        words = np.random.SeedSequence([self.seed, seed]).generate_state(1)
        return int(words[0]) >> 2  # guests may take an i32

    def checked(self) -> GuestEnvOptions:
        """Return the options. Raises UsageError if the module is not the configured one."""
        found = self._hash()
        if found != self.module_hash:
            raise UsageError(
                f"{self.module!r} has the SHA-256 {found}, and the environment was configured with"
                f" {self.module_hash}: give all machines the same file, or the bytes of the module"
            )
        return self.options

    def _hash(self) -> str:
        module = own_source(self.module)
        if isinstance(module, bytes):
            return hashlib.sha256(module).hexdigest()
        try:
            return hashlib.sha256(read_file(Path(module))).hexdigest()
        except OSError as error:
            raise UsageError(f"the guest {str(self.module)!r} cannot be read: {error}") from error


@dataclass(frozen=True)
class GuestsConfig(_GuestConfig):
    """
    Configuration of `GuestsAsEnv`: guests with one agent each.

    Args:
        module: Path or bytes of the module. Pickle takes the absolute path, so use bytes for
            machines without the file.
        options: Keyword arguments of `GuestEnv`, such as `args`, `configure` and `limits`.
        seed: Seed of the guests, combined with the actor's seed.
        count: Number of guests.

    Raises:
        UsageError: A value is invalid, or the file cannot be read.

    """

    count: int = 1
    builds: ClassVar[type[GuestsAsEnv]] = GuestsAsEnv

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_whole(self, "count")


@dataclass(frozen=True)
class AgentsConfig(_GuestConfig):
    """
    Configuration of `AgentsAsEnv`: one guest with all its agents.

    Args:
        module: Path or bytes of the module. Pickle takes the absolute path, so use bytes for
            machines without the file.
        options: Keyword arguments of `GuestEnv`, such as `args`, `configure` and `limits`.
        seed: Seed of the guest, combined with the actor's seed.

    Raises:
        UsageError: A value is invalid, or the file cannot be read.

    """

    builds: ClassVar[type[AgentsAsEnv]] = AgentsAsEnv


def _checked(act: Any, count: int, behavior: Behavior) -> Floats:
    """Return actions as float32, [count, num_actions]. Raises InvalidActions."""
    try:
        actions = floats_of(act)
    except (TypeError, ValueError) as error:
        raise InvalidActions(f"{behavior.name} takes numbers, not {str(act)[:80]}") from error
    if actions.shape != (count, behavior.num_actions):
        raise InvalidActions(
            f"{behavior.name} takes actions of shape {(count, behavior.num_actions)}, not"
            f" {actions.shape}"
        )
    behavior.spec.actions.check(actions, behavior.name)
    return actions


def _require_sound(step: FleetStep) -> None:
    """Raise the error of the first failed guest."""
    for _, outcome in sorted(step.steps.items()):
        if outcome.error is not None:
            raise outcome.error


def _only(step: decisions.Step, behavior: Behavior | None = None) -> Decision:
    """
    Return the only decision of a step.

    Raises GuestError, and UsageError if there are several.
    """
    if step.error is not None:
        raise step.error
    return step_infos.only_decision(step, _WHO, behavior)
