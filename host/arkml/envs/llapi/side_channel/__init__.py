"""Side channels: what trainer and environment say to each other beside observations and actions."""

from arkml.envs.llapi.side_channel.incoming_message import IncomingMessage
from arkml.envs.llapi.side_channel.outgoing_message import OutgoingMessage
from arkml.envs.llapi.side_channel.side_channel import SideChannel

__all__ = ["IncomingMessage", "OutgoingMessage", "SideChannel"]
