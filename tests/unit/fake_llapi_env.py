"""An environment for the tests of wrappers, whose agents report the sum of what they did."""

from __future__ import annotations

import numpy as np

from arkml.envs.llapi.base_env import (
    ActionSpec,
    BaseEnv,
    BehaviorMapping,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalSteps,
)
from arkml.envs.llapi.side_channel.side_channel_manager import SideChannelManager
from arkml.envs.llapi.side_channel.stats_side_channel import StatsSideChannel


def specified(shape):
    kinds = (DimensionProperty.UNSPECIFIED,) * len(shape)
    return ObservationSpec(shape, kinds, ObservationType.DEFAULT, "")


class FakeEnv(BaseEnv):
    """
    Agents 0 to `agents` - 1 of each behavior live for `lengths[agent]` steps.

    An observation is the number of the step everywhere; the reward is the sum of the action.
    `interrupted` says how they end; `masked` adds masks.
    """

    def __init__(
        self, *, actions=ActionSpec(2, ()), shapes=((3,),), lengths=(3,),  # noqa: B008
        behaviors=("B?team=0",), interrupted=False, masked=False,
    ):  # fmt: skip
        self._side_channel_manager = SideChannelManager([StatsSideChannel()])
        self._spec = BehaviorSpec([specified(shape) for shape in shapes], actions)
        self._behaviors = behaviors
        self._lengths = lengths
        self._interrupted = interrupted
        self._masked = masked
        self._specs = {}
        self._acted = {}
        self.given = []
        self.resets = 0
        self.is_closed = False

    def reset(self):
        self._specs = dict.fromkeys(self._behaviors, self._spec)
        self.resets += 1
        self._time = 0
        self._steps = {name: self._report(name) for name in self._behaviors}

    def step(self):
        if not self._specs:
            return self.reset()
        self._time += 1
        self._steps = {name: self._report(name) for name in self._behaviors}
        self.given.append(self._acted)
        self._acted = {}
        return None

    def close(self):
        assert not self.is_closed
        self.is_closed = True

    @property
    def behavior_specs(self):
        return BehaviorMapping(self._specs)

    def set_actions(self, behavior_name, action):
        agents = len(self._steps[behavior_name][0])
        self._acted[behavior_name] = self._spec.action_spec._validate_action(
            action, agents, behavior_name
        )

    def set_action_for_agent(self, behavior_name, agent_id, action):
        raise NotImplementedError

    def get_steps(self, behavior_name):
        return self._steps[behavior_name]

    def _report(self, name):
        sums = {}
        if self._time and name in self._acted:
            acted = self._acted[name]
            totals = acted.continuous.sum(axis=1) + acted.discrete.sum(axis=1)
            sums = dict(zip(self._steps[name][0], totals.tolist(), strict=True))
        living = [n for n, length in enumerate(self._lengths) if self._time < length]
        ending = [n for n, length in enumerate(self._lengths) if self._time == length]
        masks = None
        if self._masked and living:
            masks = [np.ones((len(living), n), bool) for n in self._spec.action_spec[1]]
        return (
            DecisionSteps(
                self._observations(living), self._rewards(living, sums),
                np.array(living, np.int32), masks, np.zeros(len(living), np.int32),
                np.zeros(len(living), np.float32),
            ),
            TerminalSteps(
                self._observations(ending), self._rewards(ending, sums),
                np.full(len(ending), self._interrupted), np.array(ending, np.int32),
                np.zeros(len(ending), np.int32), np.zeros(len(ending), np.float32),
            ),
        )  # fmt: skip

    def _observations(self, agents):
        return [
            np.full((len(agents), *spec.shape), self._time, np.float32)
            for spec in self._spec.observation_specs
        ]

    def _rewards(self, agents, sums):
        return np.array([sums.get(agent, 0) for agent in agents], np.float32)
