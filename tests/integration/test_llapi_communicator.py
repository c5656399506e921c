"""The line to a player: one call at a time, callers that go away or come too late."""

from __future__ import annotations

import socket
import threading

import grpc
import pytest

from arkml.envs.llapi.communicator_objects.header_pb2 import HeaderProto
from arkml.envs.llapi.communicator_objects.unity_input_pb2 import UnityInputProto
from arkml.envs.llapi.communicator_objects.unity_message_pb2 import UnityMessageProto
from arkml.envs.llapi.communicator_objects.unity_to_external_pb2_grpc import (
    UnityToExternalProtoStub,
)
from arkml.envs.llapi.exception import (
    UnityEnvironmentException,
    UnityTimeOutException,
    UnityWorkerInUseException,
)
from arkml.envs.llapi.rpc_communicator import RpcCommunicator

HELLO = UnityMessageProto(header=HeaderProto(status=200))


@pytest.fixture
def line():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    line = RpcCommunicator(0, port, 5)
    yield line
    line.close()


@pytest.fixture
def player(line):
    with grpc.insecure_channel(f"localhost:{line.port}") as channel:
        yield UnityToExternalProtoStub(channel).Exchange


def test_a_player_is_greeted_and_answered(line, player):
    statuses = []

    def play():
        for _ in range(4):
            statuses.append(player(HELLO, wait_for_ready=True).header.status)  # noqa: PERF401

    thread = threading.Thread(target=play)
    thread.start()
    line.initialize(UnityInputProto())
    line.exchange(UnityInputProto())
    line.exchange(UnityInputProto())
    line.close()
    thread.join()

    assert statuses == [200, 200, 200, 400]
    assert line.exchange(UnityInputProto()) is None


def test_a_second_caller_is_turned_away(line, player):
    first = player.future(HELLO, wait_for_ready=True)
    request = line._next(None)

    with pytest.raises(grpc.RpcError) as caught:
        player(HELLO)
    line.close()
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert request == HELLO
    assert first.result().header.status == 400


def test_bytes_that_are_no_message_are_refused_and_no_error_of_the_trainer(line, caplog):
    with grpc.insecure_channel(f"localhost:{line.port}") as channel:
        exchange = channel.unary_unary("/communicator_objects.UnityToExternalProto/Exchange")
        with pytest.raises(grpc.RpcError) as caught:
            exchange(b"\xff", wait_for_ready=True)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith("not a message: ")
    assert caplog.records == []


def test_a_caller_that_goes_away_makes_room_for_the_next(line, player):
    first = player.future(HELLO, wait_for_ready=True)
    line._next(None)
    gone = line._current
    first.cancel()
    assert gone.ended.wait(300)
    second = threading.Thread(target=line.initialize, args=[UnityInputProto()])
    second.start()
    answers = [player(HELLO).header.status]
    last = player.future(HELLO)
    second.join()
    line.close()

    assert answers == [200]
    assert last.result().header.status == 400


def test_a_player_that_comes_too_late_is_sent_away(line, player):
    line.timeout_wait = 0.05

    with pytest.raises(UnityTimeOutException):
        line.initialize(UnityInputProto())
    late = player.future(HELLO, wait_for_ready=True)
    has_come = line.unity_to_external.parent_conn.poll(5)
    line.close()
    line.close()

    assert has_come
    assert late.result().header.status == 400


def test_what_a_look_at_the_process_raises_ends_the_wait(line):
    def look():
        raise UnityEnvironmentException("ended")

    with pytest.raises(UnityEnvironmentException, match="ended"):
        line.initialize(UnityInputProto(), look)


def test_a_port_that_somebody_else_has_is_in_use():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        with pytest.raises(UnityWorkerInUseException):
            RpcCommunicator(0, other.getsockname()[1])


def test_an_address_of_another_machine_cannot_be_served():
    with pytest.raises(UnityEnvironmentException, match=r"no address '192\.0\.2\.1' to listen on"):
        RpcCommunicator(0, 5005, listen="192.0.2.1")
