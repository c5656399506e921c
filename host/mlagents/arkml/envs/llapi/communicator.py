"""The interface of a connection between an environment and its player."""

from __future__ import annotations

from collections.abc import Callable

from arkml.envs.llapi.communicator_objects.unity_input_pb2 import UnityInputProto
from arkml.envs.llapi.communicator_objects.unity_output_pb2 import UnityOutputProto

PollCallback = Callable[[], None]
"""Function that is called repeatedly while waiting; it raises to end the wait."""


class Communicator:
    """A connection to one player."""

    def __init__(self, worker_id: int = 0, base_port: int = 5005) -> None:
        self.worker_id = worker_id
        self.port: int = base_port + worker_id

    def initialize(
        self, inputs: UnityInputProto, poll_callback: PollCallback | None = None
    ) -> UnityOutputProto:
        """Wait for the player's first message, answer it with `inputs`, and return it."""
        raise NotImplementedError

    def exchange(
        self, inputs: UnityInputProto, poll_callback: PollCallback | None = None
    ) -> UnityOutputProto | None:
        """Send `inputs` and return the player's answer, None if it has stopped."""
        raise NotImplementedError

    def close(self) -> None:
        """Tell the player to stop, and end the connection."""
        raise NotImplementedError
