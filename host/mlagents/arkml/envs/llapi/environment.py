"""An environment in a Unity player, which it starts, or in a Unity editor, which connects to it."""

from __future__ import annotations

import atexit
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping
from functools import partial

import numpy as np

from arkml.base.closing import Unclosed
from arkml.base.loggers import SafeLogger
from arkml.envs.llapi import env_utils, handshake
from arkml.envs.llapi.base_env import (
    ActionTuple,
    AgentId,
    BaseEnv,
    BehaviorMapping,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
)
from arkml.envs.llapi.communicator import Communicator
from arkml.envs.llapi.communicator_objects.capabilities_pb2 import UnityRLCapabilitiesProto
from arkml.envs.llapi.communicator_objects.command_pb2 import RESET
from arkml.envs.llapi.communicator_objects.unity_input_pb2 import UnityInputProto
from arkml.envs.llapi.communicator_objects.unity_output_pb2 import UnityOutputProto
from arkml.envs.llapi.communicator_objects.unity_rl_initialization_input_pb2 import (
    UnityRLInitializationInputProto,
)
from arkml.envs.llapi.communicator_objects.unity_rl_input_pb2 import UnityRLInputProto
from arkml.envs.llapi.exception import (
    UnityActionException,
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
)
from arkml.envs.llapi.rpc_communicator import RpcCommunicator
from arkml.envs.llapi.rpc_utils import (
    actions_to_proto,
    behavior_spec_from_proto,
    steps_from_proto,
)
from arkml.envs.llapi.side_channel import DefaultTrainingAnalyticsSideChannel, SideChannel
from arkml.envs.llapi.side_channel.side_channel_manager import SideChannelManager

_MOST_BEHAVIORS = 1_024

logger = SafeLogger(__name__)


