"""The channel for named parameters of the environment: floats, or distributions of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from enum import IntEnum

from arkml.envs.llapi.exception import UnityCommunicationException
from arkml.envs.llapi.side_channel import IncomingMessage, OutgoingMessage, SideChannel


class EnvironmentParametersChannel(SideChannel):
    """Sends environment parameters to the player, one message each."""

    class EnvironmentDataTypes(IntEnum):
        """Kinds of environment parameters in messages."""

        FLOAT = 0
        SAMPLER = 1

    class SamplerTypes(IntEnum):
        """Distributions that samplers draw from."""

        UNIFORM = 0
        GAUSSIAN = 1
        MULTIRANGEUNIFORM = 2

    def __init__(self) -> None:
        super().__init__(uuid.UUID("534c891e-810f-11ea-a9d0-822485860400"))

    def on_message_received(self, msg: IncomingMessage) -> None:  # noqa: ARG002 - none may come
        raise UnityCommunicationException(
            "The EnvironmentParametersChannel received a message from Unity, "
            "this should not have happened."
        )

    def set_float_parameter(self, key: str, value: float) -> None:
        """Send a float parameter with the next step or reset."""
        msg = OutgoingMessage()
        msg.write_string(key)
        msg.write_int32(self.EnvironmentDataTypes.FLOAT)
        msg.write_float32(value)
        self.queue_message_to_send(msg)

    def set_uniform_sampler_parameters(
        self, key: str, min_value: float, max_value: float, seed: int
    ) -> None:
        """
        Let the player draw a parameter from a uniform distribution.

        Args:
            key: Name of the parameter, for example "gravity".
            min_value: Smallest value.
            max_value: Largest value.
            seed: Seed of the draws.

        """
        msg = self._sampler(key, seed, self.SamplerTypes.UNIFORM)
        msg.write_float32(min_value)
        msg.write_float32(max_value)
        self.queue_message_to_send(msg)

    def set_gaussian_sampler_parameters(
        self, key: str, mean: float, st_dev: float, seed: int
    ) -> None:
        """
        Let the player draw a parameter from a normal distribution.

        Args:
            key: Name of the parameter, for example "gravity".
            mean: Mean of the distribution.
            st_dev: Standard deviation of the distribution.
            seed: Seed of the draws.

        """
        msg = self._sampler(key, seed, self.SamplerTypes.GAUSSIAN)
        msg.write_float32(mean)
        msg.write_float32(st_dev)
        self.queue_message_to_send(msg)

    def set_multirangeuniform_sampler_parameters(
        self, key: str, intervals: Sequence[tuple[float, float]], seed: int
    ) -> None:
        """
        Let the player draw a parameter from one of several intervals.

        Args:
            key: Name of the parameter, for example "gravity".
            intervals: Pairs of the smallest and largest value.
            seed: Seed of the draws.

        """
        msg = self._sampler(key, seed, self.SamplerTypes.MULTIRANGEUNIFORM)
        msg.write_float32_list([bound for interval in intervals for bound in interval])
        self.queue_message_to_send(msg)

    def _sampler(self, key: str, seed: int, kind: SamplerTypes) -> OutgoingMessage:
        msg = OutgoingMessage()
        msg.write_string(key)
        msg.write_int32(self.EnvironmentDataTypes.SAMPLER)
        msg.write_int32(seed)
        msg.write_int32(kind)
        return msg
