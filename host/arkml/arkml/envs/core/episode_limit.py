"""The limit on the steps of an episode, applied to the agents of one instance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from arkml.envs.core.decisions import Decision, Step


class EpisodeLimit:
    """
    Counts the steps of each agent; once an agent has made `most` steps, the instance is cut off.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._steps: dict[int, int] = {}

    def limited(self, step: Step, drop_agents: Callable[[], Sequence[Decision]]) -> Step:
        """
        Return a step, replaced by one that is cut off if an agent has used up its steps.

        `drop_agents` drops the agents of the instance, and returns them by behavior, truncated.
        """
        if step.has_ended:
            return step
        (decision,) = step.decisions
        if not self._count(decision):
            return step
        absent = [_without(other, decision) for other in drop_agents()]
        cut = replace(decision, truncated=~decision.terminated)
        return Step((cut, *(other for other in absent if len(other))), is_cut=True)

    def save(self) -> dict[int, int]:
        """Return a copy of the steps of each agent."""
        return dict(self._steps)

    def load(self, saved: dict[int, int]) -> None:
        """Restore the number of steps of each agent."""
        self._steps = dict(saved)

    def _count(self, decision: Decision) -> bool:
        """Count the rows of a submit; return whether an agent that runs on has had its steps."""
        columns = decision.agents, decision.started, decision.ended
        is_full = False
        for agent, has_started, has_ended in zip(*(c.tolist() for c in columns), strict=True):
            if has_ended:
                self._steps.pop(agent, None)
            else:
                count = 0 if has_started else self._steps.get(agent, 0) + 1
                self._steps[agent] = count
                is_full = is_full or count >= self._most
        return is_full


def _without(decision: Decision, shown: Decision) -> Decision:
    """Return a decision that truncates agents, without agents that are shown already."""
    rest = ~np.isin(decision.agents, shown.agents)
    agents = decision.agents[rest]
    agents.setflags(write=False)
    return replace(
        decision,
        agents=agents,
        observations=decision.observations[rest],
        rewards=decision.rewards[rest],
        started=decision.started[rest],
        terminated=decision.terminated[rest],
        truncated=decision.truncated[rest],
        submit_rows=decision.submit_rows[rest],
        masks=tuple(masks[rest] for masks in decision.masks),
    )
