"""The channel that reports the trainer's versions to the player, once."""

from __future__ import annotations

import platform
import uuid

from arkml.envs import llapi
from arkml.envs.llapi.exception import UnityCommunicationException
from arkml.envs.llapi.side_channel.incoming_message import IncomingMessage
from arkml.envs.llapi.side_channel.outgoing_message import OutgoingMessage
from arkml.envs.llapi.side_channel.side_channel import SideChannel


class DefaultTrainingAnalyticsSideChannel(SideChannel):
    """
    Sends the versions of the trainer's packages to the player, once.

    A UnityEnvironment adds this channel unless it gets a channel with the same id.
    """

    CHANNEL_ID = uuid.UUID("b664a4a9-d86f-5a5f-95cb-e8353a7e8356")

    def __init__(self) -> None:
        super().__init__(self.CHANNEL_ID)

    def on_message_received(self, msg: IncomingMessage) -> None:  # noqa: ARG002 - none may come
        raise UnityCommunicationException(
            "The DefaultTrainingAnalyticsSideChannel received a message from Unity, "
            "this should not have happened."
        )

    def environment_initialized(self) -> None:
        """Send the versions with the next step or reset."""
        # Imported here, since protobuf is needed only to talk to a player.
        from google.protobuf.any_pb2 import Any

        from arkml.envs.llapi.communicator_objects.training_analytics_pb2 import (
            TrainingEnvironmentInitialized,
        )

        packed = Any()
        packed.Pack(
            TrainingEnvironmentInitialized(
                python_version=platform.python_version(),
                mlagents_version="Custom",
                mlagents_envs_version=llapi.__version__,
                torch_version="Unknown",
                torch_device_type="Unknown",
            )
        )
        msg = OutgoingMessage()
        msg.set_raw_bytes(packed.SerializeToString())
        self.queue_message_to_send(msg)
