"""A player's messages: observations of its agents for the trainer, and actions from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arkml.envs.llapi.actions import ActionSpec, ActionTuple
from arkml.envs.llapi.communicator_objects.agent_action_pb2 import AgentActionProto
from arkml.envs.llapi.communicator_objects.agent_info_pb2 import AgentInfoProto
from arkml.envs.llapi.communicator_objects.brain_parameters_pb2 import (
    ActionSpecProto,
    BrainParametersProto,
)
from arkml.envs.llapi.communicator_objects.observation_pb2 import (
    ObservationProto,
    ObservationTypeProto,
)
from arkml.envs.llapi.exception import UnityCommunicationException
from arkml.envs.llapi.specs import BehaviorName, BehaviorSpec, ObservationSpec
from arkml.envs.llapi.steps import DecisionSteps, TerminalSteps


class AreaIds:
    """Unique ids for the agents of instance number `place` among `count` instances of a guest."""

    def __init__(self, place: int, count: int) -> None:
        self._place = place
        self._count = count

    def of(self, agents: NDArray[np.int32]) -> list[int]:
        """Return the ids in messages of these agents, int32, [n]."""
        return [agent * self._count + self._place for agent in agents.tolist()]


def brain_to_proto(name: BehaviorName, spec: BehaviorSpec) -> BrainParametersProto:
    """Return the message that introduces a behavior."""
    actions = spec.action_spec
    return BrainParametersProto(
        brain_name=name,
        is_training=True,
        action_spec=ActionSpecProto(
            num_continuous_actions=actions.continuous_size,
            num_discrete_actions=actions.discrete_size,
            discrete_branch_sizes=actions.discrete_branches,
        ),
    )


def agents_to_proto(
    decisions: DecisionSteps, terminals: TerminalSteps, spec: BehaviorSpec, ids: AreaIds
) -> Iterator[AgentInfoProto]:
    """
    Yield a message for each agent. Ended agents come first, since new ones may take their ids.

    Args:
        decisions: Agents that need an action.
        terminals: Agents that ended.
        spec: Spec of the behavior.
        ids: Numbering of the agents.

    """
    yield from _agents(terminals, spec, ids, interrupted=terminals.interrupted)
    yield from _agents(decisions, spec, ids, masks=decisions.action_mask)


def _agents(
    steps: Any,
    spec: BehaviorSpec,
    ids: AreaIds,
    *,
    interrupted: NDArray[np.bool_] | None = None,
    masks: Sequence[NDArray[np.bool_]] | None = None,
) -> Iterator[AgentInfoProto]:
    count = len(steps)
    if not count:
        return
    columns = [
        _observations(each, rows)
        for each, rows in zip(spec.observation_specs, steps.obs, strict=True)
    ]
    ends = [None] * count if interrupted is None else interrupted.tolist()
    forbidden = [()] * count
    if masks is not None and any(mask.any() for mask in masks):
        forbidden = np.concatenate(masks, axis=1).tolist()
    rows = zip(
        ids.of(steps.agent_id), steps.reward.tolist(), ends, forbidden,
        steps.group_id.tolist(), steps.group_reward.tolist(), zip(*columns, strict=True),
        strict=True,
    )  # fmt: skip
    for agent, reward, end, mask, group, group_reward, observations in rows:
        yield AgentInfoProto(
            id=agent,
            reward=reward,
            done=end is not None,
            max_step_reached=bool(end),
            action_mask=mask,
            group_id=group,
            group_reward=group_reward,
            observations=observations,
        )


def _observations(spec: ObservationSpec, rows: NDArray[np.float32]) -> list[ObservationProto]:
    """Return the messages of each agent. rows: float32, [agents, ...]."""
    properties = [int(flags) for flags in spec.dimension_property]
    kind = ObservationTypeProto.Name(spec.observation_type.value)
    return [
        ObservationProto(
            shape=spec.shape,
            dimension_properties=properties,
            observation_type=kind,
            name=spec.name,
            float_data=ObservationProto.FloatData(data=row),
        )
        for row in rows.reshape(len(rows), -1).tolist()
    ]


def actions_from_proto(
    protos: Sequence[AgentActionProto], spec: ActionSpec, name: BehaviorName
) -> ActionTuple:
    """Return a behavior's actions, one row for each message. Raises UnityCommunicationException."""
    floats = _rows([proto.continuous_actions for proto in protos], spec.continuous_size, name)
    choices = _rows([proto.discrete_actions for proto in protos], spec.discrete_size, name)
    return ActionTuple(floats.astype(np.float32), choices.astype(np.int32))


def _rows(parts: Sequence[Sequence[float]], width: int, name: BehaviorName) -> NDArray[Any]:
    wrong = next((len(part) for part in parts if len(part) != width), None)
    if wrong is not None:
        raise UnityCommunicationException(
            f"An action for {name} has {wrong} parts of a kind of which the behavior has {width}"
        )
    values = np.fromiter(chain.from_iterable(parts), np.float64, len(parts) * width)
    return values.reshape(len(parts), width)
