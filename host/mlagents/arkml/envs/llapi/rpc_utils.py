"""Conversion between messages on the wire and a trainer's arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arkml.base.short_reprs import cut_repr
from arkml.envs.llapi.actions import ActionSpec, ActionTuple
from arkml.envs.llapi.communicator_objects.agent_action_pb2 import AgentActionProto
from arkml.envs.llapi.communicator_objects.agent_info_pb2 import AgentInfoProto
from arkml.envs.llapi.communicator_objects.brain_parameters_pb2 import BrainParametersProto
from arkml.envs.llapi.communicator_objects.observation_pb2 import (
    NONE as COMPRESSION_TYPE_NONE,
)
from arkml.envs.llapi.communicator_objects.observation_pb2 import ObservationProto
from arkml.envs.llapi.communicator_objects.space_type_pb2 import continuous
from arkml.envs.llapi.exception import UnityCommunicationException, UnityObservationException
from arkml.envs.llapi.images import process_pixels
from arkml.envs.llapi.specs import (
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from arkml.envs.llapi.steps import DecisionSteps, TerminalSteps

_PICTURE = 3  # rank of a picture: channels, height, width
_MOST_RANK = 32
_MOST_ACTIONS = 65_536  # floats, and choices of all branches
_MOST_NUMBERS = 1 << 28  # in the pictures of one observation, or the masks, of all agents


def behavior_spec_from_proto(
    brain_param_proto: BrainParametersProto, agent_info: AgentInfoProto
) -> BehaviorSpec:
    """Return the spec of a behavior from its actions and one agent's observations."""
    observations = [_observation_spec(each) for each in agent_info.observations]
    return BehaviorSpec(observations, _action_spec(brain_param_proto))


def steps_from_proto(
    agent_info_list: Sequence[AgentInfoProto], behavior_spec: BehaviorSpec
) -> tuple[DecisionSteps, TerminalSteps]:
    """
    Return the agents that need an action and the agents that ended, in order of the message.

    Raises UnityObservationException for an observation that does not match its spec, and
    RuntimeError for NaN or infinity in rewards or observations of rank 1 and 2.
    """
    deciding = [agent for agent in agent_info_list if not agent.done]
    ended = [agent for agent in agent_info_list if agent.done]
    specs = behavior_spec.observation_specs
    decisions = DecisionSteps(
        obs=[_observations(index, spec, deciding) for index, spec in enumerate(specs)],
        reward=_rewards(deciding),
        agent_id=np.array([agent.id for agent in deciding], dtype=np.int32),
        action_mask=_action_mask(deciding, behavior_spec.action_spec),
        group_id=np.array([agent.group_id for agent in deciding], dtype=np.int32),
        group_reward=_group_rewards(deciding),
    )
    terminals = TerminalSteps(
        obs=[_observations(index, spec, ended) for index, spec in enumerate(specs)],
        reward=_rewards(ended),
        interrupted=np.array([agent.max_step_reached for agent in ended], dtype=bool),
        agent_id=np.array([agent.id for agent in ended], dtype=np.int32),
        group_id=np.array([agent.group_id for agent in ended], dtype=np.int32),
        group_reward=_group_rewards(ended),
    )
    return decisions, terminals


def actions_to_proto(actions: ActionTuple) -> Iterator[AgentActionProto]:
    """Yield a message for each agent. Old players read both kinds of actions as one list."""
    for floats, choices in zip(actions.continuous.tolist(), actions.discrete.tolist(), strict=True):
        yield AgentActionProto(
            vector_actions_deprecated=floats + choices,
            continuous_actions=floats,
            discrete_actions=choices,
        )


def _observation_spec(proto: ObservationProto) -> ObservationSpec:
    properties = tuple(DimensionProperty(flags) for flags in proto.dimension_properties)
    try:
        kind = ObservationType(proto.observation_type)
    except ValueError as error:
        raise UnityCommunicationException(
            f"The player declares an observation that cannot be: {error}"
        ) from None
    if len(proto.shape) > _MOST_RANK:
        raise UnityCommunicationException(
            f"The player declares an observation of rank {len(proto.shape)}: {_MOST_RANK} at most."
        )
    return ObservationSpec(
        shape=tuple(proto.shape),
        dimension_property=properties or (DimensionProperty.UNSPECIFIED,) * len(proto.shape),
        observation_type=kind,
        name=proto.name,
    )


def _action_spec(proto: BrainParametersProto) -> ActionSpec:
    spec = proto.action_spec
    if spec.num_continuous_actions or spec.num_discrete_actions:
        found = ActionSpec(spec.num_continuous_actions, tuple(spec.discrete_branch_sizes))
    else:  # players before version 1.3.0 set only these
        sizes = tuple(proto.vector_action_size_deprecated)
        is_continuous = proto.vector_action_space_type_deprecated == continuous and sizes
        found = ActionSpec(sizes[0], ()) if is_continuous else ActionSpec(0, sizes)
    floats, branches = found
    if floats < 0 or min(branches, default=1) < 1 or floats + sum(branches) > _MOST_ACTIONS:
        raise UnityCommunicationException(
            f"The player declares actions that cannot be: {floats} floats and branches of"
            f" {cut_repr(list(branches))} choices. Each branch has 1 at least, and all together"
            f" have {_MOST_ACTIONS} at most."
        )
    return found


