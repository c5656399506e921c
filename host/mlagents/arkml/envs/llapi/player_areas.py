"""Instances of a guest that one player steps together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arkml.base.closing import Closing
from arkml.base.loggers import SafeLogger
from arkml.base.terminal import harmless
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.llapi.communicator_objects.agent_action_pb2 import AgentActionProto
from arkml.envs.llapi.communicator_objects.unity_output_pb2 import UnityOutputProto
from arkml.envs.llapi.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityObservationException,
)
from arkml.envs.llapi.guest_channels import messages_of, stats_block
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.llapi.player_messages import (
    AreaIds,
    actions_from_proto,
    agents_to_proto,
    brain_to_proto,
)
from arkml.envs.llapi.side_channel.stats_side_channel import StatsSideChannel
from arkml.envs.llapi.specs import BehaviorName, BehaviorSpec
from arkml.host import Host, Source

logger = SafeLogger(__name__)

_SHOWN = 200  # characters of an unknown name in a message
_SEEDS = 1 << 32  # a negative seed on the wire becomes a large one: guests take no negative ones


class Areas(Closing):
    """
    `count` instances of a guest, whose agents appear to a trainer as one player's.

    Instance k has the seed `seed` + k. `options` are passed to `GuestEnv`. An instance that has
    finished has no agents until the next reset; the others continue.
    """

    def __init__(
        self, host: Host, module: Source, count: int, seed: int | None, options: GuestEnvOptions
    ) -> None:
        self._stats = StatsSideChannel()
        self._envs: list[GuestUnityEnv] = []
        settings: GuestEnvOptions = {**options, "host": host}
        try:
            for place in range(count):
                self._envs.append(
                    GuestUnityEnv(
                        module,
                        seed=None if seed is None else (seed + place) % _SEEDS,
                        side_channels=[self._stats],
                        **settings,
                    )
                )
        except BaseException:
            self.close()
            raise
        self._ids = [AreaIds(place, count) for place in range(count)]
        self._live: list[int] = []
        self._announced: dict[BehaviorName, BehaviorSpec] = {}

    def hear(self, block: bytes) -> None:
        """Pass a block of side channel messages to every instance. A refused block is logged."""
        if not block:
            return
        try:
            messages = messages_of(block)
        except UnityEnvironmentException as error:
            logger.error("%s The messages of this step are ignored.", error)  # noqa: TRY400
        else:
            for env in self._envs:
                env.take(messages)

    def reset(self) -> None:
        """Create new instances. Raises GuestError if one fails before its first submit."""
        self._live = []
        for env in self._envs:
            env.reset()
        self._live = list(range(len(self._envs)))

    def step(self, actions: Mapping[BehaviorName, Sequence[AgentActionProto]]) -> None:
        """
        Give actions to the agents, and run all guests to their next submits.

        The first step is a reset. Raises UnityCommunicationException and UnityActionException;
        UnityCommunicatorStoppedException once all guests have finished, and GuestError once the
        last one has failed.
        """
        if not self._announced:
            self.reset()
            return
        for name, protos in actions.items():
            self._act(name, protos)
        self._drop_those_that_are_over()
        for place in self._live:
            env = self._envs[place]
            env.step()
            if env.failure is not None:
                logger.error("%s", env.failure)

    def output(self) -> UnityOutputProto:
        """Return the agents' observations, new behaviors, and statistics of the guests."""
        output = UnityOutputProto()
        infos = output.rl_output.agentInfos
        for place in self._live:
            env = self._envs[place]
            for name, spec in env.behavior_specs.items():
                self._meet(name, spec, output)
                decisions, terminals = env.get_steps(name)
                if len(decisions) or len(terminals):
                    infos[name].value.extend(
                        agents_to_proto(decisions, terminals, spec, self._ids[place])
                    )
        output.rl_output.side_channel = stats_block(self._stats)
        return output

    def close(self) -> None:
        """Free the instances. Idempotent."""
        envs, self._envs = self._envs, []
        self._live = []
        for env in envs:
            env.close()

    def _act(self, name: BehaviorName, protos: Sequence[AgentActionProto]) -> None:
        """Distribute a behavior's actions in the order in which its agents were sent."""
        if name not in self._announced:
            shown = harmless(name[:_SHOWN])
            raise UnityCommunicationException(f"There are actions for {shown}, which is unknown")
        counts = [
            len(self._envs[place].get_steps(name)[0])
            if name in self._envs[place].behavior_specs
            else 0
            for place in self._live
        ]
        if sum(counts) != len(protos):
            raise UnityCommunicationException(
                f"There are {len(protos)} actions for {name}, of which {sum(counts)} agents decide"
            )
        start = 0
        for place, count in zip(self._live, counts, strict=True):
            if count:
                some = protos[start : start + count]
                chosen = actions_from_proto(some, self._announced[name].action_spec, name)
                self._envs[place].set_actions(name, chosen)
            start += count

    def _drop_those_that_are_over(self) -> None:
        over = [place for place in self._live if self._envs[place].is_over]
        self._live = [place for place in self._live if place not in over]
        if self._live:
            return
        failures = (self._envs[place].failure for place in over)
        raise next(
            (failure for failure in failures if failure is not None),
            UnityCommunicatorStoppedException("The guest has finished."),
        )

    def _meet(self, name: BehaviorName, spec: BehaviorSpec, output: UnityOutputProto) -> None:
        known = self._announced.get(name)
        if known is None:
            self._announced[name] = spec
            output.rl_initialization_output.brain_parameters.append(brain_to_proto(name, spec))
        elif known != spec:
            raise UnityObservationException(
                f"Behavior {name} is {spec} in one instance and {known} in another"
            )
