"""A guest that plays for a trainer of ML-Agents, from greeting to end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from arkml.base.loggers import SafeLogger
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.llapi.communicator_objects.command_pb2 import QUIT, RESET
from arkml.envs.llapi.communicator_objects.unity_input_pb2 import UnityInputProto
from arkml.envs.llapi.communicator_objects.unity_output_pb2 import UnityOutputProto
from arkml.envs.llapi.exception import UnityCommunicatorStoppedException
from arkml.envs.llapi.player_areas import Areas
from arkml.envs.llapi.player_line import TrainerLine
from arkml.errors import ArkmlError, UsageError
from arkml.host import Host, Source
from arkml.limits import PLAYER_AREAS

logger = SafeLogger(__name__)

PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class PlayerSettings:
    """
    The settings of a player that runs a guest.

    `areas` and `seed` override the trainer's values unless they are None. `patience` is the time in
    seconds to wait for the trainer. `options` are passed to `GuestEnv`.
    """

    port: int
    areas: int | None = None
    seed: int | None = None
    patience: float = PATIENCE
    options: GuestEnvOptions = field(default_factory=GuestEnvOptions)


@dataclass(frozen=True, slots=True)
class Played:
    """Statistics of a player that has ended."""

    areas: int
    resets: int
    steps: int


def play(host: Host, module: Source, settings: PlayerSettings) -> Played:
    """
    Run a guest as a player until the trainer ends the connection, or the guest has finished.

    The module is loaded before connecting. Raises UnityEnvironmentException if no trainer is found,
    and the errors of `Areas`, which are also reported to the trainer.
    """
    program = host.compile(module)
    Areas(host, module, 1, None, settings.options).close()
    with TrainerLine(settings.port, settings.patience) as line:
        message = line.greet(program.name)
        if message is None:
            return Played(0, 0, 0)
        seed = message.seed if settings.seed is None else settings.seed
        count = settings.areas or max(message.num_areas, 1)
        try:
            if count > PLAYER_AREAS:
                raise UsageError(
                    f"{count:,} areas are over the limit of {PLAYER_AREAS:,} for one player: ask"
                    " for less (num_areas of the trainer, --num-areas)"
                )
            with Areas(host, module, count, seed, settings.options) as areas:
                return _converse(line, areas, count)
        except ArkmlError as error:
            line.stop(str(error))
            raise


def _converse(line: TrainerLine, areas: Areas, count: int) -> Played:
    resets = steps = 0
    output = UnityOutputProto()
    while (message := line.exchange(output)) is not None:
        if message.rl_input.command == QUIT:
            break
        areas.hear(message.rl_input.side_channel)
        if message.rl_input.command == RESET:
            areas.reset()
            resets += 1
        else:
            try:
                areas.step(_actions(message))
            except UnityCommunicatorStoppedException as finished:
                logger.info("%s", finished)
                line.stop(str(finished))
                break
            steps += 1
        output = areas.output()
    return Played(count, resets, steps)


def _actions(message: UnityInputProto) -> dict[str, Any]:
    return {name: actions.value for name, actions in message.rl_input.agent_actions.items()}
