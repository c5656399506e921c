"""A guest in this process as a `BaseEnv`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Unpack

import numpy as np

from arkml.batches import Floats
from arkml.envs.core.decisions import Behavior, Decision, Step
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.llapi.base_env import (
    ActionSpec,
    ActionTuple,
    AgentId,
    BaseEnv,
    BehaviorMapping,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
)
from arkml.envs.llapi.exception import (
    UnityActionException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityObservationException,
)
from arkml.envs.llapi.guest_channels import GuestChannels, Message
from arkml.envs.llapi.guest_steps import Met, behavior_spec, steps_of
from arkml.envs.llapi.side_channel import SideChannel
from arkml.envs.llapi.side_channel.engine_configuration_channel import EngineConfig
from arkml.envs.llapi.side_channel.side_channel_manager import SideChannelManager
from arkml.envs.llapi.side_channel.stats_side_channel import (
    StatsAggregationMethod,
    StatsSideChannel,
)
from arkml.envs.remade import Remade
from arkml.errors import GuestError
from arkml.host import Source

_CLOSED = "No Unity environment is loaded."
_TEAM, _HAS_TEAM = "?team=0", re.compile(r"\?team=\d+\Z")


class GuestUnityEnv(Remade, BaseEnv):
    """
    Steps a guest as ML-Agents steps a Unity player.

    A behavior is called NAME?team=0, unless its name ends with a team, and appears with its first
    submit. Each submit is a step, in which the other behaviors are empty. Missing actions are
    zeros. `reset` creates a new instance. When a guest finishes or fails, its agents are
    interrupted, and the next `step` raises UnityCommunicatorStoppedException.

    Metadata of the guest's rows go to a StatsSideChannel in `side_channels`, if there is one.
    Messages on side channels go to the guest's export `arkml_side_channel(ptr, len)`, as the 16
    bytes of the channel's id, little-endian, and the message. Engine settings are in `engine`.

    Args:
        module: Path or bytes of the module.
        seed: Seed of the first instance.
        side_channels: Side channels, such as an EnvironmentParametersChannel.
        **options: Options of `GuestEnv`.

    Example:
        with GuestUnityEnv("pendulum.wasm", seed=1) as env:
            env.reset()
            decisions, terminals = env.get_steps(next(iter(env.behavior_specs)))

    """

    def __init__(
        self,
        module: Source,
        *,
        seed: int | None = None,
        side_channels: Sequence[SideChannel] | None = None,
        **options: Unpack[GuestEnvOptions],
    ) -> None:
        self._settings = {"seed": seed, "side_channels": side_channels}
        self._side_channel_manager = SideChannelManager(side_channels)
        self._stats = [c for c in side_channels or () if isinstance(c, StatsSideChannel)]
        self._env: GuestEnv | None = GuestEnv(module, **options)
        self._channels = GuestChannels(self._env.send_message, self._env.pace)
        self._seed = seed
        self._is_playing = False
        self._why_over: str | None = None
        self._failure: GuestError | None = None
        self._specs: dict[BehaviorName, BehaviorSpec] = {}
        self._steps: dict[BehaviorName, tuple[DecisionSteps, TerminalSteps]] = {}
        self._actions: dict[BehaviorName, ActionTuple] = {}
        self._deciding: BehaviorName | None = None
        self._last: Met | None = None

    @property
    def guest_env(self) -> GuestEnv:
        """The wrapped environment. Raises UnityEnvironmentException once it is closed."""
        if self._env is None:
            raise UnityEnvironmentException(_CLOSED)
        return self._env

    @property
    def engine(self) -> EngineConfig:
        """Engine settings that side channels have set; None for a setting that was not set."""
        return self._channels.engine

    @property
    def is_over(self) -> bool:
        """True after the guest's end or failure, until the next reset."""
        return self._why_over is not None

    @property
    def failure(self) -> GuestError | None:
        """The error with which the guest failed, None if it did not; a reset clears it."""
        return self._failure

    @property
    def behavior_specs(self) -> BehaviorMapping:
        return BehaviorMapping(self._specs)

    def reset(self) -> None:
        """Create a new instance. Raises GuestError if it fails before its first submit."""
        env = self.guest_env
        self._is_playing = False
        self._attend(anew=True)
        seed, self._seed = self._seed, None
        self._show(env.reset(seed))
        self._is_playing, self._why_over, self._failure = True, None, None

    def step(self) -> None:
        """Step all agents; the first step is a reset. Raises UnityCommunicatorStoppedException."""
        env = self.guest_env
        if self._why_over is not None:
            raise UnityCommunicatorStoppedException(f"Communicator has exited. {self._why_over}")
        if not self._is_playing:
            self.reset()
            return
        self._attend(anew=False)
        name = self._deciding
        assert name is not None
        steps, _ = self._steps[name]
        spec = self._specs[name].action_spec
        action = self._actions.get(name) or spec.empty_action(len(steps))
        step = env.step(action.continuous if not spec.discrete_size else _columns(action))
        self._show(step)
        if step.is_cut:  # the next step begins a new instance, like the first step
            self._is_playing = False
        elif step.has_ended:
            self._is_playing = False
            self._failure = step.error
            self._why_over = "The guest has finished." if step.error is None else str(step.error)

    def hear(self, block: bytes) -> None:
        """
        Queue a block of side channel messages for the next step or reset.

        Raises UnityEnvironmentException, before handling any, if the block is cut off.
        """
        self._channels.hear(block)

    def take(self, messages: Sequence[Message]) -> None:
        """Queue side channel messages for the next step or reset."""
        self._channels.take(messages)

    def close(self) -> None:
        """Free the guest. Idempotent."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        self._require(behavior_name)
        return self._steps[behavior_name]

    def set_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Set a behavior's actions, which are copied. Raises UnityActionException."""
        self._require(behavior_name)
        spec = self._specs[behavior_name].action_spec
        count = len(self._steps[behavior_name][0])
        checked = _checked(spec, action, count, behavior_name)
        self._actions[behavior_name] = ActionTuple.copy_of(checked)

    def set_action_for_agent(
        self, behavior_name: BehaviorName, agent_id: AgentId, action: ActionTuple
    ) -> None:
        """
        Set the action of one agent.

        Args:
            behavior_name: Name of the behavior, such as "pendulum?team=0".
            agent_id: Id of the agent, which is in the behavior's DecisionSteps.
            action: Arrays with one row.

        Raises:
            UnityActionException: The behavior is unknown, or the action does not fit.
            IndexError: The agent needs no action.

        """
        self._require(behavior_name)
        spec = self._specs[behavior_name].action_spec
        _checked(spec, action, 1, behavior_name)
        steps, _ = self._steps[behavior_name]
        row = steps.agent_id_to_index.get(agent_id)
        if row is None:
            raise IndexError(
                f"agent_id {agent_id} is did not request a decision at the previous step"
            )
        if behavior_name not in self._actions:
            self._actions[behavior_name] = spec.empty_action(len(steps))
        chosen = self._actions[behavior_name]
        chosen.continuous[row] = action.continuous[0]
        chosen.discrete[row] = action.discrete[0]

    def _attend(self, *, anew: bool) -> None:
        block = self._side_channel_manager.generate_side_channel_messages()
        if block:
            self._channels.hear(bytes(block))
        self._channels.attend(anew=anew)

    def _require(self, name: BehaviorName) -> None:
        if name not in self._specs:
            raise UnityActionException(
                f"The group {name} does not correspond to an existing agent group in the"
                " environment"
            )

    def _show(self, step: Step) -> None:
        self._actions.clear()
        self._deciding = None
        shown: dict[BehaviorName, tuple[DecisionSteps, TerminalSteps]] = {}
        for decision in step.decisions:
            met = self._met(decision.behavior)
            shown[met.name] = steps_of(decision, met)
            self._deciding = met.name
            self._tell(decision)
        for name, spec in self._specs.items():
            if name not in shown:
                shown[name] = DecisionSteps.empty(spec), TerminalSteps.empty(spec)
        self._steps = shown

    def _met(self, behavior: Behavior) -> Met:
        """Return a behavior; its widths stay as they were at its first submit."""
        if self._last is None or self._last.behavior is not behavior:
            self._last = self._meet(behavior)
        return self._last

    def _meet(self, behavior: Behavior) -> Met:
        name = behavior.name if _HAS_TEAM.search(behavior.name) else behavior.name + _TEAM
        spec = behavior_spec(behavior)
        known = self._specs.setdefault(name, spec)
        if known != spec:
            raise UnityObservationException(
                f"Behavior {name} has {_described(spec)} now, and had {_described(known)}"
            )
        return Met(behavior, name, known, TerminalSteps.empty(known))

    def _tell(self, decision: Decision) -> None:
        for channel in self._stats:
            for item in decision.metadata:
                name = item.name.encode("ascii", "replace").decode("ascii")
                channel.store(name, item.value, StatsAggregationMethod.AVERAGE)


def _checked(spec: ActionSpec, action: ActionTuple, count: int, name: str) -> ActionTuple:
    """Return a valid action. Raises UnityActionException, for example for infinite numbers."""
    is_filled = isinstance(action, ActionTuple) and action.continuous is not None
    fits = (
        is_filled
        and action.continuous.shape == (count, spec.continuous_size)
        and action.discrete.shape == (count, 0) == (count, spec.discrete_size)
        and np.isfinite(action.continuous).all()
    )
    if fits:  # most do, and the step costs little more than this
        return action
    spec._validate_action(action, count, name)  # noqa: SLF001  its name in the original
    if np.isinf(action.continuous).any():
        raise UnityActionException(
            f"The behavior {name} received a continuous action that is infinite"
        )
    return action


def _columns(action: ActionTuple) -> Floats:
    return np.concatenate((action.continuous, action.discrete.astype(np.float32)), axis=1)


def _described(spec: BehaviorSpec) -> str:
    shapes = ", ".join(str(seen.shape) for seen in spec.observation_specs)
    actions = spec.action_spec
    return f"observations {shapes} and {actions.continuous_size} + {actions.discrete_size} actions"