def _observations(
    index: int, spec: ObservationSpec, agents: Sequence[AgentInfoProto]
) -> NDArray[np.float32]:
    if not agents:
        return np.zeros((0, *spec.shape), dtype=np.float32)
    if len(spec.shape) == _PICTURE:
        _require_room(len(agents) * prod(spec.shape), "pictures", agents)
        return np.stack([_picture(index, spec, agent) for agent in agents])
    rows = [_numbers(index, spec, agent) for agent in agents]
    observations = np.stack(rows).reshape((len(agents), *spec.shape))
    return _raise_on_nan_and_inf(observations, "observations")


# Names that the original's tests use.
_process_maybe_compressed_observation = _observations
_process_rank_one_or_two_observation = _observations


def _numbers(index: int, spec: ObservationSpec, agent: AgentInfoProto) -> NDArray[np.float32]:
    proto = _observation(index, spec, agent)
    numbers = np.fromiter(proto.float_data.data, np.float32, len(proto.float_data.data))
    size = int(np.prod(spec.shape))
    if len(numbers) != size:
        _check_shape(index, spec, agent, tuple(proto.shape))
        raise UnityObservationException(
            f"Observation at index={index} for agent with id={agent.id} has {len(numbers)} "
            f"numbers. Its shape {spec.shape} has {size}."
        )
    return numbers


def _picture(index: int, spec: ObservationSpec, agent: AgentInfoProto) -> NDArray[np.float32]:
    proto = _observation(index, spec, agent)
    _check_shape(index, spec, agent, tuple(proto.shape))
    if proto.compression_type == COMPRESSION_TYPE_NONE:
        return _numbers(index, spec, agent).reshape(spec.shape)
    mappings = list(proto.compressed_channel_mapping)
    pixels = process_pixels(proto.compressed_data, spec.shape[0], mappings, size=spec.shape[1:])
    if pixels.shape != spec.shape:
        raise UnityObservationException(
            "Decompressed observation did not have the expected shape - "
            f"decompressed had {pixels.shape} but expected {list(spec.shape)}"
        )
    return pixels


def _observation(index: int, spec: ObservationSpec, agent: AgentInfoProto) -> ObservationProto:
    if index >= len(agent.observations):
        raise UnityObservationException(
            f"Agent with id={agent.id} has {len(agent.observations)} observations. "
            f"The observation at index={index}, of shape {spec.shape}, is missing."
        )
    observation: ObservationProto = agent.observations[index]
    return observation


def _check_shape(
    index: int, spec: ObservationSpec, agent: AgentInfoProto, shape: tuple[int, ...]
) -> None:
    if shape != spec.shape:
        raise UnityObservationException(
            f"Observation at index={index} for agent with "
            f"id={agent.id} didn't match the ObservationSpec. "
            f"Expected shape {spec.shape} but got {shape}."
        )


def _rewards(agents: Sequence[AgentInfoProto]) -> NDArray[np.float32]:
    rewards = np.array([agent.reward for agent in agents], dtype=np.float32)
    return _raise_on_nan_and_inf(rewards, "rewards")


def _group_rewards(agents: Sequence[AgentInfoProto]) -> NDArray[np.float32]:
    rewards = np.array([agent.group_reward for agent in agents], dtype=np.float32)
    return _raise_on_nan_and_inf(rewards, "group_rewards")


def _require_room(numbers: int, what: str, agents: Sequence[AgentInfoProto]) -> None:
    """Raise UnityObservationException for more numbers than fit: a message may declare any."""
    if numbers > _MOST_NUMBERS:
        raise UnityObservationException(
            f"The {what} of {len(agents)} agents have {numbers} numbers: {_MOST_NUMBERS} at most."
        )


def _raise_on_nan_and_inf(values: NDArray[Any], source: str) -> NDArray[Any]:
    if values.size:
        # One pass over the data; values whose sum overflows count as infinite.
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.mean(values)
        if np.isnan(mean):
            raise RuntimeError(f"The {source} provided had NaN values.")
        if np.isinf(mean):
            raise RuntimeError(f"The {source} provided had Infinite values.")
    return values


def _action_mask(
    agents: Sequence[AgentInfoProto], spec: ActionSpec
) -> list[NDArray[np.bool_]] | None:
    """Return a mask for each branch; agents without a valid mask may choose anything."""
    if not agents or not spec.discrete_size:
        return None
    _require_room(len(agents) * sum(spec.discrete_branches), "masks", agents)
    ends = np.cumsum(spec.discrete_branches)
    mask = np.zeros((len(agents), int(ends[-1])), dtype=bool)
    for row, agent in enumerate(agents):
        if len(agent.action_mask) == mask.shape[1]:
            mask[row] = agent.action_mask
    return np.split(mask, ends[:-1], axis=1)
