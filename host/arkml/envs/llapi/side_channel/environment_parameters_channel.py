"""Parameters that a trainer gives an environment, and how it draws them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from enum import IntEnum

from arkml.envs.llapi.exception import UnityCommunicationException
from arkml.envs.llapi.side_channel import IncomingMessage, OutgoingMessage, SideChannel


class EnvironmentParametersChannel(SideChannel):
    """Sends named numbers, and distributions to draw them from."""

    class EnvironmentDataTypes(IntEnum):
        FLOAT = 0
        SAMPLER = 1

    class SamplerTypes(IntEnum):
        UNIFORM = 0
        GAUSSIAN = 1
        MULTIRANGEUNIFORM = 2

    def __init__(self) -> None:
        super().__init__(uuid.UUID("534c891e-810f-11ea-a9d0-822485860400"))

    def on_message_received(self, msg: IncomingMessage) -> None:
        """Raises UnityCommunicationException: environments say nothing here."""
        del msg
        raise UnityCommunicationException(
            "The EnvironmentParametersChannel received a message from Unity, this should not have"
            " happened."
        )

    def set_float_parameter(self, key: str, value: float) -> None:
        """A number by name."""
        message = OutgoingMessage()
        message.write_string(key)
        message.write_int32(self.EnvironmentDataTypes.FLOAT)
        message.write_float32(value)
        self.queue_message_to_send(message)

    def set_uniform_sampler_parameters(
        self, key: str, min_value: float, max_value: float, seed: int
    ) -> None:
        """A number that is drawn between two others."""
        message = self._sampler(key, seed, self.SamplerTypes.UNIFORM)
        message.write_float32(min_value)
        message.write_float32(max_value)
        self.queue_message_to_send(message)

    def set_gaussian_sampler_parameters(
        self, key: str, mean: float, st_dev: float, seed: int
    ) -> None:
        """A number that is drawn around a mean."""
        message = self._sampler(key, seed, self.SamplerTypes.GAUSSIAN)
        message.write_float32(mean)
        message.write_float32(st_dev)
        self.queue_message_to_send(message)

    def set_multirangeuniform_sampler_parameters(
        self, key: str, intervals: Sequence[tuple[float, float]], seed: int
    ) -> None:
        """A number that is drawn from one of several intervals."""
        message = self._sampler(key, seed, self.SamplerTypes.MULTIRANGEUNIFORM)
        message.write_float32_list([bound for interval in intervals for bound in interval])
        self.queue_message_to_send(message)

    def _sampler(self, key: str, seed: int, kind: SamplerTypes) -> OutgoingMessage:
        message = OutgoingMessage()
        message.write_string(key)
        message.write_int32(self.EnvironmentDataTypes.SAMPLER)
        message.write_int32(seed)
        message.write_int32(kind)
        return message
