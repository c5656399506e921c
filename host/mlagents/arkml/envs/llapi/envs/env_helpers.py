"""A behavior's agents by name, as PettingZoo needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arkml.envs.llapi.base_env import DecisionSteps, TerminalSteps

_MARK = "?agent_id="


@dataclass(frozen=True, slots=True)
class NamedSteps:
    """
    One step of a behavior's agents by agent name; `rows` are their row indices in the decisions.
    """

    agents: list[str]
    observations: dict[str, Any]
    rewards: dict[str, float]
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    infos: dict[str, dict[str, Any]]
    rows: dict[str, int]


def behavior_to_agent_id(behavior_name: str, unique_id: int) -> str:
    """Return the name of an agent, made of its behavior's name and its number."""
    return f"{behavior_name}{_MARK}{unique_id}"


def agent_id_to_behavior(agent_id: str) -> str:
    """Return the behavior in an agent's name."""
    return agent_id.split(_MARK)[0]


def unwrap_batch_steps(
    batch_steps: tuple[DecisionSteps, TerminalSteps], behavior_name: str
) -> NamedSteps:
    """
    Return decisions and terminal steps by agent name; of an agent in both, the decision.

    An observation is one array or a list of arrays; with masks, the observation of an agent that
    acts is a dict with that list and the list of masks.
    """
    decisions, terminals = batch_steps
    deciding = [behavior_to_agent_id(behavior_name, number) for number in decisions.agent_id]
    ended = [behavior_to_agent_id(behavior_name, number) for number in terminals.agent_id]
    named = NamedSteps(list(dict.fromkeys([*deciding, *ended])), {}, {}, {}, {}, {}, {})
    for row, name in enumerate(ended):
        interrupted = bool(terminals.interrupted[row])
        named.observations[name] = _unwrapped([each[row] for each in terminals.obs])
        named.terminations[name], named.truncations[name] = not interrupted, interrupted
        named.infos[name] = _info(terminals, row, behavior_name) | {"interrupted": interrupted}
        named.rewards[name] = float(terminals.reward[row])
    for row, name in enumerate(deciding):
        observations = [each[row] for each in decisions.obs]
        masks = decisions.action_mask
        named.observations[name] = (
            _unwrapped(observations)
            if masks is None
            else {"observation": observations, "action_mask": [mask[row] for mask in masks]}
        )
        named.terminations[name] = named.truncations[name] = False
        named.infos[name] = _info(decisions, row, behavior_name)
        named.rewards[name] = float(decisions.reward[row])
        named.rows[name] = row
    return named


def _unwrapped(observations: list[Any]) -> Any:
    return observations[0] if len(observations) == 1 else observations


def _info(steps: DecisionSteps | TerminalSteps, row: int, behavior_name: str) -> dict[str, Any]:
    return {
        "behavior_name": behavior_name,
        "group_id": steps.group_id[row],
        "group_reward": steps.group_reward[row],
    }
