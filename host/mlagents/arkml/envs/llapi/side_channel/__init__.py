"""Side channels, which carry bytes besides observations and actions."""

from arkml.envs.llapi.side_channel.default_training_analytics_side_channel import (
    DefaultTrainingAnalyticsSideChannel,
)
from arkml.envs.llapi.side_channel.incoming_message import IncomingMessage
from arkml.envs.llapi.side_channel.outgoing_message import OutgoingMessage
from arkml.envs.llapi.side_channel.side_channel import SideChannel

__all__ = [
    "DefaultTrainingAnalyticsSideChannel",
    "IncomingMessage",
    "OutgoingMessage",
    "SideChannel",
]