class UnityEnvironment(BaseEnv):
    """
    Starts a player, or waits for an editor, and steps its agents.

    Args:
        file_name: Executable of the player; None waits for an editor.
        worker_id: Number that is added to `base_port`, for parallel environments.
        base_port: Port of worker 0, by default 5005 for players and 5004 for editors.
        seed: Seed of the player.
        no_graphics: Whether the player runs without graphics.
        no_graphics_monitor: Whether only worker 0 has graphics.
        timeout_wait: Seconds to wait for each answer.
        additional_args: Further arguments of the player.
        side_channels: Side channels to the player.
        log_folder: Folder for the player's log.
        num_areas: Number of training areas in the player.
        listen: Address to listen at. With "" or an external address, other machines can connect,
            without any authentication.

    Raises:
        UnityWorkerInUseException: The port is in use.
        UnityTimeOutException: The player did not answer in time.
        UnityEnvironmentException: The player cannot be started, or does not fit. In each case it
            has been ended and the port is free.

    Example:
        with UnityEnvironment("3DBall", no_graphics=True) as env:
            env.reset()
            decisions, terminals = env.get_steps(next(iter(env.behavior_specs)))

    """

    API_VERSION = handshake.API_VERSION  # the version of the messages, not of a package
    DEFAULT_EDITOR_PORT = 5004
    BASE_ENVIRONMENT_PORT = 5005  # port of worker 0; worker k has the port 5005 + k

    _PORT_COMMAND_LINE_ARG = "--mlagents-port"

    def __init__(
        self,
        file_name: str | None = None,
        worker_id: int = 0,
        base_port: int | None = None,
        seed: int = 0,
        no_graphics: bool = False,
        no_graphics_monitor: bool = False,
        timeout_wait: int = 60,
        additional_args: list[str] | None = None,
        side_channels: list[SideChannel] | None = None,
        log_folder: str | None = None,
        num_areas: int = 1,
        *,
        listen: str = "localhost",
    ) -> None:
        if file_name is None and worker_id != 0:
            raise UnityEnvironmentException(
                "If the environment name is None, "
                "the worker-id must be 0 in order to connect with the Editor."
            )
        if base_port is None:
            base_port = self.BASE_ENVIRONMENT_PORT if file_name else self.DEFAULT_EDITOR_PORT
        self._port = base_port + worker_id
        self._worker_id = worker_id
        self._no_graphics = no_graphics or (no_graphics_monitor and worker_id != 0)
        self._additional_args = list(additional_args or ())
        self._log_folder = log_folder
        self._timeout_wait = timeout_wait
        self._analytics = _missing_analytics(side_channels or [])
        self._side_channel_manager = SideChannelManager([*(side_channels or ()), *self._analytics])
        self._process: subprocess.Popen[bytes] | None = None
        self._env_state: dict[str, tuple[DecisionSteps, TerminalSteps]] = {}
        self._env_specs: dict[str, BehaviorSpec] = {}
        self._env_actions: dict[str, ActionTuple] = {}
        self._is_first_message = True
        self._loaded = False
        self._greet(file_name, handshake.greeting(seed, num_areas), listen)

    def step(self) -> None:
        """
        Send the actions and wait for the next decisions. The first step is a reset.

        Raises UnityEnvironmentException if the environment is closed or the player has ended,
        UnityTimeOutException and UnityCommunicatorStoppedException.
        """
        if self._is_first_message:
            self.reset()
            return
        self._assert_loaded()
        message = UnityRLInputProto()
        for name, (decisions, _) in self._env_state.items():
            if len(decisions):
                spec = self._env_specs[name].action_spec
                actions = self._env_actions.get(name) or spec.empty_action(len(decisions))
                message.agent_actions[name].value.extend(actions_to_proto(actions))
        self._exchange(message)

    def reset(self) -> None:
        """Reset the player. Raises the errors of `step`."""
        self._assert_loaded()
        self._exchange(UnityRLInputProto(command=RESET))
        self._is_first_message = False

    def close(self) -> None:
        """End the player and free the port. Idempotent, unlike the original's."""
        if self._loaded:
            self._close()

    def __del__(self) -> None:
        """End the player and free the port if the environment was dropped without `close`."""
        if getattr(self, "_loaded", False) and not sys.is_finalizing():
            self._close(0)
            Unclosed(f"<UnityEnvironment at port {self._port}>").warn(self)

    @property
    def behavior_specs(self) -> Mapping[str, BehaviorSpec]:
        return BehaviorMapping(self._env_specs)

    def set_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        self._assert_behavior_exists(behavior_name)
        if behavior_name not in self._env_state:
            return
        spec = self._env_specs[behavior_name].action_spec
        agents = len(self._env_state[behavior_name][0])
        checked = spec._validate_action(action, agents, behavior_name)  # noqa: SLF001 - its name
        self._env_actions[behavior_name] = ActionTuple.copy_of(checked)

    def set_action_for_agent(
        self, behavior_name: BehaviorName, agent_id: AgentId, action: ActionTuple
    ) -> None:
        self._assert_behavior_exists(behavior_name)
        if behavior_name not in self._env_state:
            return
        spec = self._env_specs[behavior_name].action_spec
        spec._validate_action(action, 1, behavior_name)  # noqa: SLF001 - its name
        decisions, _ = self._env_state[behavior_name]
        (rows,) = np.nonzero(decisions.agent_id == agent_id)
        if not len(rows):
            raise IndexError(
                f"agent_id {agent_id} is did not request a decision at the previous step"
            )
        actions = self._env_actions.setdefault(behavior_name, spec.empty_action(len(decisions)))
        actions.continuous[rows[0]] = action.continuous[0]
        actions.discrete[rows[0]] = action.discrete[0]

    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        self._assert_behavior_exists(behavior_name)
        return self._env_state[behavior_name]

    @staticmethod
    def _get_communicator(
        worker_id: int, base_port: int, timeout_wait: int, listen: str = "localhost"
    ) -> Communicator:
        return RpcCommunicator(worker_id, base_port, timeout_wait, listen=listen)

    def _greet(
        self, file_name: str | None, greeting: UnityRLInitializationInputProto, listen: str
    ) -> None:
        self._communicator = self._get_communicator(
            self._worker_id, self._port - self._worker_id, self._timeout_wait, listen
        )
        self._at_exit = partial(_close_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)
        try:
            if file_name is not None:
                self._process = env_utils.launch_executable(file_name, self._executable_args())
            else:
                logger.info(
                    "Listening on port %s. Start training by pressing the Play button in "
                    "the Unity Editor.",
                    self._port,
                )
            output = self._communicator.initialize(
                UnityInputProto(rl_initialization_input=greeting), self._poll_process
            )
            reply = output.rl_initialization_output
            handshake.check(reply)
        except BaseException:
            self._close(0)
            raise
        self._loaded = True
        self._update_behavior_specs(output)
        self.academy_capabilities: UnityRLCapabilitiesProto = reply.capabilities
        for channel in self._analytics:
            channel.environment_initialized()

    def _executable_args(self) -> list[str]:
        arguments = ["-nographics", "-batchmode"] if self._no_graphics else []
        arguments += [self._PORT_COMMAND_LINE_ARG, str(self._port)]
        has_log = "-logfile" in (argument.lower() for argument in self._additional_args)
        if self._log_folder and not has_log:
            arguments += ["-logFile", f"{self._log_folder}/Player-{self._worker_id}.log"]
        return arguments + self._additional_args

    def _exchange(self, message: UnityRLInputProto) -> None:
        message.side_channel = bytes(self._side_channel_manager.generate_side_channel_messages())
        output = self._communicator.exchange(UnityInputProto(rl_input=message), self._poll_process)
        if output is None:
            raise UnityCommunicatorStoppedException("Communicator has exited.")
        self._update_behavior_specs(output)
        infos = output.rl_output.agentInfos
        self._env_state = {
            name: steps_from_proto(infos[name].value if name in infos else [], spec)
            for name, spec in self._env_specs.items()
        }
        self._env_actions.clear()
        self._side_channel_manager.process_side_channel_message(output.rl_output.side_channel)

    def _update_behavior_specs(self, output: UnityOutputProto) -> None:
        """Store new behaviors, once agents show their observations."""
        infos = output.rl_output.agentInfos
        for brain in output.rl_initialization_output.brain_parameters:
            if brain.brain_name in infos and infos[brain.brain_name].value:
                if (
                    len(self._env_specs) >= _MOST_BEHAVIORS
                    and brain.brain_name not in self._env_specs
                ):
                    raise UnityCommunicationException(
                        f"The player declares more than {_MOST_BEHAVIORS:,} behaviors."
                    )
                agent = infos[brain.brain_name].value[0]
                self._env_specs[brain.brain_name] = behavior_spec_from_proto(brain, agent)
                logger.info("Connected new brain: %s", brain.brain_name)

    def _assert_behavior_exists(self, behavior_name: str) -> None:
        if behavior_name not in self._env_specs:
            raise UnityActionException(
                f"The group {behavior_name} does not correspond to an existing "
                "agent group in the environment"
            )

    def _assert_loaded(self) -> None:
        if not self._loaded:
            raise UnityEnvironmentException("No Unity environment is loaded.")

    def _poll_process(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise UnityEnvironmentException(
                self._returncode_to_env_message(self._process.returncode)
            )

    def _close(self, timeout: float | None = None) -> None:
        """End the player, by force after `timeout` seconds, by default `timeout_wait`."""
        self._loaded = False
        atexit.unregister(self._at_exit)
        self._communicator.close()
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(self._timeout_wait if timeout is None else timeout)
            logger.debug(self._returncode_to_env_message(process.returncode))
        except subprocess.TimeoutExpired:
            logger.warning("Environment timed out shutting down. Killing...")
            env_utils.kill(process)

    @staticmethod
    def _returncode_to_signal_name(returncode: int) -> str | None:
        try:
            return signal.Signals(-returncode).name
        except (TypeError, ValueError):
            return None

    @staticmethod
    def _check_communication_compatibility(
        unity_com_ver: str, python_api_version: str, unity_package_version: str
    ) -> bool:
        del unity_package_version  # an argument of the original
        return handshake.is_compatible(unity_com_ver, python_api_version)

    @staticmethod
    def _returncode_to_env_message(returncode: int) -> str:
        name = UnityEnvironment._returncode_to_signal_name(returncode)
        suffix = f" ({name})" if name else ""
        return f"Environment shut down with return code {returncode}{suffix}."


def _close_at_exit(environment: weakref.ref[UnityEnvironment]) -> None:
    """Close an environment that still exists at the end of the program."""
    found = environment()
    if found is not None:
        found.close()


def _missing_analytics(
    channels: list[SideChannel],
) -> list[DefaultTrainingAnalyticsSideChannel]:
    channel_id = DefaultTrainingAnalyticsSideChannel.CHANNEL_ID
    if channel_id in (channel.channel_id for channel in channels):
        return []
    return [DefaultTrainingAnalyticsSideChannel()]
