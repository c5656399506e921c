"""A simulated player for tests, under the name of `mlagents_envs.mock_communicator`."""

from __future__ import annotations

from arkml.envs.llapi.communicator import Communicator, PollCallback
from arkml.envs.llapi.communicator_objects.agent_info_pb2 import AgentInfoProto
from arkml.envs.llapi.communicator_objects.brain_parameters_pb2 import (
    ActionSpecProto,
    BrainParametersProto,
)
from arkml.envs.llapi.communicator_objects.observation_pb2 import PNG, ObservationProto
from arkml.envs.llapi.communicator_objects.unity_input_pb2 import UnityInputProto
from arkml.envs.llapi.communicator_objects.unity_output_pb2 import UnityOutputProto
from arkml.envs.llapi.communicator_objects.unity_rl_initialization_output_pb2 import (
    UnityRLInitializationOutputProto,
)
from arkml.envs.llapi.communicator_objects.unity_rl_output_pb2 import UnityRLOutputProto
from arkml.envs.llapi.handshake import API_VERSION

_OBSERVED = (1.0, 2.0, 3.0)
_PICTURE = (30, 40, 3)
_ENDED = 2  # the agent that is done in every message


class MockCommunicator(Communicator):
    """
    A connection whose player gives every message the same answer at once.

    One behavior, `brain_name`, has `num_agents` agents with reward 1, an empty picture for each of
    `visual_inputs`, and the observation [1, 2, 3], regardless of `vec_obs_size`, like the original.
    Agent 2 is done. Actions are two floats, or branches of 3 and 2 choices.
    """

    def __init__(
        self,
        discrete_action: bool = False,
        visual_inputs: int = 0,
        num_agents: int = 3,
        brain_name: str = "RealFakeBrain",
        vec_obs_size: int = 3,
    ) -> None:
        super().__init__()
        self.is_discrete: bool = discrete_action
        self.steps: int = 0
        self.visual_inputs: int = visual_inputs
        self.has_been_closed: bool = False
        self.num_agents: int = num_agents
        self.brain_name: str = brain_name
        self.vec_obs_size: int = vec_obs_size

    def initialize(
        self, inputs: UnityInputProto, poll_callback: PollCallback | None = None
    ) -> UnityOutputProto:
        """Return the player's greeting, with its behavior and first agents."""
        del inputs, poll_callback
        spec = ActionSpecProto(num_continuous_actions=2)
        if self.is_discrete:
            spec = ActionSpecProto(num_discrete_actions=2, discrete_branch_sizes=[3, 2])
        behavior = BrainParametersProto(
            brain_name=self.brain_name, is_training=True, action_spec=spec
        )
        greeting = UnityRLInitializationOutputProto(
            name="RealFakeAcademy",
            communication_version=API_VERSION,
            package_version="mock_package_version",
            brain_parameters=[behavior],
        )
        return UnityOutputProto(rl_initialization_output=greeting, rl_output=self._output())

    def exchange(
        self, inputs: UnityInputProto, poll_callback: PollCallback | None = None
    ) -> UnityOutputProto:
        """Return the same answer again, with all agents."""
        del inputs, poll_callback
        self.steps += 1
        return UnityOutputProto(rl_output=self._output())

    def close(self) -> None:
        """Note that the connection was closed."""
        self.has_been_closed = True

    def _output(self) -> UnityRLOutputProto:
        picture = ObservationProto(shape=_PICTURE, compression_type=PNG)
        numbers = ObservationProto(
            shape=[len(_OBSERVED)], float_data=ObservationProto.FloatData(data=_OBSERVED)
        )
        agents = [
            AgentInfoProto(
                reward=1,
                done=number == _ENDED,
                id=number,
                observations=[*[picture] * self.visual_inputs, numbers],
            )
            for number in range(self.num_agents)
        ]
        output = UnityRLOutputProto()
        output.agentInfos[self.brain_name].value.extend(agents)
        return output
