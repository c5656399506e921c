"""The connection from a player to its trainer."""

from __future__ import annotations

import grpc

from arkml.base.closing import Closing
from arkml.base.host_names import grpc_proxy_options
from arkml.base.loggers import SafeLogger
from arkml.envs.llapi import handshake
from arkml.envs.llapi.communicator_objects.header_pb2 import HeaderProto
from arkml.envs.llapi.communicator_objects.unity_input_pb2 import UnityInputProto
from arkml.envs.llapi.communicator_objects.unity_message_pb2 import UnityMessageProto
from arkml.envs.llapi.communicator_objects.unity_output_pb2 import UnityOutputProto
from arkml.envs.llapi.communicator_objects.unity_rl_initialization_input_pb2 import (
    UnityRLInitializationInputProto,
)
from arkml.envs.llapi.communicator_objects.unity_rl_initialization_output_pb2 import (
    UnityRLInitializationOutputProto,
)
from arkml.envs.llapi.communicator_objects.unity_to_external_pb2_grpc import (
    UnityToExternalProtoStub,
)
from arkml.envs.llapi.exception import (
    UnityCommunicationException,
    UnityEnvironmentException,
)
from arkml.envs.llapi.handshake import PLAYER_BYTES, TRAINER_BYTES

logger = SafeLogger(__name__)

_GO_ON, _STOP = 200, 400
_FAREWELL = 2.0  # seconds to report the stop: a trainer answers only when it closes

_OPTIONS = (
    ("grpc.max_receive_message_length", TRAINER_BYTES),
    ("grpc.max_send_message_length", PLAYER_BYTES),
    # A trainer may come up at any moment; looking costs little.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class TrainerLine(Closing):
    """
    The connection of a player to the trainer on `port` of this machine.

    Raises UnityEnvironmentException if no trainer serves there within `patience` seconds.
    """

    def __init__(self, port: int, patience: float) -> None:
        self._where = f"127.0.0.1:{port}"
        options = [*_OPTIONS, *grpc_proxy_options(self._where)]
        self._channel = grpc.insecure_channel(self._where, options=options)
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout=patience)
        except grpc.FutureTimeoutError:
            self._channel.close()
            raise UnityEnvironmentException(
                f"No trainer serves on {self._where}, waited {patience:g} s: start it first, or"
                " name its port with --mlagents-port"
            ) from None
        finally:
            ready.cancel()
        self._exchange = UnityToExternalProtoStub(self._channel).Exchange  # type: ignore[no-untyped-call]  # generated

    def greet(self, name: str) -> UnityRLInitializationInputProto | None:
        """
        Greet the trainer. Returns its first request, None if it closes at once.

        Raises UnityEnvironmentException if the peer is not a trainer, or has another version.
        """
        hello = UnityOutputProto(
            rl_initialization_output=UnityRLInitializationOutputProto(
                name=name,
                communication_version=handshake.API_VERSION,
                package_version=handshake.PACKAGE_VERSION,
                capabilities=handshake.capabilities(),
            )
        )
        try:
            answer = self._exchange(_message(hello))
        except grpc.RpcError as error:
            raise UnityEnvironmentException(
                f"The server on {self._where} does not answer as a trainer: {_reason(error)}"
            ) from None
        if answer.header.status != _GO_ON:
            return None
        request: UnityRLInitializationInputProto = answer.unity_input.rl_initialization_input
        handshake.check_trainer(request)
        return request

    def exchange(self, output: UnityOutputProto) -> UnityInputProto | None:
        """
        Send the player's output; return the trainer's next request, None if it has closed.

        Raises UnityCommunicationException if either message is too long.
        """
        try:
            answer = self._exchange(_message(output))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise UnityCommunicationException(
                    f"The line to the trainer on {self._where} broke: {_reason(error)}. A trainer"
                    f" sends at most {TRAINER_BYTES:,} bytes at once, a player {PLAYER_BYTES:,}"
                ) from None
            logger.info("The trainer on %s is gone: %s", self._where, _reason(error))
            return None
        if answer.header.status != _GO_ON:
            return None
        message: UnityInputProto = answer.unity_input
        return message

    def stop(self, reason: str) -> None:
        """Report to the trainer that the player stops."""
        farewell = UnityMessageProto(header=HeaderProto(status=_STOP, message=reason))
        try:
            self._exchange(farewell, timeout=_FAREWELL)
        except grpc.RpcError as error:
            logger.debug("The trainer on %s did not say goodbye: %s", self._where, _reason(error))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._channel.close()


def _message(output: UnityOutputProto) -> UnityMessageProto:
    return UnityMessageProto(header=HeaderProto(status=_GO_ON), unity_output=output)


def _reason(error: grpc.RpcError) -> str:
    """Return the reason in a few words, as gRPC's own text fills a page."""
    return f"{error.code().name}, {str(error.details())[:200]}"
